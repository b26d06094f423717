//! Run-to-completion jobs that have begun: balance does not move them, since they would begin again.
//!
//! Such a job leaves its worker only if it has to: when its worker goes, has more than it may have,
//! or the job is pinned elsewhere. Other jobs move in its place; if there are none, loads stay uneven
//! until it is done.

use std::collections::BTreeSet;

use super::checked;
use crate::{Job, JobName, Jobs, Mode, MoveReason, Plan, Request};

/// The plan in which they stay, in place of one that moves some of them for balance.
///
/// [`Mode::Canonical`] promises a plan from jobs and workers alone, so there they move as well.
/// O(jobs) if there are any.
pub(super) fn keep(request: &Request<'_>, plan: Plan) -> Plan {
    if request.rules.mode == Mode::Canonical || !moves_any(request.jobs, &plan) {
        return plan;
    }
    pinned(request, &plan)
}

/// The plan with those of them pinned to their workers that do not have to leave by `plan`.
fn pinned(request: &Request<'_>, plan: &Plan) -> Plan {
    let moved: BTreeSet<_> = forced(plan).collect();
    let mut jobs = request.jobs.clone();
    for (name, job) in &mut jobs {
        if job.run_once && job.pin.is_none() && !moved.contains(name) {
            job.pin = request.held.holder(name);
        }
    }
    checked(&Request { jobs: &jobs, ..*request })
}

/// Whether balance moves such a job, now or once the budget allows.
fn moves_any(jobs: &Jobs, plan: &Plan) -> bool {
    let has_begun = |job: &JobName| jobs.get(job).is_some_and(|job: &Job| job.run_once);
    let balanced = plan.moves.iter().filter(|step| step.reason == MoveReason::Balance);
    balanced.map(|step| &step.job).chain(&plan.deferred).any(has_begun)
}

/// The jobs that have to leave their workers.
fn forced(plan: &Plan) -> impl Iterator<Item = &JobName> {
    let forced = plan.moves.iter().filter(|step| step.reason != MoveReason::Balance);
    forced.map(|step| &step.job)
}

#[cfg(test)]
mod tests {
    use super::super::{Decision, Desired, Observed, WorkerSeen, decide};
    use super::*;
    use crate::handover::{Cell, Policy, Record, SessionId};
    use crate::{Ledger, Presence, Slot};

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

    /// The jobs that their holders are asked to release.
    fn releasing(decision: &Decision) -> Vec<&str> {
        let is_releasing = |record: &Record| matches!(record.cell, Cell::Releasing { .. });
        let jobs = decision.ledger.cells.jobs.iter().filter(|(_, record)| is_releasing(record));
        jobs.map(|(job, _)| job.as_str()).collect()
    }

    /// What is decided when the pool grows from one worker to two.
    fn grown(want: &Desired) -> Decision {
        let one = decide(&Ledger::new(1), want, &observed(1)).ledger;
        decide(&one, want, &observed(2))
    }

    #[test]
    fn balance_moves_other_jobs_in_place_of_those_that_would_begin_again() {
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
