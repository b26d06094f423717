//! Single members and small groups, step by step.

use std::time::Duration;

use swarm_core::handover::{Holder, LeaseVersion, Moment};

use super::world::World;
use super::*;

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn labels() -> Hosts {
    hosts(&[("labels", 1)])
}

fn settled(members: usize) -> World {
    let mut world = World::new();
    for _ in 0..members {
        world.open(labels());
    }
    world.run(secs(15), |_| ());
    assert_eq!(world.served(), Bucket::COUNT);
    world
}

fn members(world: &World, n: usize) -> usize {
    world.nodes[n].replica.status().acts_by.len()
}

#[test]
fn the_default_terms_can_work() {
    let terms = ReplicaTerms::default().lease;
    assert_eq!(terms.check(), Ok(()));
    assert!(terms.fence_wait() <= secs(11), "lease + 2 s: {:?}", terms.fence_wait());
}

#[test]
fn the_first_member_serves_all_at_once() {
    let mut world = World::new();
    world.open(labels());
    world.run(Duration::from_millis(300), |_| ());
    assert_eq!(world.served(), Bucket::COUNT);
}

#[test]
fn a_member_that_comes_gets_its_share_after_two_renewals() {
    let mut world = settled(2);
    world.open(labels());
    world.run(secs(3), |world| assert_eq!((world.owned(2), world.served()), (0, Bucket::COUNT)));
    world.run(secs(4), |_| ());
    assert!(1_000 < world.owned(2), "{}", world.owned(2));
    assert_eq!(world.served(), Bucket::COUNT);
}

#[test]
fn the_write_that_creates_a_lease_is_no_renewal_and_every_later_one_is() {
    let terms = ReplicaTerms { join_renewals: 2, ..ReplicaTerms::default() };
    assert_eq!([0, 1, 2, 3].map(|number| terms.has_joined(number)), [false, false, false, true]);
    let at_once = ReplicaTerms { join_renewals: 0, ..terms };
    assert!(at_once.has_joined(1));
    let mut world = settled(1);
    let n = world.open(labels());
    world.run(secs(6), |world| {
        let number = world.store.get(&id(n as u64)).map_or(0, |lease| lease.number);
        assert!(members(world, 0) == 1 || 3 <= number, "counted at write {number}");
    });
    assert_eq!(members(&world, 0), 2);
}

#[test]
fn members_that_come_together_are_one_change() {
    let mut world = settled(1);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..5 {
        world.open(labels());
        world.run(Duration::from_millis(150), |_| ());
    }
    world.run(secs(8), |world| {
        seen.insert(members(world, 0));
    });
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [1, 6]);
}

#[test]
fn a_member_that_leaves_hands_over_without_waiting_for_its_lease() {
    let mut world = settled(3);
    world.feed(0, ReplicaEvent::Leave);
    world.run(Duration::from_millis(600), |_| ());
    assert_eq!((members(&world, 1), world.served()), (2, Bucket::COUNT));
    assert!(!world.nodes[0].is_up && !world.is_held(0));
}

#[test]
fn a_member_that_leaves_waits_for_its_turns() {
    let mut world = settled(2);
    let own = world.acting(0);
    world.feed(0, ReplicaEvent::Leave);
    world.deliver();
    world.deliver();
    assert_eq!(world.acting(0), own, "its turns go on");
    let bucket = own.get(&controller("labels")).unwrap().iter().next().unwrap();
    let (replica, labels) = (&world.nodes[0].replica, controller("labels"));
    assert!(!replica.may_begin(&labels, bucket, world.now), "but none begins");
    assert_eq!(replica.may_act(&labels, bucket, world.now), Some(replica.deadline()));
    assert!(world.owned(1) < Bucket::COUNT && world.is_held(0));
}

#[test]
fn a_crashed_member_is_waited_out_and_replaced_within_its_lease_and_two_seconds() {
    for count in [2, 3, 5] {
        let mut world = settled(count);
        world.crash(0);
        let died = world.now;
        let mut back = None;
        world.run(secs(15), |world| {
            if world.served() == Bucket::COUNT {
                back.get_or_insert(world.now);
            }
        });
        let took = back.unwrap().since(died);
        assert!(took <= secs(11) && secs(8) <= took, "{count} members: {took:?}");
    }
}

#[test]
fn a_lease_that_was_deleted_proves_nothing() {
    let mut world = settled(2);
    world.crash(0);
    world.delete(0);
    world.run(secs(8), |world| assert!(world.served() < Bucket::COUNT));
    world.run(secs(4), |_| ());
    assert_eq!(world.served(), Bucket::COUNT);
}

