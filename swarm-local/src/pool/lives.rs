//! Keeps the lives of the jobs in the state directory, for people.
//!
//! The file is replaced at most every [`INTERVAL`], only after a change, and at the end of the operator.
//! A disk that is full costs the newest counts, and nothing else.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use swarm_adapters_host::clock::unix_ms;
use swarm_adapters_host::file::{self, ReadError};
use swarm_core::life::Lives;

use crate::format;
use crate::processes::reports::Reports;

/// The file in the state directory, and its name once it is damaged.
const NAME: &str = "jobs.json";
const DAMAGED: &str = "jobs.damaged.json";
/// The format that this program writes, and the newest that it reads.
const FORMAT: u64 = 1;
/// The most jobs in the file.
const JOBS_MAX: usize = 10_000;
/// The most bytes of the lives in the file: 256 KiB.
const BYTES_MAX: usize = 256 << 10;
/// The most bytes that are read: 1 MiB.
const READ_MAX: u64 = 1 << 20;
/// The shortest time between two writes.
const INTERVAL: Duration = Duration::from_secs(5);

#[derive(Serialize, Deserialize)]
struct Record {
    #[serde(default = "format::first")]
    format: u64,
    #[serde(flatten)]
    lives: Lives,
}

/// The file with the lives of the jobs.
#[derive(Debug)]
pub(super) struct LivesFile {
    path: PathBuf,
    /// The number of the last change in the file; `None` if the file has to be written.
    written: Option<u64>,
    tried_at: Option<Instant>,
    has_failed: bool,
}

impl LivesFile {
    /// Reads the lives of an earlier operator in `dir` into the reports. A file that cannot be read is
    /// put aside. The second result is a sentence about it.
    pub(super) fn open(dir: &Path, reports: &Reports) -> (Self, Option<String>) {
        let (lives, unread) = match load(&dir.join(NAME)) {
            Ok(lives) => (lives, None),
            Err(reason) => {
                let aside = dir.join(DAMAGED);
                let moved = fs::rename(dir.join(NAME), &aside);
                let place = match moved {
                    Ok(()) => format!("it is {} now", aside.display()),
                    Err(error) => format!("it cannot be renamed: {error}"),
                };
                let sentence = format!("the counts of the jobs begin again: {reason}; {place}");
                (None, Some(sentence))
            }
        };
        let is_new = lives.is_none();
        *reports.lives() = lives.unwrap_or_else(|| Lives::begin(unix_ms()));
        let written = (!is_new).then(|| reports.lives().changes());
        (Self { written, ..Self::at(dir) }, unread)
    }

    /// Returns a file that is to be written in a new directory.
    pub(super) fn at(dir: &Path) -> Self {
        Self { path: dir.join(NAME), written: None, tried_at: None, has_failed: false }
    }

    /// Returns the time of the next write; `None` without a change.
    pub(super) fn due_at(&self, reports: &Reports) -> Option<Instant> {
        let is_written = self.written == Some(reports.lives().changes());
        let due = || self.tried_at.map_or_else(Instant::now, |at| at + INTERVAL);
        (!is_written).then(due)
    }

    /// Writes the lives.
    pub(super) fn write(&mut self, reports: &Reports) {
        let (text, changes) = {
            let mut lives = reports.lives();
            lives.limit(unix_ms(), JOBS_MAX, BYTES_MAX);
            (serde_json::to_vec(&Record { format: FORMAT, lives: lives.clone() }), lives.changes())
        };
        self.tried_at = Some(Instant::now());
        let written = text.map_err(Into::into).and_then(|text| file::replace(&self.path, &text));
        if let (Err(error), false) = (&written, self.has_failed) {
            tracing::warn!(%error, "the counts of the jobs cannot be written");
        }
        self.has_failed = written.is_err();
        self.written = written.is_ok().then_some(changes);
    }
}

