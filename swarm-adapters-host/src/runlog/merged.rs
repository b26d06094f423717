//! Merges several run logs of one machine by time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::judge::{Judge, Line, Replication, Verdict};
use super::lines::{Lines, News, Torn};
use super::record::Record;
use super::writers::{Coverage, Writers};

/// The number of lines that are buffered, so that lines of several writers can be sorted.
const HELD_BACK_MAX: usize = 1 << 16;
/// The lead in nanoseconds above which a reboot must have happened: the first line of a new author
/// is older than the previous line by more than this.
const RESTART_NS: u64 = 60_000_000_000;

/// The reason why run logs cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file is missing or cannot be read.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file is not a run log.
    #[error("{path} is not a run log: it has no line of a run log")]
    NotARunLog {
        /// The file.
        path: PathBuf,
    },
}

/// The next entry of the logs.
#[derive(Debug)]
pub enum Entry<'a> {
    /// A line.
    Line(Line<'a>),
    /// The machine was rebooted, and its clock restarted.
    MachineStarted,
}

/// Judges run logs of one machine, merged by time, in bounded memory.
///
/// # Errors
///
/// An error if a file cannot be read, or is not a run log.
pub fn judged(paths: &[PathBuf], replication: Replication) -> Result<(Verdict, Damage), ReadError> {
    let mut judge = Judge::new(replication);
    let damage = read(paths, |entry| match entry {
        Entry::Line(line) => judge.take(&line),
        Entry::MachineStarted => judge.machine_started(),
    })?;
    Ok((judge.verdict(), damage))
}

/// The defects of the logs themselves, and the time that they cover.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// Lines that are not complete.
    pub torn: Torn,
    /// The number of lines that were left out because the same line was read before. A file was
    /// given twice, or together with a copy of it.
    pub repeated: u64,
    /// The time that the logs cover.
    pub coverage: Coverage,
}

impl Damage {
    /// Returns whether the logs have every line, except for lines that a killed writer explains.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.torn.unexplained == 0 && self.coverage.is_complete()
    }
}

/// Reads run logs of one machine to their ends, merged by time, in bounded memory.
///
/// # Errors
///
/// An error if a file cannot be read, or is not a run log.
pub fn read(paths: &[PathBuf], mut take: impl FnMut(Entry<'_>)) -> Result<Damage, ReadError> {
    let failed = |path: &PathBuf, source: io::Error| {
        let source = match source.kind() {
            kind @ io::ErrorKind::NotFound => io::Error::new(
                kind,
                "the file does not exist; a pool with `--run-log off` writes none",
            ),
            _ => source,
        };
        ReadError::File { path: path.clone(), source }
    };
    let mut logs = Vec::new();
    for path in paths {
        logs.push(Log::open(path).map_err(|source| failed(path, source))?);
    }
    let mut held_back = BinaryHeap::new();
    let mut all = Damage::default();
    let (mut epoch, mut last, mut writers) = (0, None, Writers::default());
    let mut take_next = |held_back: &mut BinaryHeap<Reverse<Held>>| {
        let Some(Reverse(held)) = held_back.pop() else { return };
        // A writer reads its clock for each line, so no two lines are the same.
        if last.as_ref() == Some(&held) {
            all.repeated += 1;
            return;
        }
        if epoch < held.epoch {
            epoch = held.epoch;
            writers.machine_started();
            take(Entry::MachineStarted);
        }
        writers.take(&held.record, |line| take(Entry::Line(line)));
        last = Some(held);
    };
    // The next line comes from the log that is furthest behind, so that all advance together.
    while let Some(at) =
        (0..logs.len()).filter(|at| !logs[*at].is_read).min_by_key(|at| logs[*at].at)
    {
        let held = logs[at].next().map_err(|source| failed(&paths[at], source))?;
        held_back.extend(held.map(Reverse));
        if HELD_BACK_MAX < held_back.len() {
            take_next(&mut held_back);
        }
    }
    while !held_back.is_empty() {
        take_next(&mut held_back);
    }
    for (log, path) in logs.iter().zip(paths) {
        if !log.lines.is_run_log() {
            return Err(ReadError::NotARunLog { path: path.clone() });
        }
        let torn = log.lines.torn();
        all.torn.lines += torn.lines;
        all.torn.unexplained += torn.unexplained;
        all.torn.first = all.torn.first.or(torn.first);
    }
    all.coverage = writers.coverage();
    Ok(all)
}

/// A log that is being read.
struct Log {
    lines: Lines<File>,
    /// The number of reboots of its machine, and the newest time since the last reboot.
    at: (u32, u64),
    is_read: bool,
}

/// A line that waits for earlier ones. The order of the fields is the sort order.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    epoch: u32,
    record: Record,
}

impl Log {
    fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { lines: Lines::open(path)?, at: (0, 0), is_read: false })
    }

    fn next(&mut self) -> io::Result<Option<Held>> {
        let Some((record, news)) = self.lines.next()? else {
            self.is_read = true;
            return Ok(None);
        };
        let (epoch, newest) = self.at;
        self.at = match news {
            News::Author if record.at.saturating_add(RESTART_NS) < newest => (epoch + 1, record.at),
            News::Author | News::Nothing => (epoch, newest.max(record.at)),
        };
        Ok(Some(Held { epoch: self.at.0, record }))
    }
}
