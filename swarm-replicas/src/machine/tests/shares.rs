//! Tests of owners: few moves, even shares, weights.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn set(members: &[(u64, u8)]) -> Members {
    Members::new(members.iter().map(|(n, weight)| (id(*n), hosts(&[("labels", *weight)]))))
}

fn alike(count: u64) -> Members {
    set(&(0..count).map(|n| (n, 1)).collect::<Vec<_>>())
}

fn sizes(members: &Members) -> Vec<usize> {
    let owners = Owners::of(members);
    members.iter().map(|(member, _)| owners.share(member).len()).collect()
}

#[test]
fn owners_are_frozen() {
    let owners = Owners::of(&set(&[(0, 1), (1, 1), (2, 50), (3, 100)]));
    let owner = |n: u16| owners.owner(&controller("labels"), Bucket::new(n).unwrap());
    let numbers =
        (0..4_096).step_by(256).map(|n| (0..4).find(|m| owner(n) == Some(&id(*m))).unwrap());
    assert_eq!(numbers.collect::<Vec<_>>(), [3, 2, 2, 3, 3, 2, 3, 2, 3, 3, 3, 2, 2, 3, 3, 2]);
}

#[test]
fn one_member_more_or_fewer_moves_only_its_share() {
    for count in 1..20 {
        let (before, after) = (Owners::of(&alike(count)), Owners::of(&alike(count + 1)));
        let newest = id(count);
        let share = after.share(&newest).len();
        assert!(before.changes(&after).all(|change| change.to == Some(&newest)));
        assert_eq!(before.changes(&after).count(), share);
        assert!(after.changes(&before).all(|change| change.from == Some(&newest)));
        assert_eq!(after.changes(&before).count(), share);
    }
}

#[test]
fn shares_are_even() {
    for (count, most_percent) in [(2, 105), (3, 108), (5, 112), (10, 120), (32, 140)] {
        let sizes = sizes(&alike(count));
        let mean = Bucket::COUNT / sizes.len();
        let most = sizes.iter().max().unwrap() * 100 / mean;
        assert!(most <= most_percent, "{count} members: {most} % of the mean");
    }
}

#[test]
fn shares_are_proportional_to_weights() {
    for weights in [vec![1, 2], vec![1, 1, 2, 4], vec![10, 20, 30, 40], vec![100, 50, 50]] {
        let members: Vec<_> = (0..).zip(weights.iter().copied()).collect();
        let all: usize = weights.iter().map(|weight| usize::from(*weight)).sum();
        for (size, weight) in sizes(&set(&members)).iter().zip(&weights) {
            let fair = Bucket::COUNT * usize::from(*weight) / all;
            // Five standard deviations of a binomial distribution, rounded up.
            let bound = 5 * fair.isqrt();
            assert!(size.abs_diff(fair) <= bound, "{weights:?}: {size} in place of {fair}");
        }
    }
}

#[test]
fn only_those_who_host_a_controller_own_its_buckets() {
    let members =
        [(id(0), hosts(&[("labels", 1)])), (id(1), hosts(&[("labels", 1), ("pools", 3)]))];
    let owners = Owners::of(&Members::new(members));
    assert_eq!(owners.share(&id(1)).get(&controller("pools")), Some(&Buckets::all()));
    assert_eq!(owners.share(&id(0)).get(&controller("pools")), None);
    assert_eq!(owners.owner(&controller("scale"), Bucket::of("6f1c")), None);
    assert!(owners.share(&id(2)).is_empty());
}

#[test]
fn an_object_tends_to_have_one_owner_for_all_controllers() {
    let both = hosts(&[("labels", 1), ("pools", 1)]);
    let owners = Owners::of(&Members::new((0..5).map(|n| (id(n), both.clone()))));
    for bucket in Bucket::all() {
        let owner = |name| owners.owner(&controller(name), bucket);
        assert_eq!(owner("labels"), owner("pools"));
    }
}

#[test]
fn a_replica_that_comes_back_owns_what_it_owned() {
    let again = MemberId::new("swarm-1", 77).unwrap();
    let before = Owners::of(&alike(3));
    let members = before.members().iter().map(|(member, hosts)| {
        (if *member == id(1) { again.clone() } else { member.clone() }, hosts.clone())
    });
    let after = Owners::of(&Members::new(members));
    assert_eq!(before.share(&id(1)), after.share(&again));
    let only = |change: OwnerChange<'_>| (change.from, change.to) == (Some(&id(1)), Some(&again));
    assert!(before.changes(&after).all(only));
}

