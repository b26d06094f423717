//! Plain workers that have not been ready for too long lose the jobs that ready workers can take.
//!
//! Such a worker may or may not run its jobs. The jobs move to ready workers with room, within the
//! budget for moves at a time. Jobs that no ready worker can take stay. Sessions are judged by
//! their leases instead.

use std::collections::{BTreeMap, BTreeSet};

use super::{Desired, Observed, checked, plain};
use crate::handover::{SessionId, few};
use crate::{Assignment, JobName, Jobs, MoveReason, Plan, Presence, Request, Rules, Slot};

/// The plain workers that have not been ready for longer than the grace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overdue {
    /// Their slots.
    pub slots: BTreeSet<Slot>,
    /// Whether they are too many, so that a common fault, such as a readiness probe, is more
    /// likely. Then all of them keep their jobs.
    pub is_held: bool,
}

impl Overdue {
    /// Returns the overdue workers among the observed ones. O(workers).
    ///
    /// Up to three are not held, or up to 30 % of the workers if that is more. Under
    /// [`Policy::Exclusive`](crate::handover::Policy::Exclusive) no worker is overdue.
    ///
    /// ```
    /// use std::time::Duration;
    /// use swarm_core::handover::SessionId;
    /// use swarm_core::{Desired, Observed, Overdue, Presence, Slot, WorkerSeen};
    ///
    /// let seen = |minutes: u64| {
    ///     let presence = Presence::NotReady(Duration::from_secs(60 * minutes));
    ///     let worker = WorkerSeen::new("worker-0", presence, Some(SessionId::plain("uid")));
    ///     Observed::new([(Slot(0), worker)], 1, [])
    /// };
    /// let desired = Desired::default(); // the grace is five minutes
    /// assert!(Overdue::of(&desired, &seen(4)).slots.is_empty());
    /// assert_eq!(Overdue::of(&desired, &seen(5)).slots, [Slot(0)].into());
    /// ```
    #[must_use]
    pub fn of(desired: &Desired, observed: &Observed) -> Self {
        let Some(grace) = desired.timing.not_ready_grace else { return Self::default() };
        let slots = observed.workers.iter().filter(|(_, seen)| {
            let is_plain = plain::session(desired, seen).is_some_and(SessionId::is_plain);
            is_plain && matches!(seen.presence, Presence::NotReady(age) if grace <= age)
        });
        let slots: BTreeSet<_> = slots.map(|(slot, _)| *slot).collect();
        let is_held = few(observed.workers.len()) < slots.len();
        Self { slots, is_held }
    }

    /// Returns the plan in which overdue workers lose the jobs that a ready worker can take,
    /// instead of `kept`, in which they keep all jobs. Every job with a worker in `kept` has a
    /// worker in it, too.
    pub(super) fn plan(&self, request: &Request<'_>, kept: Plan) -> Plan {
        if self.is_held || self.slots.is_empty() {
            return kept;
        }
        let leaving = self.candidates(request);
        let Some((_, movable)) = without(request, leaving) else { return kept };
        let budget = request.rules.moves_max.unwrap_or(usize::MAX);
        let chosen = most_important(request.jobs, &movable, budget);
        let planned = without(request, chosen).filter(|(plan, _)| {
            plan.unassigned.keys().all(|job| kept.unassigned.contains_key(job))
        });
        let (mut plan, moved) = planned.unwrap_or((kept, BTreeMap::new()));
        for step in &mut plan.moves {
            if let Some(from) = moved.get(&step.job) {
                (step.from, step.reason) = (Some(*from), MoveReason::NotReady);
            }
        }
        plan.deferred.extend(movable.into_keys().filter(|job| !moved.contains_key(job)));
        plan
    }

    /// Returns the jobs of overdue workers, except jobs that are pinned there.
    fn candidates(&self, request: &Request<'_>) -> BTreeMap<JobName, Slot> {
        let is_candidate = |(job, slot): &(&JobName, Slot)| {
            let wish = request.jobs.get(*job);
            self.slots.contains(slot) && wish.is_some_and(|wish| wish.pin != Some(*slot))
        };
        let held = request.held.iter().filter(is_candidate);
        held.map(|(job, slot)| (job.clone(), slot)).collect()
    }
}

/// Plans as if the jobs in `leaving` had no holder and the lowest priority, so that they get the
/// remaining room. Jobs that get no room stay where they are. Returns the plan and the jobs that
/// leave, or `None` if no job leaves.
fn without(
    request: &Request<'_>,
    mut leaving: BTreeMap<JobName, Slot>,
) -> Option<(Plan, BTreeMap<JobName, Slot>)> {
    while !leaving.is_empty() {
        let mut jobs = request.jobs.clone();
        for (name, job) in &mut jobs {
            if leaving.contains_key(name) {
                job.priority = i32::MIN;
            }
        }
        let stays = |(job, _): &(&JobName, Slot)| !leaving.contains_key(*job);
        let held = request.held.iter().filter(stays).map(|(job, slot)| (job.clone(), slot));
        let held: Assignment = held.collect();
        let moves_max = request.rules.moves_max.map(|most| most.saturating_sub(leaving.len()));
        let rules = Rules { moves_max, ..request.rules };
        let request = Request { jobs: &jobs, held: &held, rules, ..*request };
        let plan = checked(&request);
        let before = leaving.len();
        leaving.retain(|job, _| plan.assignment.holder(job).is_some());
        if leaving.len() == before {
            return Some((plan, leaving));
        }
    }
    None
}

