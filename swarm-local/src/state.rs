//! The directory that holds everything one Swarm needs to remember on this machine.

use std::env;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::input::is_plain;

/// A state directory that no other operator uses while this lives.
#[derive(Debug)]
pub(super) struct StateDir {
    path: PathBuf,
    _lock: File,
}

impl StateDir {
    /// Makes the directory if it is missing, and claims it.
    pub(super) fn claim(dir: &Path) -> anyhow::Result<Self> {
        let cannot = || format!("the state directory {} cannot be used", dir.display());
        fs::create_dir_all(dir).with_context(cannot)?;
        // Workers are started with this path, whatever their own directory is, and the next
        // operator knows them by it, whichever way it is told.
        let path = dir.canonicalize().with_context(cannot)?;
        let lock = File::options().create(true).append(true).open(path.join("lock"));
        let lock = lock.with_context(cannot)?;
        // The system takes the lock away with the process, however that ends; workers do not
        // inherit it.
        match lock.try_lock() {
            Ok(()) => Ok(Self { path, _lock: lock }),
            Err(TryLockError::WouldBlock) => anyhow::bail!(
                "another operator runs in {}; end it, or choose another directory with --dir",
                path.display()
            ),
            Err(TryLockError::Error(error)) => Err(error).with_context(cannot),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// The directory of the Swarm called `name`, where nobody chose one.
pub(super) fn default_dir(name: &str) -> Result<PathBuf, String> {
    if !is_plain(name) {
        let name = name.escape_default();
        return Err(format!("`{name}` cannot name a directory; choose one with --dir"));
    }
    // A relative path in the variable is to be ignored, says its specification.
    let given = env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let state = given.or_else(|| env::home_dir().map(|home| home.join(".local/state")));
    let state = state.filter(|path| path.is_absolute());
    let state = state.ok_or("there is no home directory; say with --dir where to keep state")?;
    Ok(state.join("swarm").join(name))
}
