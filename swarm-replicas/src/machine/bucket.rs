//! Buckets: fixed ranges of the hashes of UIDs, and sets of them.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// One of [`Bucket::COUNT`] equal ranges of the FNV-1a hashes (64 bits) of UIDs.
///
/// The ranges are part of the protocol and never change; golden vectors freeze them. A watch that the
/// API server filters by such a range delivers whole buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bucket(u16);

/// The bits of a hash that number its bucket: the highest ones, so that a bucket is a range.
const BITS: u32 = 12;

impl Bucket {
    /// The number of buckets.
    pub const COUNT: usize = 1 << BITS;

    /// The bucket of an object, by its UID. O(bytes).
    ///
    /// ```
    /// use swarm_replicas::machine::Bucket;
    ///
    /// let bucket = Bucket::of("0b8f1d3e-5c1a-4a52-9d63-000000000001");
    /// assert_eq!(bucket.number(), 2_726); // the same in every release
    /// ```
    #[must_use]
    pub fn of(uid: &str) -> Self {
        let number = fnv1a(uid.as_bytes()) >> (u64::BITS - BITS);
        Self(u16::try_from(number).unwrap_or_default())
    }

    /// The bucket of this number, if it is below [`COUNT`](Self::COUNT).
    ///
    /// ```
    /// use swarm_replicas::machine::Bucket;
    ///
    /// assert!(Bucket::new(4_095).is_some() && Bucket::new(4_096).is_none());
    /// ```
    #[must_use]
    pub fn new(number: u16) -> Option<Self> {
        (usize::from(number) < Self::COUNT).then_some(Self(number))
    }

    /// The number of the bucket.
    ///
    /// ```
    /// use swarm_replicas::machine::Bucket;
    ///
    /// assert_eq!(Bucket::new(7).map(Bucket::number), Some(7));
    /// ```
    #[must_use]
    pub fn number(self) -> u16 {
        self.0
    }

    /// The hashes that fall into the bucket.
    ///
    /// ```
    /// use swarm_replicas::machine::Bucket;
    ///
    /// let [first, second] = [0, 1].map(|n| Bucket::new(n).unwrap().hashes());
    /// assert_eq!(*first.end(), 0x000f_ffff_ffff_ffff);
    /// assert_eq!(*first.end() + 1, *second.start());
    /// ```
    #[must_use]
    pub fn hashes(self) -> RangeInclusive<u64> {
        let first = u64::from(self.0) << (u64::BITS - BITS);
        first..=first | (u64::MAX >> BITS)
    }

    /// All buckets, by number.
    ///
    /// ```
    /// use swarm_replicas::machine::Bucket;
    ///
    /// assert_eq!(Bucket::all().count(), Bucket::COUNT);
    /// ```
    pub fn all() -> impl Iterator<Item = Self> {
        (0..1 << BITS).map(Self)
    }

    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The FNV-1a hash of 64 bits (Fowler, Noll, Vo).
pub(super) fn fnv1a(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

const WORDS: usize = Bucket::COUNT / u64::BITS as usize;

/// A set of buckets, in 512 bytes that copies share. All operations are O(1) or
/// O([`Bucket::COUNT`] / 64).
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Buckets(Arc<[u64; WORDS]>);

impl Default for Buckets {
    fn default() -> Self {
        Self(Arc::new([0; WORDS]))
    }
}

impl Buckets {
    /// All buckets.
    ///
    /// ```
    /// use swarm_replicas::machine::{Bucket, Buckets};
    ///
    /// assert_eq!(Buckets::all().len(), Bucket::COUNT);
    /// ```
    #[must_use]
    pub fn all() -> Self {
        Self(Arc::new([u64::MAX; WORDS]))
    }

    /// Whether `bucket` is in the set.
    ///
    /// ```
    /// use swarm_replicas::machine::{Bucket, Buckets};
    ///
    /// let bucket = Bucket::of("6f1c");
    /// assert!(Buckets::from_iter([bucket]).contains(bucket));
    /// assert!(!Buckets::default().contains(bucket));
    /// ```
    #[must_use]
    pub fn contains(&self, bucket: Bucket) -> bool {
        self.0[bucket.index() / 64] >> (bucket.index() % 64) & 1 == 1
    }

    /// Adds a bucket.
    ///
    /// ```
    /// use swarm_replicas::machine::{Bucket, Buckets};
    ///
    /// let mut buckets = Buckets::default();
    /// [1, 1, 2].map(|n| buckets.insert(Bucket::new(n).unwrap()));
    /// assert_eq!(buckets.len(), 2);
    /// ```
    pub fn insert(&mut self, bucket: Bucket) {
        Arc::make_mut(&mut self.0)[bucket.index() / 64] |= 1 << (bucket.index() % 64);
    }

    /// The number of buckets in the set.
    ///
    /// ```
    /// assert_eq!(swarm_replicas::machine::Buckets::default().len(), 0);
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether the set is empty.
    ///
    /// ```
    /// assert!(swarm_replicas::machine::Buckets::default().is_empty());
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self.0 == [0; WORDS]
    }

    /// The buckets, by number.
    ///
    /// ```
    /// use swarm_replicas::machine::{Bucket, Buckets};
    ///
    /// let three = [5, 900, 64].map(|n| Bucket::new(n).unwrap());
    /// let numbers: Vec<_> = Buckets::from_iter(three).iter().map(Bucket::number).collect();
    /// assert_eq!(numbers, [5, 64, 900]);
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = Bucket> + '_ {
        (0_u16..).zip(self.0.iter()).flat_map(|(word, bits)| {
            let is_in = move |bit: &u16| bits >> bit & 1 == 1;
            (0..64).filter(is_in).map(move |bit| Bucket(word * 64 + bit))
        })
    }

