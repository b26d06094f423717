//! The progress of a pool: settled, or the events it waits for, and until when.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Decision, Desired, Observed, Waiting};
use crate::handover::Cell;
use crate::{Presence, Unassigned};

/// The progress of a pool towards the wishes of the user, after a turn was carried out.
///
/// It is the only rule for whether a pool is settled. It is data: user interfaces form sentences
/// from it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// The reason why the turn assigned nothing.
    pub waiting: Option<Waiting>,
    /// The numbers of jobs by state.
    pub jobs: JobCounts,
    /// The number of jobs that move once the budget allows.
    pub deferred: usize,
    /// The names of the workers that should run jobs and are not ready.
    pub not_ready: Vec<String>,
    /// The names of the workers that do not have their newest jobs yet, if known.
    pub stale: Vec<String>,
    /// The number of ready workers.
    pub workers_ready: usize,
    /// The number of workers that the workload should have now.
    pub workers_now: usize,
    /// The number of workers that the user wants.
    pub workers_wanted: usize,
    /// The time after which the next turn may do more although no event has happened; `None` if it
    /// will not.
    pub until: Option<Duration>,
}

/// The numbers of jobs by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobCounts {
    /// Granted to a worker, or to all workers.
    pub granted: usize,
    /// Waiting for their holders to release them.
    pub releasing: usize,
    /// Waiting for the worker of their slot to return.
    pub held: usize,
    /// To be granted in one of the next turns.
    pub free: usize,
    /// Quarantined, for having crashed workers.
    pub quarantined: usize,
    /// Waiting until every session of another incarnation of the ledger has ended.
    pub recovering: usize,
    /// Done.
    pub done: usize,
    /// Suspended, so that they run nowhere.
    pub suspended: usize,
    /// Without a worker, for another [reason](crate::Unassigned) that only another input can
    /// change.
    pub unassigned: usize,
}

impl Progress {
    /// Returns the progress after `decision` was saved and its views were published.
    ///
    /// `stale` has the names of the workers that do not have their newest jobs yet.
    /// [`Overseer::progress`](crate::overseer::Overseer::progress) finds those with sessions.
    /// O(jobs · log jobs).
    ///
    /// ```
    /// use swarm_core::{Decision, Desired, Ledger, Observed, Progress, decide};
    ///
    /// let (nothing, nobody) = (Desired::default(), Observed::new([], 1, []));
    /// let decision = decide(&Ledger::new(0), &nothing, &nobody);
    /// assert!(Progress::of(&decision, &nothing, &nobody, vec![]).is_settled());
    /// let worker = vec!["worker-0".to_owned()];
    /// assert!(!Progress::of(&decision, &nothing, &nobody, worker).is_settled());
    /// ```
    #[must_use]
    pub fn of(
        decision: &Decision,
        desired: &Desired,
        observed: &Observed,
        stale: Vec<String>,
    ) -> Self {
        let workers_now = observed.workers_desired;
        Self {
            waiting: decision.waiting,
            jobs: JobCounts::of(decision),
            deferred: decision.plan.deferred.len(),
            not_ready: not_ready(decision, observed),
            stale,
            workers_ready: observed.ready(),
            workers_now,
            workers_wanted: desired.replicas.map_or(workers_now, |count| count as usize),
            until: decision.recheck_in,
        }
    }

    /// Returns whether the pool has nothing to do and nothing to wait for. Every job that a worker
    /// can take is granted to a ready worker, and every worker has its newest jobs. Jobs that no
    /// worker can take do not matter, nor do missing workers without jobs.
    ///
    /// ```
    /// use swarm_core::Progress;
    ///
    /// assert!(Progress::default().is_settled());
    /// let mut moves = Progress::default();
    /// moves.deferred = 1;
    /// assert!(!moves.is_settled());
    /// ```
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let Self { waiting, jobs, deferred, not_ready, stale, workers_now, workers_wanted, .. } =
            self;
        waiting.is_none()
            && jobs.waiting() == 0
            && *deferred == 0
            && not_ready.is_empty()
            && stale.is_empty()
            && workers_now == workers_wanted
    }

    /// Returns whether all wanted workers are ready.
    ///
    /// ```
    /// use swarm_core::Progress;
    ///
    /// let mut three = Progress::default();
    /// (three.workers_now, three.workers_wanted, three.workers_ready) = (3, 3, 2);
    /// assert!(!three.has_all_workers());
    /// three.workers_ready = 3;
    /// assert!(three.has_all_workers());
    /// ```
    #[must_use]
    pub fn has_all_workers(&self) -> bool {
        self.workers_wanted <= self.workers_ready && self.workers_now == self.workers_wanted
    }
}

