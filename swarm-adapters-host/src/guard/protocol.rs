//! What worker and guard say to each other, one JSON object a line.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use swarm_core::JobName;

/// Both ends are the same program, so another version is a mistake, not an upgrade.
pub const VERSION: u32 = 1;

/// The longest line that is understood, in bytes.
pub const LINE_BYTES_MAX: usize = 1 << 20;

/// What a worker says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Request {
    /// The first line: for whom the guard works.
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
        /// Its fencing number.
        token: u64,
        /// The program and its arguments.
        argv: Vec<String>,
        /// What to add to the environment.
        env: BTreeMap<String, String>,
        /// How long the rest of it may take to end when its first process has ended by itself.
        grace_ms: u64,
    },
    /// Stop a job: SIGTERM, then SIGKILL. The answer is `joined`, unless it does not run.
    Stop {
        /// Its name.
        job: String,
        /// The time between the two signals.
        grace_ms: u64,
    },
    /// Until when jobs may act, from now on.
    Deadline {
        /// In nanoseconds of `CLOCK_BOOTTIME`.
        boottime_ns: u64,
    },
    /// Are you there? The answer is `pong`.
    Ping {
        /// Any number.
        number: u64,
    },
}

/// What a guard says.
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
    /// Nothing of a job is left.
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
    /// The run log cannot be written; told once.
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
    /// Nobody knows.
    Unknown,
}

impl End {
    /// Whether it ended well.
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

/// The name in a line, which may come from anybody.
pub(super) fn name(job: &str) -> Option<JobName> {
    JobName::new(job).ok()
}
