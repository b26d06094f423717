//! A map that is shared when it is passed on, and copied when it is written.
//!
//! A turn passes on maps of all jobs: from the list to the request, from the stored ledger to the
//! next one, from the ledger to views. Unchanged maps are one map, so that cloning and comparing
//! them costs nothing.

use std::collections::{BTreeMap, btree_map};
use std::fmt;
use std::iter::FromIterator;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// An ordered map that clones share until one of them is written.
///
/// Cloning is O(1). Comparing two that share their entries is O(1), and O(entries) otherwise. The
/// first write through `DerefMut` copies the entries if they are shared: O(entries).
///
/// ```
/// use swarm_core::SharedMap;
///
/// let one = SharedMap::from([("a", 1), ("b", 2)]);
/// let mut other = one.clone();
/// assert!(other.is_same(&one)); // one map, twice
/// other.insert("c", 3);
/// assert_eq!((one.len(), other.len()), (2, 3));
/// ```
pub struct SharedMap<K, V>(Arc<BTreeMap<K, V>>);

impl<K, V> SharedMap<K, V> {
    /// Creates a map without entries.
    ///
    /// ```
    /// assert!(swarm_core::SharedMap::<u8, u8>::new().is_empty());
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::default())
    }

    /// Returns whether two maps share their entries, and not only have equal ones. O(1).
    ///
    /// ```
    /// use swarm_core::SharedMap;
    ///
    /// let one = SharedMap::from([("a", 1)]);
    /// assert!(one.is_same(&one.clone()));
    /// assert!(!one.is_same(&SharedMap::from([("a", 1)])));
    /// ```
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<K: Clone, V: Clone> SharedMap<K, V> {
    /// Returns the keys, in order. O(entries) if the entries are shared.
    ///
    /// ```
    /// let jobs = swarm_core::jobs(["b", "a"])?;
    /// assert_eq!(jobs.into_keys().next(), Some("a".parse()?));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn into_keys(self) -> btree_map::IntoKeys<K, V> {
        Arc::unwrap_or_clone(self.0).into_keys()
    }
}

impl<K, V> Deref for SharedMap<K, V> {
    type Target = BTreeMap<K, V>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<K: Clone, V: Clone> DerefMut for SharedMap<K, V> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        Arc::make_mut(&mut self.0)
    }
}

impl<K, V> Clone for SharedMap<K, V> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K, V> Default for SharedMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Eq, V: Eq> PartialEq for SharedMap<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.is_same(other) || self.0 == other.0
    }
}

impl<K: Eq, V: Eq> Eq for SharedMap<K, V> {}

impl<K: std::hash::Hash, V: std::hash::Hash> std::hash::Hash for SharedMap<K, V> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for SharedMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<K, V> From<BTreeMap<K, V>> for SharedMap<K, V> {
    fn from(map: BTreeMap<K, V>) -> Self {
        Self(Arc::new(map))
    }
}

impl<K: Ord, V, const N: usize> From<[(K, V); N]> for SharedMap<K, V> {
    fn from(entries: [(K, V); N]) -> Self {
        BTreeMap::from(entries).into()
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for SharedMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        entries.into_iter().collect::<BTreeMap<_, _>>().into()
    }
}

impl<K: Clone, V: Clone> IntoIterator for SharedMap<K, V> {
    type Item = (K, V);
    type IntoIter = btree_map::IntoIter<K, V>;

    fn into_iter(self) -> Self::IntoIter {
        Arc::unwrap_or_clone(self.0).into_iter()
    }
}

impl<'a, K, V> IntoIterator for &'a SharedMap<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = btree_map::Iter<'a, K, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<'a, K: Clone, V: Clone> IntoIterator for &'a mut SharedMap<K, V> {
    type Item = (&'a K, &'a mut V);
    type IntoIter = btree_map::IterMut<'a, K, V>;

    fn into_iter(self) -> Self::IntoIter {
        Arc::make_mut(&mut self.0).iter_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Equal to nothing, so that a comparison of entries is noticed.
    #[derive(Clone, Debug)]
    struct Unequal;

    impl PartialEq for Unequal {
        fn eq(&self, _: &Self) -> bool {
            false
        }
    }

    impl Eq for Unequal {}

    #[test]
    fn what_is_shared_is_not_compared_entry_by_entry() {
        let one = SharedMap::from([("a", Unequal)]);
        assert_eq!(one, one.clone());
        assert_ne!(one, SharedMap::from([("a", Unequal)]));
    }

    #[test]
    fn a_write_copies_once_and_only_what_is_shared() {
        let one = SharedMap::from([("a", 1)]);
        let mut other = one.clone();
        other.insert("b", 2);
        assert!(!other.is_same(&one));
        assert_eq!(one, SharedMap::from([("a", 1)]));
        let entry: *const i32 = &raw const other["a"];
        other.insert("c", 3);
        assert_eq!(entry, &raw const other["a"]);
    }
}
