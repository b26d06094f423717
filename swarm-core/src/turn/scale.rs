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
    fn the_slots_that_are_asked_for_count_from_the_first_one() {
        let desired = Desired { replicas: Some(2), ..Desired::default() };
        let observed = Observed { first_slot: 5, ..Observed::new([], 1, []) };
        let beyond = [5, 6, 7].map(|slot| is_beyond(Slot(slot), &desired, &observed));
        assert_eq!(beyond, [false, false, true]);
    }
}
