//! The number of workers, if the user sets it: surplus slots are emptied first, and only then does
//! the workload shrink.

use std::time::Duration;

use super::{Desired, Observed, PLAIN_HANDOVER, Replication};
use crate::handover::Cell;
use crate::{Filled, Ledger, Slot};

/// Returns whether a slot is surplus: it must be emptied, or is empty and still exists.
pub(crate) fn is_beyond(slot: Slot, desired: &Desired, observed: &Observed) -> bool {
    let end = |count| observed.first_slot.saturating_add(count);
    desired.replicas.is_some_and(|count| end(count) <= slot.0)
}

/// Returns the largest slot that a worker of the pool can get without another spec or workload: by
/// the number of workers, the maximum of [`Desired::autoscale`], and the workers that exist. `None`
/// without any worker. O(workers).
pub(crate) fn largest_slot(desired: &Desired, observed: &Observed) -> Option<Slot> {
    let now = || u32::try_from(observed.workers_desired).unwrap_or(u32::MAX);
    let count = desired.replicas.unwrap_or_else(now);
    let most = desired.autoscale.map_or(count, |terms| terms.bounded(u32::MAX).max(count));
    let last = most.checked_sub(1).map(|last| Slot(observed.first_slot.saturating_add(last)));
    let mut existing = observed.workers.keys().rev();
    last.max(existing.find(|slot| !is_beyond(**slot, desired, observed)).copied())
}

/// Returns the workers that must be emptied. They stay in the view without jobs as long as they
/// exist, so that each of them stops its jobs.
pub(super) fn emptied<'a>(
    desired: &'a Desired,
    observed: &'a Observed,
) -> impl Iterator<Item = (Slot, Filled)> + 'a {
    let beyond = observed.workers.iter().filter(|(slot, _)| is_beyond(**slot, desired, observed));
    beyond.map(|(slot, seen)| {
        let (worker, session) = (seen.name.clone(), seen.session.clone());
        (*slot, Filled { worker, session, takes: false, max_jobs: None, capacity: None })
    })
}

/// Returns the number of workers that the workload should have, if it must change now. Also returns
/// the wait until it may shrink, if there is one.
pub(super) fn replicas(
    [before, next]: [&Ledger; 2],
    desired: &Desired,
    observed: &Observed,
    since_handover: Option<Duration>,
) -> (Option<u32>, Option<Duration>) {
    let Some(wanted) = desired.replicas else { return (None, None) };
    let now = observed.workers_desired;
    if now <= wanted as usize {
        return ((now < wanted as usize).then_some(wanted), None);
    }
    let held = next.assignment();
    // Surplus workers may still run jobs that all workers ran until now.
    let is_releasing_all = desired.replication == Replication::One
        && next.cells.jobs.values().any(|it| matches!(it.cell, Cell::ReleasingAll { .. }));
    if is_releasing_all || held.iter().any(|(_, slot)| is_beyond(slot, desired, observed)) {
        // Their holders have to release them, which causes another turn.
        return (None, None);
    }
    let released_now = before.cells != next.cells;
    let since = if released_now { Some(Duration::ZERO) } else { since_handover };
    let left = since.and_then(|since| PLAIN_HANDOVER.checked_sub(since));
    match left.filter(|left| !left.is_zero()) {
        Some(left) => (None, Some(left)),
        None => (Some(wanted), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_that_has_the_wanted_number_of_workers_is_left_alone() {
        let (ledger, desired) =
            (Ledger::new(1), Desired { replicas: Some(2), ..Desired::default() });
        let now = |workers_desired| {
            let observed = Observed { workers_desired, ..Observed::new([], 1, []) };
            replicas([&ledger, &ledger], &desired, &observed, None)
        };
        assert_eq!([1, 2, 3].map(now), [(Some(2), None), (None, None), (Some(2), None)]);
    }

    #[test]
    fn the_largest_slot_follows_from_the_number_the_maximum_and_the_workers_that_stay() {
        use crate::{Autoscale, PerWorker, Presence, WorkerSeen};
        let worker = |n| (Slot(n), WorkerSeen::new(format!("w-{n}"), Presence::Ready, None));
        let observed = |slots: &[u32], workers_desired, first_slot| Observed {
            workers_desired,
            first_slot,
            ..Observed::new(slots.iter().map(|slot| worker(*slot)), 1, [])
        };
        let largest = |replicas, max, observed: Observed| {
            let (per_worker, cooldown) = (PerWorker::Jobs(1), Duration::ZERO);
            let terms = |max| Autoscale { min: 1, max, per_worker, cooldown };
            let desired =
                Desired { replicas, autoscale: Option::map(max, terms), ..Desired::default() };
            largest_slot(&desired, &observed).map(|slot| slot.0)
        };
        assert_eq!(largest(None, None, observed(&[], 0, 0)), None);
        assert_eq!(largest(None, None, observed(&[0], 2, 0)), Some(1));
        assert_eq!(largest(None, None, observed(&[0, 7], 2, 0)), Some(7), "it exists");
        assert_eq!(largest(Some(2), None, observed(&[0, 7], 2, 0)), Some(1), "it goes");
        assert_eq!(largest(Some(2), None, observed(&[], 9, 5)), Some(6));
        assert_eq!(largest(Some(2), Some(4), observed(&[], 2, 0)), Some(3));
        assert_eq!(largest(Some(2), Some(0), observed(&[], 2, 0)), Some(1), "it has two now");
    }

    #[test]
    fn the_slots_that_are_asked_for_count_from_the_first_one() {
        let desired = Desired { replicas: Some(2), ..Desired::default() };
        let observed = Observed { first_slot: 5, ..Observed::new([], 1, []) };
        let beyond = [5, 6, 7].map(|slot| is_beyond(Slot(slot), &desired, &observed));
        assert_eq!(beyond, [false, false, true]);
    }
}
