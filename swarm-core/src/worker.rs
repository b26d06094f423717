//! The plain worker's side as data: a view goes in, and the jobs to stop and to start come out.
//!
//! Publication numbers only rise. So a view with a lower version than the previous one is not the
//! operator's newest. Either its text was replaced by an older one, such as a placeholder in a
//! repository, or the ledger was rolled back. The worker stops no job at once, since the operator
//! writes its view again. It acts on a lower version only once that version has stayed for
//! [`OLDER_VIEW_GRACE`].

use std::collections::BTreeSet;
use std::time::Duration;

use crate::handover::Moment;
use crate::{JobName, View, ViewEntry};

/// The time for which a worker with jobs ignores a view that is older than its previous one.
///
/// The operator repairs a view within seconds. Without a nudge, a kubelet mounts it within 90
/// seconds.
pub const OLDER_VIEW_GRACE: Duration = Duration::from_secs(2 * 60);

/// The jobs of a worker, and the publication that it acted on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Worker {
    /// The version of the worker's own entry in the last view it acted on; 0 if it had none.
    pub version: u64,
    /// The version of that view as a whole; 0 if it had none.
    pub publication: u64,
    /// The jobs that it runs.
    pub running: BTreeSet<JobName>,
    /// The moment since when the view has been older than the previous one, by the worker's clock.
    pub older_since: Option<Moment>,
}

/// An action for a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerEffect {
    /// Stop a job and wait until it has ended.
    Stop(JobName),
    /// Start a job.
    Start(JobName),
    /// Report that a view is ignored for now, since it is older than the previous one.
    ReportOlder {
        /// The version of the view.
        version: u64,
        /// The version of the view that the worker keeps acting on.
        publication: u64,
    },
}

impl Worker {
    /// Returns the worker called `name` after it has seen `view` at `now`, and the effects that
    /// lead there: stops before starts.
    ///
    /// A view without an entry for the worker leaves it without jobs. An older view than the
    /// previous one changes nothing until it has stayed for [`OLDER_VIEW_GRACE`]. A worker without
    /// jobs has nothing to keep and acts at once. O(jobs · log jobs).
    ///
    /// ```
    /// use swarm_core::handover::Moment;
    /// use swarm_core::{OLDER_VIEW_GRACE, Assignment, Ledger, Pool, Slot, View, Worker};
    ///
    /// let one = Assignment::from_iter([("a".parse()?, Slot(0))]);
    /// let view = Ledger::new(0).next(&one, &Pool::ready(1)).view();
    /// let start = Moment::default();
    /// let (worker, _) = Worker::default().step(start, "worker-0", &view);
    /// assert_eq!((worker.publication, worker.running.len()), (1, 1));
    ///
    /// let placeholder = View::default();
    /// let (worker, _) = worker.step(start, "worker-0", &placeholder);
    /// assert_eq!(worker.running.len(), 1, "version 0 is older than version 1");
    /// let (worker, _) = worker.step(start.after(OLDER_VIEW_GRACE), "worker-0", &placeholder);
    /// assert_eq!(worker.running.len(), 0, "the operator did not repair it");
    /// # Ok::<(), swarm_core::JobNameError>(())
    /// ```
    #[must_use]
    pub fn step(&self, now: Moment, name: &str, view: &View) -> (Self, Vec<WorkerEffect>) {
        if view.version < self.publication && !self.running.is_empty() {
            let since = self.older_since.unwrap_or(now);
            if now < since.after(OLDER_VIEW_GRACE) {
                let publication = self.publication;
                let report = WorkerEffect::ReportOlder { version: view.version, publication };
                let is_new = self.older_since.is_none();
                let kept = Self { older_since: Some(since), ..self.clone() };
                return (kept, is_new.then_some(report).into_iter().collect());
            }
        }
        let ViewEntry { slot: _, version, jobs } =
            view.workers.get(name).cloned().unwrap_or_default();
        let stop = self.running.difference(&jobs).cloned().map(WorkerEffect::Stop);
        let start = jobs.difference(&self.running).cloned().map(WorkerEffect::Start);
        let effects = stop.chain(start).collect();
        let publication = view.version;
        (Self { version, publication, running: jobs, older_since: None }, effects)
    }

