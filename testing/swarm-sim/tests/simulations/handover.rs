//! The handover protocol in all states of small worlds.
#![expect(clippy::print_stdout, reason = "the figures are worth reading")]

use swarm_core::handover::Rule;
use swarm_sim::{
    Bounds, Fault, Invariant, Milestone, check, check_within, dead_ends, searches, variants,
};

use crate::extent::{SHORT, is_full};

/// Explores all states within the bounds: at least `states_at_least`, with all of `milestones`
/// among them. The short check is [`SHORT`] steps deep.
fn holds(bounds: Bounds, states_at_least: usize, milestones: &[Milestone]) {
    let checked = if is_full() {
        check(bounds, &Invariant::ALL)
    } else {
        check_within(bounds, &Invariant::ALL, SHORT)
    };
    println!("{checked}");
    assert!(checked.found.is_none(), "{:#?}", checked.found);
    // A world in which nothing happens keeps every invariant. So a minimum of states is required.
    let states_at_least = if is_full() { states_at_least } else { 1_000.min(states_at_least) };
    assert!(states_at_least <= checked.states, "only {} states", checked.states);
    let is_reached = |milestone: &Milestone| checked.reached.contains(milestone);
    assert!(milestones.iter().all(is_reached), "only {:?}", checked.reached);
}

#[test]
fn invariants_hold_while_workers_crash_and_clocks_drift() {
    holds(Bounds { drift: 1, ..Bounds::default() }, 100_000, &[]);
}

#[test]
fn invariants_hold_while_workers_are_frozen_and_resumed() {
    holds(Bounds { faults: &[Fault::Crash, Fault::Pause], ..Bounds::default() }, 50_000, &[]);
}

#[test]
fn invariants_hold_when_jobs_stop_before_the_lease_ends_and_resume() {
    holds(Bounds { lease: 2, stop: 1, ..Bounds::default() }, 50_000, &[]);
}

#[test]
fn invariants_hold_with_two_operators() {
    holds(Bounds { operators: 2, faults: &[], ..Bounds::default() }, 50_000, &[]);
}

#[test]
fn invariants_hold_with_two_jobs() {
    holds(Bounds { jobs: 2, ..Bounds::default() }, 50_000, &[Milestone::MovedInPart]);
}

#[test]
fn invariants_hold_while_a_session_has_room_for_one_of_two_jobs() {
    let bounds =
        Bounds { versions: 4, sessions: 1, jobs: 2, max_jobs: Some(1), ..Bounds::default() };
    holds(bounds, 3_000, &[Milestone::Regranted]);
}

#[test]
fn invariants_hold_with_three_sessions() {
    holds(Bounds { sessions: 3, ..Bounds::default() }, 50_000, &[]);
}

#[test]
fn invariants_hold_while_writes_arrive_late() {
    holds(Bounds { in_flight: 2, faults: &[], ..Bounds::default() }, 20_000, &[]);
}

#[test]
fn invariants_hold_for_finite_jobs_and_workers_asked_to_end() {
    let faults = &[Fault::Finish, Fault::Terminate];
    holds(Bounds { faults, ..Bounds::default() }, 50_000, &[Milestone::Done]);
}

#[test]
fn at_least_once_excuses_only_runs_whose_ownership_ended_by_waiting() {
    holds(Bounds { faults: &[Fault::Timeout], ..Bounds::default() }, 50_000, &[Milestone::Overlap]);
}

#[test]
fn invariants_hold_while_jobs_wait_for_their_slots() {
    holds(
        Bounds { faults: &[Fault::Crash, Fault::Hold], ..Bounds::default() },
        50_000,
        &[Milestone::Held, Milestone::Regranted],
    );
}

#[test]
fn invariants_hold_while_a_job_that_crashes_workers_is_kept_away() {
    let faults = &[Fault::Crash, Fault::Restart, Fault::Poison];
    holds(
        Bounds { versions: 4, faults, ..Bounds::default() },
        50_000,
        &[Milestone::Quarantined, Milestone::Regranted],
    );
}

