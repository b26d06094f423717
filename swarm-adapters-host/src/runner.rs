//! Runs the jobs of one worker.
//!
//! A [`Runner`] knows how to run one job once; the [`Supervisor`] owns all jobs that run, starts
//! those again that ended by themselves, and tells when nothing of a job is left. A program brings
//! its own runner in a few lines:
//!
//! ```
//! use swarm_adapters_host::runner::{Job, Outcome, Runner};
//! use tokio_util::sync::CancellationToken;
//!
//! struct Poller;
//!
//! #[async_trait::async_trait]
//! impl Runner for Poller {
//!     async fn run(&self, job: &Job, stop: CancellationToken) -> Outcome {
//!         while job.is_permitted() && !stop.is_cancelled() {
//!             // Fetch from the source called `job.name`, hand `job.token` to the sink.
//!             # break;
//!         }
//!         Outcome::Ended
//!     }
//! }
//! ```
//!
//! [`Log`], [`Ping`] and [`Command`] are the runners that come with a worker.

mod command;
mod kind;
mod log;
mod ping;
mod supervisor;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use swarm_core::{JobName, Token};
use tokio_util::sync::CancellationToken;

pub use command::{Command, TemplateError};
pub use kind::{RunnerKind, UnknownRunner};
pub use log::Log;
pub use ping::{AddressError, Ping, PingError, Pong, ping};
pub use supervisor::{Event, JobPhase, JobReport, JobSpec, Supervisor};

use crate::runlog::boottime_ns;

/// Knows how to run a job.
#[async_trait]
pub trait Runner: Send + Sync + 'static {
    /// Runs `job` once: until it ends by itself, or soon after `stop` is cancelled.
    ///
    /// When it returns, **nothing of the job may be left**: the job can then be started elsewhere.
    async fn run(&self, job: &Job, stop: CancellationToken) -> Outcome;

    /// Called about every second while `job` runs. It must not wait for anything.
    fn tick(&self, _job: &Job) {}

    /// Called when the time until which jobs may act has moved, in nanoseconds of
    /// [`boottime_ns`]. Jobs ask [`Job::is_permitted`]; a runner whose jobs are processes has to
    /// end them when that time has passed, whatever else happens.
    fn permit_until(&self, _boottime_ns: u64) {}

    /// Who writes the run log of its jobs.
    fn run_log_keeper(&self) -> RunLogKeeper {
        RunLogKeeper::Supervisor
    }
}

/// Who writes the run log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunLogKeeper {
    /// The supervisor, around every call of [`Runner::run`].
    Supervisor,
    /// Somebody nearer to the job.
    Runner,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Well. A finite job is done then; any other is started again.
    Ended,
    /// Badly; a sentence says how. The job is started again.
    Failed(String),
}

/// A job as its runner sees it.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its name.
    pub name: JobName,
    /// Its fencing number, for sinks that refuse lower ones.
    pub token: Token,
    /// What else it was given.
    pub params: BTreeMap<String, String>,
    permit: Permit,
    stop: CancellationToken,
}

impl Job {
    /// Whether it may still act: it was not told to stop and its worker's lease holds. For long
    /// loops to ask before every effect; it costs one reading of the clock.
    #[must_use]
    pub fn is_permitted(&self) -> bool {
        !self.stop.is_cancelled() && self.permit.holds()
    }
}

/// Until when the jobs of a worker may act.
#[derive(Clone, Debug)]
struct Permit(Arc<AtomicU64>);

impl Permit {
    /// For ever, until somebody says otherwise.
    fn unlimited() -> Self {
        Self(Arc::new(AtomicU64::new(u64::MAX)))
    }

    fn set(&self, boottime_ns: u64) {
        self.0.store(boottime_ns, Ordering::Release);
    }

    fn holds(&self) -> bool {
        match self.0.load(Ordering::Acquire) {
            u64::MAX => true,
            until => boottime_ns() < until,
        }
    }
}

#[cfg(test)]
mod tests;
