//! Several run logs of one machine, read side by side as one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::judge::{Event, Judge, Line, Replication, Verdict};
use super::lines::{Lines, News, Owned, Torn};

/// How many lines are held back so that those of several writers can be put in order.
const HELD_BACK_MAX: usize = 1 << 16;
/// A clock that went back further than this, in nanoseconds, for a session that nobody knows, was
/// started anew with its machine.
const RESTART_NS: u64 = 60_000_000_000;

/// Why run logs cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file is not there, or cannot be read.
    #[error("{path}: {source}")]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file holds something else.
    #[error("{path} is no run log: no line of it is one of a run log")]
    NoRunLog {
        /// Which file.
        path: PathBuf,
    },
}

/// What stands next in the logs.
#[derive(Debug)]
pub enum Entry<'a> {
    /// A line.
    Line(Line<'a>),
    /// The machine was started again: its clock began anew.
    MachineStarted,
}

/// Judges run logs of one machine, merged by time, in bounded memory.
///
/// # Errors
///
/// If a file cannot be read, or is no run log.
pub fn judged(paths: &[PathBuf], replication: Replication) -> Result<(Verdict, Torn), ReadError> {
    let mut judge = Judge::new(replication);
    let torn = read(paths, |entry| match entry {
        Entry::Line(line) => judge.take(&line),
        Entry::MachineStarted => judge.machine_started(),
    })?;
    Ok((judge.verdict(), torn))
}

/// Reads run logs of one machine to their ends, merged by time, in bounded memory.
///
/// # Errors
///
/// If a file cannot be read, or is no run log.
pub fn read(paths: &[PathBuf], mut take: impl FnMut(Entry<'_>)) -> Result<Torn, ReadError> {
    let told = |path: &PathBuf, source| ReadError::File { path: path.clone(), source };
    let mut logs = Vec::new();
    for path in paths {
        logs.push(Log::open(path).map_err(|source| told(path, source))?);
    }
    let mut held_back = BinaryHeap::new();
    let mut epoch = 0;
    let mut take_next = |held_back: &mut BinaryHeap<Reverse<Held>>| {
        let Some(Reverse(held)) = held_back.pop() else { return };
        if epoch < held.epoch {
            epoch = held.epoch;
            take(Entry::MachineStarted);
        }
        take(Entry::Line(held.line.line()));
    };
    // The log that is behind is read on, so that all advance together.
    while let Some(at) =
        (0..logs.len()).filter(|at| !logs[*at].is_read).min_by_key(|at| logs[*at].at)
    {
        let held = logs[at].next().map_err(|source| told(&paths[at], source))?;
        held_back.extend(held.map(Reverse));
        if HELD_BACK_MAX < held_back.len() {
            take_next(&mut held_back);
        }
    }
    while !held_back.is_empty() {
        take_next(&mut held_back);
    }
    let mut all = Torn::default();
    for (log, path) in logs.iter().zip(paths) {
        if !log.lines.is_run_log() {
            return Err(ReadError::NoRunLog { path: path.clone() });
        }
        let torn = log.lines.torn();
        all.lines += torn.lines;
        all.unexplained += torn.unexplained;
        all.first = all.first.or(torn.first);
    }
    Ok(all)
}

/// A log that is being read.
struct Log {
    lines: Lines<File>,
    /// How often its machine was started again, and the newest time since.
    at: (u32, u64),
    is_read: bool,
}

/// A line that waits for earlier ones. The order of the fields is the order of judging.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    epoch: u32,
    t: u64,
    /// Who starts at the very moment another ends does not overlap with it.
    event: Event,
    line: Owned,
}

impl Log {
    fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { lines: Lines::open(path)?, at: (0, 0), is_read: false })
    }

    fn next(&mut self) -> io::Result<Option<Held>> {
        let Some((line, news)) = self.lines.next()? else {
            self.is_read = true;
            return Ok(None);
        };
        let (epoch, newest) = self.at;
        self.at = match news {
            News::Session if line.t.saturating_add(RESTART_NS) < newest => (epoch + 1, line.t),
            News::Session | News::Nothing => (epoch, newest.max(line.t)),
        };
        Ok(Some(Held { epoch: self.at.0, t: line.t, event: line.event, line }))
    }
}
