//! Random runs of a whole pool, with everything that may go wrong; afterwards all comes right.

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use swarm_core::handover::Policy;
use swarm_core::{Mode, Replication};
use swarm_sim::{Act, Fleet, FleetTerms, Stop};

fn act() -> impl Strategy<Value = Act> {
    let n = || 0_usize..12;
    let o = || 0_usize..2;
    let back = || prop_oneof![4 => Just(0_usize), 1 => 0_usize..6];
    let stop = prop_oneof![
        12 => Just(None),
        1 => Just(Some(Stop::BeforeSave)),
        1 => Just(Some(Stop::BeforePublish)),
    ];
    let work = prop_oneof![
        8 => n().prop_map(Act::Calm),
        4 => n().prop_map(Act::Apply),
        1 => n().prop_map(Act::Drop),
        4 => n().prop_map(Act::Reply),
        1 => n().prop_map(Act::Lose),
        4 => (n(), back()).prop_map(|(n, back)| Act::View(n, back)),
        4 => n().prop_map(Act::Join),
        8 => prop_oneof![3 => Just(0_u32), 1 => any::<u32>()].prop_map(Act::Tick),
    ];
    let faults = prop_oneof![
        1 => n().prop_map(Act::Finish),
        2 => (n(), proptest::option::weighted(0.2, n())).prop_map(|(n, k)| Act::Crash(n, k)),
        2 => n().prop_map(Act::Freeze),
        3 => n().prop_map(Act::Resume),
        1 => n().prop_map(Act::Terminate),
        3 => (0_u32..5).prop_map(Act::Start),
        2 => n().prop_map(Act::Flip),
    ];
    let edits = prop_oneof![
        1 => (0_u32..5).prop_map(Act::Scale),
        2 => n().prop_map(Act::Toggle),
        1 => (n(), proptest::option::of(0_u32..4)).prop_map(|(n, slot)| Act::Pin(n, slot)),
        1 => (n(), proptest::option::of(20_u8..90)).prop_map(|(n, share)| Act::Share(n, share)),
    ];
    let operators = prop_oneof![
        8 => (o(), back()).prop_map(|(o, back)| Act::Observe(o, back)),
        2 => o().prop_map(Act::LearnEnds),
        4 => (o(), any::<bool>()).prop_map(|(o, is_lost)| Act::Revoke(o, is_lost)),
        12 => (o(), back(), stop).prop_map(|(o, back, stop)| Act::Turn(o, back, stop)),
        1 => o().prop_map(Act::Restart),
        2 => o().prop_map(Act::Sweep),
        1 => n().prop_map(Act::DeleteLease),
    ];
    prop_oneof![12 => work, 3 => faults, 2 => edits, 9 => operators]
}

fn terms() -> impl Strategy<Value = FleetTerms> {
    let policy = prop_oneof![Just(Policy::Exclusive), Just(Policy::AtLeastOnce)];
    let replication = prop_oneof![4 => Just(Replication::One), 1 => Just(Replication::All)];
    let mode = prop_oneof![4 => Just(Mode::Sticky), 1 => Just(Mode::Canonical)];
    (policy, replication, mode, proptest::option::of(1_usize..3)).prop_map(
        |(policy, replication, mode, moves_max)| FleetTerms {
            policy,
            replication,
            moves_max,
            mode,
        },
    )
}

fn run(terms: FleetTerms, acts: &[Act]) -> Result<Fleet, String> {
    let mut fleet = Fleet::new(terms);
    for (n, act) in acts.iter().enumerate() {
        fleet.take(*act);
        if let Some(wrong) = fleet.wrong() {
            return Err(format!("after act {n}, {act:?}: {wrong}"));
        }
    }
    fleet.heal()?;
    Ok(fleet)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    /// Scope: one to four slots, up to eight jobs, two operators, up to 300 acts of any kind.
    #[test]
    fn whatever_happens_no_job_runs_twice_and_all_comes_right_in_the_end(
        terms in terms(),
        acts in proptest::collection::vec(act(), 0..300),
    ) {
        let run = run(terms, &acts);
        prop_assert!(run.is_ok(), "{}", run.unwrap_err());
    }
}
