//! The present phase of each job, from the reports of the workers over their channels.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use swarm_adapters_host::channel::{Event, JobNow, Versions, WorkerState};
use swarm_adapters_host::clock::unix_ms;
use swarm_core::life::{Lives, News};
use swarm_core::{JobName, Slot};
use swarm_view::jobs::EVERYWHERE;

use super::{Phase, Workers};

/// The reports of all workers. A reader sees changes at once, without a turn of the operator.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reports {
    states: Arc<Mutex<WorkerStates>>,
    /// Time of the last sign of each worker instance: an event, or a renewal of its lease.
    heard: Arc<Mutex<BTreeMap<String, Instant>>>,
    /// The lives of the jobs, over all workers.
    lives: Arc<Mutex<Lives>>,
}

/// The latest report of the worker in each slot.
pub(crate) type WorkerStates = BTreeMap<Slot, WorkerState>;

impl Reports {
    /// Locks the reports.
    pub(crate) fn lock(&self) -> MutexGuard<'_, WorkerStates> {
        // A thread that panicked while holding the lock cannot have left an incomplete entry.
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the lives of the jobs.
    pub(crate) fn lives(&self) -> MutexGuard<'_, Lives> {
        self.lives.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records an event of a job of a worker in the life of that job. Returns whether a failing job has
    /// begun to run.
    pub(super) fn live(&self, worker: &str, event: &Event) -> bool {
        let Some((job, news)) = event.news() else { return false };
        let Ok(job) = JobName::new(job) else { return false };
        let mut lives = self.lives();
        lives.learn(unix_ms(), &job, worker, news);
        news == News::Started && lives.of(job.as_str()).is_some_and(|it| it.failing.is_some())
    }

    fn all_heard(&self) -> MutexGuard<'_, BTreeMap<String, Instant>> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a sign of a worker instance.
    pub(crate) fn hear(&self, instance: &str) {
        self.all_heard().insert(instance.to_owned(), Instant::now());
    }

    /// Returns the time of the last sign of a worker instance.
    pub(crate) fn heard(&self, instance: &str) -> Option<Instant> {
        self.all_heard().get(instance).copied()
    }

    /// Forgets the signs of other instances.
    pub(crate) fn retain_heard(&self, is_kept: impl Fn(&str) -> bool) {
        self.all_heard().retain(|instance, _| is_kept(instance));
    }

    /// Returns the phase of the job in `slot`, which has this state in the ledger, and the report of
    /// its worker. `unassigned` is the reason why it has no worker, if it has none.
    pub(crate) fn of(
        &self,
        job: &str,
        slot: Option<u32>,
        state: &'static str,
        unassigned: Option<&str>,
    ) -> (&'static str, Option<JobNow>) {
        let reports = self.lock();
        let now = match slot {
            Some(slot) => reports.get(&Slot(slot)).and_then(|it| it.jobs.get(job)),
            // Every worker runs it, and the worst of them counts.
            None if state == EVERYWHERE => {
                let all = reports.values().filter_map(|it| it.jobs.get(job));
                all.min_by_key(|now| now.phase)
            }
            None => None,
        };
        (phase(state, unassigned, now), now.cloned())
    }

    /// Returns how many runs of a job have ended by themselves: over all its workers, or on the worker
    /// in `slot` if nothing else is known.
    pub(crate) fn restarts(&self, slot: Slot, job: &str) -> Option<u64> {
        let of_life = self.lives().of(job).map(|life| life.restarts);
        let reports = self.lock();
        let now = reports.get(&slot).and_then(|it| it.jobs.get(job)).map(|now| now.restarts);
        now.max(of_life)
    }

    /// Returns the versions of the jobs of each running worker, without workers whose jobs all run
    /// their newest version.
    pub(crate) fn versions(&self, workers: &Workers) -> BTreeMap<Slot, Versions> {
        let reports = self.lock();
        let is_current = |(slot, state): &(&Slot, &WorkerState)| {
            let up = workers.get(slot).filter(|worker| worker.phase == Phase::Up);
            state.versions != Versions::default()
                && up.is_some_and(|worker| worker.instance == state.instance)
        };
        let current = reports.iter().filter(is_current);
        current.map(|(slot, state)| (*slot, state.versions.clone())).collect()
    }
}

/// The reason without a worker of a suspended job.
const SUSPENDED: &str = "suspended";

/// Returns the phase of a job from its state in the ledger, the reason why it has no worker, and
/// the report of its worker.
fn phase(state: &'static str, unassigned: Option<&str>, now: Option<&JobNow>) -> &'static str {
    match (state, unassigned, now) {
        // Its process may run until the worker confirms the end.
        ("releasing", _, _) => "stopping",
        (_, Some(SUSPENDED), _) => SUSPENDED,
        (_, Some(_), _) => "unassigned",
        ("granted" | EVERYWHERE, None, Some(now)) => now.phase.as_str(),
        // The worker does not know the grant yet, or is being restarted.
        ("granted" | EVERYWHERE, None, None) => "starting",
        ("hold" | "free", None, _) => "waiting",
        (state, None, _) => state,
    }
}

#[cfg(test)]
mod tests {
    use swarm_adapters_host::channel::JobPhase;

    use super::*;

    #[test]
    fn the_phase_follows_ledger_and_worker() {
        let now = |phase| Some(JobNow { phase, ..JobNow::default() });
        for (state, unassigned, now, expected) in [
            ("granted", None, None, "starting"),
            ("granted", None, now(JobPhase::Running), "running"),
            ("everywhere", None, now(JobPhase::Stalled), "stalled"),
            ("granted", None, now(JobPhase::Waiting), "waiting"),
            ("releasing", None, now(JobPhase::Ready), "stopping"),
            ("releasing", Some("suspended"), now(JobPhase::Running), "stopping"),
            ("free", Some("suspended"), None, "suspended"),
            ("free", Some("capacity"), None, "unassigned"),
            ("free", None, None, "waiting"),
            ("done", None, None, "done"),
            ("quarantined", None, None, "quarantined"),
        ] {
            assert_eq!(phase(state, unassigned, now.as_ref()), expected, "{state}");
        }
    }

    #[test]
    fn of_a_job_on_all_workers_the_worst_phase_counts() {
        let all = Reports::default();
        for (slot, phase) in [(0, JobPhase::Ready), (1, JobPhase::Restarting)] {
            let jobs = BTreeMap::from([("a".to_owned(), JobNow { phase, ..JobNow::default() })]);
            all.lock().insert(Slot(slot), WorkerState { jobs, ..WorkerState::default() });
        }
        let shown = |state, slot| all.of("a", slot, state, None).0;
        assert_eq!(shown(EVERYWHERE, None), "restarting");
        assert_eq!(shown("granted", Some(0)), "ready");
        assert_eq!(shown("granted", Some(2)), "starting");
    }
}
