//! Exact selection of the jobs with the greatest keys on every worker, in one streaming pass.

/// Returns for each worker the `take` jobs with the greatest (key, number), among its `count` jobs.
///
/// A candidate is a job's number, its worker, and its hash, from which `key` computes the key on
/// that worker. A number beyond the list of workers means no worker. Only keys above a threshold
/// are collected. The threshold is set so that slightly more uniform keys than needed exceed it, so
/// with uniform keys one pass is enough. The result is correct with any keys: if too few of a
/// worker's keys exceed the threshold, a second pass collects all of them. The result equals a full
/// sort, except that its order within a worker is arbitrary. O(jobs).
pub(super) fn greatest(
    candidates: &(impl Iterator<Item = (u32, usize, u64)> + Clone),
    key: impl Fn(u64, usize) -> u64,
    take: &[usize],
    count: &[usize],
) -> Vec<Vec<(u64, u32)>> {
    // The capacity is one and a half times the number of keys that should exceed the threshold.
    let room = |(take, count): (&usize, &usize)| (expected(*take) * 3 / 2).min(*count);
    let mut found: Vec<_> = take.iter().zip(count).map(room).map(Vec::with_capacity).collect();
    let thresholds = take.iter().zip(count).map(|(take, count)| threshold(*take, *count));
    let mut thresholds: Vec<_> = thresholds.collect();
    loop {
        // `for_each` runs one inner loop for each run of jobs; a `for` loop is several times slower.
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

/// Brings the `take` greatest entries to the front, in any order.
pub(super) fn split_greatest(found: &mut [(u64, u32)], take: usize) {
    if 0 < take && take < found.len() {
        found.select_nth_unstable_by(take - 1, |a, b| b.cmp(a));
    }
}

/// The thresholds that no key and that all keys exceed.
const NONE: u64 = u64::MAX;
const ALL: u64 = 0;

/// Returns a key that slightly more than `take` of `count` uniform keys exceed.
fn threshold(take: usize, count: usize) -> u64 {
    let some_more = expected(take);
    match u64::MAX.checked_div(count as u64) {
        _ if take == 0 => NONE,
        Some(share) if some_more < count => u64::MAX - share * some_more as u64,
        Some(_) | None => ALL,
    }
}

/// Returns how many keys should exceed the threshold, so that `take` keys almost certainly do.
fn expected(take: usize) -> usize {
    if take == 0 { 0 } else { take + 4 * take.isqrt() + 8 }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Twenty thousand jobs on seven workers, whose keys are uniform or, in the worst case, all
    /// equal.
    fn visits_and_chosen(key: impl Fn(u64) -> u64) -> (usize, Vec<Vec<(u64, u32)>>) {
        let visits = Cell::new(0);
        let jobs = (0..20_000_u32).map(|job| {
            visits.set(visits.get() + 1);
            (job, job as usize % 8, crate::hash::mix(u64::from(job)))
        });
        let take = [0, 1, 2, 10, 100, 1_000, 2_500];
        let mut chosen = greatest(&jobs, |hash, _| key(hash), &take, &[2_500; 7]);
        for chosen in &mut chosen {
            chosen.sort_unstable();
        }
        (visits.get(), chosen)
    }

    fn by_sorting(key: impl Fn(u64) -> u64) -> Vec<Vec<(u64, u32)>> {
        let chosen = [0, 1, 2, 10, 100, 1_000, 2_500].into_iter().zip(0..).map(|(take, worker)| {
            let jobs = (0..20_000).filter(|job| job % 8 == worker);
            let mut all: Vec<_> =
                jobs.map(|job| (key(crate::hash::mix(u64::from(job))), job)).collect();
            all.sort_unstable();
            all.split_off(all.len() - take)
        });
        chosen.collect()
    }

    #[test]
    fn every_job_is_visited_once_and_the_choice_is_that_of_a_sort() {
        let (visits, chosen) = visits_and_chosen(|hash| hash);
        assert_eq!(visits, 20_000);
        assert_eq!(chosen, by_sorting(|hash| hash));
    }

    #[test]
    fn no_job_is_visited_more_than_twice_whatever_the_keys_are() {
        for key in [|_| 7, |_| u64::MAX, |_| 0, |hash| hash % 3] {
            let (visits, chosen) = visits_and_chosen(key);
            assert!(visits <= 40_000, "{visits} visits of 20000 jobs");
            assert_eq!(chosen, by_sorting(key));
        }
    }
}
