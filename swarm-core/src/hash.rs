//! The frozen hash and the home function: placement from names alone.
//!
//! Both are part of the persisted behaviour: a change of either moves jobs in every running pool.
//! The golden vectors below freeze them. They use only integers of fixed width, and no floats.
//!
//! A home depends on the hash of the name and on the live slots, without a table. When a slot is
//! added at the top, only the jobs that draw it move. Hash rings are uneven, rendezvous hashing
//! costs one hash for each job and slot, and jump hashing needs floats.

use std::collections::BTreeMap;

use crate::{Job, JobName, Jobs, Slot, Token};

/// The number of draws after which [`home`] stops drawing slots and compares all live slots.
const DRAWS_MAX: u32 = 64;

/// Returns the frozen hash of a job: XXH3-64 with seed 0 over the bytes of its name.
///
/// ```
/// let hash = swarm_core::hash_job(&"a".parse()?);
/// assert_eq!(hash, 0xe6c6_32b6_1e96_4e1f); // the same on every platform and in every release
/// # Ok::<(), swarm_core::JobNameError>(())
/// ```
#[must_use]
pub fn hash_job(job: &JobName) -> u64 {
    hash_name(job.as_str())
}

/// Returns [`hash_job`] for a name that was validated elsewhere.
pub(crate) fn hash_name(name: &str) -> u64 {
    twox_hash::XxHash3_64::oneshot(name.as_bytes())
}

/// Returns a digest of bytes, by the same hash.
pub(crate) fn digest_bytes(bytes: &[u8]) -> u64 {
    twox_hash::XxHash3_64::oneshot(bytes)
}

/// Returns a digest of a set of jobs, names and wishes. Equal sets have equal digests. O(jobs).
///
/// ```
/// use swarm_core::{Job, Slot, digest_jobs, jobs};
///
/// let plain = jobs(["a", "b"])?;
/// assert_eq!(digest_jobs(&plain), digest_jobs(&jobs(["b", "a"])?));
///
/// let mut pinned = plain.clone();
/// pinned.insert("a".parse()?, Job { pin: Some(Slot(0)), ..Job::default() });
/// assert_ne!(digest_jobs(&plain), digest_jobs(&pinned)); // wishes count, too
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn digest_jobs(jobs: &Jobs) -> u64 {
    let word = |digest, word: u64| mix(digest ^ word);
    jobs.iter().fold(0, |digest, (name, job)| {
        let Job { pin, priority, share, suspend, run_once: _, title: _, runner: _, params: _ } =
            job;
        let pin = pin.map_or(0, |slot| u64::from(slot.0) + 1);
        let share = share.map_or(0, |share| u64::from(share.percent()));
        let priority = u32::from_ne_bytes(priority.to_ne_bytes());
        let wishes = word(word(pin, share), u64::from(priority));
        let details = digest_details(job);
        let wishes = if details == 0 { wishes } else { word(wishes, details) };
        let wishes = if *suspend { word(wishes, 1) } else { wishes };
        word(word(digest, hash_job(name)), wishes)
    })
}

/// Returns a digest of the details that workers receive with a grant of the job; 0 for a job that
/// has only a name. O(bytes of its params).
fn digest_details(job: &Job) -> u64 {
    let Job { run_once, runner, params, .. } = job;
    let Job { pin: _, priority: _, share: _, suspend: _, title: _, .. } = job;
    if !run_once && runner.is_none() && params.is_empty() {
        return 0;
    }
    let digest = params.iter().fold(1 + u64::from(*run_once), |digest, (name, value)| {
        mix(mix(digest ^ digest_bytes(name.as_bytes())) ^ digest_bytes(value.as_bytes()))
    });
    runner.as_ref().map_or(digest, |runner| digest_and(digest, runner.as_str()))
}

/// Returns a digest of grants: the jobs, their tokens and their details. It is the same on every
/// machine and in every release. O(jobs · log details).
pub(crate) fn digest_grants(granted: &BTreeMap<JobName, Token>, details: &Jobs) -> u64 {
    granted.iter().fold(0, |digest, (name, token)| {
        let details = details.get(name).map_or(0, digest_details);
        mix(mix(mix(digest ^ hash_job(name)) ^ token.0) ^ details)
    })
}

/// Extends a digest by a text. O(bytes).
pub(crate) fn digest_and(digest: u64, text: &str) -> u64 {
    mix(digest ^ digest_bytes(text.as_bytes()))
}

