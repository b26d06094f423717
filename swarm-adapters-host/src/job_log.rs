//! The logs of jobs: one file for each job, with the time and the worker on each line.
//!
//! A line is `TIME WORKER | TEXT` for output of the job, and `TIME WORKER - TEXT` for a remark about
//! the job. The time is in UTC, with microseconds.
//!
//! The worker that runs a job appends to the job's file through a [`JobLogs`]. It renames a full file
//! to `FILE.1`, as `logrotate` does, and deletes the oldest one. A new file that follows another one
//! begins with the remark [`CONTINUED`], so a reader knows whether lines before it are gone.
//! [`Reader`] merges the files of a job in order of time. [`prune`] bounds the size of all files.

mod name;
mod prune;
mod read;
mod settings;
mod write;

pub use name::{base_of, belongs_to, escaped, file_name};
pub use prune::{Pruned, prune};
pub use read::{Entry, Reader};
pub use settings::{Limits, Settings};
pub use write::JobLogs;

use std::path::{Path, PathBuf};

use jiff::Timestamp;

/// The remark at the beginning of a file that follows a rotated one.
pub const CONTINUED: &str = "continues an older file";

/// The origin of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The job printed it.
    Output,
    /// The worker says something about the job.
    Remark,
}

impl Kind {
    /// The character before the text of a line.
    #[must_use]
    pub fn sign(self) -> char {
        match self {
            Self::Output => '|',
            Self::Remark => '-',
        }
    }
}

/// A line of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// The time at which the worker read the line.
    pub time: Timestamp,
    /// The worker.
    pub worker: &'a str,
    /// The origin of the text.
    pub kind: Kind,
    /// The text, without a line break.
    pub text: &'a str,
}

impl<'a> Line<'a> {
    /// A line of the present time.
    #[must_use]
    pub fn now(worker: &'a str, kind: Kind, text: &'a str) -> Self {
        Self { time: Timestamp::now(), worker, kind, text }
    }

    /// Parses a line without its line break. `None` if another program wrote it, or only a part of
    /// it was written.
    #[must_use]
    pub fn parse(line: &'a str) -> Option<Self> {
        let (time, rest) = line.split_once(' ')?;
        let (worker, rest) = rest.split_once(' ')?;
        let (sign, text) = rest.split_once(' ').unwrap_or((rest, ""));
        let kind = [Kind::Output, Kind::Remark].into_iter().find(|it| sign.chars().eq([it.sign()]));
        Some(Self { time: time.parse().ok()?, worker, kind: kind?, text })
    }

    /// Appends the line and a line break to `to`.
    pub fn append_to(&self, to: &mut String) {
        use std::fmt::Write as _;

        let Self { time, worker, kind, text } = self;
        // Writing to memory does not fail.
        let _ = writeln!(to, "{time:.6} {worker} {} {text}", kind.sign());
    }
}

/// Returns the path of the file that was rotated `times` times; 0 is the file that grows.
#[must_use]
pub fn part(path: &Path, times: usize) -> PathBuf {
    if times == 0 {
        return path.to_owned();
    }
    let mut part = path.as_os_str().to_owned();
    part.push(format!(".{times}"));
    part.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_parsed_as_it_was_written() {
        let time: Timestamp = "2026-11-27T06:59:35.1234567Z".parse().unwrap();
        for (kind, text) in [
            (Kind::Output, ""),
            (Kind::Output, "| a  b "),
            (Kind::Remark, "- 2026-11-27T06:59:35Z w-1 | x"),
        ] {
            let mut written = String::new();
            Line { time, worker: "w-0", kind, text }.append_to(&mut written);
            assert!(written.starts_with("2026-11-27T06:59:35.123456Z w-0 "), "{written}");
            let line = Line::parse(written.strip_suffix('\n').unwrap()).unwrap();
            assert_eq!((line.worker, line.kind, line.text), ("w-0", kind, text));
        }
        for other in
            ["", "text", "2026-11-27T06:59:35Z w-0", "2026-11-27T06:59:35Z w-0 > x", "x w-0 | x"]
        {
            assert_eq!(Line::parse(other), None, "{other}");
        }
    }
}
