//! Runs the jobs of one worker.
//!
//! A [`Runner`] runs one job once. The [`Supervisor`] owns all running jobs, restarts jobs that
//! ended by themselves, and reports when a job has ended with all its processes.
//!
//! [`Log`] and [`Ping`] are runners. The module `program` has one that runs programs, under a
//! [`Guard`](crate::guard::Guard).

mod log;
mod ping;
mod supervisor;

use std::mem;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use swarm_core::{JobName, Params, RunnerName, Token};
use tokio_util::sync::CancellationToken;

pub(crate) use log::Log;
pub(crate) use ping::{Ping, PingError, fetch, ping};
pub(crate) use supervisor::{Event, JobSpec, Restarter, Restarts, Supervisor, Way, Ways};

use swarm_adapters_host::runlog::boottime_ns;

/// Runs a job.
#[async_trait]
pub trait Runner: Send + Sync + 'static {
    /// Runs `job` once: until it ends by itself, or soon after `stop` is cancelled.
    ///
    /// When it returns, **nothing of the job may still run**: the job may then be started on
    /// another worker.
    async fn run(&self, job: &Job, stop: CancellationToken) -> Outcome;

    /// Called about every second while `job` runs. It must not wait for anything.
    fn tick(&self, _job: &Job) {}

    /// Called when a job whose last run here has failed begins nowhere here any more.
    fn forget(&self, _job: &JobName) {}

    /// Called when the time until which jobs may act changes, in nanoseconds of [`boottime_ns`].
    /// Jobs check [`Job::is_permitted`]. A runner whose jobs are processes has to kill them at that
    /// time in any case.
    fn permit_until(&self, _boottime_ns: u64) {}

    /// Returns the component that writes the run log of the jobs.
    fn run_log_keeper(&self) -> RunLogKeeper {
        RunLogKeeper::Supervisor
    }
}

/// The component that writes the run log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunLogKeeper {
    /// The supervisor writes it, around every call of [`Runner::run`].
    Supervisor,
    /// The runner itself writes it, closer to the job.
    Runner,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It succeeded. A run-to-completion job is then done; any other job begins again.
    Ended,
    /// It failed, for the reason given. The job is restarted.
    Failed(String),
    /// It was stopped, and not by its worker: a shutdown of the machine asks all processes to end.
    /// The job is neither done nor failing. It begins again after ten seconds, unless it is stopped
    /// or the worker ends in the meantime.
    Stopped,
}

/// A job as its runner sees it.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its name.
    pub name: JobName,
    /// Its fencing token, for sinks that refuse lower ones.
    pub token: Token,
    /// Its parameters.
    pub params: Params,
    /// The runner that it names. It selects the runner that gets the job.
    runner: Option<RunnerName>,
    permit: Permit,
    stop: CancellationToken,
    output: Arc<Mutex<Vec<String>>>,
    /// The number of processes that the last run left.
    left: Arc<AtomicUsize>,
    readiness: Arc<Mutex<Readiness>>,
}

/// The readiness of a run, which shows whether it is known to do its work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Readiness {
    /// The run has no check, and counts as ready after one second.
    #[default]
    Unchecked,
    /// A check has not passed yet.
    Awaited,
    /// A check has passed.
    Ready,
    /// The check of liveness has failed, and the run is being stopped.
    Stalled,
}

impl Job {
    /// Sets whether this run of the job is ready. A runner with a check calls it with
    /// [`Readiness::Awaited`] when the run begins, again when the check passes, and when the job is
    /// stalled.
    pub fn set_readiness(&self, readiness: Readiness) {
        *self.readiness.lock().unwrap_or_else(PoisonError::into_inner) = readiness;
    }

    fn readiness(&self) -> Readiness {
        *self.readiness.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the last lines of the job's output, which are shown to people if the run fails. A
    /// runner whose jobs have output calls it before it returns.
    pub fn keep_output(&self, lines: Vec<String>) {
        *self.output.lock().unwrap_or_else(PoisonError::into_inner) = lines;
    }

    fn take_output(&self) -> Vec<String> {
        mem::take(&mut self.output.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Keeps the number of processes that the run left when it ended by itself.
    pub(crate) fn keep_left(&self, count: usize) {
        self.left.store(count, Ordering::Relaxed);
    }

    fn left(&self) -> usize {
        self.left.load(Ordering::Relaxed)
    }

    /// Returns whether the job may still act: it was not asked to stop, and its worker's lease is
    /// valid. Long loops check it before every effect; it costs one reading of the clock.
    #[must_use]
    pub fn is_permitted(&self) -> bool {
        !self.stop.is_cancelled() && self.permit.holds()
    }
}

/// The time until which the jobs of a worker may act.
#[derive(Clone, Debug)]
struct Permit(Arc<AtomicU64>);

impl Permit {
    /// Creates a permit without a limit.
    fn unlimited() -> Self {
        Self(Arc::new(AtomicU64::new(u64::MAX)))
    }

    fn set(&self, boottime_ns: u64) {
        self.0.store(boottime_ns, Ordering::Release);
    }

    /// Returns the limit, if there is one.
    fn limit(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Acquire)).filter(|until| *until != u64::MAX)
    }

    fn holds(&self) -> bool {
        self.limit().is_none_or(|until| boottime_ns() < until)
    }
}

#[cfg(test)]
mod tests;