#[test]
fn invariants_hold_while_containers_are_started_again_in_their_pod() {
    let faults = &[Fault::Crash, Fault::Restart];
    holds(Bounds { versions: 4, faults, ..Bounds::default() }, 20_000, &[Milestone::Regranted]);
}

#[test]
fn invariants_hold_while_leases_are_deleted() {
    holds(
        Bounds { faults: &[Fault::Delete], ..Bounds::default() },
        20_000,
        &[Milestone::Regranted],
    );
}

#[test]
fn invariants_hold_from_an_empty_ledger_and_workers_that_have_just_started() {
    let bounds = Bounds { versions: 4, starts_empty: true, faults: &[], ..Bounds::default() };
    holds(bounds, 50_000, &[Milestone::Regranted]);
}

/// The rules of acknowledgements in part.
const IN_PART: [Rule; 5] = [
    Rule::NameUntilJoined,
    Rule::NameAllOrNone,
    Rule::HoldTheNamed,
    Rule::AckOfThisIncarnation,
    Rule::KeepWhatIsProved,
];

/// Breaks each of the rules, and checks that this is noticed. The short check leaves out the worlds
/// with the rule in force, since the tests above explore most of them.
fn are_noticed(rules: impl IntoIterator<Item = Rule>) {
    if !is_full() {
        for rule in rules {
            let unnoticed = searches(rule).iter().any(|checked| checked.found.is_none());
            assert!(!unnoticed, "nobody noticed that {rule:?} was broken");
        }
        return;
    }
    for variant in variants(rules) {
        let rule = variant.rule;
        println!(
            "{rule:?}\n  {}\n  {}\n  {}",
            variant.runner_holds, variant.one_runner, variant.intact
        );
        let found = [&variant.runner_holds, &variant.one_runner]
            .map(|checked| checked.found.as_ref().map(|found| found.steps.len()));
        assert!(found.iter().all(Option::is_some), "nobody noticed that {rule:?} was broken");
        assert!(found[0] <= found[1], "the ledger shows it first");
        assert!(variant.intact.found.is_none(), "{rule:?} is not what is broken");
    }
}

#[test]
fn every_broken_rule_is_noticed_and_only_because_it_is_broken() {
    are_noticed(Rule::ALL.into_iter().filter(|rule| !IN_PART.contains(rule)));
}

#[test]
fn every_broken_rule_of_acknowledgements_in_part_is_noticed() {
    are_noticed(IN_PART);
}

#[test]
fn from_every_state_with_a_usable_session_all_jobs_can_run_again() {
    let versions = if is_full() { 4 } else { 3 };
    let seen = dead_ends(Bounds { versions, ..Bounds::default() });
    println!("{seen:?}");
    let judged_at_least = if is_full() { 10_000 } else { 1_000 };
    assert!(judged_at_least <= seen.judged && 0 < seen.moved, "{seen:?}");
    assert_eq!(seen.dead_ends, 0, "{seen:?}");
}

#[test]
fn a_dead_end_is_reported_with_the_steps_to_it() {
    // A job that is done does not run again, so this search finds a dead end.
    let bounds = Bounds { versions: 4, sessions: 1, faults: &[Fault::Finish], ..Bounds::default() };
    let seen = dead_ends(bounds);
    let steps = seen.example.expect("a job that is done never runs again");
    let is_end = |step: &swarm_sim::Step| matches!(step, swarm_sim::Step::Finish(..));
    assert!(steps.iter().any(is_end), "{steps:?}");
    let mut world = swarm_sim::World::new(bounds);
    assert!(steps.iter().all(|step| world.take(step)), "they can be taken again");
}

#[test]
fn from_an_empty_ledger_all_jobs_can_come_to_run() {
    let versions = if is_full() { 4 } else { 3 };
    let bounds = Bounds { versions, starts_empty: true, faults: &[], ..Bounds::default() };
    let seen = dead_ends(bounds);
    println!("{seen:?}");
    let judged_at_least = if is_full() { 1_000 } else { 50 };
    assert!(judged_at_least <= seen.judged && 0 < seen.good, "{seen:?}");
    assert_eq!(seen.dead_ends, 0, "{seen:?}");
}