#[test]
fn objects_are_found_by_what_changes_hands() {
    let mut keys = Keys::default();
    let uid = |n: u32| format!("0b8f1d3e-5c1a-4a52-9d63-{n:012}");
    (0..10_000).for_each(|n| assert_eq!(keys.insert(&uid(n), n), Bucket::of(&uid(n))));
    let (before, after) = (Owners::of(&alike(9)), Owners::of(&alike(10)));
    let moved: Buckets = before.changes(&after).map(|change| change.bucket).collect();
    let touched: BTreeSet<_> = keys.of(&moved).copied().collect();
    for n in 0..10_000 {
        let owner =
            |owners: &Owners| owners.owner(&controller("labels"), Bucket::of(&uid(n))).cloned();
        assert_eq!(owner(&before) != owner(&after), touched.contains(&n), "{n}");
    }
    assert!((700..1_300).contains(&touched.len()), "about a tenth: {}", touched.len());
    assert!((0..10_000).all(|n| keys.remove(&uid(n), &n)) && keys.is_empty());
}

#[test]
fn names_are_read_as_they_are_written_and_others_are_refused() {
    for name in ["a-0000000000000001", "swarm-7.x-00ff00ff00ff00ff"] {
        assert_eq!(name.parse::<MemberId>().unwrap().to_string(), name);
    }
    for name in ["a", "a-1", "-0000000000000001", "A-0000000000000001", "a-00000000000000FF"] {
        assert!(name.parse::<MemberId>().is_err(), "{name}");
    }
    let long = "a".repeat(236);
    assert_eq!(MemberId::new(&long, 0).unwrap().to_string().len(), 253);
    assert!(MemberId::new(&(long + "a"), 0).is_err());
    assert!("".parse::<Controller>().is_err() && "a b".parse::<Controller>().is_err());
}

fn any_members() -> impl Strategy<Value = Members> {
    let hosts = prop::collection::btree_map("[abc]", 1_u8..=100, 0..3);
    let member = (0..8_u64, hosts);
    prop::collection::vec(member, 0..6).prop_map(|members| {
        let hosts = |hosts: std::collections::BTreeMap<String, u8>| {
            let all = hosts
                .iter()
                .map(|(name, weight)| (controller(name), Weight::new(*weight).unwrap()));
            all.collect::<Hosts>()
        };
        Members::new(members.into_iter().map(|(n, hosted)| (id(n), hosts(hosted))))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Scope: up to 5 members that host up to 2 of 3 controllers with any weights.
    #[test]
    fn a_table_made_from_another_is_the_same(first in any_members(), second in any_members()) {
        let (before, after) = (Owners::of(&first), Owners::of(&second));
        let next = before.next(&second);
        let mut moved = 0;
        for name in ["a", "b", "c"] {
            for bucket in Bucket::all() {
                let owner = |owners: &Owners| owners.owner(&controller(name), bucket).cloned();
                prop_assert_eq!(owner(&after), owner(&next));
                moved += usize::from(owner(&before) != owner(&next));
            }
        }
        prop_assert_eq!(before.changes(&next).count(), moved);
        for change in before.changes(&next) {
            prop_assert_eq!(change.from, before.owner(change.controller, change.bucket));
            prop_assert_eq!(change.to, next.owner(change.controller, change.bucket));
        }
        let shares: usize = second.iter().map(|(member, _)| next.share(member).len()).sum();
        let hosted: BTreeSet<_> = second.iter().flat_map(|(_, hosts)| hosts.keys()).collect();
        prop_assert_eq!(shares, hosted.len() * Bucket::COUNT, "each bucket has one owner");
    }

    /// Scope: up to 5 members, in two orders.
    #[test]
    fn the_order_of_members_makes_no_difference(members in any_members()) {
        let backwards = Members::new(members.iter().map(|(id, hosts)| (id.clone(), hosts.clone())).collect::<Vec<_>>().into_iter().rev());
        prop_assert_eq!(&members, &backwards);
        let (one, other) = (Owners::of(&members), Owners::of(&backwards));
        prop_assert_eq!(one.changes(&other).count(), 0);
    }
}
