//! The settings of the files, in a file next to them. A change reaches every writer within a second,
//! without a message to any worker.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::file;

/// The file with the settings. No job has a file of that name, which would end in `.log`.
const FILE: &str = "settings.json";
/// The maximum size of that file in bytes.
const BYTES_MAX: u64 = 4 << 10;
/// The time after which a writer reads the settings again.
const RECHECK: Duration = Duration::from_secs(1);

/// The limits of the files of one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// The size in bytes at which a file is rotated.
    pub bytes_max: u64,
    /// The number of files, including the growing one.
    pub files_max: usize,
}

impl Default for Limits {
    /// Two files of 4 MiB.
    fn default() -> Self {
        Self { bytes_max: 4 << 20, files_max: 2 }
    }
}

/// The settings of the files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The limits of the files of one job.
    pub limits: Limits,
    /// Whether several workers run a job at the same time, so that each of them has a file.
    #[serde(default)]
    pub per_worker: bool,
}

impl Settings {
    /// Writes the settings for all writers in the directory `dir`, which is created if needed. It
    /// writes nothing if the file has them.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn write(&self, dir: &Path) -> io::Result<()> {
        if Self::read(dir) == Some(*self) {
            return Ok(());
        }
        file::create_dir(dir)?;
        file::swap(&dir.join(FILE), &serde_json::to_vec(self)?)
    }

    /// Reads the settings in the directory `dir`. `None` if there are none, or another program wrote
    /// the file.
    fn read(dir: &Path) -> Option<Self> {
        let text = file::read_regular_text(&dir.join(FILE), BYTES_MAX).ok()?;
        serde_json::from_str(&text).ok()
    }
}

/// The settings as a writer last read them.
pub(super) struct Current {
    dir: PathBuf,
    settings: Settings,
    read_at: Instant,
}

impl Current {
    /// Reads the settings in the directory `dir`, or takes the defaults.
    pub(super) fn open(dir: PathBuf) -> Self {
        let settings = Settings::read(&dir).unwrap_or_default();
        Self { dir, settings, read_at: Instant::now() }
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn get(&self) -> Settings {
        self.settings
    }

    /// Reads the settings again if that was a second ago. Returns whether the names of files changed.
    /// If the file cannot be read, the previous settings stay.
    pub(super) fn renames_files(&mut self, now: Instant) -> bool {
        if now < self.read_at + RECHECK {
            return false;
        }
        self.read_at = now;
        let before = self.settings;
        self.settings = Settings::read(&self.dir).unwrap_or(before);
        self.settings.per_worker != before.per_worker
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_writer_reads_changed_settings_within_a_second_and_keeps_good_ones() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("jobs");
        let mut current = Current::open(dir.clone());
        assert_eq!(current.get(), Settings::default());
        let mut now = current.read_at;

        let limits = Limits { bytes_max: 100, files_max: 3 };
        Settings { limits, per_worker: false }.write(&dir).unwrap();
        assert!(!current.renames_files(now), "the last look is less than a second ago");
        assert_eq!(current.get(), Settings::default());
        now += RECHECK;
        assert!(!current.renames_files(now), "the names of files stay");
        assert_eq!(current.get().limits, limits);

        let settings = Settings { limits, per_worker: true };
        settings.write(&dir).unwrap();
        now += RECHECK;
        assert!(current.renames_files(now));
        assert_eq!(current.get(), settings);

        for broken in ["", "{", "{\"limits\": 7}"] {
            fs::write(dir.join(FILE), broken).unwrap();
            now += RECHECK;
            assert!(!current.renames_files(now));
            assert_eq!(current.get(), settings, "{broken}");
        }
        fs::remove_dir_all(&dir).unwrap();
        now += RECHECK;
        assert!(!current.renames_files(now));
        assert_eq!(current.get(), settings);
    }
}
