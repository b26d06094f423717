//! Describes what is wrong with the processes of a pool.

use swarm_adapters_host::channel::HeldProcess;
use swarm_view::status::SHOWN;
use swarm_view::words::counted;
use swarm_worker::procs;

use super::Processes;

impl Processes {
    /// Returns sentences about the processes that keep jobs and workers from ending.
    #[must_use]
    pub(crate) fn held(&self) -> Vec<String> {
        let workers = self.shared.workers.borrow();
        let reported = self.shared.reported.lock();
        let mut sentences = Vec::new();
        for (slot, worker) in workers.iter() {
            let mut add = |of: &str, held: &[HeldProcess]| {
                sentences.extend(procs::sentence(of, held));
            };
            add(&format!("worker {}", worker.name), &worker.held);
            let its_own = reported.get(slot).filter(|it| it.instance == worker.instance);
            let jobs = its_own.filter(|_| worker.held.is_empty());
            for (job, now) in jobs.into_iter().flat_map(|it| &it.jobs) {
                add(&format!("{job} on {}", worker.name), &now.held);
            }
        }
        sentences
    }

    /// Returns sentences about workers that cannot be started. The last one counts the workers that no
    /// other one names.
    #[must_use]
    pub(crate) fn unstarted(&self) -> Vec<String> {
        let workers = self.shared.workers.borrow();
        let all: Vec<_> =
            workers.values().filter_map(|it| Some((&it.name, it.unstarted.as_ref()?))).collect();
        let shown = all.iter().take(SHOWN);
        let mut sentences: Vec<_> = shown
            .map(|(name, why)| format!("{name} cannot be started: {why}; trying it again"))
            .collect();
        if let Some(more) = all.len().checked_sub(SHOWN).filter(|more| 0 < *more) {
            sentences.push(format!("… and {} cannot be started", counted(more, "more worker")));
        }
        sentences
    }
}
