//! The state directory of one Swarm on this machine, which is its user's alone.

use std::env;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use swarm_adapters_host::file;

use super::input::is_plain;
use crate::private_dir;

/// The file by which a state directory is known, and locked.
const LOCK: &str = "lock";

/// A state directory, locked against other operators.
#[derive(Debug)]
pub(super) struct StateDir {
    path: PathBuf,
    /// The lock file, and the directory itself: somebody may remove the file while the operator runs.
    _locks: [File; 2],
}

impl StateDir {
    /// Creates the directory if it is missing, and locks it. It is refused if anybody else could have
    /// written what is in it.
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

    /// Does the same, and returns `None` if another process has locked the directory.
    pub(super) fn claim_if_free(dir: &Path) -> anyhow::Result<Option<Self>> {
        let cannot = || format!("the state directory {} cannot be used", dir.display());
        // Workers are started with this path, whatever their working directory is.
        let path = private_dir::claim(dir, LOCK).with_context(cannot)?;
        let file = file::append(&path.join(LOCK)).with_context(cannot)?;
        let locks = [file, File::open(&path).with_context(cannot)?];
        // The system releases the locks when the process ends, however that happens; workers do not
        // inherit them.
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

/// The path without links of a state directory that exists, for commands that ask the operator there.
/// They are refused where the operator would be: whatever answers there could be anybody's.
pub(super) fn find(dir: &Path) -> anyhow::Result<Option<PathBuf>> {
    let cannot = || format!("the state directory {} cannot be used", dir.display());
    private_dir::find(dir).with_context(cannot)
}

/// The default directory of the Swarm named `name`.
pub(super) fn default_dir(name: &str) -> Result<PathBuf, String> {
    if !is_plain(name) {
        let name = name.escape_default();
        return Err(format!("`{name}` cannot be the name of a directory; set one with --dir"));
    }
    Ok(default_home()?.join(name))
}

/// The directory of all default directories.
pub(super) fn default_home() -> Result<PathBuf, String> {
    // A relative path in the variable is to be ignored, says its specification.
    let given = env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let state = given.or_else(|| env::home_dir().map(|home| home.join(".local/state")));
    let state = state.filter(|path| path.is_absolute());
    let state = state.ok_or("there is no home directory; set the state directory with --dir")?;
    Ok(state.join("swarm"))
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
