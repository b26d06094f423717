//! The run log: who ran which job when, one JSON object a line, for `swarm-operator verify`.
//!
//! Whoever runs a job writes `start`, then `tick` every second, and `stop` when nothing of it is
//! left. All writers of a machine share one file and one clock (`CLOCK_BOOTTIME`), which is read
//! right before the one `write` of a line, so that overlaps show as they were. A line that cannot
//! be written is counted and warned of once; no job stops for it.
//!
//! A thousand jobs write 150 kB a second. So the operator moves a log that has grown large aside
//! ([`rotate`]), keeps the one before, and every writer notices within a second and goes on in a
//! new file. [`judged`] takes several files, puts their lines in order, and tells whether every job
//! was run by one worker at a time.

pub mod judge;
mod lines;
mod merged;

pub use lines::Torn;
pub use merged::{Entry, ReadError, judged, read};

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use swarm_core::handover::Moment;
use swarm_core::{JobName, Token};

use crate::clock;

/// What happened to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RunEvent {
    /// It was started.
    Start,
    /// It still runs.
    Tick,
    /// Nothing of it is left.
    Stop,
}

/// The time since the machine started in nanoseconds, the time it was suspended included.
#[must_use]
pub fn boottime_ns() -> u64 {
    as_boottime_ns(clock::now())
}

/// A moment as run logs, guards and permits tell it, in nanoseconds.
#[must_use]
pub fn as_boottime_ns(Moment(since): Moment) -> u64 {
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// The size from which on a log is moved aside.
pub const BYTES_MAX: u64 = 256 << 20;

/// How long a writer may go on in a file that was moved aside, in nanoseconds.
const LOOK_AGAIN: u64 = 1_000_000_000;

/// Writes for one session of one worker. Several processes may write to the same file.
#[derive(Debug)]
pub struct RunLog {
    path: PathBuf,
    open: Mutex<Open>,
    worker: String,
    session: String,
    errors: AtomicU64,
}

#[derive(Debug)]
struct Open {
    file: File,
    /// Which file it is, whatever its name is by now.
    inode: u64,
    /// When its name was last looked at.
    looked: u64,
}

impl Open {
    fn at(path: &Path) -> io::Result<Self> {
        let file = File::options().create(true).append(true).open(path)?;
        Ok(Self { inode: file.metadata()?.ino(), file, looked: boottime_ns() })
    }
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
    /// Opens the file at `path`, or makes it, to append to it.
    ///
    /// # Errors
    ///
    /// If it cannot be opened for writing.
    pub fn open(path: &Path, worker: &str, session: &str) -> io::Result<Self> {
        let open = Mutex::new(Open::at(path)?);
        let (worker, session) = (worker.to_owned(), session.to_owned());
        Ok(Self { path: path.to_owned(), open, worker, session, errors: AtomicU64::new(0) })
    }

    /// Writes that `event` happened to `job` now.
    ///
    /// # Errors
    ///
    /// The first failure is returned, for a warning; later ones are only counted.
    pub fn write(&self, job: &JobName, token: Token, event: RunEvent) -> io::Result<()> {
        let Self { path, open, worker, session, errors } = self;
        let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
        let t = boottime_ns();
        if open.looked + LOOK_AGAIN <= t {
            open.looked = t;
            let inode = fs::metadata(path).map(|found| found.ino());
            // If there is no new file to be had, the old one is better than none.
            if inode.is_ok_and(|inode| inode == open.inode) {
                // It still has its name.
            } else if let Ok(new) = Open::at(path) {
                *open = new;
            }
        }
        let line = Line { t, job: job.as_str(), worker, session, token: token.0, event };
        let written = serde_json::to_vec(&line).map_err(io::Error::from).and_then(|mut line| {
            line.push(b'\n');
            // One write, or lines of several writers would mix; so no second one for a rest.
            match open.file.write(&line)? {
                whole if whole == line.len() => Ok(()),
                part => Err(io::Error::other(format!("{part} of {} bytes written", line.len()))),
            }
        });
        written.or_else(|error| {
            let is_first = errors.fetch_add(1, Ordering::Relaxed) == 0;
            if is_first { Err(error) } else { Ok(()) }
        })
    }

    /// How many lines could not be written.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }
}

/// Moves the log at `path` aside if it has grown beyond `bytes_max`, to `PATH.1`, which is replaced.
///
/// # Errors
///
/// If it cannot be moved.
pub fn rotate(path: &Path, bytes_max: u64) -> io::Result<()> {
    if fs::metadata(path).is_ok_and(|found| bytes_max < found.len()) {
        let mut aside = path.as_os_str().to_owned();
        aside.push(".1");
        fs::rename(path, aside)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_who_ran_what_when() {
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
    fn a_full_disk_is_told_once_and_counted() {
        let log = RunLog::open(Path::new("/dev/full"), "w-0", "s1").unwrap();
        let write = || log.write(&JobName::new("a").unwrap(), Token(1), RunEvent::Tick);
        assert!(write().is_err());
        assert!(write().is_ok() && write().is_ok());
        assert_eq!(log.errors(), 3);
    }

    #[test]
    fn a_log_that_was_moved_aside_is_followed_by_a_new_one() {
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
        log.open.lock().unwrap().looked -= LOOK_AGAIN;
        write();
        assert_eq!(fs::metadata(&path).unwrap().len() / bytes, 1);
    }
}
