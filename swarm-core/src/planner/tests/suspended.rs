//! Suspended jobs.

use super::*;

proptest! {
    /// Scope: every input with shares, mode and budget; a third of the jobs are suspended. The
    /// others are planned as if suspended jobs did not exist, and every holder of a suspended job
    /// loses it.
    #[test]
    fn suspended_jobs_are_out_and_no_other_job_is_planned_differently(
        case in any_case_with_shares(),
        suspended in prop::collection::vec(prop::bool::weighted(0.3), 60),
    ) {
        let mut case = case;
        for (job, suspend) in case.jobs.values_mut().zip(suspended) {
            job.suspend = suspend;
        }
        let plan = case.plan();
        prop_assert_eq!(check(&case.request(), &plan), Ok(()), "{:?}", plan);
        let active = case.jobs.iter().filter(|(_, job)| !job.suspend);
        let active: Jobs = active.map(|(name, job)| (name.clone(), job.clone())).collect();
        let others = Case { jobs: active, ..case.clone() }.plan();
        prop_assert_eq!(&plan.assignment, &others.assignment);
        for (name, _) in case.jobs.iter().filter(|(_, job)| job.suspend) {
            prop_assert_eq!(plan.unassigned[name], Unassigned::Suspended);
        }
        let again = case.after(&plan).plan();
        prop_assert!(again.moves.iter().all(|step| !case.jobs[&step.job].suspend));
    }
}

#[test]
fn suspended_jobs_ask_for_no_workers() {
    let mut jobs = names(4);
    jobs.values_mut().for_each(|job| job.share = Share::new(100).ok());
    for job in jobs.values_mut().take(3) {
        job.suspend = true;
    }
    let (held, pool) = (Assignment::default(), Pool::ready(1));
    let request = Request { jobs: &jobs, held: &held, pool: &pool, rules: Rules::default() };
    assert_eq!((request.plan().assignment.len(), request.workers_enough()), (1, Some(1)));
}
