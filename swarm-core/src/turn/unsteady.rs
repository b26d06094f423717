//! Workers that end again and again: they keep their jobs, and get only jobs that no other worker
//! can take.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::{Observed, checked};
use crate::{JobName, Plan, Pool, Request, Rules, Slot, Standing, Unassigned};

/// Returns `pool` with unsteady workers that only keep their jobs. It is owned if there are any; then
/// this takes O(workers).
pub(super) fn without<'a>(pool: &'a Pool, observed: &Observed) -> Cow<'a, Pool> {
    let takes = |slot: &&Slot| pool.standing(**slot) == Some(Standing::Takes);
    let unsteady: Vec<_> = observed.unsteady.iter().filter(takes).collect();
    let mut pool = Cow::Borrowed(pool);
    for slot in unsteady {
        if let Some(member) = pool.to_mut().0.get_mut(slot) {
            member.standing = Standing::Keeps;
        }
    }
    pool
}

/// Gives the jobs that `plan` leaves out to the workers of `pool`, which has unsteady ones, too. All
/// other jobs stay where `plan` places them. O(plan) if there are such jobs.
pub(super) fn fill(request: &Request<'_>, pool: &Pool, plan: &mut Plan) {
    let left_out = |(_, why): &(&JobName, &Unassigned)| **why != Unassigned::Suspended;
    let left_out = plan.unassigned.iter().filter(left_out);
    let left_out: BTreeSet<JobName> = left_out.map(|(job, _)| job.clone()).collect();
    if left_out.is_empty() {
        return;
    }
    let mut jobs = request.jobs.clone();
    for (name, job) in &mut jobs {
        job.pin = plan.assignment.holder(name).or(job.pin);
    }
    let rules = Rules { moves_max: Some(0), ..request.rules };
    let filled = checked(&Request { jobs: &jobs, pool, rules, ..*request });
    let filled_in = left_out.iter().filter_map(|job| Some((job, filled.assignment.holder(job)?)));
    for (job, slot) in filled_in {
        plan.unassigned.remove(job);
        plan.assignment.insert(job.clone(), slot);
    }
    plan.moves.retain(|step| !left_out.contains(&step.job));
    plan.moves.extend(filled.moves.into_iter().filter(|step| left_out.contains(&step.job)));
    plan.moves.sort_by(|one, other| one.job.cmp(&other.job));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::{Desired, WorkerSeen, decide};
    use crate::handover::{Evidence, Policy, SessionId};
    use crate::{Job, Ledger, Observed, Presence, Slot, Timing, jobs};

    /// Returns an observation of three workers that acknowledged everything. Some are unsteady.
    fn seen(ledger: &Ledger, unsteady: &[u32]) -> Observed {
        let id = |n: u32| SessionId::new(&format!("pod-{n}"), 1);
        let worker = |n| (Slot(n), WorkerSeen::new(format!("w-{n}"), Presence::Ready, Some(id(n))));
        let positions = (0 < ledger.revision()).then(|| ledger.position());
        let mut seen = Observed::new((0..3).map(worker), 1, positions);
        let evidence = Evidence { acked: ledger.revision(), ..Evidence::default() };
        seen.evidence = (0..3).map(|n| (id(n), evidence.clone())).collect();
        seen.unsteady = unsteady.iter().map(|n| Slot(*n)).collect();
        seen
    }

    /// Returns the numbers of jobs of three workers at rest.
    fn settled(desired: &Desired, mut ledger: Ledger, unsteady: &[u32]) -> (Ledger, [usize; 3]) {
        for _ in 0..9 {
            ledger = decide(&ledger, desired, &seen(&ledger, unsteady)).ledger;
        }
        let by_slot = ledger.assignment().by_slot();
        let loads = [0, 1, 2].map(|n| by_slot.get(&Slot(n)).map_or(0, BTreeSet::len));
        (ledger, loads)
    }

    fn desired(count: usize) -> Desired {
        let names: Vec<_> = (0..count).map(|n| format!("job-{n}")).collect();
        let jobs = jobs(names.iter().map(String::as_str)).unwrap();
        let timing = Timing { initial_wait: std::time::Duration::ZERO, ..Timing::default() };
        Desired { jobs, policy: Policy::Exclusive, timing, ..Desired::default() }
    }

    #[test]
    fn an_unsteady_worker_gets_only_jobs_that_no_other_one_can_take() {
        let loads = |desired: &Desired, unsteady| settled(desired, Ledger::new(1), unsteady).1;
        let mut desired = desired(12);
        assert_eq!(loads(&desired, &[]), [4, 4, 4]);
        assert_eq!(loads(&desired, &[2]), [6, 6, 0]);
        assert_eq!(loads(&desired, &[0, 1, 2]), [4, 4, 4]);
        desired.max_jobs = Some(5);
        assert_eq!(loads(&desired, &[2]), [5, 5, 2]);
        desired
            .jobs
            .insert("pinned".parse().unwrap(), Job { pin: Some(Slot(2)), ..Job::default() });
        assert_eq!(loads(&desired, &[2]), [5, 5, 3]);
        desired.suspend = true;
        assert_eq!(loads(&desired, &[2]), [0, 0, 0]);
    }

    #[test]
    fn an_unsteady_worker_keeps_its_jobs_and_takes_part_again_later() {
        let mut want = desired(12);
        let (ledger, _) = settled(&want, Ledger::new(1), &[]);
        let (ledger, loads) = settled(&want, ledger, &[2]);
        assert_eq!(loads, [4, 4, 4]);
        want.jobs.extend(desired(18).jobs);
        let (ledger, loads) = settled(&want, ledger, &[2]);
        assert_eq!(loads, [7, 7, 4]);
        assert_eq!(settled(&want, ledger, &[]).1, [6, 6, 6]);
    }
}
