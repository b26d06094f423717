//! The state directory of a Swarm on this machine, which only its user can access.

use std::env;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use swarm_adapters_host::file;

use super::fixed::Fixed;
use super::input::is_plain;
use crate::private_dir;

/// The lock file, which also identifies a state directory.
const LOCK: &str = "lock";

/// A state directory, locked against other operators.
#[derive(Debug)]
pub(super) struct StateDir {
    path: PathBuf,
    /// Locks of the lock file and of the directory itself, since the file may be removed while the
    /// operator runs.
    _locks: [File; 2],
}

impl StateDir {
    /// Creates the directory if it is missing, and locks it. It is refused if another user could have
    /// written its contents.
    pub(super) fn claim(dir: &Path) -> anyhow::Result<Self> {
        let claimed = Self::claim_if_free(dir)?;
        claimed.with_context(|| {
            let dir = dir.display();
            format!(
                "another operator runs in {dir}, or `stop` ends what one has left; stop it, or set \
                 another directory with --dir"
            )
        })
    }

    /// Does the same, or returns `None` if another process has locked the directory.
    pub(super) fn claim_if_free(dir: &Path) -> anyhow::Result<Option<Self>> {
        let cannot = || format!("the state directory {} cannot be used", dir.display());
        // Workers are started with this path and may have another working directory.
        let path = private_dir::claim(dir, LOCK).with_context(cannot)?;
        let file = file::append(&path.join(LOCK)).with_context(cannot)?;
        let locks = [file, File::open(&path).with_context(cannot)?];
        // The system releases the locks when the process ends in any way. Workers do not inherit
        // them.
        for lock in &locks {
            match lock.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error).with_context(cannot),
            }
        }
        Ok(Some(Self { path, _locks: locks }))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// Returns the path without links of an existing state directory, for commands that query its
/// operator. A directory that the operator would refuse is refused, since another user could answer
/// there.
pub(super) fn find(dir: &Path) -> anyhow::Result<Option<PathBuf>> {
    let cannot = || format!("the state directory {} cannot be used", dir.display());
    private_dir::find(dir).with_context(cannot)
}

/// Returns the default directory of the Swarm named `name`.
pub(super) fn default_dir(name: &str) -> Result<PathBuf, String> {
    if !is_plain(name) {
        let name = name.escape_default();
        return Err(format!("`{name}` cannot be the name of a directory; set one with --dir"));
    }
    Ok(default_home()?.join(name))
}

/// Returns the parent of all default directories.
pub(super) fn default_home() -> Result<PathBuf, String> {
    // The variable's specification demands that a relative path is ignored.
    let given = env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let state = given.or_else(|| env::home_dir().map(|home| home.join(".local/state")));
    let state = state.filter(|path| path.is_absolute());
    let state = state.ok_or("the home directory is unknown; set the state directory with --dir")?;
    Ok(state.join("swarm"))
}

/// Returns a sentence if `dir` has the state of another Swarm than `name`, or of a newer version.
#[must_use]
pub fn other_pool(dir: &Path, name: &str) -> Option<String> {
    let dir = find(dir).ok()??;
    let swarm = match Fixed::recorded(&dir) {
        Ok(fixed) => fixed?.swarm,
        Err(refusal) => return Some(refusal),
    };
    let dir = dir.display();
    (swarm != name).then(|| {
        let swarm = swarm.escape_default();
        format!(
            "{dir} has the state of pool `{swarm}`; name another directory with --dir, or remove it \
             if `{swarm}` is no longer needed"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_stays_locked_when_its_lock_file_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let claimed = StateDir::claim(dir.path()).unwrap();
        std::fs::remove_file(dir.path().join(LOCK)).unwrap();
        let refused = StateDir::claim(dir.path()).unwrap_err().to_string();
        assert!(refused.starts_with("another operator runs in /"), "{refused}");
        drop(claimed);
        StateDir::claim(dir.path()).unwrap();
    }
}
