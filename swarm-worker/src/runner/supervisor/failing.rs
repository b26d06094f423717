//! The failing jobs of a worker. A change is reported at once, and later changes are gathered.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use swarm_adapters_host::clock::unix_s;
use swarm_adapters_host::failing::WORST_MAX;
use swarm_core::{Failing, FailingJob, FailingState, JobName};
use tokio::sync::watch;
use tokio::time::Instant;

/// The time between two reports. It is short for a person, and longer if the report has many jobs.
const GATHER: Duration = Duration::from_millis(50);
const GATHER_PER_JOB: Duration = Duration::from_micros(50);

/// The jobs that have ended by themselves and have not run well since.
pub(super) struct Failures {
    jobs: BTreeMap<JobName, FailingJob>,
    /// Whether the last report has all changes.
    is_reported: bool,
    reported_at: Option<Instant>,
    sender: watch::Sender<Arc<Failing>>,
}

impl Failures {
    pub(super) fn new(sender: watch::Sender<Arc<Failing>>) -> Self {
        Self { jobs: BTreeMap::new(), is_reported: true, reported_at: None, sender }
    }

    /// Records that a job has ended by itself.
    pub(super) fn ended(
        &mut self,
        job: &JobName,
        state: FailingState,
        restarts: u64,
        last_exit: String,
        last_output: Vec<String>,
    ) {
        let since_unix_s = self.jobs.get(job).map_or_else(unix_s, |before| before.since_unix_s);
        let job = job.clone();
        let failing =
            FailingJob { job: job.clone(), state, restarts, since_unix_s, last_exit, last_output };
        self.jobs.insert(job, failing);
        self.is_reported = false;
    }

    /// Removes a job that was stopped or is done.
    pub(super) fn forget(&mut self, job: &JobName) {
        self.is_reported &= self.jobs.remove(job).is_none();
    }

    /// Removes the jobs that run well now.
    pub(super) fn recover(&mut self, runs_well: impl Fn(&JobName) -> bool) {
        let count = self.jobs.len();
        self.jobs.retain(|job, _| !runs_well(job));
        self.is_reported &= self.jobs.len() == count;
    }

    /// Returns the time of the next report; `None` without changes.
    pub(super) fn report_at(&self) -> Option<Instant> {
        let jobs = u32::try_from(self.jobs.len()).unwrap_or(u32::MAX);
        let gather = GATHER.max(GATHER_PER_JOB.saturating_mul(jobs));
        let at = || self.reported_at.map_or_else(Instant::now, |reported_at| reported_at + gather);
        (!self.is_reported).then(at)
    }

    /// Reports the changes, if there are any.
    pub(super) fn report(&mut self) {
        if !std::mem::replace(&mut self.is_reported, true) {
            self.reported_at = Some(Instant::now());
            let failing = Failing::of(self.jobs.values(), WORST_MAX);
            self.sender.send_replace(Arc::new(failing));
        }
    }
}
