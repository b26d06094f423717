//! The run log records each run of a job, with its worker and times: one JSON object per line, for
//! `swarm verify`.
//!
//! The process that runs a job writes `start`, then `tick` every second, and `stop` when no process
//! of the job runs any more. All writers of a machine share one file and one clock
//! (`CLOCK_BOOTTIME`). The clock is read right before the single `write` of a line, so that
//! overlaps are recorded exactly. A line that cannot be written is counted, and the first one
//! causes a warning; no job stops for it.
//!
//! A thousand jobs write 150 kB per second. So the operator rotates a log that has grown large
//! ([`rotate`]) and keeps one old file. Every writer notices this within a second and continues in
//! a new file. [`judged`] merges several files by time, and checks whether every job was run by one
//! worker at a time.

pub mod alone;
pub mod judge;
mod lines;
mod merged;

pub use lines::Torn;
pub use merged::{Damage, Entry, ReadError, judged, read};

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use swarm_core::handover::Moment;
use swarm_core::{JobName, Token};

use crate::clock;
use crate::file;
use crate::job_log::part;
use crate::named_file::NamedFile;

/// The event of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RunEvent {
    /// The job was started.
    Start,
    /// The job still runs.
    Tick,
    /// The job has ended, with all its processes.
    Stop,
}

/// Returns the time since boot in nanoseconds, including times when the machine was suspended.
#[must_use]
pub fn boottime_ns() -> u64 {
    as_boottime_ns(clock::now())
}

/// Returns a moment in nanoseconds, the unit of run logs, guards and permits.
#[must_use]
pub fn as_boottime_ns(Moment(since): Moment) -> u64 {
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// The size in bytes above which a log is rotated.
pub const BYTES_MAX: u64 = 256 << 20;

/// A writer for one session of one worker. Several processes may write to the same file.
#[derive(Debug)]
pub struct RunLog {
    file: Mutex<NamedFile>,
    worker: String,
    session: String,
    errors: AtomicU64,
}

#[derive(Serialize)]
struct Line<'a> {
    t: u64,
    job: &'a str,
    worker: &'a str,
    session: &'a str,
    token: u64,
    event: RunEvent,
}

impl RunLog {
    /// Opens the file at `path` to append to it, and creates it if it is missing.
    ///
    /// # Errors
    ///
    /// An error if the file cannot be opened for writing.
    pub fn open(path: &Path, worker: &str, session: &str) -> io::Result<Self> {
        let file = Mutex::new(NamedFile::open(path, file::append)?);
        let (worker, session) = (worker.to_owned(), session.to_owned());
        Ok(Self { file, worker, session, errors: AtomicU64::new(0) })
    }

    /// Records `event` of `job` at the present time.
    ///
    /// # Errors
    ///
    /// The first failure is returned, for a warning; later failures are only counted.
    pub fn write(&self, job: &JobName, token: Token, event: RunEvent) -> io::Result<()> {
        let Self { file, worker, session, errors } = self;
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        let t = boottime_ns();
        let line = Line { t, job: job.as_str(), worker, session, token: token.0, event };
        let written = serde_json::to_vec(&line).map_err(io::Error::from).and_then(|mut line| {
            line.push(b'\n');
            // There is a single write, since lines of several writers would mix. A short write is
            // not continued.
            match file.current(t).write(&line)? {
                whole if whole == line.len() => Ok(()),
                part => Err(io::Error::other(format!("{part} of {} bytes written", line.len()))),
            }
        });
        written.or_else(|error| {
            let is_first = errors.fetch_add(1, Ordering::Relaxed) == 0;
            if is_first { Err(error) } else { Ok(()) }
        })
    }

    /// Returns the number of lines that could not be written.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }
}

/// Renames the log at `path` to `PATH.1` if it is larger than `bytes_max`; an existing `PATH.1` is
/// replaced.
///
/// # Errors
///
/// An error if the log cannot be moved.
pub fn rotate(path: &Path, bytes_max: u64) -> io::Result<()> {
    if fs::metadata(path).is_ok_and(|found| bytes_max < found.len()) {
        fs::rename(path, rotated(path))?;
    }
    Ok(())
}

/// Returns the path of the older part of the log at `path` after a rotation.
#[must_use]
pub fn rotated(path: &Path) -> PathBuf {
    part(path, 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::named_file::REOPEN_NS;

    #[test]
    fn a_line_records_who_ran_what_when() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.log");
        let job = JobName::new("stream:\"a\"").unwrap();
        let before = boottime_ns();
        for (session, event) in [("s1", RunEvent::Start), ("s2", RunEvent::Tick)] {
            let log = RunLog::open(&path, "w-0", session).unwrap();
            log.write(&job, Token(7), event).unwrap();
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let (first, second) = text.split_once('\n').unwrap();
        let t = first.strip_prefix("{\"t\":").unwrap().split_once(',').unwrap().0;
        assert!((before..=boottime_ns()).contains(&t.parse().unwrap()));
        let rest =
            r#","job":"stream:\"a\"","worker":"w-0","session":"s1","token":7,"event":"start"}"#;
        assert!(first.ends_with(rest), "{first}");
        assert!(
            second.ends_with("\"session\":\"s2\",\"token\":7,\"event\":\"tick\"}\n"),
            "{second}"
        );
    }

    #[test]
    fn a_full_disk_is_reported_once_and_counted() {
        let log = RunLog::open(Path::new("/dev/full"), "w-0", "s1").unwrap();
        let write = || log.write(&JobName::new("a").unwrap(), Token(1), RunEvent::Tick);
        assert!(write().is_err());
        assert!(write().is_ok() && write().is_ok());
        assert_eq!(log.errors(), 3);
    }

    #[test]
    fn a_rotated_log_is_followed_by_a_new_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.log");
        let log = RunLog::open(&path, "w-0", "s1").unwrap();
        let write = || log.write(&JobName::new("a").unwrap(), Token(1), RunEvent::Tick).unwrap();
        write();
        let bytes = fs::metadata(&path).unwrap().len();
        rotate(&path, bytes).unwrap();
        assert!(path.exists(), "it is not larger than that");
        rotate(&path, bytes - 1).unwrap();
        write();
        let aside = dir.path().join("run.log.1");
        assert_eq!((fs::metadata(&aside).unwrap().len() / bytes, path.exists()), (2, false));
        log.file.lock().unwrap().checked -= REOPEN_NS;
        write();
        assert_eq!(fs::metadata(&path).unwrap().len() / bytes, 1);
    }
}
