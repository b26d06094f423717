//! The failing jobs of a worker, told at most once a second.

use std::collections::BTreeMap;
use std::sync::Arc;

use swarm_core::{Failing, FailingJob, FailingState, JobName};
use tokio::sync::watch;

use crate::clock::unix_s;

/// How many failing jobs are told one by one.
const WORST_MAX: usize = 100;

/// The jobs that have ended by themselves and have not run well since.
pub(super) struct Failures {
    jobs: BTreeMap<JobName, FailingJob>,
    /// Whether all that is known was told.
    is_told: bool,
    told: watch::Sender<Arc<Failing>>,
}

impl Failures {
    pub(super) fn new(told: watch::Sender<Arc<Failing>>) -> Self {
        Self { jobs: BTreeMap::new(), is_told: true, told }
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

    /// Whether there is nothing new to tell.
    pub(super) fn is_told(&self) -> bool {
        self.is_told
    }

    /// Tells what is new, if anything is.
    pub(super) fn tell(&mut self) {
        if !std::mem::replace(&mut self.is_told, true) {
            let failing = Failing::of(self.jobs.values(), WORST_MAX);
            self.told.send_replace(Arc::new(failing));
        }
    }
}
