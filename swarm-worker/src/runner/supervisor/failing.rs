//! The failing jobs of a worker. A change is reported at once, and the changes that follow it are
//! gathered.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use swarm_adapters_host::clock::unix_s;
use swarm_adapters_host::failing::WORST_MAX;
use swarm_core::{Failing, FailingJob, FailingState, JobName};
use tokio::sync::watch;
use tokio::time::Instant;

/// Time between two reports: short for a person, and longer by a share of the time that many jobs
/// take.
const GATHER: Duration = Duration::from_millis(50);
const GATHER_PER_JOB: Duration = Duration::from_micros(50);

/// The jobs that have ended by themselves and have not run well since.
pub(super) struct Failures {
    jobs: BTreeMap<JobName, FailingJob>,
    /// Whether all that is known was told.
    is_told: bool,
    told_at: Option<Instant>,
    told: watch::Sender<Arc<Failing>>,
}

impl Failures {
    pub(super) fn new(told: watch::Sender<Arc<Failing>>) -> Self {
        Self { jobs: BTreeMap::new(), is_told: true, told_at: None, told }
    }

    /// A job has ended by itself.
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
        self.is_told = false;
    }

    /// A job was stopped or is done.
    pub(super) fn forget(&mut self, job: &JobName) {
        self.is_told &= self.jobs.remove(job).is_none();
    }

    /// Forgets the jobs that run well now.
    pub(super) fn recover(&mut self, runs_well: impl Fn(&JobName) -> bool) {
        let count = self.jobs.len();
        self.jobs.retain(|job, _| !runs_well(job));
        self.is_told &= self.jobs.len() == count;
    }

    /// Time at which something new is to be reported; `None` if there is nothing new.
    pub(super) fn tell_at(&self) -> Option<Instant> {
        let jobs = u32::try_from(self.jobs.len()).unwrap_or(u32::MAX);
        let gather = GATHER.max(GATHER_PER_JOB.saturating_mul(jobs));
        let at = || self.told_at.map_or_else(Instant::now, |told_at| told_at + gather);
        (!self.is_told).then(at)
    }

    /// Tells what is new, if anything is.
    pub(super) fn tell(&mut self) {
        if !std::mem::replace(&mut self.is_told, true) {
            self.told_at = Some(Instant::now());
            let failing = Failing::of(self.jobs.values(), WORST_MAX);
            self.told.send_replace(Arc::new(failing));
        }
    }
}