    /// The buckets in `self` or in `other`.
    ///
    /// ```
    /// use swarm_replicas::machine::Buckets;
    ///
    /// assert_eq!(Buckets::default().or(&Buckets::all()), Buckets::all());
    /// ```
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        self.zip(other, |one, other| one | other)
    }

    /// The buckets in both sets.
    ///
    /// ```
    /// use swarm_replicas::machine::Buckets;
    ///
    /// assert!(Buckets::default().and(&Buckets::all()).is_empty());
    /// ```
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        self.zip(other, |one, other| one & other)
    }

    /// The buckets of `self` that are not in `other`.
    ///
    /// ```
    /// use swarm_replicas::machine::Buckets;
    ///
    /// assert!(Buckets::all().without(&Buckets::all()).is_empty());
    /// ```
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        self.zip(other, |one, other| one & !other)
    }

    fn zip(&self, other: &Self, join: impl Fn(u64, u64) -> u64) -> Self {
        Self(Arc::new(std::array::from_fn(|n| join(self.0[n], other.0[n]))))
    }
}

impl FromIterator<Bucket> for Buckets {
    fn from_iter<I: IntoIterator<Item = Bucket>>(buckets: I) -> Self {
        let mut words = [0; WORDS];
        for bucket in buckets {
            words[bucket.index() / 64] |= 1 << (bucket.index() % 64);
        }
        Self(Arc::new(words))
    }
}

/// Shows the number of buckets and the first four, since 4096 numbers are too many to read.
impl fmt::Debug for Buckets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first: Vec<_> = self.iter().take(4).map(Bucket::number).collect();
        write!(f, "{} buckets {first:?}…", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_and_buckets_are_frozen() {
        let golden = [
            ("", 0xcbf2_9ce4_8422_2325, 0xcbf),
            ("a", 0xaf63_dc4c_8601_ec8c, 0xaf6),
            ("foobar", 0x8594_4171_f739_67e8, 0x859),
        ];
        for (uid, hash, bucket) in golden {
            assert_eq!((fnv1a(uid.as_bytes()), Bucket::of(uid)), (hash, Bucket(bucket)), "{uid}");
            assert!(Bucket(bucket).hashes().contains(&hash));
        }
    }

    #[test]
    fn buckets_are_equal_ranges_without_gaps() {
        let mut next = Some(0);
        for bucket in Bucket::all() {
            let hashes = bucket.hashes();
            assert_eq!(Some(*hashes.start()), next);
            assert_eq!(hashes.end() - hashes.start(), u64::MAX >> BITS);
            next = hashes.end().checked_add(1);
        }
        assert_eq!(next, None, "all hashes have a bucket");
    }

    #[test]
    fn uids_are_spread_evenly() {
        let mut count = vec![0_u32; 64];
        for n in 0..64_000_u32 {
            let uid =
                format!("0b8f1d3e-5c1a-4a52-{:04x}-{n:012x}", n.wrapping_mul(40_503) % 65_536);
            count[usize::from(Bucket::of(&uid).number()) / 64] += 1;
        }
        let (least, most) = (count.iter().min().unwrap(), count.iter().max().unwrap());
        assert!(850 < *least && *most < 1_150, "{least} to {most} of a thousand each");
    }

    #[test]
    fn sets_keep_what_is_put_in() {
        let odd: Buckets = Bucket::all().filter(|bucket| bucket.number() % 2 == 1).collect();
        let low: Buckets = Bucket::all().take(100).collect();
        assert_eq!((odd.len(), low.and(&odd).len(), low.without(&odd).len()), (2_048, 50, 50));
        assert_eq!(low.or(&odd).len(), 2_098);
        assert!(
            odd.iter().all(|bucket| odd.contains(bucket) && !low.without(&odd).contains(bucket))
        );
        assert_eq!(format!("{low:?}"), "100 buckets [0, 1, 2, 3]…");
    }
}
