//! Keys shared among replicas, in all states of small groups.
#![expect(clippy::print_stdout, reason = "the figures are worth reading")]

use swarm_sim::{GroupBounds, check_group, group_dead_ends, group_variants};

fn holds(bounds: GroupBounds, states_at_least: usize) {
    let checked = check_group(bounds);
    println!("{checked}");
    assert!(checked.found.is_none(), "{:#?}", checked.found);
    // A group in which nothing happens has no two owners either. So a minimum of states is
    // required.
    assert!(checked.has_moved && states_at_least <= checked.states, "{checked}");
}

fn two() -> GroupBounds {
    GroupBounds { settled: 1, ..GroupBounds::default() }
}

fn three() -> GroupBounds {
    GroupBounds { members: 3, settled: 3, ..GroupBounds::default() }
}

#[test]
fn no_key_has_two_owners_while_two_come_at_once_and_an_answer_is_lost() {
    holds(GroupBounds { losses: 1, ..GroupBounds::default() }, 2_000);
}

#[test]
fn no_key_has_two_owners_while_one_comes_and_one_crashes() {
    holds(GroupBounds { crashes: 1, losses: 1, ..two() }, 1_000);
}

#[test]
fn no_key_has_two_owners_while_one_comes_and_one_is_revoked_by_mistake() {
    holds(GroupBounds { revocations: 1, expiries: 1, ..two() }, 1_000);
}

#[test]
fn no_key_has_two_owners_while_one_comes_and_one_leaves() {
    holds(GroupBounds { leaves: 1, losses: 1, ..two() }, 1_000);
}

#[test]
fn no_key_has_two_owners_while_one_comes_and_faults_meet() {
    holds(GroupBounds { crashes: 1, revocations: 1, leaves: 1, ..two() }, 5_000);
}

#[test]
fn no_key_has_two_owners_while_one_of_three_crashes() {
    holds(GroupBounds { crashes: 1, ..three() }, 500);
}

#[test]
fn no_key_has_two_owners_while_one_of_three_is_revoked_by_mistake() {
    holds(GroupBounds { revocations: 1, ..three() }, 500);
}

#[test]
fn no_key_has_two_owners_while_one_of_three_leaves() {
    holds(GroupBounds { leaves: 1, ..three() }, 500);
}

#[test]
fn no_key_has_two_owners_while_a_third_comes_and_one_crashes() {
    holds(GroupBounds { settled: 2, crashes: 1, ..three() }, 5_000);
}

#[test]
fn no_key_has_two_owners_while_a_third_comes() {
    holds(GroupBounds { settled: 2, ..three() }, 500);
}

#[test]
fn every_broken_rule_is_noticed_and_only_because_it_is_broken() {
    for variant in group_variants() {
        println!("{:?}\n  {}\n  {}", variant.rule, variant.broken, variant.intact);
        assert!(
            variant.broken.found.is_some(),
            "nobody noticed that {:?} was broken",
            variant.rule
        );
        assert!(variant.intact.found.is_none(), "{:?} is not what is broken", variant.rule);
    }
}

#[test]
fn from_every_state_with_a_usable_member_every_key_can_have_an_owner() {
    for bounds in [
        GroupBounds { crashes: 1, leaves: 1, ..two() },
        GroupBounds { revocations: 1, expiries: 1, ..two() },
        GroupBounds { crashes: 1, ..three() },
    ] {
        let seen = group_dead_ends(bounds);
        println!("{bounds}: {seen:?}");
        assert!(100 <= seen.judged && 0 < seen.moved, "{seen:?}");
        assert_eq!(seen.dead_ends, 0, "{seen:?}");
    }
}