/// Mixes 64 bits reversibly: the finalizer of SplitMix64 (Steele, Lea, Flood, 2014).
#[inline]
pub(crate) const fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Returns the slot to which a job with this hash is assigned if no other rule decides.
///
/// `live` is ascending. The home depends only on the hash and the live slots, and is uniform over
/// them. It is *monotone*: when a slot joins, jobs move only to it; when a slot leaves, only its
/// own jobs move. (If slots between the lowest and the highest one are missing, a change of the
/// *lowest* or the *highest* also moves jobs that had drawn a missing slot first.) Expected cost:
/// O(log(max / live)) while most slots of `min..=max` are live; in the worst case O(live). `None`
/// if `live` is empty.
///
/// ```
/// use swarm_core::{Slot, hash_job, home};
///
/// let hash = hash_job(&"stream:cars:new".parse()?);
/// let before = home(hash, &[Slot(0), Slot(1), Slot(2)]);
/// let after = home(hash, &[Slot(0), Slot(1), Slot(2), Slot(3)]);
/// assert!(after == before || after == Some(Slot(3)));
/// # Ok::<(), swarm_core::JobNameError>(())
/// ```
#[must_use]
pub fn home(hash: u64, live: &[Slot]) -> Option<Slot> {
    let find = |slot| live.binary_search(&slot).ok();
    (!live.is_empty()).then(|| live[Homes::new(live).of(hash, find)])
}

/// Finds the homes of many jobs among the same live slots.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Homes<'a> {
    live: &'a [Slot],
    lowest: u32,
    /// The number of slots from which to draw: `0..slots`.
    slots: u32,
}

impl<'a> Homes<'a> {
    /// Prepares for `live`, which is ascending and not empty.
    pub(crate) fn new(live: &'a [Slot]) -> Self {
        let lowest = live.first().map_or(0, |slot| slot.0);
        Self { live, lowest, slots: live.last().map_or(1, |slot| slot.0.saturating_add(1)) }
    }

    /// Returns the position in `live` of the home of a job with this hash. `find` returns the
    /// position of a slot, if it is live.
    #[inline]
    pub(crate) fn of(&self, hash: u64, find: impl Fn(Slot) -> Option<usize>) -> usize {
        let drawn = bucket(hash, self.slots);
        find(Slot(drawn)).unwrap_or_else(|| self.redraw(hash, drawn, find))
    }

    /// Returns the home of a job whose first draw, `missed`, is missing.
    #[cold]
    fn redraw(&self, hash: u64, mut missed: u32, find: impl Fn(Slot) -> Option<usize>) -> usize {
        let mut drawn = hash;
        for _ in 1..DRAWS_MAX {
            drawn = mix(drawn);
            // If slots begin far from 0, nearly every slot is below the lowest one. From there,
            // draws climb, and soon arrive. They must not begin at the lowest slot, or all homes
            // would change with it.
            let from = if missed < self.lowest { missed + 1 } else { 0 };
            missed = from + bucket(drawn, self.slots - from);
            if missed < self.lowest {
                continue;
            }
            if let Some(position) = find(Slot(missed)) {
                return position;
            }
        }
        // The live slots are few and far apart. Rendezvous hashing is monotone as well.
        let weight = |slot: &Slot| mix(hash ^ mix(u64::from(slot.0)));
        let best = self.live.iter().enumerate().max_by_key(|(_, slot)| (weight(slot), **slot));
        best.map_or(0, |(position, _)| position)
    }
}

/// Maps a hash onto `0..buckets` (`buckets` > 0), monotonically and uniformly, in O(1) expected.
///
/// Let 2^k < `buckets` <= 2^(k+1). Bit j of the mixed hash decides whether the key leaves the lower
/// half `0..2^j` for the upper half `2^j..2^(j+1)`. The highest such level up to k, and a second
/// mix for the place in that level, give the bucket. Only the top level is incomplete, and is drawn
/// by rejection: of further draws over `0..2^(k+1)`, the first one in the lower half, or on an
/// existing bucket, decides. So a new bucket n takes only the keys that draw it first. The levels
/// come from `BinomialHash` (Coluzzi et al., 2024); the rejection keeps the shares exact.
#[inline]
fn bucket(hash: u64, buckets: u32) -> u32 {
    let Some(top) = (buckets - 1).checked_ilog2() else { return 0 };
    let levels = mix(hash);
    // This avoids a branch on the drawn bits, which no processor could predict.
    let place = place_below(levels, top + 1);
    if place < buckets { place } else { bucket_after_rejection(levels, top, buckets) }
}

#[cold]
fn bucket_after_rejection(levels: u64, top: u32, buckets: u32) -> u32 {
    for attempt in 1..u64::from(DRAWS_MAX) {
        let draw = mix(levels ^ mix(u64::from(top) << 32 | attempt));
        if draw & (1 << top) == 0 {
            break;
        }
        let place = place(draw, top);
        if place < buckets {
            return place;
        }
    }
    place_below(levels, top)
}

/// Returns the place in `0..2^top` that follows from the highest level below `top`.
#[inline]
fn place_below(levels: u64, top: u32) -> u32 {
    (levels & ((1 << top) - 1)).checked_ilog2().map_or(0, |level| place(levels, level))
}

/// The mixed numbers of the levels.
const LEVEL_SALTS: [u64; 32] = {
    let mut salts = [0; 32];
    let mut level = 0;
    while level < salts.len() {
        salts[level] = mix(level as u64);
        level += 1;
    }
    salts
};

