//! Exact selection of the jobs with the greatest keys on every worker, in one streaming pass.

/// For each worker the `take` jobs with the greatest (key, number), of the `count` that it has.
///
/// A candidate is a job's number, its worker (beyond the list of workers for none), and its hash, of
/// which `key` makes the key on that worker. Uniform keys make one pass enough; any keys are right:
/// a threshold that as many uniform keys as needed and some more exceed keeps the work small, for
/// only those are collected and selected from. Where too few exceed it, all of that worker's jobs
/// are. The result is that of a full sort; its order within a worker is arbitrary. O(jobs).
pub(super) fn greatest(
    candidates: &(impl Iterator<Item = (u32, usize, u64)> + Clone),
    key: impl Fn(u64, usize) -> u64,
    take: &[usize],
    count: &[usize],
) -> Vec<Vec<(u64, u32)>> {
    // Room for half as many again as are expected to exceed the threshold.
    let room = |(take, count): (&usize, &usize)| (expected(*take) * 3 / 2).min(*count);
    let mut found: Vec<_> = take.iter().zip(count).map(room).map(Vec::with_capacity).collect();
    let thresholds = take.iter().zip(count).map(|(take, count)| threshold(*take, *count));
    let mut thresholds: Vec<_> = thresholds.collect();
    loop {
        // Inside, `for_each` is a loop for each run: one over all of them is several times slower.
        candidates.clone().for_each(|(job, worker, hash)| {
            let Some(threshold) = thresholds.get(worker) else { return };
            let key = key(hash, worker);
            if key > *threshold || *threshold == ALL {
                found[worker].push((key, job));
            }
        });
        let mut is_short = false;
        for ((found, threshold), take) in found.iter_mut().zip(&mut thresholds).zip(take) {
            let again = found.len() < *take && *threshold != ALL;
            *threshold = if again { ALL } else { NONE };
            is_short |= again;
            if again {
                found.clear();
            }
        }
        if !is_short {
            break;
        }
    }
    for (found, take) in found.iter_mut().zip(take) {
        split_greatest(found, *take);
        found.truncate(*take);
    }
    found
}

/// Brings the `take` greatest to the front, in any order.
pub(super) fn split_greatest(found: &mut [(u64, u32)], take: usize) {
    if 0 < take && take < found.len() {
        found.select_nth_unstable_by(take - 1, |a, b| b.cmp(a));
    }
}

/// The threshold that no key exceeds, and the one that all do.
const NONE: u64 = u64::MAX;
const ALL: u64 = 0;

/// A key that about `take` and some more of `count` uniform keys exceed.
fn threshold(take: usize, count: usize) -> u64 {
    let some_more = expected(take);
    match u64::MAX.checked_div(count as u64) {
        _ if take == 0 => NONE,
        Some(share) if some_more < count => u64::MAX - share * some_more as u64,
        Some(_) | None => ALL,
    }
}

/// How many keys shall exceed the threshold, so that `take` do all but surely.
fn expected(take: usize) -> usize {
    if take == 0 { 0 } else { take + 4 * take.isqrt() + 8 }
}
