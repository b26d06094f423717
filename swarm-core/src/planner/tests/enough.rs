//! The number of workers that would be enough.

use super::*;

/// Returns the workers that are assumed in the slots below `workers`.
fn assumed(known: &Pool, workers: u32) -> Pool {
    let members = || known.0.values();
    let max = members().map(|member| member.max_jobs);
    let max_jobs = max.max_by_key(|max| max.map_or(u64::MAX, u64::from)).flatten();
    let capacity = members().map(|member| member.capacity);
    let capacity = capacity.max_by_key(|part| part.map_or(100, Share::percent)).flatten();
    let mut pool = Pool::ready(workers);
    for (slot, member) in &mut pool.0 {
        let of = known.0.get(slot).map(|known| (known.max_jobs, known.capacity));
        (member.max_jobs, member.capacity) = of.unwrap_or((max_jobs, capacity));
    }
    pool
}

proptest! {
    /// Scope: every input with shares, pins, maxima and priorities, either mode, any budget.
    #[test]
    fn enough_workers_leave_no_job_out(case in any_case_with_shares()) {
        if let Some(workers) = case.request().workers_enough() {
            let plan = Case { pool: assumed(&case.pool, workers), ..case }.plan();
            prop_assert!(plan.unassigned.is_empty(), "{workers}: {:?}", plan.unassigned);
        }
    }

    /// Scope: the same, where all workers take jobs. The answer is then more than the present
    /// number.
    #[test]
    fn where_jobs_find_no_room_more_workers_are_asked_for(mut case in any_case_with_shares()) {
        case.pool.0.values_mut().for_each(|member| member.standing = Standing::Takes);
        let lacks_room = case.plan().unassigned.values().any(|why| *why == Unassigned::Capacity);
        if let Some(workers) = case.request().workers_enough().filter(|_| lacks_room) {
            prop_assert!(workers as usize > case.pool.0.len());
        }
    }

    /// Scope: the same, for all bounds. The planner itself judges, on every number of workers.
    #[test]
    fn the_workers_that_are_needed_leave_out_as_few_jobs_as_the_most(
        case in any_case_with_shares(),
        least in 0..8_u32,
        more in 0..16_u32,
    ) {
        let most = least + more;
        let out = |workers: u32| {
            Case { pool: assumed(&case.pool, workers), ..case.clone() }.plan().unassigned.len()
        };
        let Needed { workers, left_out } = case.request().workers_needed(least, most);
        prop_assert!((least..=most).contains(&workers));
        prop_assert!(left_out <= out(most), "{left_out} for {workers}, {} for {most}", out(most));
        prop_assert!(out(workers) <= left_out, "{workers}: {}, not {left_out}", out(workers));
        if least < workers {
            prop_assert!((least..workers).any(|fewer| left_out < out(fewer)));
        }
    }
}

#[test]
fn a_job_that_finds_no_room_next_to_those_that_stay_needs_another_worker() {
    let wishes = [(50, 0, Some(1)), (50, 1, Some(0)), (20, 1, Some(0)), (60, 0, None)];
    let mut case = Case {
        jobs: Jobs::new(),
        held: Assignment::default(),
        pool: Pool::ready(2),
        rules: Rules::default(),
    };
    let mut held = Vec::new();
    for ((share, priority, slot), name) in wishes.into_iter().zip(names(4).into_keys()) {
        held.extend(slot.map(|slot| (name.clone(), Slot(slot))));
        let share = Share::new(share).ok();
        case.jobs.insert(name, Job { priority, share, ..Job::default() });
    }
    case.held = held.into_iter().collect();
    assert_eq!(case.plan().unassigned.len(), 1);
    assert_eq!(case.request().workers_enough(), Some(3));
}

/// A search over all numbers would plan for up to 100,000 workers 17 times.
#[test]
fn a_pin_to_a_high_slot_needs_as_many_workers_and_no_search() {
    let mut jobs = names(2_000);
    for (job, priority) in jobs.values_mut().zip(0..) {
        (job.priority, job.share) = (priority, Share::new(10).ok());
    }
    jobs.insert("pinned".parse().unwrap(), Job { pin: Some(Slot(99_000)), ..Job::default() });
    let (held, pool) = (Assignment::default(), Pool::ready(3));
    let request = Request { jobs: &jobs, held: &held, pool: &pool, rules: Rules::default() };
    assert_eq!(request.workers_enough(), Some(99_001));
}
