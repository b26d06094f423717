//! Objects by bucket.

use std::collections::BTreeSet;

use super::{Bucket, Buckets};

/// Objects by the bucket of their UID, so that a change of members touches only the objects that
/// change their owner.
///
/// `T` names an object for its user. The cost of an operation depends on the number of objects in
/// one bucket, not on the number of all objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys<T> {
    by_bucket: Vec<BTreeSet<T>>,
    count: usize,
}

impl<T: Ord> Default for Keys<T> {
    fn default() -> Self {
        let by_bucket = std::iter::repeat_with(BTreeSet::new).take(Bucket::COUNT).collect();
        Self { by_bucket, count: 0 }
    }
}

impl<T: Ord> Keys<T> {
    /// Adds an object; returns its bucket. O(log objects of the bucket).
    ///
    /// ```
    /// use swarm_replicas::machine::{Bucket, Keys};
    ///
    /// let mut keys = Keys::default();
    /// assert_eq!(keys.insert("6f1c", "default/a"), Bucket::of("6f1c"));
    /// assert_eq!(keys.len(), 1);
    /// ```
    pub fn insert(&mut self, uid: &str, key: T) -> Bucket {
        let bucket = Bucket::of(uid);
        self.count += usize::from(self.by_bucket[bucket.index()].insert(key));
        bucket
    }

    /// Removes an object; returns whether it was present. O(log objects of the bucket).
    ///
    /// ```
    /// use swarm_replicas::machine::Keys;
    ///
    /// let mut keys = Keys::default();
    /// keys.insert("6f1c", "default/a");
    /// assert!(keys.remove("6f1c", &"default/a") && keys.is_empty());
    /// assert!(!keys.remove("6f1c", &"default/a"));
    /// ```
    pub fn remove(&mut self, uid: &str, key: &T) -> bool {
        let was_there = self.by_bucket[Bucket::of(uid).index()].remove(key);
        self.count -= usize::from(was_there);
        was_there
    }

    /// The objects of these buckets, bucket by bucket. O(objects returned + buckets).
    ///
    /// ```
    /// use swarm_replicas::machine::{Bucket, Buckets, Keys};
    ///
    /// let mut keys = Keys::default();
    /// keys.insert("6f1c", "default/a");
    /// assert_eq!(keys.of(&Buckets::all()).collect::<Vec<_>>(), [&"default/a"]);
    /// assert_eq!(keys.of(&Buckets::default()).count(), 0);
    /// ```
    pub fn of<'a>(&'a self, buckets: &'a Buckets) -> impl Iterator<Item = &'a T> + 'a {
        buckets.iter().flat_map(|bucket| &self.by_bucket[bucket.index()])
    }

    /// The number of objects.
    ///
    /// ```
    /// assert_eq!(swarm_replicas::machine::Keys::<u32>::default().len(), 0);
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether the number of objects is zero.
    ///
    /// ```
    /// assert!(swarm_replicas::machine::Keys::<u32>::default().is_empty());
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}
