//! Measures pools that shares fill almost completely, when one worker leaves. The result shows how
//! many jobs of other workers move for the jobs of that worker.

use std::time::Duration;

use swarm_core::{Job, JobTable, JobsError, Pool, Rules, Share, Slot};

use crate::{shown, timed};

/// The shares reserved before the worker leaves, in percent of all workers.
const RESERVED: [u32; 3] = [90, 93, 95];
/// The smallest and the largest share.
const SHARES: [(u32, u32); 4] = [(5, 30), (10, 50), (15, 45), (30, 60)];
/// The numbers of workers, each with its number of seeded pools.
const SIZES: [(u32, u32); 4] = [(20, 200), (60, 200), (200, 100), (6_000, 2)];

/// Measures each of these pools when one worker leaves.
pub(crate) fn all() -> Result<(), JobsError> {
    println!(
        "| workers | shares | reserved | moves for each job of the worker that left: median, 90 %, most | a third of all jobs moved | out, mean | median | longest |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for (workers, pools) in SIZES {
        for shares in SHARES {
            for reserved in RESERVED {
                let seen: Result<Vec<_>, _> =
                    (0..pools).map(|seed| Departure::of(seed, workers, shares, reserved)).collect();
                report(workers, shares, reserved, &seen?);
            }
        }
    }
    Ok(())
}

fn report(workers: u32, shares: (u32, u32), reserved: u32, seen: &[Departure]) {
    let mut each: Vec<_> = seen.iter().map(|one| one.moved.div_ceil(one.left)).collect();
    each.sort_unstable();
    let mut took: Vec<_> = seen.iter().map(|one| one.took).collect();
    took.sort_unstable();
    let at = |percent: usize| each[(each.len() - 1) * percent / 100];
    let thirds = seen.iter().filter(|one| 3 * one.moved > one.jobs).count();
    let out = seen.iter().map(|one| one.out).sum::<usize>() * 100 / seen.len();
    println!(
        "| {workers} | {} to {} % | {reserved} % | {}, {}, {} | {thirds} of {} | {}.{:02} | {} | {} |",
        shares.0,
        shares.1,
        at(50),
        at(90),
        at(100),
        seen.len(),
        out / 100,
        out % 100,
        shown(took[took.len() / 2]),
        shown(took[took.len() - 1]),
    );
}

/// The outcome of a departure.
struct Departure {
    jobs: usize,
    /// The jobs of the worker that left.
    left: usize,
    /// The jobs of others that moved or lost their place.
    moved: usize,
    /// The jobs without a place.
    out: usize,
    took: Duration,
}

impl Departure {
    /// Fills a pool, removes one worker and plans again. Jobs go one by one to the least reserved
    /// worker until `reserved` percent are reserved.
    fn of(seed: u32, workers: u32, shares: (u32, u32), reserved: u32) -> Result<Self, JobsError> {
        let mut random = seed.wrapping_mul(2_654_435_761).wrapping_add(workers);
        let mut below = |limit: u32| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 8) % limit
        };
        let mut free = vec![100; workers as usize];
        let (mut wishes, mut held, mut sum) = (Vec::new(), Vec::new(), 0);
        while sum < reserved * workers {
            let percent = shares.0 + below(shares.1 - shares.0 + 1);
            let most = free.iter().copied().max().unwrap_or(0);
            if most < shares.0 {
                break;
            }
            if most < percent {
                continue;
            }
            let at = free.iter().position(|free| *free == most).unwrap_or(0);
            free[at] -= percent;
            sum += percent;
            let share = u8::try_from(percent).ok().and_then(|percent| Share::new(percent).ok());
            wishes.push((format!("{:06}", wishes.len()), Job { share, ..Job::default() }));
            held.push(Slot(u32::try_from(at).unwrap_or(u32::MAX)));
        }
        let gone = Slot(below(workers));
        let mut pool = Pool::ready(workers);
        pool.0.remove(&gone);
        let table = JobTable::with_wishes(wishes)?;
        let (plan, took) = timed(|| table.plan(&held, &pool, Rules::default()));
        let moved = plan.moves().filter(|step| step.from.is_some_and(|from| from != gone)).count();
        let left = held.iter().filter(|at| **at == gone).count().max(1);
        Ok(Self { jobs: held.len(), left, moved, out: plan.unassigned.len(), took })
    }
}
