//! Exact selection of the jobs with the greatest keys on every worker, in one streaming pass.

use std::ops::Range;

/// Which job, on which worker, with which key; the jobs are numbered.
pub(super) struct Candidates<'a, W, K> {
    /// The jobs to look at.
    pub(super) runs: &'a [Range<u32>],
    /// The worker of a job; a number beyond the list of workers for none.
    pub(super) worker: W,
    /// The key of a job on its worker. Uniform keys make one pass enough; any keys are right.
    pub(super) key: K,
}

/// For each worker the `take` jobs with the greatest (key, number), of the `count` that it has.
///
/// A threshold that as many uniform keys as needed and some more exceed keeps the work small: only
/// those are collected and selected from. Where too few exceed it, all of that worker's jobs are.
/// The result is that of a full sort; its order within a worker is arbitrary. O(jobs).
pub(super) fn greatest<W, K>(
    candidates: &Candidates<'_, W, K>,
    take: &[usize],
    count: &[usize],
) -> Vec<Vec<(u64, u32)>>
where
    W: Fn(u32) -> usize,
    K: Fn(u32, usize) -> u64,
{
    let mut found = vec![Vec::new(); take.len()];
    let thresholds = take.iter().zip(count).map(|(take, count)| threshold(*take, *count));
    let mut thresholds: Vec<_> = thresholds.collect();
    loop {
        candidates.collect(&thresholds, &mut found);
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

impl<W: Fn(u32) -> usize, K: Fn(u32, usize) -> u64> Candidates<'_, W, K> {
    /// Appends every job whose key exceeds its worker's threshold; [`ALL`] is exceeded by all.
    fn collect(&self, thresholds: &[u64], found: &mut [Vec<(u64, u32)>]) {
        for run in self.runs {
            // A loop for each run: one over all of them is several times slower.
            for job in run.clone() {
                let worker = (self.worker)(job);
                let Some(threshold) = thresholds.get(worker) else { continue };
                let key = (self.key)(job, worker);
                if key > *threshold || *threshold == ALL {
                    found[worker].push((key, job));
                }
            }
        }
    }
}

/// The threshold that no key exceeds, and the one that all do.
const NONE: u64 = u64::MAX;
const ALL: u64 = 0;

/// A key that about `take` and some more of `count` uniform keys exceed.
fn threshold(take: usize, count: usize) -> u64 {
    let some_more = take + 4 * take.isqrt() + 8;
    match u64::MAX.checked_div(count as u64) {
        _ if take == 0 => NONE,
        Some(share) if some_more < count => u64::MAX - share * some_more as u64,
        Some(_) | None => ALL,
    }
}