impl JobCounts {
    fn of(decision: &Decision) -> Self {
        let unassigned = &decision.plan.unassigned;
        let suspended = unassigned.values().filter(|why| **why == Unassigned::Suspended).count();
        let mut counts =
            Self { unassigned: unassigned.len() - suspended, suspended, ..Self::default() };
        for (job, record) in &decision.ledger.cells.jobs {
            let count = match &record.cell {
                Cell::Granted { .. } | Cell::Everywhere { .. } => &mut counts.granted,
                Cell::Releasing { .. } | Cell::ReleasingAll { .. } => &mut counts.releasing,
                Cell::Hold { .. } => &mut counts.held,
                Cell::Free { .. } if unassigned.contains_key(job) => continue,
                Cell::Free { .. } => &mut counts.free,
                Cell::Quarantined { .. } if record.is_quarantined() => &mut counts.quarantined,
                Cell::Quarantined { .. } => &mut counts.recovering,
                Cell::Done { .. } => &mut counts.done,
            };
            *count += 1;
        }
        counts
    }

    /// Returns the number of jobs that wait for something that will happen, if only for time to
    /// pass.
    ///
    /// ```
    /// use swarm_core::JobCounts;
    ///
    /// let mut counts = JobCounts::default();
    /// (counts.granted, counts.releasing, counts.held) = (5, 2, 1);
    /// assert_eq!(counts.waiting(), 3);
    /// ```
    #[must_use]
    pub fn waiting(&self) -> usize {
        let Self { granted: _, releasing, held, free, quarantined, recovering, done: _, .. } = self;
        releasing + held + free + quarantined + recovering
    }
}

