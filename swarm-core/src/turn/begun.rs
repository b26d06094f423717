//! Run-to-completion jobs that have begun: balance does not move them, since they would restart.
//!
//! Such a job leaves its worker in three cases only: its worker goes, the job is pinned elsewhere,
//! or other jobs cannot make the required room. Otherwise other jobs move instead, or loads stay
//! uneven until it is done.

use std::collections::BTreeSet;

use super::checked;
use crate::{Job, JobName, Jobs, Mode, MoveReason, Plan, Request};

/// Returns a plan in which begun jobs stay, if `plan` moves some for balance or to make room. No
/// other job loses its worker through this.
///
/// [`Mode::Canonical`] promises a plan from jobs and workers alone, so begun jobs move there as
/// well. O(jobs) if there are any.
pub(super) fn keep(request: &Request<'_>, plan: Plan) -> Plan {
    let moves = |reason| moves_any(request.jobs, &plan, reason);
    let (balances, makes_room) = (moves(MoveReason::Balance), moves(MoveReason::Capacity));
    if request.rules.mode == Mode::Canonical || !(balances || makes_room) {
        return plan;
    }
    if makes_room {
        let stay = pinned(request, &plan, &[MoveReason::Balance, MoveReason::Capacity]);
        if stay.unassigned == plan.unassigned {
            return stay;
        }
    }
    if balances { pinned(request, &plan, &[MoveReason::Balance]) } else { plan }
}

/// Returns the plan with begun jobs pinned to their workers, except jobs that move for another
/// reason.
fn pinned(request: &Request<'_>, plan: &Plan, reasons: &[MoveReason]) -> Plan {
    let forced = plan.moves.iter().filter(|step| !reasons.contains(&step.reason));
    let moved: BTreeSet<_> = forced.map(|step| &step.job).collect();
    let mut jobs = request.jobs.clone();
    for (name, job) in &mut jobs {
        if job.run_once && job.pin.is_none() && !moved.contains(name) {
            job.pin = request.held.holder(name);
        }
    }
    checked(&Request { jobs: &jobs, ..*request })
}

/// Returns whether a begun job moves for this reason, or waits to move for balance.
fn moves_any(jobs: &Jobs, plan: &Plan, reason: MoveReason) -> bool {
    let has_begun = |job: &JobName| jobs.get(job).is_some_and(|job: &Job| job.run_once);
    let moved = plan.moves.iter().filter(|step| step.reason == reason);
    let deferred = plan.deferred.iter().filter(|_| reason == MoveReason::Balance);
    moved.map(|step| &step.job).chain(deferred).any(has_begun)
}

#[cfg(test)]
mod tests {
    use super::super::{Decision, Desired, Observed, WorkerSeen, decide};
    use super::*;
    use crate::handover::{Cell, Policy, Record, SessionId};
    use crate::{Ledger, Presence, Share, Slot};

    fn observed(workers: u32) -> Observed {
        let worker = |n| {
            let session = Some(SessionId::new("pod", u64::from(n)));
            (Slot(n), WorkerSeen { name: format!("w-{n}"), presence: Presence::Ready, session })
        };
        Observed::new((0..workers).map(worker), 1, [])
    }

    fn desired(jobs: impl IntoIterator<Item = (&'static str, bool)>) -> Desired {
        let job = |(name, run_once): (&str, bool)| {
            (name.parse().unwrap(), Job { run_once, ..Job::default() })
        };
        let jobs = jobs.into_iter().map(job).collect();
        Desired { jobs, policy: Policy::Exclusive, ..Desired::default() }
    }

    /// Returns the jobs that their holders are asked to release.
    fn releasing(decision: &Decision) -> Vec<&str> {
        let is_releasing = |record: &Record| matches!(record.cell, Cell::Releasing { .. });
        let jobs = decision.ledger.cells.jobs.iter().filter(|(_, record)| is_releasing(record));
        jobs.map(|(job, _)| job.as_str()).collect()
    }

    /// Returns the decision when the pool grows from one worker to two.
    fn grown(want: &Desired) -> Decision {
        let one = decide(&Ledger::new(1), want, &observed(1)).ledger;
        decide(&one, want, &observed(2))
    }

    #[test]
    fn balance_moves_other_jobs_instead_of_those_that_would_begin_again() {
        let none = desired([("a", false), ("b", false), ("c", false), ("d", false)]);
        assert_eq!(releasing(&grown(&none)).len(), 2);
        let most = desired([("a", true), ("b", true), ("c", true), ("d", false)]);
        assert_eq!(releasing(&grown(&most)), ["d"]);
        let all = desired([("a", true), ("b", true), ("c", true), ("d", true)]);
        assert!(releasing(&grown(&all)).is_empty());
        let rules = crate::Rules { mode: Mode::Canonical, ..all.rules };
        let canonical = grown(&Desired { rules, ..all });
        assert!(!releasing(&canonical).is_empty(), "by jobs and workers alone");
    }

    #[test]
    fn where_room_is_to_be_made_other_jobs_leave_in_their_place() {
        for other in ["a", "b", "c", "d"] {
            let mut want = desired(["a", "b", "c", "d"].map(|name| (name, name != other)));
            let one = decide(&Ledger::new(1), &want, &observed(1)).ledger;
            want.max_jobs = Some(3);
            let full = decide(&one, &want, &observed(2));
            assert_eq!((releasing(&full), full.plan.unassigned.len()), (vec![other], 0));
        }
    }

    #[test]
    fn a_job_with_a_share_makes_other_jobs_leave_in_their_place() {
        for other in ["a", "b"] {
            let small = [("a", other != "a"), ("b", other != "b")];
            let mut want = desired(small.into_iter().chain([("pinned", false)]));
            let share = |percent| Share::new(percent).ok();
            for (name, job) in &mut want.jobs {
                let is_pinned = name.as_str() == "pinned";
                job.share = share(if is_pinned { 50 } else { 40 });
                job.pin = Some(Slot(u32::from(is_pinned)));
            }
            let before = decide(&Ledger::new(1), &want, &observed(2)).ledger;
            want.jobs.values_mut().for_each(|job| job.pin = None);
            let large = Job { share: share(60), ..Job::default() };
            want.jobs.insert("large".parse().unwrap(), large);
            let decision = decide(&before, &want, &observed(2));
            assert_eq!((releasing(&decision), decision.plan.unassigned.len()), (vec![other], 0));
        }
    }

    #[test]
    fn under_a_budget_they_do_not_count_as_deferred() {
        let mut want = desired([("a", true), ("b", true), ("c", true), ("d", true)]);
        want.rules.moves_max = Some(0);
        assert!(grown(&want).plan.deferred.is_empty());
    }

    #[test]
    fn they_leave_a_worker_that_has_more_than_it_may_have_and_one_that_goes() {
        let mut want = desired([("a", true), ("b", true), ("c", true), ("d", true)]);
        let one = decide(&Ledger::new(1), &want, &observed(1)).ledger;
        want.max_jobs = Some(3);
        let full = decide(&one, &want, &observed(2));
        assert_eq!((releasing(&full).len(), full.plan.unassigned.len()), (1, 0));
        let mut draining = observed(2);
        draining.workers.get_mut(&Slot(0)).unwrap().presence = Presence::Draining;
        want.max_jobs = None;
        assert_eq!(releasing(&decide(&one, &want, &draining)).len(), 4);
    }
}
