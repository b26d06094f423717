//! The state directory of a Swarm on this machine, which only its user can access.

use std::collections::BTreeSet;
use std::env;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use swarm_adapters_host::file;
use swarm_view::shell;

use super::elsewhere;
use super::path_lock::{self, PathLock};
use super::private_dir;
use crate::settings::fixed::Fixed;
use crate::settings::input::is_plain;

/// The lock file, which also identifies a state directory.
const LOCK: &str = "lock";

/// A state directory, locked against other operators.
#[derive(Debug)]
pub(crate) struct StateDir {
    path: PathBuf,
    /// Locks of the path as the user wrote it, and of the path without links. They outlive a removal
    /// of the directory.
    #[expect(dead_code, reason = "the names are bound until this is dropped")]
    path_locks: Vec<PathLock>,
    /// The locked lock file, and the locked directory itself. Someone may remove the file while the
    /// operator runs, and the directory may have two paths.
    file: File,
    dir: File,
    /// Renamed directories of this operator, locked until it ends. A pool that starts in one of them
    /// would run the same jobs.
    renamed: Vec<File>,
}

/// Locks an open file, or returns `None` if another process has locked it. The system releases the
/// lock when the process ends in any way. Workers do not inherit it.
fn locked(file: File) -> io::Result<Option<File>> {
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Returns whether a path without links leads to an open file.
fn leads_to(path: &Path, open: &File) -> bool {
    let (Ok(found), Ok(open)) = (fs::symlink_metadata(path), open.metadata()) else {
        return false;
    };
    file::inode(&found) == file::inode(&open)
}

impl StateDir {
    /// Creates the directory if it is missing, and locks it. It is refused if another user could have
    /// written its contents.
    pub(crate) fn claim(dir: &Path) -> anyhow::Result<Self> {
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
    pub(crate) fn claim_if_free(dir: &Path) -> anyhow::Result<Option<Self>> {
        let cannot = || format!("the state directory {} cannot be used", dir.display());
        // Workers are started with this path and may have another working directory.
        let path = private_dir::claim(dir, LOCK).with_context(cannot)?;
        let take = || -> io::Result<_> {
            let mut path_locks = Vec::new();
            let written = std::path::absolute(dir)?;
            for path in BTreeSet::from([&written, &path]) {
                let Some(lock) = PathLock::take(path)? else { return Ok(None) };
                path_locks.push(lock);
            }
            let Some(file) = locked(file::append(&path.join(LOCK))?)? else { return Ok(None) };
            let dir = locked(File::open(&path)?)?;
            Ok(dir.map(|dir| (path_locks, file, dir)))
        };
        let taken = take().with_context(cannot)?;
        let renamed = Vec::new();
        Ok(taken.map(|(path_locks, file, dir)| Self { path, path_locks, file, dir, renamed }))
    }

    /// Creates and locks the directory again after it [was lost](Self::is_lost). No worker may run.
    ///
    /// # Errors
    ///
    /// The path cannot be used, or another process has locked a new directory of that path.
    pub(crate) fn claim_again(&mut self) -> anyhow::Result<()> {
        if !self.is_lost() {
            return Ok(());
        }
        let dir = self.path.display();
        let cannot = || format!("the state directory {dir} cannot be created again");
        let path = private_dir::claim(&self.path, LOCK).with_context(cannot)?;
        anyhow::ensure!(path == self.path, "{dir} leads to {} now", path.display());
        let other = || format!("another process has locked {dir}");
        // If only the contents were removed, the directory itself is still locked.
        if !leads_to(&path, &self.dir) {
            // A renamed directory may be back, and is still locked.
            let back = self.renamed.iter().position(|dir| leads_to(&path, dir));
            let dir = if let Some(position) = back {
                self.renamed.swap_remove(position)
            } else {
                let locked = File::open(&path).and_then(locked).with_context(cannot)?;
                locked.with_context(other)?
            };
            self.renamed.push(std::mem::replace(&mut self.dir, dir));
            let exists = |dir: &File| dir.metadata().is_ok_and(|found| 0 < found.nlink());
            self.renamed.retain(exists);
        }
        let locked = file::append(&path.join(LOCK)).and_then(locked).with_context(cannot)?;
        self.file = locked.with_context(other)?;
        Ok(())
    }

    /// Returns whether the path no longer leads to the locked directory, or whether the contents of
    /// the directory were removed. A lock file that alone is missing is created again.
    pub(crate) fn is_lost(&mut self) -> bool {
        if !leads_to(&self.path, &self.dir) {
            return true;
        }
        let lock = self.path.join(LOCK);
        if leads_to(&lock, &self.file) {
            return false;
        }
        if !Fixed::is_recorded(&self.path) {
            return true;
        }
        // The lock of the directory excludes other operators until the next check.
        if let Ok(Some(file)) = file::append(&lock).and_then(locked) {
            self.file = file;
        }
        false
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Returns the path without links of an existing state directory, for commands that query its
/// operator. A directory that the operator would refuse is refused, since another user could answer
/// there.
pub(crate) fn find(dir: &Path) -> anyhow::Result<Option<PathBuf>> {
    let cannot = || format!("the state directory {} cannot be used", dir.display());
    private_dir::find(dir).with_context(cannot)
}

/// Returns the process that has locked this path: an operator, or `stop`. The directory may be
/// missing, since an operator creates it again within a second or two. The id is 0 for a process that is
/// not visible from here.
pub(crate) fn locker(dir: &Path) -> Option<i32> {
    path_lock::owner(&std::path::absolute(dir).ok()?)
}

/// Returns the default directory of the Swarm named `name`.
pub(crate) fn default_dir(name: &str) -> Result<PathBuf, String> {
    if !is_plain(name) {
        let name = name.escape_default();
        return Err(format!("`{name}` cannot be the name of a directory; set one with --dir"));
    }
    Ok(default_home()?.join(name))
}

/// Whether a path without links is a default directory.
pub(crate) fn is_default(dir: &Path) -> bool {
    default_home().is_ok_and(|home| {
        dir.parent() == Some(find(&home).ok().flatten().unwrap_or(home).as_path())
    })
}

/// Adds a directory to the list of directories outside the default ones, so that commands find it
/// without `--dir`. A list that cannot be written is no error of the pool.
pub(crate) fn list(dir: &Path) {
    if is_default(dir) {
        return;
    }
    let listed =
        default_home().map_err(anyhow::Error::msg).and_then(|home| elsewhere::add(&home, dir));
    if let Err(error) = listed {
        tracing::info!(
            "commands find this pool with --dir only, since no list can be written: {error:#}"
        );
    }
}

/// Returns the options of a command that name the pool in a directory.
pub(crate) fn options(dir: &Path) -> String {
    match dir.file_name().filter(|_| is_default(dir)) {
        Some(name) => format!(" --pool {}", shell::word(name)),
        None => format!(" --dir {}", shell::file(dir)),
    }
}

/// Returns the parent of all default directories.
pub(crate) fn default_home() -> Result<PathBuf, String> {
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
    use swarm_core::handover::LeaseTerms;

    use super::*;

    #[tokio::test]
    async fn a_directory_stays_locked_when_its_lock_file_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let claimed = StateDir::claim(dir.path()).unwrap();
        fs::remove_file(dir.path().join(LOCK)).unwrap();
        let refused = StateDir::claim(dir.path()).unwrap_err().to_string();
        assert!(refused.starts_with("another operator runs in /"), "{refused}");
        drop(claimed);
        StateDir::claim(dir.path()).unwrap();
    }

    #[tokio::test]
    async fn a_removed_directory_stays_claimed_and_can_be_claimed_again() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("pool");
        let mut claimed = StateDir::claim(&dir).unwrap();
        assert!(!claimed.is_lost());
        fs::remove_dir_all(&dir).unwrap();
        assert!(claimed.is_lost());
        for _ in 0..2 {
            let refused = StateDir::claim(&dir).unwrap_err().to_string();
            assert!(refused.starts_with("another operator runs in /"), "{refused}");
            assert!(claimed.is_lost(), "the directory of the refused operator is another one");
        }
        claimed.claim_again().unwrap();
        assert!(!claimed.is_lost());
        let moved = parent.path().join("moved");
        fs::rename(&dir, &moved).unwrap();
        assert!(claimed.is_lost());
        claimed.claim_again().unwrap();
        assert!(StateDir::claim(&moved).is_err(), "a renamed directory stays locked");
        fs::remove_dir_all(&dir).unwrap();
        fs::rename(&moved, &dir).unwrap();
        assert!(claimed.is_lost());
        claimed.claim_again().unwrap();
        assert!(!claimed.is_lost() && claimed.renamed.is_empty(), "{claimed:?}");
        drop(claimed);
        StateDir::claim(&dir).unwrap();
    }

    #[tokio::test]
    async fn a_link_to_a_claimed_directory_is_claimed_as_well() {
        let parent = tempfile::tempdir().unwrap();
        let [real, link] = ["real", "link"].map(|name| parent.path().join(name));
        fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let claimed = StateDir::claim(&link).unwrap();
        fs::remove_file(&link).unwrap();
        for dir in [&link, &real] {
            assert!(StateDir::claim(dir).is_err(), "{}", dir.display());
        }
        drop(claimed);
        StateDir::claim(&link).unwrap();
    }

    #[tokio::test]
    async fn a_directory_is_lost_with_its_contents_but_not_with_its_lock_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut claimed = StateDir::claim(dir.path()).unwrap();
        let fixed = Fixed::of("streams", "recorder", &LeaseTerms::default());
        fixed.record(dir.path()).unwrap();
        let lock = dir.path().join(LOCK);
        fs::remove_file(&lock).unwrap();
        assert!(!claimed.is_lost());
        assert!(lock.exists(), "it is created again");
        assert!(locked(file::append(&lock).unwrap()).unwrap().is_none(), "and locked");
        for entry in fs::read_dir(dir.path()).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        assert!(claimed.is_lost());
        claimed.claim_again().unwrap();
        assert!(!claimed.is_lost() && lock.exists());
    }
}
