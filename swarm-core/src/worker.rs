//! The worker's side as data: a view comes in, jobs to stop and to start come out.

use std::collections::BTreeSet;

use crate::{JobName, View, ViewEntry};

/// What a worker runs and which publication told it so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Worker {
    /// The version of the worker's own entry in the last view it acted on; 0 if it had none.
    pub version: u64,
    /// The jobs it runs.
    pub running: BTreeSet<JobName>,
}

/// What a worker has to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerEffect {
    /// Stop a job and wait until it has stopped.
    Stop(JobName),
    /// Start a job.
    Start(JobName),
}

impl Worker {
    /// The worker called `name` after it has seen `view`, and the way there: stops before starts.
    ///
    /// A view without an entry for the worker leaves it without jobs.
    #[must_use]
    pub fn step(&self, name: &str, view: &View) -> (Self, Vec<WorkerEffect>) {
        let ViewEntry { slot: _, version, jobs } =
            view.workers.get(name).cloned().unwrap_or_default();
        let stop = self.running.difference(&jobs).cloned().map(WorkerEffect::Stop);
        let start = jobs.difference(&self.running).cloned().map(WorkerEffect::Start);
        let effects = stop.chain(start).collect();
        (Self { version, running: jobs }, effects)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Assignment, Ledger, Pool, jobs, plan};

    #[test]
    fn a_worker_stops_what_is_no_longer_its_own_before_it_starts_anything() {
        let pool = Pool::ready(1);
        let view = |names: &[&str]| {
            let jobs = jobs(names.iter().copied()).unwrap();
            Ledger::new(0)
                .next(&plan(&jobs, &Assignment::default(), &pool).assignment, &pool)
                .view()
        };
        let (worker, _) = Worker::default().step("worker-0", &view(&["a", "b"]));
        let (worker, effects) = worker.step("worker-0", &view(&["b", "c"]));
        let job = |name: &str| JobName::new(name).unwrap();
        assert_eq!(effects, [WorkerEffect::Stop(job("a")), WorkerEffect::Start(job("c"))]);
        assert_eq!(worker.step("worker-0", &view(&["b", "c"])).1, []);
        assert_eq!(worker.step("worker-1", &view(&["b", "c"])).0, Worker::default());
    }
}