/// Reads the file in `dir`; `None` without one. The error is a sentence.
pub(crate) fn read(dir: &Path) -> Result<Option<Lives>, String> {
    load(&dir.join(NAME))
}

fn load(path: &Path) -> Result<Option<Lives>, String> {
    let damaged = |reason: &dyn std::fmt::Display| format!("{}: {reason}", path.display());
    let text = match file::read_regular_text(path, READ_MAX) {
        Ok(text) => text,
        Err(ReadError::Missing) => return Ok(None),
        Err(error) => return Err(damaged(&error)),
    };
    format::check(path, &text, FORMAT)?;
    let record: Record = serde_json::from_str(&text).map_err(|error| damaged(&error))?;
    let mut lives = record.lives;
    lives.limit(unix_ms(), JOBS_MAX, BYTES_MAX);
    Ok(Some(lives))
}

#[cfg(test)]
mod tests {
    use swarm_core::life::{Cause, News};

    use super::*;

    fn crash(reports: &Reports, job: &str) {
        let job = job.parse().unwrap();
        reports.lives().learn(1_000, &job, "w-0", News::Restarting("ended with exit code 3"));
    }

    fn crashes(lives: &Lives, job: &str) -> Option<u64> {
        lives.of(job)?.counts.get(&Cause::Crash).copied()
    }

    #[test]
    fn the_counts_outlive_the_operator_and_not_the_job() {
        let (dir, reports) = (tempfile::tempdir().unwrap(), Reports::default());
        let (mut file, unread) = LivesFile::open(dir.path(), &reports);
        assert_eq!(unread, None);
        crash(&reports, "a");
        crash(&reports, "b");
        file.write(&reports);
        assert_eq!(file.due_at(&reports), None, "nothing has changed since");
        crash(&reports, "a");
        assert!(file.due_at(&reports).is_some_and(|at| Instant::now() < at), "not twice in 5 s");
        assert_eq!(crashes(&read(dir.path()).unwrap().unwrap(), "a"), Some(1));
        reports.lives().retain(|job| job.as_str() == "a");
        file.write(&reports);

        let again = Reports::default();
        let (file, unread) = LivesFile::open(dir.path(), &again);
        assert_eq!((unread, file.due_at(&again)), (None, None));
        let lives = again.lives();
        assert_eq!((crashes(&lives, "a"), crashes(&lives, "b")), (Some(2), None));
        assert_eq!(lives.failing(unix_ms()).count(), 1, "it did not run since");
    }

    #[test]
    fn a_damaged_file_is_put_aside_and_counting_begins_again() {
        let (dir, path) = (tempfile::tempdir().unwrap(), |dir: &Path| dir.join(NAME));
        for text in ["", "{\"sinceMs\":", "{\"jobs\":{\"\":{}}}", "{\"format\":2}", "[]"] {
            fs::write(path(dir.path()), text).unwrap();
            let reports = Reports::default();
            let (mut file, unread) = LivesFile::open(dir.path(), &reports);
            let sentence = unread.unwrap();
            assert!(sentence.starts_with("the counts of the jobs begin again"), "{sentence}");
            assert!(sentence.ends_with("jobs.damaged.json now"), "{sentence}");
            assert_eq!(fs::read_to_string(dir.path().join(DAMAGED)).unwrap(), text);
            crash(&reports, "a");
            file.write(&reports);
            assert_eq!(crashes(&read(dir.path()).unwrap().unwrap(), "a"), Some(1));
        }
    }

    #[test]
    fn a_disk_that_takes_no_write_is_tried_again() {
        let (dir, reports) = (tempfile::tempdir().unwrap(), Reports::default());
        let gone = dir.path().join("gone");
        let mut file = LivesFile::at(&gone);
        crash(&reports, "a");
        file.write(&reports);
        assert!(file.due_at(&reports).is_some());
        fs::create_dir(&gone).unwrap();
        file.write(&reports);
        assert_eq!(file.due_at(&reports), None);
    }
}
