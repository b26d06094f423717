//! Ways to pack jobs into workers from scratch, and a renaming of equal workers that saves moves.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::Wish;
use super::room::Room;
use super::search::Places;

/// The rule for the worker of each job; the largest job comes first.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fit {
    /// The lowest slot with room.
    First,
    /// The least reserved worker.
    LeastReserved,
}

/// Packs `jobs`, which are in the order of their size. The room stays unchanged. O(jobs · log
/// workers).
pub(super) fn fit(wishes: &[Wish], jobs: &[usize], room: &mut Room, how: Fit) -> Places {
    let mut packed = Places::new();
    let (mut size, mut from) = (0, Some(0));
    for wish in jobs {
        let job = &wishes[*wish];
        if job.share != size {
            (size, from) = (job.share, Some(0));
        }
        let at = match how {
            Fit::First => {
                // Earlier workers had no room for a job of the same size.
                from = from.and_then(|from| room.first(size, from));
                from
            }
            Fit::LeastReserved => room.least_reserved(job),
        };
        if let Some(at) = at {
            room.take(at, job);
            packed.push((*wish, at));
        }
    }
    for (wish, at) in &packed {
        room.give(*at, &wishes[*wish]);
    }
    packed
}

/// Fills one worker after the other. Each gets the largest job that fits, and of the others the
/// jobs that leave the least free, starting with its present jobs. `seat` returns the worker of a
/// job. O(jobs · workers · 100).
pub(super) fn fill(
    wishes: &[Wish],
    jobs: &[usize],
    room: &Room,
    seat: impl Fn(usize) -> Option<usize>,
) -> Places {
    let mut rest = jobs.to_vec();
    let mut packed = Places::new();
    for at in 0..room.len() {
        let (mut free, most) = room.kind(at);
        let largest = rest.iter().copied().find(|wish| wishes[*wish].share <= free);
        let Some(largest) = largest.filter(|_| most > 0) else { continue };
        free -= wishes[largest].share;
        let mut others: Vec<_> = rest.iter().copied().filter(|wish| *wish != largest).collect();
        others.sort_by_key(|wish| seat(*wish) != Some(at));
        let mut chosen = fullest(wishes, &others, free);
        chosen.sort_unstable();
        chosen.truncate(most - 1);
        chosen.push(largest);
        rest.retain(|wish| !chosen.contains(wish));
        packed.extend(chosen.into_iter().map(|wish| (wish, at)));
    }
    packed
}

/// Returns some of `jobs` that leave as little of `free` as possible; ties go to the first jobs.
fn fullest(wishes: &[Wish], jobs: &[usize], free: u8) -> Vec<usize> {
    // The job that last reached each sum.
    let mut reached: Vec<Option<usize>> = vec![None; usize::from(free) + 1];
    for wish in jobs {
        let share = usize::from(wishes[*wish].share);
        for sum in (share..reached.len()).rev() {
            let is_new = reached[sum].is_none();
            if is_new && (sum == share || reached[sum - share].is_some()) {
                reached[sum] = Some(*wish);
            }
        }
    }
    let mut sum = reached.iter().rposition(Option::is_some).unwrap_or(0);
    let mut chosen = Vec::new();
    while let Some(wish) = reached[sum] {
        chosen.push(wish);
        sum -= usize::from(wishes[wish].share);
    }
    chosen
}

