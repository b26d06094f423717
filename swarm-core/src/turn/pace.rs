//! The pace of changes: when they are collected, and when the next jobs may move.

use std::time::Duration;

use super::{Desired, Observed};
use crate::handover::Record;
use crate::merge::left_join;
use crate::{JobName, Ledger, MoveReason, Plan, Unassigned};

/// The time that a plain worker gets to stop a job that its view no longer has. It answers nothing,
/// so a job counts as moving for this long.
pub const PLAIN_HANDOVER: Duration = Duration::from_secs(2);

/// Returns how long changes are still collected; `None` if they take effect now.
pub(super) fn gathers_for(desired: &Desired, observed: &Observed) -> Option<Duration> {
    let since = observed.since_change?;
    desired.batch_window.checked_sub(since).filter(|left| !left.is_zero())
}

/// Returns whether `next` ends an ownership of a session: a handover in progress is not delayed.
pub(super) fn goes_on(ledger: &Ledger, next: &Ledger) -> bool {
    let has_ended = |(_, before, after): (&JobName, &Record, Option<&Record>)| {
        let holder = before.cell.holder().filter(|session| !session.is_plain());
        holder.is_some() && after.and_then(|record| record.cell.holder()) != holder
    };
    left_join(&ledger.cells.jobs, &next.cells.jobs).any(has_ended)
}

/// Returns whether voluntary moves may begin. A budget of moves in flight means one batch of at
/// most that many at a time, since nothing reports the end of a single move.
pub(super) fn may_move(since_handover: Option<Duration>) -> bool {
    since_handover.is_none_or(|since| PLAIN_HANDOVER <= since)
}

/// Returns when the moves that the budget deferred may continue, if there are any. Jobs without
/// room may also wait for the next budget, with which they can be packed together with others.
pub(super) fn next_batch_in(
    desired: &Desired,
    plan: &Plan,
    since_handover: Option<Duration>,
) -> Option<Duration> {
    let since = since_handover?;
    let left = PLAIN_HANDOVER.checked_sub(since).filter(|left| !left.is_zero());
    if plan.deferred.is_empty() {
        let is_out = plan.unassigned.values().any(|why| *why == Unassigned::Capacity);
        let moves_now = plan.moves.iter().any(|step| step.from.is_some());
        let next = if moves_now { Some(PLAIN_HANDOVER) } else { left };
        return next.filter(|_| is_out && desired.rules.moves_max.is_some());
    }
    let moves_now = plan.moves.iter().any(|step| is_voluntary(step.reason));
    Some(if moves_now { PLAIN_HANDOVER } else { left.unwrap_or(PLAIN_HANDOVER) })
}

fn is_voluntary(reason: MoveReason) -> bool {
    matches!(reason, MoveReason::Balance | MoveReason::NotReady)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Move, Rules, Slot};

    #[test]
    fn only_moves_that_could_wait_begin_a_batch() {
        let next_after = |reason| {
            let job: JobName = "a".parse().unwrap();
            let (from, to) = (Some(Slot(0)), Some(Slot(1)));
            let deferred = [job.clone()].into();
            let plan =
                Plan { moves: vec![Move { job, from, to, reason }], deferred, ..Plan::default() };
            next_batch_in(&Desired::default(), &plan, Some(Duration::from_millis(500)))
        };
        for reason in [MoveReason::Balance, MoveReason::NotReady] {
            assert_eq!(next_after(reason), Some(PLAIN_HANDOVER));
        }
        assert_eq!(next_after(MoveReason::WorkerGone), Some(Duration::from_millis(1_500)));
    }

    #[test]
    fn jobs_that_are_out_are_looked_at_again_when_the_budget_may_move_others_for_them() {
        let mut want = Desired {
            rules: Rules { moves_max: Some(1), ..Rules::default() },
            ..Desired::default()
        };
        let plan = |job: &str| Plan {
            unassigned: [(job.parse().unwrap(), Unassigned::Capacity)].into(),
            ..Plan::default()
        };
        let since = |ms| Some(Duration::from_millis(ms));
        let left = next_batch_in(&want, &plan("a"), since(500));
        assert_eq!(left, since(1_500));
        assert_eq!(next_batch_in(&want, &plan("a"), since(2_000)), None, "it was tried");
        assert_eq!(next_batch_in(&want, &Plan::default(), since(500)), None);
        want.rules.moves_max = None;
        assert_eq!(next_batch_in(&want, &plan("a"), since(500)), None, "nothing held it back");
    }
}
