//! Tables so large that one step for every pair of a job and a worker, or of two jobs, would be
//! twenty billion steps, which no test run could hide. The benchmark has a row of ten million jobs.

use super::*;

const JOBS: u32 = 200_000;
const WORKERS: u32 = 100_000;

fn table(wish: impl Fn(u32) -> Job) -> JobTable {
    JobTable::with_wishes((0..JOBS).map(|n| (format!("job-{n:06}"), wish(n)))).unwrap()
}

fn counts(holders: &[Slot]) -> Vec<u32> {
    let mut counts = vec![0; WORKERS as usize];
    for slot in holders {
        counts[slot.0 as usize] += 1;
    }
    counts
}

#[test]
fn all_jobs_of_one_worker_are_spread_over_a_hundred_thousand() {
    let jobs = table(|_| Job::default());
    let held = vec![Slot(77); JOBS as usize];
    for mode in [Mode::Sticky, Mode::Canonical] {
        let rules = Rules { mode, ..Rules::default() };
        let plan = jobs.plan(&held, &Pool::ready(WORKERS), rules);
        assert!(counts(&plan.holders).iter().all(|count| *count == 2));
        assert_eq!(plan.moves().count(), JOBS as usize - 2);
    }
}

#[test]
fn all_workers_but_one_leave_and_come_back() {
    let jobs = table(|_| Job::default());
    let first = jobs.plan(&[], &Pool::ready(WORKERS), Rules::default());
    let alone = jobs.plan(&first.holders, &Pool::ready(1), Rules::default());
    assert_eq!(alone.moves().count(), JOBS as usize - 2);
    let back = jobs.plan(&alone.holders, &Pool::ready(WORKERS), Rules::default());
    assert!(counts(&back.holders).iter().all(|count| *count == 2));
}

#[test]
fn slots_begin_far_from_zero() {
    let first = u32::MAX - 2 * WORKERS;
    let there = |(slot, member): (Slot, Member)| (Slot(first + slot.0), member);
    let pool = Pool(Pool::ready(WORKERS).0.into_iter().map(there).collect());
    let jobs = table(|_| Job::default());
    for mode in [Mode::Sticky, Mode::Canonical] {
        let plan = jobs.plan(&[], &pool, Rules { mode, ..Rules::default() });
        let from_zero: Vec<_> = plan.holders.iter().map(|slot| Slot(slot.0 - first)).collect();
        assert!(counts(&from_zero).iter().all(|count| *count == 2));
    }
}

#[test]
fn half_of_the_jobs_stay_out_where_every_worker_may_have_one() {
    let jobs = table(|n| Job { priority: i32::from(n % 2 == 0), ..Job::default() });
    let mut pool = Pool::ready(WORKERS);
    pool.0.values_mut().for_each(|member| member.max_jobs = Some(1));
    let plan = jobs.plan(&[], &pool, Rules::default());
    assert_eq!(plan.unassigned.len(), WORKERS as usize);
    assert!(plan.unassigned.iter().all(|(job, _)| job % 2 == 1), "the more important half is in");
}

#[test]
fn every_job_has_a_pin() {
    let jobs = table(|n| Job { pin: Some(Slot(n % WORKERS)), ..Job::default() });
    let plan = jobs.plan(&[], &Pool::ready(WORKERS), Rules::default());
    assert!(plan.holders.iter().zip(0..).all(|(slot, n)| slot.0 == n % WORKERS));
}

/// Pairs of 51 and 49 percent fill all workers, and none is left out.
#[test]
fn every_job_has_a_share() {
    let share = |n: u32| Share::new(if n.is_multiple_of(2) { 51 } else { 49 }).ok();
    let jobs = table(|n| Job { share: share(n), ..Job::default() });
    let first = jobs.plan(&[], &Pool::ready(WORKERS), Rules::default());
    assert!(first.unassigned.is_empty());
    // One worker less: exactly its two jobs have no room anywhere.
    let less = jobs.plan(&first.holders, &Pool::ready(WORKERS - 1), Rules::default());
    assert_eq!(less.unassigned.len(), 2);
}

/// All workers have 34 and 33 percent, so a job of 100 percent needs three others to move.
#[test]
fn a_whole_worker_is_made_free_by_three_moves() {
    for workers in [10_000, WORKERS] {
        let percent = |n: u32| match n {
            0 => 100,
            n if n % 2 == 1 => 34,
            _ => 33,
        };
        let job = |n| Job { share: Share::new(percent(n)).ok(), ..Job::default() };
        let wishes = (0..=2 * workers).map(|n| (format!("job-{n:06}"), job(n)));
        let jobs = JobTable::with_wishes(wishes).unwrap();
        let slot = |n: u32| n.checked_sub(1).map_or(Slot::NOBODY, |n| Slot(n / 2));
        let held: Vec<_> = (0..=2 * workers).map(slot).collect();
        let plan = jobs.plan(&held, &Pool::ready(workers), Rules::default());
        let moves = plan.moves().filter(|step| step.from.is_some_and(|slot| slot.0 < workers));
        assert_eq!((moves.count(), plan.unassigned.len()), (3, 0), "{workers} workers");
    }
}
