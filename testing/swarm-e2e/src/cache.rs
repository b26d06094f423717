//! The folder that stays after a run: built binaries, images, records of runs, evidence of
//! failures.
//!
//! The folder is outside of `target/`, so that `cargo clean` does not cost five minutes of Go
//! build.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use tempfile::TempDir;

/// The prefix of the name of an unfinished folder.
const BUILDING: &str = "building-";

/// The cache folder.
#[derive(Debug, Clone)]
pub struct Cache {
    /// The path of the folder.
    pub root: PathBuf,
}

impl Cache {
    /// Makes the folder that the environment names:
    /// `$SWARM_E2E_CACHE`, else `$XDG_CACHE_HOME/swarm-e2e`, else `$HOME/.cache/swarm-e2e`.
    ///
    /// # Errors
    ///
    /// When none of the three is set, or the folder cannot be made.
    pub fn open() -> Result<Self> {
        let root = locate(|name| std::env::var_os(name)).context("$HOME is not set")?;
        fs::create_dir_all(&root).with_context(|| format!("cannot make {}", root.display()))?;
        Ok(Self { root: fs::canonicalize(root)? })
    }

    /// Cargo's target folder for the static binaries.
    #[must_use]
    pub fn target(&self) -> PathBuf {
        self.root.join("target")
    }

    /// The folder of image archives.
    #[must_use]
    pub fn images(&self) -> PathBuf {
        self.root.join("images")
    }

    /// The folder in which each run has a folder, while it is under way or after it was killed.
    #[must_use]
    pub fn runs(&self) -> PathBuf {
        self.root.join("runs")
    }

    /// The folder of the evidence of failures.
    #[must_use]
    pub fn failures(&self) -> PathBuf {
        self.root.join("failures")
    }

    /// Waits until no other run builds into this cache; the lock ends with the returned value.
    ///
    /// # Errors
    ///
    /// When the lock file cannot be made.
    pub fn lock(&self) -> Result<File> {
        let lock = File::create(self.root.join("lock"))?;
        lock.lock()?;
        // Only one process holds the lock, so an unfinished folder belongs to a killed build.
        for entry in fs::read_dir(&self.root)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(BUILDING) {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(lock)
    }

    /// Makes an empty folder for a build, on the same file system as the final place.
    ///
    /// # Errors
    ///
    /// When the folder cannot be made.
    pub fn building(&self) -> Result<TempDir> {
        Ok(tempfile::Builder::new().prefix(BUILDING).tempdir_in(&self.root)?)
    }
}

/// Moves a finished folder to its final place.
///
/// A rename is atomic, so an interrupted build is never taken for a finished one.
pub(crate) fn complete(built: TempDir, place: &Path) -> Result<()> {
    let built = built.keep();
    fs::rename(&built, place).with_context(|| format!("cannot move to {}", place.display()))
}

fn locate(env: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let folder = |name| env(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    folder("SWARM_E2E_CACHE")
        .or_else(|| Some(folder("XDG_CACHE_HOME")?.join("swarm-e2e")))
        .or_else(|| Some(folder("HOME")?.join(".cache/swarm-e2e")))
}

/// The digits of a hash.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_variable_wins_and_empty_ones_count_as_unset() {
        let with = |set: &[(&str, &str)]| {
            locate(|name| set.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()))
        };
        let (own, xdg, home) =
            (("SWARM_E2E_CACHE", "/c"), ("XDG_CACHE_HOME", "/x"), ("HOME", "/h"));
        assert_eq!(with(&[own, xdg, home]), Some("/c".into()));
        assert_eq!(with(&[xdg, home]), Some("/x/swarm-e2e".into()));
        assert_eq!(with(&[("XDG_CACHE_HOME", ""), home]), Some("/h/.cache/swarm-e2e".into()));
        assert_eq!(with(&[]), None);
    }

    #[test]
    fn a_build_that_was_killed_is_swept_by_the_next_one() {
        let root = tempfile::tempdir().unwrap();
        let cache = Cache { root: root.path().to_owned() };
        let abandoned = cache.building().unwrap().keep();
        fs::write(abandoned.join("etcd"), "half").unwrap();
        let whole = root.path().join("whole");
        complete(cache.building().unwrap(), &whole).unwrap();
        let _lock = cache.lock().unwrap();
        assert!(!abandoned.exists());
        assert!(whole.exists());
    }
}
