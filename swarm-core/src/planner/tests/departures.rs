//! One worker leaves a pool that shares fill almost completely: few other jobs move to make room
//! for its jobs.

use super::oracle::Dice;
use super::shares::MOVES_FOR_ONE;
use super::*;
use crate::hash::mix;

/// Jobs come one by one to the least reserved worker, until `reserved` percent are used; then a
/// worker leaves. Returns the remaining pool, and the number of jobs that it has to place.
fn departure(seed: u64, workers: u32, shares: (u32, u32), reserved: u32) -> (Case, usize) {
    let mut dice = Dice::new(seed);
    let mut free = vec![100; workers as usize];
    let (mut jobs, mut held, mut sum) = (Jobs::new(), Vec::new(), 0);
    while sum < reserved * workers {
        let percent = shares.0 + dice.below(shares.1 - shares.0 + 1);
        let most = free.iter().copied().max().unwrap_or(0);
        if most < shares.0 {
            break;
        }
        let at = free.iter().position(|free| *free == most && percent <= most);
        let Some(at) = at else { continue };
        free[at] -= percent;
        sum += percent;
        let name: JobName = format!("job-{:04}", jobs.len()).parse().unwrap();
        held.push((name.clone(), Slot(u32::try_from(at).unwrap())));
        let share = Share::new(u8::try_from(percent).unwrap()).ok();
        jobs.insert(name, Job { share, ..Job::default() });
    }
    let gone = Slot(dice.below(workers));
    let left = held.iter().filter(|(_, slot)| *slot == gone).count();
    let mut pool = Pool::ready(workers);
    pool.0.remove(&gone);
    (Case { jobs, held: held.into_iter().collect(), pool, rules: Rules::default() }, left)
}

/// Scope: 240 pools of 20 and of 60 workers, with 90 to 95 % of each pool reserved.
#[test]
fn a_worker_that_leaves_moves_few_jobs_of_others_for_each_of_its_own() {
    for (workers, pools) in [(20, 15), (60, 5)] {
        for shares in [(5, 30), (10, 50), (15, 45), (30, 60)] {
            for (reserved, seed) in
                [90, 93, 95].iter().flat_map(|r| (0..pools).map(move |s| (r, s)))
            {
                let (case, left) = departure(mix(seed), workers, shares, *reserved);
                let plan = case.plan();
                assert_eq!(check(&case.request(), &plan), Ok(()));
                let of_others =
                    |step: &&Move| step.from.is_some_and(|slot| case.pool.standing(slot).is_some());
                let moved = plan.moves.iter().filter(of_others).count();
                assert!(moved <= MOVES_FOR_ONE * left, "{moved} moves for {left} jobs: {seed}");
                if workers == 60 {
                    assert!(3 * moved <= case.jobs.len(), "{moved} of {}", case.jobs.len());
                }
                let again = case.after(&plan).plan();
                assert_eq!(
                    &again.moves,
                    &[],
                    "{workers} workers, {shares:?}, {reserved} %: {seed}"
                );
            }
        }
    }
}