#[test]
fn a_member_that_comes_waits_for_one_whose_lease_was_deleted_before() {
    let mut world = settled(2);
    // The other member does not notice: its watch is behind.
    world.crash(0);
    world.delete(0);
    let n = world.open(labels());
    world.watch(n);
    for _ in 0..9 {
        world.apply(n);
        world.answer(n);
        while let Some(number) = world.nodes[n].stops.front().copied() {
            world.nodes[n].stops.pop_front();
            world.feed(n, ReplicaEvent::Stopped { number });
        }
        world.pass(secs(1));
        world.tick(n);
        world.watch(n);
        world.watch(n);
        assert_eq!(world.owned(n), 0, "a set names a member that nobody has seen end");
    }
}

#[test]
fn most_members_that_fall_silent_are_revoked_only_after_another_lease() {
    let mut world = settled(5);
    (0..4).for_each(|n| world.crash(n));
    world.run(secs(15), |world| assert!((0..4).all(|n| world.is_held(n))));
    world.run(secs(15), |_| ());
    assert_eq!(world.owned(4), Bucket::COUNT);
}

#[test]
fn a_member_whose_renewals_fail_revokes_nobody() {
    let mut world = settled(3);
    world.crash(0);
    for _ in 0..40 {
        world.pass(Duration::from_millis(500));
        for n in 1..3 {
            world.tick(n);
            world.lose(n);
            world.carry_out_revocation(n);
            world.stopped(n);
        }
    }
    assert!((0..3).all(|n| world.is_held(n)), "nobody could know");
    assert_eq!(world.served(), 0, "all have stopped at their deadlines");
    world.run(secs(8), |world| assert!(world.is_held(0)));
    assert!(0 < world.served(), "two of them go on with what they had");
    world.run(secs(12), |_| ());
    assert_eq!(world.served(), Bucket::COUNT);
}

#[test]
fn a_member_that_slept_hears_the_others_first() {
    let mut world = settled(2);
    world.pass(secs(8));
    world.tick(0);
    world.tick(1);
    world.carry_out_revocation(0);
    world.carry_out_revocation(1);
    world.run(secs(5), |_| ());
    assert_eq!((world.served(), world.is_held(0), world.is_held(1)), (Bucket::COUNT, true, true));
}

#[test]
fn a_revoked_member_ends_permanently_and_counts_until_its_deadline() {
    let mut world = settled(2);
    let lost = world.acting(0);
    assert!(world.revoke(&id(0), None));
    // The other members see the revocation before the member itself does.
    (0..9).for_each(|_| world.watch(1));
    assert!(world.acting(1).and(&lost).is_empty());
    world.run(Duration::from_millis(100), |_| ());
    assert!(!world.nodes[0].is_up);
    world.run(secs(12), |_| ());
    assert_eq!(world.owned(1), Bucket::COUNT);
}

#[test]
fn nothing_acts_at_the_deadline_and_a_renewal_in_time_for_nobody_brings_it_back() {
    let mut world = settled(1);
    let (labels, bucket) = (controller("labels"), Bucket::of("6f1c"));
    let deadline = world.nodes[0].replica.deadline();
    let before = deadline.before(Duration::from_millis(1));
    let replica = &world.nodes[0].replica;
    assert_eq!(replica.may_act(&labels, bucket, before), Some(deadline));
    assert!(!replica.may_begin(&labels, bucket, before), "too late to begin");
    assert_eq!(replica.may_act(&labels, bucket, deadline), None);
    world.now = deadline;
    world.tick(0);
    world.run(secs(1), |_| ());
    assert_eq!(world.served(), Bucket::COUNT, "nobody has revoked it");
}

#[test]
fn a_write_whose_answer_is_lost_is_found_again() {
    let mut world = settled(1);
    world.pass(secs(2));
    world.tick(0);
    world.apply(0);
    world.lose(0);
    let landed = world.store[&id(0)].number;
    world.run(secs(2), |_| ());
    assert!(landed < world.store[&id(0)].number && world.nodes[0].is_up);
}

#[test]
fn a_lease_that_went_back_or_has_another_owner_ends_the_member() {
    let mut world = settled(1);
    let old = world.store[&id(0)].clone();
    world.run(secs(5), |_| ());
    let mut replica = world.nodes[0].replica.clone();
    assert_eq!(replica.step(world.now, ReplicaEvent::Seen(id(0), old)), [ReplicaEffect::Abort]);
    let foreign = MemberLease { number: 1_000, ..world.store[&id(0)].clone() };
    let mut replica = world.nodes[0].replica.clone();
    assert_eq!(replica.step(world.now, ReplicaEvent::Seen(id(0), foreign)), [ReplicaEffect::Abort]);
    assert!(replica.is_over() && replica.wakes_at().is_none() && replica.acting().is_empty());
}

