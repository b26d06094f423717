//! The run log records each run of a job, with its worker and times: one JSON object per line, for
//! `swarm verify`.
//!
//! A *writer* is one [`RunLog`] of a session. The process that runs a job writes `start`, and `stop`
//! when no process of the job runs any more. While any job runs, the writer adds one `alive` line a
//! second, which is about all its running jobs. All writers of a machine share one file and one
//! clock (`CLOCK_BOOTTIME`). The clock is read right before the single `write` of a line, so that
//! overlaps are recorded exactly. A line that cannot be written is counted, and the first one
//! causes a warning; no job stops for it.
//!
//! The lines of a writer are numbered, so that a reader notices a missing one. A `session` line
//! begins the lines of a writer in each file, and again after a line that could not be written. It
//! is followed by a `running` line for each running job. So a file can be judged without the file
//! before it. A writer that ends in order says so by an `end` line; a killed one does not.
//!
//! The operator rotates a log that has grown large ([`rotate`]) and keeps one old file. Every writer
//! notices this within a second and continues in a new file. [`judged`] merges several files by
//! time, and checks whether every job was run by one worker at a time.

pub mod alone;
pub mod judge;
mod lines;
mod merged;
mod record;
mod write;
mod writers;

pub use lines::Torn;
pub use merged::{Damage, Entry, ReadError, judged, read};
pub use write::{RunEvent, RunLog, switched_off};
pub use writers::{Coverage, Missing};

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use swarm_core::handover::Moment;

use crate::clock;
use crate::job_log::part;

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
