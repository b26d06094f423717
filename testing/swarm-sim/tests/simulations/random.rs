//! Long random runs of large worlds: no sequence of steps lets two live sessions run one job.

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use swarm_core::handover::Rule;
use swarm_sim::{Bounds, Fault, Invariant, Step, World};

use crate::extent::share_of;

/// A world far larger than the exhaustive check can hold. It has five sessions, three jobs, two
/// operators, all faults, and up to sixty states of the ledger.
const BOUNDS: Bounds = Bounds {
    versions: 60,
    sessions: 5,
    jobs: 3,
    max_jobs: None,
    operators: 2,
    lease: 4,
    renew: 0,
    drift: 1,
    stop: 1,
    in_flight: 2,
    starts_empty: false,
    faults: &[
        Fault::Crash,
        Fault::Pause,
        Fault::Terminate,
        Fault::ForeignView,
        Fault::Hold,
        Fault::OldLease,
    ],
    broken: None,
};

/// The kind of a step, and how often in 256 it is taken when chosen. A choice selects a kind first,
/// so that kinds with many steps do not crowd out the others.
fn kind(step: &Step) -> (u8, u8) {
    match step {
        Step::Open => (0, 255),
        Step::Crash(_) => (1, 2),
        Step::Pause(_) => (2, 30),
        Step::Resume(_) => (3, 60),
        Step::Terminate(_) => (4, 2),
        Step::Refresh(_) => (5, 255),
        Step::Join(..) => (6, 255),
        Step::Finish(..) => (7, 30),
        Step::View(..) => (8, 255),
        Step::Apply(..) => (9, 255),
        Step::Drop(..) => (10, 30),
        Step::Reply(_) => (11, 255),
        Step::Lose(_) => (12, 30),
        Step::Tick(_) => (13, 60),
        Step::Observe(..) => (14, 255),
        Step::LearnEnd(..) => (15, 60),
        Step::Revoke(..) => (16, 60),
        Step::Turn(..) => (17, 120),
        Step::Restart(_) => (18, 20),
        Step::Delete(_) => (19, 2),
        Step::ReadCopy(..) => (20, 255),
    }
}

/// The result of a run.
#[derive(Debug, Default)]
struct Run {
    /// The sum of the tokens: the number of grants.
    grants: u64,
    /// The first broken invariant, with the step that broke it.
    broken: Option<(Invariant, Step)>,
}

fn run(bounds: Bounds, choices: impl IntoIterator<Item = u64>) -> Run {
    let mut world = World::new(bounds);
    let mut run = Run::default();
    for choice in choices {
        let steps = world.steps();
        let mut kinds: Vec<_> = steps.iter().map(|step| kind(step).0).collect();
        kinds.dedup();
        kinds.sort_unstable();
        kinds.dedup();
        let pick = |n: usize| usize::try_from(choice >> 16).unwrap_or_default() % n.max(1);
        let Some(chosen) = kinds.get(usize::from((choice & 0xff) as u8) % kinds.len().max(1))
        else {
            break;
        };
        let of_kind: Vec<_> = steps.iter().filter(|step| kind(step).0 == *chosen).collect();
        let step = of_kind[pick(of_kind.len())];
        if u64::from(kind(step).1) < (choice >> 8) & 0xff {
            continue;
        }
        world.take(step);
        if let Some(broken) = Invariant::ALL.into_iter().find(|rule| !rule.holds(&world)) {
            run.broken = Some((broken, step.clone()));
            break;
        }
    }
    run.grants = world.cells().jobs.values().map(|record| record.cell.token().0).sum();
    run
}

/// Numbers that look random and are the same on every machine (SplitMix64).
fn numbers(seed: u64) -> impl Iterator<Item = u64> {
    (1..).map(move |n: u64| {
        let mut z = seed
            .wrapping_mul(0xd134_2543_de82_ef95)
            .wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: share_of(200),
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    /// Scope: up to 600 steps of any kind, in any order.
    #[test]
    fn no_sequence_of_steps_breaks_an_invariant(
        choices in proptest::collection::vec(any::<u64>(), 100..600),
    ) {
        let run = run(BOUNDS, choices);
        prop_assert!(run.broken.is_none(), "{run:?}");
    }
}

#[test]
fn invariants_hold_in_runs_of_five_thousand_steps_that_move_jobs_many_times() {
    let runs: Vec<_> =
        (0..share_of(20).into()).map(|seed| run(BOUNDS, numbers(seed).take(5_000))).collect();
    if let Some(bad) = runs.iter().find(|run| run.broken.is_some()) {
        panic!("{bad:?}");
    }
    let grants: u64 = runs.iter().map(|run| run.grants).sum();
    assert!(u64::from(share_of(20)) * 10 < grants, "only {grants} grants in all runs");
}

#[test]
fn invariants_hold_in_long_runs_in_which_renewals_and_acknowledgements_in_part_are_paced() {
    let paced = Bounds { renew: 1, ..BOUNDS };
    let runs: Vec<_> =
        (0..share_of(20).into()).map(|seed| run(paced, numbers(seed).take(5_000))).collect();
    if let Some(bad) = runs.iter().find(|run| run.broken.is_some()) {
        panic!("{bad:?}");
    }
    let grants: u64 = runs.iter().map(|run| run.grants).sum();
    assert!(u64::from(share_of(20)) * 5 < grants, "only {grants} grants in all runs");
}

#[test]
#[ignore = "takes long: `just test-protocols` runs it"]
fn random_runs_notice_broken_rules_too() {
    for rule in [
        Rule::AckBeforeGrant,
        Rule::JoinBeforeAck,
        Rule::NewerViewsOnly,
        Rule::SessionIdentity,
        Rule::CompareAndSet,
        Rule::NameUntilJoined,
        Rule::NameAllOrNone,
        Rule::HoldTheNamed,
    ] {
        let bounds = Bounds { broken: Some(rule), ..BOUNDS };
        let noticed = (0..40).any(|seed| run(bounds, numbers(seed).take(2_000)).broken.is_some());
        assert!(noticed, "nobody noticed that {rule:?} was broken");
    }
}
