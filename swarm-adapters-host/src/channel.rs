//! A channel between an operator and each of its workers on one machine. It carries JSON lines over
//! a pair of sockets; one end is the worker's standard input.
//!
//! The operator sends [orders](Order), and the worker sends [events](Event). The channel only
//! carries orders and information for people. Grants and proofs never depend on an event, so a
//! worker that lies can only mislead its reader. When the operator closes its end, or has ended,
//! the worker stops its jobs and ends, as it does when a pipe closes.
//!
//! A worker of an earlier version reads its standard input and ignores the contents. It sends no
//! [hello](Event::Hello), so the operator knows that its orders have to be signals.

mod events;
mod follow;
mod news;
mod orders;
mod phase;

use serde::{Deserialize, Serialize};
use swarm_core::Failing;

pub use events::Events;
pub use follow::{HELD_MAX, JobNow, Versions, WorkerState, follow, printable};
pub use news::OwnLives;
pub use orders::{Orders, inherited};
pub use phase::{JobPhase, JobVersion};

/// The version of the channel that a worker speaks. Later versions only add orders and events.
pub const VERSION: u32 = 1;

/// The length limit of a line, in bytes. The longest line lists a hundred failing jobs.
pub(crate) const LINE_BYTES_MAX: u64 = 4 << 20;

/// An order of the operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Order {
    /// Release all jobs while they are moved elsewhere, and end.
    Drain {
        /// The time within which all jobs have to end.
        within_ms: u64,
    },
    /// Stop all jobs now, and end.
    End,
    /// Stop the run of a job, and begin another one at once, also if the job was not restarted any
    /// more. A worker of an earlier version ignores it.
    Restart {
        /// The job.
        job: String,
    },
}

/// An event in a worker, for its operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Event {
    /// The first line of the channel.
    Hello {
        /// [`VERSION`].
        version: u32,
    },
    /// A run of a job is being started.
    Starting {
        /// The job.
        job: String,
        /// Whether the run has a check of readiness, so that [`Ready`](Self::Ready) follows.
        #[serde(default)]
        checked: bool,
    },
    /// A run of a job has begun.
    Started {
        /// The job.
        job: String,
        /// Its first process, if it is a program.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pid: Option<i32>,
        /// The time of the start, in seconds of Unix time. A worker of an earlier version omits it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at_unix_s: Option<u64>,
    },
    /// A job has passed its check of readiness.
    Ready {
        /// The job.
        job: String,
    },
    /// A job has failed its check of liveness, and is stopped and started again.
    Stalled {
        /// The job.
        job: String,
        /// The failure of the check; part of a sentence.
        reason: String,
    },
    /// A job is stopped to begin again. A worker of an earlier version does not report it.
    Renewing {
        /// The job.
        job: String,
    },
    /// A job was asked to stop.
    Stopping {
        /// The job.
        job: String,
    },
    /// A job did not stop in time, and its processes are killed.
    Killed {
        /// The job.
        job: String,
    },
    /// The program of a job gets other rights than the worker's user has. Sent once for each program.
    Warned {
        /// A job with that program.
        job: String,
        /// A sentence.
        reason: String,
    },
    /// Processes of a job that is stopped cannot be ended, since they belong to another user. Without
    /// any, all of them have ended. A worker of an earlier version does not report it.
    Held {
        /// The job.
        job: String,
        /// The processes.
        processes: Vec<HeldProcess>,
    },
    /// No process of a job is left, and the job does not start again on this worker.
    Ended {
        /// The job.
        job: String,
    },
    /// A job ended by itself and is started again after a pause.
    Restarting {
        /// The job.
        job: String,
        /// The end of the run; part of a sentence.
        exit: String,
    },
    /// A run of a job succeeded, and another one follows after a pause. A worker of an earlier version
    /// reports a restart.
    Succeeded {
        /// The job.
        job: String,
    },
    /// A job ended by itself and is not started again.
    Failed {
        /// The job.
        job: String,
        /// The end of the run; part of a sentence.
        exit: String,
    },
    /// The version of a job that runs has changed. A version is the command, environment, directory
    /// and params that start the job.
    Version {
        /// The job.
        job: String,
        /// Its version.
        version: JobVersion,
    },
    /// All jobs. The worker sends them instead of events that the operator was too slow to read.
    Jobs {
        /// The jobs.
        jobs: Vec<RunningJob>,
    },
    /// All failing jobs, after every change.
    Failing(Failing),
}

/// A process that this user may not end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldProcess {
    /// Its id.
    pub pid: i32,
    /// Its program, as `ps` shows it.
    pub program: String,
    /// The name or number of its user.
    pub user: String,
}

/// A job in the list of all jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningJob {
    /// The job.
    pub job: String,
    /// Its first process, if it is a program that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// Whether it was asked to stop.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopping: bool,
    /// Its phase. A worker of an earlier version omits it.
    #[serde(default)]
    pub phase: JobPhase,
    /// The version of it that runs. A worker of an earlier version omits it.
    #[serde(default, skip_serializing_if = "JobVersion::is_newest")]
    pub version: JobVersion,
    /// The time of its last start, in seconds of Unix time, if it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_unix_s: Option<u64>,
    /// The number of its runs that ended by themselves.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub restarts: u64,
    /// The last end of a run by itself; part of a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_exit: Option<String>,
    /// Its processes that this user may not end, once they should have ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<HeldProcess>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests;