/// Exchanges workers that are equal apart from their slot, so that many jobs stay with their
/// `holder`. The pair with the most common jobs comes first. Workers are equal if they have the
/// same `kind`.
pub(super) fn renamed(
    places: Places,
    kind: impl Fn(usize) -> (u8, usize),
    holder: impl Fn(usize) -> Option<usize>,
) -> Places {
    let mut common = BTreeMap::<(usize, usize), usize>::new();
    for (wish, at) in &places {
        if let Some(holder) = holder(*wish).filter(|holder| kind(*at) == kind(*holder)) {
            *common.entry((*at, holder)).or_default() += 1;
        }
    }
    let mut pairs: Vec<_> = common.into_iter().collect();
    pairs.sort_by_key(|(_, count)| Reverse(*count));
    let mut name = BTreeMap::new();
    let mut named = BTreeMap::new();
    for ((at, holder), _) in pairs {
        if !name.contains_key(&at) && !named.contains_key(&holder) {
            name.insert(at, holder);
            named.insert(holder, at);
        }
    }
    // A worker without a new name keeps its own. If its name is taken, it gets the name of the
    // taker, and so on.
    let own = |at: usize| {
        let mut own = at;
        while let Some(taken_by) = named.get(&own) {
            own = *taken_by;
        }
        own
    };
    let renamed = |at: usize| name.get(&at).copied().unwrap_or_else(|| own(at));
    places.into_iter().map(|(wish, at)| (wish, renamed(at))).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn wishes(shares: impl IntoIterator<Item = u8>) -> Vec<Wish> {
        let wish = |(job, share)| Wish { job, share, rank: 0, pin: None, holder: None };
        (0..).zip(shares).map(wish).collect()
    }

    /// Jobs of 60 %, held by these workers.
    fn renamed_among(holders: [usize; 4], caps: [usize; 4]) -> Places {
        let room = Room::new(&caps, &[100; 4]);
        let packed = (0..4).map(|n| (n, n)).collect();
        renamed(packed, |at| room.kind(at), |wish| Some(holders[wish]))
    }

    #[test]
    fn equal_workers_change_names_so_that_their_jobs_stay() {
        let stay = vec![(0, 2), (1, 0), (2, 3), (3, 1)];
        assert_eq!(renamed_among([2, 0, 3, 1], [9; 4]), stay);
        // The third worker may have one job only, so it is not equal to the others.
        let renamed = renamed_among([2, 0, 3, 1], [9, 9, 1, 9]);
        assert_eq!(renamed, [(0, 3), (1, 0), (2, 2), (3, 1)]);
    }

    proptest! {
        /// Scope: up to 8 jobs and any room, against all subsets.
        #[test]
        fn no_choice_leaves_less_free(
            shares in prop::collection::vec(1..=60_u8, 0..8), free in 0..=100_u8,
        ) {
            let wishes = wishes(shares);
            let sum = |chosen: &[usize]| {
                chosen.iter().map(|wish| u32::from(wishes[*wish].share)).sum::<u32>()
            };
            let all: Vec<_> = (0..wishes.len()).collect();
            let subset = |bits: u32| {
                all.iter().copied().filter(|n| bits >> n & 1 == 1).collect::<Vec<_>>()
            };
            let sums = (0..1_u32 << wishes.len()).map(|bits| sum(&subset(bits)));
            let best = sums.filter(|sum| *sum <= u32::from(free)).max();
            let mut chosen = fullest(&wishes, &all, free);
            prop_assert_eq!(Some(sum(&chosen)), best);
            let count = chosen.len();
            chosen.sort_unstable();
            chosen.dedup();
            prop_assert_eq!(chosen.len(), count);
        }

        /// Scope: up to 12 jobs on up to 4 workers with maxima. No worker exceeds its room.
        #[test]
        fn what_is_packed_fits(
            mut shares in prop::collection::vec(1..=60_u8, 0..12),
            workers in prop::collection::vec((0..4_usize, 1..=100_u8), 1..4),
        ) {
            shares.sort_unstable_by_key(|share| Reverse(*share));
            let wishes = wishes(shares);
            let (caps, sizes): (Vec<_>, Vec<_>) = workers.into_iter().unzip();
            let jobs: Vec<_> = (0..wishes.len()).collect();
            let mut room = Room::new(&caps, &sizes);
            let first = fit(&wishes, &jobs, &mut room, Fit::First);
            let least = fit(&wishes, &jobs, &mut room, Fit::LeastReserved);
            for places in [first, least, fill(&wishes, &jobs, &room, |_| None)] {
                let mut room = room.clone();
                let mut seen = std::collections::BTreeSet::new();
                for (wish, at) in places {
                    prop_assert!(seen.insert(wish));
                    prop_assert!(room.has(at, &wishes[wish]));
                    room.take(at, &wishes[wish]);
                }
            }
        }
    }
}
