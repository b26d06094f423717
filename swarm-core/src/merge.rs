//! Merges two ordered maps in one pass.
//!
//! A turn compares maps of all jobs with each other. A lookup of every name of one map in the other
//! costs about twenty comparisons of names for each job; a merge costs one.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::iter;

/// Returns every key of either map, in order, with its value in each map. O(left + right).
pub(crate) fn side_by_side<'a, K: Ord, L, R>(
    left: &'a BTreeMap<K, L>,
    right: &'a BTreeMap<K, R>,
) -> impl Iterator<Item = (&'a K, Option<&'a L>, Option<&'a R>)> {
    let (mut left, mut right) = (left.iter().peekable(), right.iter().peekable());
    iter::from_fn(move || {
        let order = match (left.peek(), right.peek()) {
            (Some((left, _)), Some((right, _))) => left.cmp(right),
            (Some(_), None) => Ordering::Less,
            (None, _) => Ordering::Greater,
        };
        let l = left.next_if(|_| order != Ordering::Greater);
        let r = right.next_if(|_| order != Ordering::Less);
        let key = l.map(|(key, _)| key).or(r.map(|(key, _)| key))?;
        Some((key, l.map(|(_, value)| value), r.map(|(_, value)| value)))
    })
}

/// Returns every key of `left`, in order, with its values in `left` and `right`. O(left + right).
pub(crate) fn left_join<'a, K: Ord, L, R>(
    left: &'a BTreeMap<K, L>,
    right: &'a BTreeMap<K, R>,
) -> impl Iterator<Item = (&'a K, &'a L, Option<&'a R>)> {
    side_by_side(left, right).filter_map(|(key, left, right)| Some((key, left?, right)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_map() -> impl Strategy<Value = BTreeMap<u8, u8>> {
        prop::collection::btree_map(0..20_u8, any::<u8>(), 0..20)
    }

    proptest! {
        #[test]
        fn every_key_comes_once_in_order_with_what_each_map_has(l in any_map(), r in any_map()) {
            let found: Vec<_> =
                side_by_side(&l, &r).map(|(key, l, r)| (*key, l.copied(), r.copied())).collect();
            let looked_up: Vec<_> = (0..20)
                .map(|key| (key, l.get(&key).copied(), r.get(&key).copied()))
                .filter(|(_, l, r)| l.is_some() || r.is_some())
                .collect();
            prop_assert_eq!(found, looked_up);
            let left: Vec<_> = left_join(&l, &r).map(|(key, ..)| key).collect();
            prop_assert_eq!(left, l.keys().collect::<Vec<_>>());
        }
    }
}