/// Returns up to `most` of these jobs, the highest priorities first.
fn most_important(
    jobs: &Jobs,
    from: &BTreeMap<JobName, Slot>,
    most: usize,
) -> BTreeMap<JobName, Slot> {
    let mut chosen: Vec<_> = from.iter().collect();
    chosen.sort_by_key(|(job, _)| std::cmp::Reverse(jobs.get(*job).map_or(0, |job| job.priority)));
    chosen.into_iter().take(most).map(|(job, slot)| (job.clone(), *slot)).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::super::{Decision, WorkerSeen, decide};
    use super::*;
    use crate::{Job, Ledger, Share, jobs};

    const GRACE: Duration = Duration::from_mins(5);
    const OVERDUE: Presence = Presence::NotReady(GRACE);

    fn observed(presences: &[Presence]) -> Observed {
        let worker = |(n, presence): (u32, &Presence)| {
            let name = format!("w-{n}");
            let session = Some(SessionId::plain(&name));
            (Slot(n), WorkerSeen { name, presence: *presence, session })
        };
        Observed::new((0..).zip(presences).map(worker), 1, [])
    }

    fn desired(names: &[&str]) -> Desired {
        Desired { jobs: jobs(names.iter().copied()).unwrap(), ..Desired::default() }
    }

    /// Returns the ledger of a pool whose workers are all ready.
    fn settled(desired: &Desired, workers: usize) -> Ledger {
        decide(&Ledger::new(1), desired, &observed(&vec![Presence::Ready; workers])).ledger
    }

    fn loads(decision: &Decision) -> Vec<(u32, usize)> {
        let by_slot = decision.ledger.assignment().by_slot();
        by_slot.into_iter().map(|(slot, jobs)| (slot.0, jobs.len())).collect()
    }

    #[test]
    fn what_a_ready_worker_can_take_leaves_one_that_is_not_ready_for_too_long() {
        let want = desired(&["a", "b", "c", "d"]);
        let ledger = settled(&want, 2);
        let early = Presence::NotReady(GRACE.saturating_sub(Duration::from_secs(1)));
        let before = decide(&ledger, &want, &observed(&[Presence::Ready, early]));
        assert_eq!(before.ledger, ledger);
        assert_eq!(before.recheck_in, Some(Duration::from_secs(1)));
        let after = decide(&ledger, &want, &observed(&[Presence::Ready, OVERDUE]));
        assert_eq!(loads(&after), [(0, 4)]);
        assert!(after.plan.unassigned.is_empty());
        let moves: Vec<_> = after.plan.moves.iter().map(|it| (it.from, it.reason)).collect();
        assert_eq!(moves, [(Some(Slot(1)), MoveReason::NotReady); 2]);
        let again = decide(&after.ledger, &want, &observed(&[Presence::Ready, OVERDUE]));
        assert_eq!((&again.ledger, again.recheck_in), (&after.ledger, None));
    }

    #[test]
    fn a_pool_that_is_wholly_unready_keeps_everything() {
        let want = desired(&["a", "b", "c"]);
        let ledger = settled(&want, 3);
        assert_eq!(decide(&ledger, &want, &observed(&[OVERDUE; 3])).ledger, ledger);
    }

    #[test]
    fn never_means_never_and_sessions_are_judged_by_their_leases() {
        let mut want = desired(&["a", "b"]);
        let ledger = settled(&want, 2);
        let mut seen = observed(&[Presence::Ready, OVERDUE]);
        let worker = seen.workers.get_mut(&Slot(1)).unwrap();
        worker.session = Some(SessionId::new("w-1", 7));
        assert!(Overdue::of(&want, &seen).slots.is_empty());
        want.timing.not_ready_grace = None;
        let seen = observed(&[Presence::Ready, OVERDUE]);
        assert_eq!(decide(&ledger, &want, &seen).ledger, ledger);
    }

    #[test]
    fn what_nobody_can_take_stays() {
        let mut want = desired(&["a", "b", "c", "d"]);
        want.max_jobs = Some(3);
        want.jobs.insert("pinned".parse().unwrap(), Job { pin: Some(Slot(1)), ..Job::default() });
        let ledger = settled(&want, 2);
        let decision = decide(&ledger, &want, &observed(&[Presence::Ready, OVERDUE]));
        assert_eq!(loads(&decision), [(0, 3), (1, 2)]);
        assert_eq!(decision.ledger.assignment().holder(&"pinned".parse().unwrap()), Some(Slot(1)));
        assert!(decision.plan.unassigned.is_empty());
    }

    #[test]
    fn however_important_they_take_only_what_room_there_is() {
        let mut want = desired(&["c", "d"]);
        want.max_jobs = Some(3);
        for name in ["a", "b"] {
            let job = Job { pin: Some(Slot(0)), priority: -1, ..Job::default() };
            want.jobs.insert(name.parse().unwrap(), job);
        }
        let ledger = settled(&want, 2);
        let decision = decide(&ledger, &want, &observed(&[Presence::Ready, OVERDUE]));
        assert_eq!(loads(&decision), [(0, 3), (1, 1)]);
        assert!(decision.plan.unassigned.is_empty());
    }

    #[test]
    fn no_more_move_at_a_time_than_the_budget_allows() {
        let mut want = desired(&["a", "b", "c", "d", "e", "f"]);
        want.rules.moves_max = Some(2);
        let seen = observed(&[Presence::Ready, OVERDUE]);
        let first = decide(&settled(&want, 2), &want, &seen);
        assert_eq!((loads(&first), first.plan.deferred.len()), (vec![(0, 5), (1, 1)], 1));
        let second = decide(&first.ledger, &want, &seen);
        assert_eq!((loads(&second), second.plan.deferred.len()), (vec![(0, 6)], 0));
    }

    #[test]
    fn what_leaves_them_uses_the_budget_up_for_others() {
        let mut want = desired(&["a", "b", "c", "d", "e", "f", "g", "h"]);
        want.rules.moves_max = Some(1);
        // The third worker is new, and balance would also move jobs of the first worker to it.
        let seen = observed(&[Presence::Ready, OVERDUE, Presence::Ready]);
        let moves = decide(&settled(&want, 2), &want, &seen).plan.moves;
        let moves: Vec<_> = moves.iter().map(|it| (it.from, it.to, it.reason)).collect();
        assert_eq!(moves, [(Some(Slot(1)), Some(Slot(2)), MoveReason::NotReady)]);
    }

    #[test]
    fn very_many_at_once_are_more_likely_a_common_fault() {
        let want = desired(&["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]);
        let ledger = settled(&want, 10);
        let presences = |overdue| {
            let presence = |n| if n < overdue { OVERDUE } else { Presence::Ready };
            observed(&(0..10).map(presence).collect::<Vec<_>>())
        };
        assert!(Overdue::of(&want, &presences(4)).is_held);
        assert_eq!(decide(&ledger, &want, &presences(4)).ledger, ledger);
        assert_eq!(decide(&ledger, &want, &presences(3)).plan.moves.len(), 3);
    }

    fn any_job() -> impl Strategy<Value = Job> {
        let share = proptest::option::weighted(0.3, 1..=100_u8);
        let pin = proptest::option::weighted(0.2, (0..5_u32).prop_map(Slot));
        (share, pin, -1..=1_i32).prop_map(|(share, pin, priority)| {
            let share = share.and_then(|share| Share::new(share).ok());
            Job { pin, priority, share, ..Job::default() }
        })
    }

    fn any_presence() -> impl Strategy<Value = Presence> {
        prop_oneof![
            3 => Just(Presence::Ready),
            2 => Just(OVERDUE),
            1 => Just(Presence::NotReady(Duration::ZERO)),
        ]
    }

    proptest! {
        #[test]
        fn no_job_loses_its_worker_for_it(
            wishes in proptest::collection::vec(any_job(), 0..16),
            presences in proptest::collection::vec(any_presence(), 1..5),
            max_jobs in proptest::option::of(1..6_u32),
            budget in proptest::option::of(0..4_usize),
        ) {
            let name = |n: usize| format!("job-{n}").parse().unwrap();
            let all = wishes.into_iter().enumerate().map(|(n, job)| (name(n), job)).collect();
            let mut want = Desired { jobs: all, max_jobs, ..Desired::default() };
            let mut ledger = settled(&want, presences.len());
            want.rules.moves_max = budget;
            let never = crate::Timing { not_ready_grace: None, ..want.timing };
            let seen = observed(&presences);
            for _ in 0..20 {
                let kept = decide(&ledger, &Desired { timing: never, ..want.clone() }, &seen);
                let made = decide(&ledger, &want, &seen);
                let has_worker = |job: &JobName| !kept.plan.unassigned.contains_key(job);
                prop_assert!(!made.plan.unassigned.keys().any(has_worker), "{:?}", made.plan);
                let left = made.plan.moves.iter().filter(|it| it.reason == MoveReason::NotReady);
                for step in left.clone() {
                    let of = |slot: Option<Slot>| seen.workers[&slot.unwrap()].presence;
                    prop_assert_eq!((of(step.from), of(step.to)), (OVERDUE, Presence::Ready));
                }
                prop_assert!(budget.is_none_or(|budget| left.count() <= budget));
                if made.ledger == ledger {
                    return Ok(());
                }
                ledger = made.ledger;
            }
            prop_assert_eq!(budget, Some(0), "it does not come to rest");
        }
    }
}