/// Returns the workers that should run jobs and are not ready.
fn not_ready(decision: &Decision, observed: &Observed) -> Vec<String> {
    let is_everywhere = |cell: &Cell| matches!(cell, Cell::Everywhere { .. });
    let has_everywhere = decision.ledger.cells.jobs.values().any(|it| is_everywhere(&it.cell));
    let planned: BTreeSet<_> = decision.plan.assignment.iter().map(|(_, slot)| slot).collect();
    let runs = |slot| planned.contains(slot) || has_everywhere;
    let not_ready = observed
        .workers
        .iter()
        .filter(|(slot, seen)| seen.presence != Presence::Ready && runs(slot));
    not_ready.map(|(_, seen)| seen.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{WorkerSeen, decide};
    use super::*;
    use crate::handover::{Policy, Record, SessionId};
    use crate::{Job, Ledger, Rules, Slot, Timing, Token, jobs};

    fn desired() -> Desired {
        let timing = Timing { initial_wait: Duration::ZERO, ..Timing::default() };
        let jobs = jobs(["a", "b", "c", "d"]).unwrap();
        Desired { jobs, timing, policy: Policy::Exclusive, ..Desired::default() }
    }

    fn observed(presences: &[Presence]) -> Observed {
        let worker = |(n, presence): (u32, &Presence)| {
            let session = Some(SessionId::new("pod", u64::from(n)));
            (Slot(n), WorkerSeen { name: format!("w-{n}"), presence: *presence, session })
        };
        Observed::new((0..).zip(presences).map(worker), 1, [])
    }

    fn progress(ledger: &Ledger, desired: &Desired, observed: &Observed) -> (Progress, Ledger) {
        let decision = decide(ledger, desired, observed);
        (Progress::of(&decision, desired, observed, vec![]), decision.ledger)
    }

    const READY: Presence = Presence::Ready;

    #[test]
    fn a_pool_is_settled_when_all_jobs_are_granted_and_read() {
        let (settled, ledger) = progress(&Ledger::new(1), &desired(), &observed(&[READY; 2]));
        assert!(settled.is_settled() && settled.has_all_workers(), "{settled:?}");
        assert_eq!((settled.jobs.granted, settled.until), (4, None));
        let stale = Progress { stale: vec!["w-0".into()], ..settled };
        assert!(!stale.is_settled());
        let (moving, _) = progress(&ledger, &desired(), &observed(&[READY; 3]));
        assert_eq!((moving.jobs.releasing, moving.is_settled()), (1, false));
    }

    #[test]
    fn a_budget_leaves_something_to_do() {
        let ledger = progress(&Ledger::new(1), &desired(), &observed(&[READY])).1;
        let rules = Rules { moves_max: Some(0), ..Rules::default() };
        let bounded = Desired { rules, ..desired() };
        let (progress, next) = progress(&ledger, &bounded, &observed(&[READY; 2]));
        assert_eq!(next.cells.jobs, ledger.cells.jobs);
        assert_eq!((progress.deferred, progress.is_settled()), (2, false));
    }

    #[test]
    fn a_worker_that_is_missing_matters_only_if_it_has_jobs() {
        let ledger = progress(&Ledger::new(1), &desired(), &observed(&[READY; 2])).1;
        let ill = Presence::NotReady(Duration::ZERO);
        let (holder, _) = progress(&ledger, &desired(), &observed(&[READY, ill]));
        assert_eq!((holder.not_ready.clone(), holder.is_settled()), (vec!["w-1".into()], false));
        let (other, _) = progress(&ledger, &desired(), &observed(&[READY, READY, ill]));
        assert!(other.is_settled() && !other.has_all_workers(), "{other:?}");
    }

    #[test]
    fn a_pool_that_changes_its_size_or_is_paused_or_incomplete_is_not_settled() {
        let wider = Desired { replicas: Some(3), ..desired() };
        let (wider, ledger) = progress(&Ledger::new(1), &wider, &observed(&[READY; 2]));
        assert_eq!((wider.workers_now, wider.workers_wanted), (2, 3));
        assert!(!wider.is_settled() && !wider.has_all_workers());
        let paused = Desired { paused: true, ..desired() };
        assert!(!progress(&ledger, &paused, &observed(&[READY; 2])).0.is_settled());
        let patient = Desired { timing: Timing::default(), ..desired() };
        let none = observed(&[Presence::NotReady(Duration::ZERO)]);
        let (incomplete, _) = progress(&Ledger::new(1), &patient, &none);
        assert_eq!(incomplete.waiting, Some(Waiting::PoolIncomplete { ready: 0, desired: 1 }));
        assert!(!incomplete.is_settled() && incomplete.until.is_some());
    }

    #[test]
    fn a_job_that_nobody_can_take_is_not_waited_for() {
        let mut pinned = desired();
        let pin = Job { pin: Some(Slot(7)), ..Job::default() };
        pinned.jobs.insert("pinned".parse().unwrap(), pin);
        let (progress, ledger) = progress(&Ledger::new(1), &pinned, &observed(&[READY]));
        assert!(progress.is_settled(), "{progress:?}");
        assert_eq!((progress.jobs.unassigned, progress.jobs.granted), (1, 4));
        assert!(matches!(ledger.cells.jobs["pinned"].cell, Cell::Free { .. }));
    }

    #[test]
    fn each_state_of_a_job_is_counted_once() {
        let session = SessionId::new("pod", 1);
        let (span, token) = (Duration::from_mins(1), Token(1));
        let cells = [
            (Cell::Granted { session: session.clone(), token }, 0),
            (Cell::Everywhere { token }, 0),
            (Cell::Releasing { session, token, since: 1 }, 0),
            (Cell::Hold { slot: Slot(0), span, token }, 0),
            (Cell::Free { token }, 0),
            (Cell::Free { token }, 0),
            (Cell::Quarantined { span, token }, 3),
            (Cell::Quarantined { span, token }, 0),
            (Cell::Done { token }, 0),
            (Cell::Free { token }, 0),
        ];
        let mut decision = decide(&Ledger::new(1), &desired(), &observed(&[READY]));
        let record = |(n, (cell, strikes)): (usize, (Cell, u32))| {
            (format!("job-{n}").parse().unwrap(), Record { cell, strikes })
        };
        decision.ledger.cells.jobs = cells.into_iter().enumerate().map(record).collect();
        let reason = ("job-5".parse().unwrap(), Unassigned::NoWorkers);
        let suspended = ("job-9".parse().unwrap(), Unassigned::Suspended);
        decision.plan.unassigned = [reason, suspended].into();
        let counts = JobCounts::of(&decision);
        let expected = JobCounts {
            granted: 2,
            releasing: 1,
            held: 1,
            free: 1,
            quarantined: 1,
            recovering: 1,
            done: 1,
            suspended: 1,
            unassigned: 1,
        };
        assert_eq!((counts, counts.waiting()), (expected, 5));
    }
}