#[test]
fn a_lease_that_a_second_write_created_is_not_used() {
    let now = Moment(secs(1));
    let (mut replica, _) = Replica::open(id(0), labels(), ReplicaTerms::default(), now);
    replica.step(now, ReplicaEvent::Lost { number: 1 });
    let now = Moment(secs(2));
    let effects = replica.step(now, ReplicaEvent::Tick);
    assert!(matches!(&effects[..], [ReplicaEffect::Write(write)] if write.number == 2));
    let written = ReplicaEvent::Written { number: 2, version: LeaseVersion(1) };
    assert_eq!(replica.step(now, written), [ReplicaEffect::Abort]);
}

#[test]
fn nothing_is_taken_over_from_a_member_of_another_protocol() {
    let mut world = settled(1);
    let protocol = ProtocolRange { least: 2, most: 3 };
    let card = Card { protocol, ..Card::new(labels()) };
    let (holder, duration) = (Holder::Session, secs(9));
    let lease = MemberLease { version: LeaseVersion(9_999), holder, number: 5, duration, card };
    world.feed(0, ReplicaEvent::Seen(id(7), lease.clone()));
    let status = world.nodes[0].replica.status();
    assert_eq!(status.acts_by.len(), 1, "it is no part of the set");
    let [problem] = &status.problems[..] else { panic!("{:?}", status.problems) };
    assert!(problem.starts_with("swarm-7-0000000000000007 "), "{problem}");
    assert!(problem.contains(" 2 to 3 ") && problem.contains(" 1 to 1; "), "{problem}");
    let more = hosts(&[("labels", 1), ("pools", 1)]);
    world.feed(0, ReplicaEvent::Host(more));
    world.run(secs(3), |_| ());
    let status = world.nodes[0].replica.status();
    let pools = &status.controllers[&controller("pools")];
    assert_eq!((pools.owned, pools.locked.len()), (0, Bucket::COUNT));
    assert_eq!(pools.waits_for, [id(7)].into());
    assert_eq!(status.controllers[&controller("labels")].owned, Bucket::COUNT, "keeps what it has");
    let closed = MemberLease { holder: Holder::Closed, version: LeaseVersion(10_000), ..lease };
    world.feed(0, ReplicaEvent::Seen(id(7), closed));
    assert_eq!(world.owned(0), 2 * Bucket::COUNT);
    assert_eq!(world.nodes[0].replica.removable().collect::<Vec<_>>(), [&id(7)]);
}

#[test]
fn weights_and_controllers_change_while_it_runs() {
    let mut world = settled(2);
    world.feed(0, ReplicaEvent::Host(hosts(&[("labels", 3), ("pools", 1)])));
    world.run(secs(5), |_| ());
    assert_eq!(world.served(), 2 * Bucket::COUNT);
    assert!((900..1_150).contains(&world.owned(1)), "a quarter: {}", world.owned(1));
    world.feed(0, ReplicaEvent::Host(Hosts::new()));
    world.run(secs(1), |_| ());
    assert_eq!((world.owned(0), world.owned(1)), (0, Bucket::COUNT), "nobody hosts the other");
}

#[test]
fn a_member_that_comes_later_need_not_wait_for_one_that_others_have_waited_out() {
    let mut world = settled(2);
    world.crash(0);
    world.run(secs(6), |_| ());
    let late = world.open(labels());
    world.run(secs(6), |_| ());
    assert_eq!(world.served(), Bucket::COUNT);
    assert!(0 < world.owned(late), "it came six seconds after the last renewal");
    assert_eq!(world.store[&id(0)].holder, Holder::Closed);
}

#[test]
fn a_successor_in_the_same_place_need_not_wait() {
    let mut world = settled(2);
    world.crash(0);
    world.feed(1, ReplicaEvent::ProcessEnded(id(0)));
    world.run(secs(2), |_| ());
    assert_eq!(world.owned(1), Bucket::COUNT);
}

#[test]
fn at_rest_nothing_is_written_but_renewals_and_wakes_are_no_loop() {
    let mut world = settled(3);
    let numbers =
        |world: &World| -> Vec<_> { world.store.values().map(|lease| lease.number).collect() };
    let before = numbers(&world);
    world.run(secs(20), |world| {
        for node in &world.nodes {
            assert!(node.replica.wakes_at().is_some_and(|at| world.now < at));
        }
    });
    let after = numbers(&world);
    assert!(before.iter().zip(&after).all(|(before, after)| (9..=10).contains(&(after - before))));
}
