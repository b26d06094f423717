//! Small random worlds, and worlds in which members constantly come and go.

use std::time::Duration;

use proptest::prelude::*;

use super::world::World;
use super::*;

/// An act on the member with this number.
#[derive(Clone, Copy, Debug)]
enum Act {
    Open,
    Leave(usize),
    Crash(usize),
    Revoke(usize),
    Delete(usize),
    Weigh(usize, u8),
    Apply(usize),
    Answer(usize),
    Lose(usize),
    Watch(usize),
    Relist(usize),
    Stopped(usize),
    CarryOutRevocation(usize),
    Deliver,
    Pass(u64),
}

fn any_act() -> impl Strategy<Value = Act> {
    let n = || 0..5_usize;
    prop_oneof![
        2 => Just(Act::Open),
        1 => n().prop_map(Act::Leave),
        1 => n().prop_map(Act::Crash),
        1 => n().prop_map(Act::Revoke),
        1 => n().prop_map(Act::Delete),
        1 => (n(), 1_u8..=100).prop_map(|(n, weight)| Act::Weigh(n, weight)),
        8 => n().prop_map(Act::Apply),
        8 => n().prop_map(Act::Answer),
        2 => n().prop_map(Act::Lose),
        16 => n().prop_map(Act::Watch),
        1 => n().prop_map(Act::Relist),
        8 => n().prop_map(Act::Stopped),
        4 => n().prop_map(Act::CarryOutRevocation),
        4 => Just(Act::Deliver),
        8 => (0..4_000_u64).prop_map(Act::Pass),
    ]
}

impl Act {
    fn take(self, world: &mut World) {
        let all = 0..world.nodes.len();
        match self {
            Self::Open if world.nodes.len() < 5 => {
                world.open(hosts(&[("labels", 1), ("pools", 2)]));
            }
            Self::Pass(millis) => {
                world.pass(Duration::from_millis(millis));
                all.for_each(|n| world.tick(n));
            }
            Self::Deliver => world.deliver(),
            Self::Leave(n) if all.contains(&n) => world.feed(n, ReplicaEvent::Leave),
            Self::Crash(n) if all.contains(&n) => world.crash(n),
            Self::Revoke(n) if all.contains(&n) => {
                world.revoke(&id(n as u64), None);
            }
            // Members that watched a deleted Lease notice the deletion, and so do members that see
            // its name in a set. A member that comes after all of these have gone cannot notice. So
            // a Lease is deleted only once its member no longer holds it.
            Self::Delete(n) if all.contains(&n) && !world.is_held(n) => world.delete(n),
            Self::Weigh(n, weight) if all.contains(&n) => {
                world.feed(n, ReplicaEvent::Host(hosts(&[("labels", weight)])));
            }
            Self::Apply(n) if all.contains(&n) => world.apply(n),
            Self::Answer(n) if all.contains(&n) => world.answer(n),
            Self::Lose(n) if all.contains(&n) => world.lose(n),
            Self::Watch(n) if all.contains(&n) => world.watch(n),
            Self::Relist(n) if all.contains(&n) => world.relist(n),
            Self::Stopped(n) if all.contains(&n) => world.stopped(n),
            Self::CarryOutRevocation(n) if all.contains(&n) => world.carry_out_revocation(n),
            _ => (),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Scope: up to 5 members, 200 acts with few faults, then 60 calm seconds.
    #[test]
    fn two_members_never_act_on_one_bucket_and_calm_brings_back_all(
        acts in prop::collection::vec(any_act(), 1..200),
    ) {
        let mut world = World::new();
        for act in acts {
            act.take(&mut world);
            world.assert_apart();
        }
        world.open(hosts(&[("labels", 1), ("pools", 1)]));
        world.run(Duration::from_mins(1), |_| ());
        prop_assert_eq!(world.served(), 2 * Bucket::COUNT, "each bucket has somebody who acts on it");
        for (n, node) in world.nodes.iter().enumerate().filter(|(_, node)| node.is_up) {
            let status = node.replica.status();
            let is_settled = |status: &ControllerStatus| status.locked.is_empty() && status.stopping == 0;
            prop_assert!(status.controllers.values().all(is_settled), "{n}: {:?}", status.problems);
        }
    }
}

/// Opens a member every second, and ends the member that came `stay` seconds ago. Each `crash`th
/// member crashes instead of leaving. Returns the average number of served buckets, and the longest
/// time that a bucket was not served.
fn come_and_go(stay: usize, crash: usize) -> (usize, Duration) {
    let mut world = World::new();
    let labels = || hosts(&[("labels", 1)]);
    for _ in 0..4 {
        world.open(labels());
    }
    world.run(Duration::from_secs(15), |_| ());
    let (mut sum, mut looks, mut gap) = (0, 0, Duration::ZERO);
    let mut served_at = vec![world.now; Bucket::COUNT];
    for _ in 0..40 {
        let n = world.open(labels());
        match n.checked_sub(stay) {
            Some(oldest) if oldest % crash == crash - 1 => world.crash(oldest),
            Some(oldest) => world.feed(oldest, ReplicaEvent::Leave),
            None => (),
        }
        world.run(Duration::from_secs(1), |world| {
            let acting = (0..world.nodes.len()).map(|n| world.acting(n));
            let served = acting.fold(Portion::default(), |mut all, acting| {
                all.add(&acting);
                all
            });
            (sum, looks) = (sum + served.len(), looks + 1);
            for bucket in served.get(&controller("labels")).into_iter().flat_map(Buckets::iter) {
                served_at[usize::from(bucket.number())] = world.now;
            }
            let longest = served_at.iter().map(|at| world.now.since(*at)).max();
            gap = gap.max(longest.unwrap_or_default());
        });
    }
    (sum / looks, gap)
}

#[test]
fn keys_make_progress_while_members_come_and_go_every_second() {
    let (served, gap) = come_and_go(10, usize::MAX);
    assert!(Bucket::COUNT * 9 / 10 < served && gap < Duration::from_secs(3), "{served}, {gap:?}");
}

#[test]
fn keys_make_progress_while_every_tenth_member_crashes() {
    // The members stay for longer than it takes to wait a member out.
    let (served, gap) = come_and_go(20, 10);
    assert!(Bucket::COUNT * 4 / 5 < served && gap < Duration::from_secs(20), "{served}, {gap:?}");
}

#[test]
fn members_that_stay_keep_serving_while_others_flap() {
    let mut world = World::new();
    let labels = || hosts(&[("labels", 1)]);
    for _ in 0..3 {
        world.open(labels());
    }
    world.run(Duration::from_secs(15), |_| ());
    let mut least = usize::MAX;
    for _ in 0..30 {
        let n = world.open(labels());
        world.run(Duration::from_secs(1), |world| least = least.min(world.served()));
        world.feed(n, ReplicaEvent::Leave);
    }
    assert_eq!(least, Bucket::COUNT, "nobody counts who does not stay for two renewals");
}