/// Returns a bucket in `2^level..2^(level+1)`, by other bits than those for the choice of the
/// level.
#[inline]
fn place(draw: u64, level: u32) -> u32 {
    let low = mix(draw ^ LEVEL_SALTS[level as usize % LEVEL_SALTS.len()]) & ((1 << level) - 1);
    u32::try_from(low).map_or(0, |low| 1 << level | low)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(n: u32) -> Vec<Slot> {
        (0..n).map(Slot).collect()
    }

    const FAR: u32 = 1_000_000;

    fn far(n: u32) -> Vec<Slot> {
        (FAR..FAR + n).map(Slot).collect()
    }

    fn hashes() -> impl Iterator<Item = u64> {
        (0..20_000_u64).map(|n| hash_job(&JobName::new(&format!("job-{n}")).unwrap()))
    }

    #[test]
    fn hash_and_home_are_frozen() {
        let golden = [
            ("a", 0xe6c6_32b6_1e96_4e1f, 0, 0, 0, 862),
            ("stream:xxrtve1", 0x7e18_baff_5aa9_e11a, 0, 6, 6, 219),
            ("stream:cars:updated", 0xd15d_e224_638b_2e33, 1, 4, 7, 322),
        ];
        for (name, hash, of_2, of_7, of_10, of_1000) in golden {
            let found = hash_job(&JobName::new(name).unwrap());
            let at = |n| home(found, &slots(n)).unwrap().0;
            assert_eq!(
                (name, found, at(2), at(7), at(10), at(1000)),
                (name, hash, of_2, of_7, of_10, of_1000)
            );
        }
    }

    #[test]
    fn digests_are_frozen_and_depend_on_details() {
        let job = |run_once, params: &[(&str, &str)]| {
            let params = params.iter().map(|(name, value)| ((*name).into(), (*value).into()));
            Job { run_once, params: params.collect(), ..Job::default() }
        };
        let name = || JobName::new("a").unwrap();
        let digests = |job: Job| {
            let jobs = [(name(), job)].into();
            (digest_jobs(&jobs), digest_grants(&[(name(), Token(3))].into(), &jobs))
        };
        let found = [
            digests(job(false, &[])),
            digests(job(true, &[])),
            digests(job(false, &[("url", "x")])),
            digests(job(false, &[("x", "url")])),
        ];
        let golden = [
            (0x3fee_8885_4e24_151b, 0x2450_bd41_1f67_93fe),
            (0xb3f2_3803_11a2_7356, 0x3bc8_8431_8ea2_0228),
            (0xa384_c98e_6ff4_714f, 0x7138_955c_e0cb_4162),
            (0x21b7_fec1_40f1_b3c1, 0x0f8c_3a56_33ed_e7da),
        ];
        assert_eq!(found, golden, "{found:x?}");
    }

    #[test]
    fn jobs_move_only_to_a_new_slot() {
        for n in 1..40 {
            let (before, after) = (far(n), far(n + 1));
            for hash in hashes().take(500) {
                let (before, after) = (home(hash, &before), home(hash, &after));
                assert!(after == before || after == Some(Slot(FAR + n)), "{before:?} of {n}");
            }
        }
        for hash in hashes().take(2_000) {
            for n in 1..130 {
                let (before, after) = (bucket(hash, n), bucket(hash, n + 1));
                assert!(after == before || after == n, "{hash:x}: {before} of {n}, then {after}");
            }
        }
    }

    #[test]
    fn only_the_jobs_of_a_removed_slot_move() {
        for all in [slots(12), far(12)] {
            for dead in &all[..11] {
                let live: Vec<_> = all.iter().copied().filter(|slot| slot != dead).collect();
                for hash in hashes().take(2_000) {
                    let (before, after) = (home(hash, &all), home(hash, &live));
                    assert!(before == after || before == Some(*dead));
                    assert_ne!(after, Some(*dead));
                }
            }
        }
    }

    #[test]
    fn homes_are_spread_evenly() {
        for n in [1, 2, 3, 5, 8, 13, 100] {
            let pierced: Vec<_> = far(2 * n).into_iter().filter(|slot| slot.0 % 2 == 0).collect();
            for live in [slots(n), far(n), pierced] {
                let mut count = vec![0_u32; n as usize];
                let homes = Homes::new(&live);
                let find = |slot| live.binary_search(&slot).ok();
                hashes().for_each(|hash| count[homes.of(hash, find)] += 1);
                let mean = 20_000.0 / f64::from(n);
                let square = |count: &u32| (f64::from(*count) - mean).powi(2) / mean;
                let (chi_square, freedom) =
                    (count.iter().map(square).sum::<f64>(), f64::from(n - 1));
                // Five standard deviations of the chi-square distribution; the keys are fixed.
                let most = freedom + 5.0 * (2.0 * freedom).sqrt();
                assert!(chi_square <= most, "{live:?}: {chi_square}");
            }
        }
    }

    #[test]
    fn few_slots_far_from_zero_still_get_homes() {
        let live = [Slot(1_000_000), Slot(1_000_001), Slot(u32::MAX - 1)];
        let mut seen = std::collections::BTreeSet::new();
        hashes().take(200).for_each(|hash| seen.extend(home(hash, &live)));
        assert_eq!(seen.len(), 3);
        assert_eq!(home(7, &[]), None);
    }
}