    /// Returns when time alone next changes something. Call [`step`](Self::step) with the same view
    /// then. `None` if it never does.
    ///
    /// ```
    /// use swarm_core::Worker;
    ///
    /// assert_eq!(Worker::default().wakes_at(), None);
    /// ```
    #[must_use]
    pub fn wakes_at(&self) -> Option<Moment> {
        self.older_since.map(|since| since.after(OLDER_VIEW_GRACE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Assignment, Ledger, Pool, jobs, plan};

    const NAME: &str = "worker-0";
    const START: Moment = Moment(Duration::ZERO);

    /// A view of this version in which the worker has these jobs.
    fn view(version: u64, names: &[&str]) -> View {
        let jobs = jobs(names.iter().copied()).unwrap();
        let pool = Pool::ready(1);
        let ledger =
            Ledger::new(0).next(&plan(&jobs, &Assignment::default(), &pool).assignment, &pool);
        View { version, ..ledger.view() }
    }

    /// A view of this version without an entry for the worker.
    fn without_entry(version: u64) -> View {
        View { version, ..View::default() }
    }

    fn job(name: &str) -> JobName {
        JobName::new(name).unwrap()
    }

    fn worker(version: u64, names: &[&str]) -> Worker {
        Worker::default().step(START, NAME, &view(version, names)).0
    }

    #[test]
    fn a_worker_stops_what_is_no_longer_its_own_before_it_starts_anything() {
        let (worker, effects) = worker(1, &["a", "b"]).step(START, NAME, &view(2, &["b", "c"]));
        assert_eq!(effects, [WorkerEffect::Stop(job("a")), WorkerEffect::Start(job("c"))]);
        assert_eq!(worker.step(START, NAME, &view(2, &["b", "c"])).1, []);
    }

    #[test]
    fn a_higher_or_equal_version_without_an_entry_means_stop() {
        for version in [7, 8] {
            let (next, effects) = worker(7, &["a"]).step(START, NAME, &without_entry(version));
            assert_eq!(effects, [WorkerEffect::Stop(job("a"))]);
            assert_eq!((next.version, next.publication, next.running.len()), (0, version, 0));
        }
    }

    #[test]
    fn an_older_view_is_reported_once_and_ignored_for_a_grace_and_not_longer() {
        let begun = worker(7, &["a"]);
        for older in [without_entry(0), without_entry(6), view(6, &["b"])] {
            let (doubting, effects) = begun.step(START, NAME, &older);
            let report = WorkerEffect::ReportOlder { version: older.version, publication: 7 };
            assert_eq!(effects, [report]);
            assert_eq!((doubting.publication, &doubting.running), (7, &begun.running));
            let end = doubting.wakes_at().unwrap();
            let (still, effects) = doubting.step(end.before(Duration::from_nanos(1)), NAME, &older);
            assert_eq!((&still, effects), (&doubting, vec![]));
            let (over, effects) = still.step(end, NAME, &older);
            assert_eq!(effects[0], WorkerEffect::Stop(job("a")));
            assert_eq!((over.publication, over.wakes_at()), (older.version, None));
        }
    }

    #[test]
    fn a_view_that_is_repaired_in_time_moves_nothing_and_ends_the_grace() {
        let begun = worker(7, &["a"]);
        let (doubting, _) = begun.step(START, NAME, &without_entry(0));
        let later = START.after(Duration::from_secs(90));
        assert_eq!(doubting.step(later, NAME, &view(7, &["a"])), (begun.clone(), vec![]));
        // A second older view starts a new wait.
        let (again, effects) = begun.step(later, NAME, &without_entry(0));
        assert_eq!((again.older_since, effects.len()), (Some(later), 1));
    }

    #[test]
    fn a_worker_without_jobs_has_nothing_to_keep() {
        let idle = worker(7, &["a"]).step(START, NAME, &without_entry(8)).0;
        let (next, effects) = idle.step(START, NAME, &view(1, &["b"]));
        assert_eq!((next.publication, effects), (1, vec![WorkerEffect::Start(job("b"))]));
    }

    #[test]
    fn views_that_never_say_a_version_are_acted_on_as_they_come() {
        let (next, effects) = worker(0, &["a"]).step(START, NAME, &without_entry(0));
        assert_eq!((next.running.len(), effects), (0, vec![WorkerEffect::Stop(job("a"))]));
    }
}
