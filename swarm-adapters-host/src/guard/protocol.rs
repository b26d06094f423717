//! The protocol between worker and guard: one JSON object per line.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use swarm_core::JobName;

/// Both ends are the same program, so another version is an error, not an upgrade.
pub const VERSION: u32 = 1;

/// The longest line that is read, in bytes.
pub const LINE_BYTES_MAX: usize = 1 << 20;

/// A request of the worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Request {
    /// The first line: the worker and session that the guard works for.
    Hello {
        /// [`VERSION`].
        version: u32,
        /// The worker's name.
        worker: String,
        /// The worker's session.
        session: String,
        /// Where to write the run log.
        run_log: Option<PathBuf>,
    },
    /// Start a job. One of that name must not run. The answer is `started` or `refused`.
    Start {
        /// Its name.
        job: String,
        /// Its fencing token.
        token: u64,
        /// The program and its arguments.
        argv: Vec<String>,
        /// Additional variables of the environment.
        env: BTreeMap<String, String>,
        /// How long the job's other processes may take to end when its first one has ended by itself.
        grace_ms: u64,
    },
    /// Stop a job: SIGTERM, then SIGKILL. The answer is `joined`, unless it does not run.
    Stop {
        /// Its name.
        job: String,
        /// The time between the two signals.
        grace_ms: u64,
    },
    /// Set the time until which jobs may act.
    Deadline {
        /// In nanoseconds of `CLOCK_BOOTTIME`.
        boottime_ns: u64,
    },
    /// Check that the guard responds. The answer is `pong`.
    Ping {
        /// Any number.
        number: u64,
    },
}

/// A reply of the guard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Reply {
    /// A job was started.
    Started {
        /// Its name.
        job: String,
        /// Its first process, and its process group.
        pid: i32,
    },
    /// A job could not be started.
    Refused {
        /// Its name.
        job: String,
        /// Why; a sentence for a person.
        reason: String,
    },
    /// No process of a job is left.
    Joined {
        /// Its name.
        job: String,
        /// How its first process ended.
        end: End,
    },
    /// The answer to a ping.
    Pong {
        /// The number in it.
        number: u64,
    },
    /// The run log cannot be written; sent once.
    RunLogFailed {
        /// Why.
        reason: String,
    },
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// It returned an exit code.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
    /// The status is unknown.
    Unknown,
}

impl End {
    /// Whether it ended with exit code 0.
    #[must_use]
    pub fn is_success(self) -> bool {
        self == Self::Code(0)
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "ended with exit code {code}"),
            Self::Signal(signal) => write!(f, "was ended by signal {signal}"),
            Self::Unknown => f.write_str("ended"),
        }
    }
}

/// The job name in a line, which is not trusted.
pub(super) fn name(job: &str) -> Option<JobName> {
    JobName::new(job).ok()
}
