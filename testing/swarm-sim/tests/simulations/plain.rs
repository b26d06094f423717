//! Random runs of a pool of plain workers; afterwards the pool recovers.

use proptest::prelude::*;

use swarm_core::Replication;
use swarm_core::handover::Policy;
use swarm_sim::{PlainAct, PlainPool};

fn act() -> impl Strategy<Value = PlainAct> {
    let n = || 0_usize..12;
    let slot = || 0_u32..5;
    let back = || prop_oneof![4 => Just(0_usize), 1 => 0_usize..6];
    let world = prop_oneof![
        20 => Just(PlainAct::Tick),
        20 => (n(), back()).prop_map(|(n, back)| PlainAct::Read(n, back)),
        3 => slot().prop_map(PlainAct::Start),
        3 => slot().prop_map(PlainAct::Crash),
        3 => slot().prop_map(PlainAct::Flip),
    ];
    let edits = prop_oneof![
        1 => slot().prop_map(PlainAct::Scale),
        1 => proptest::option::of(slot()).prop_map(PlainAct::Replicas),
        2 => n().prop_map(PlainAct::Toggle),
        1 => (n(), proptest::option::of(slot())).prop_map(|(n, slot)| PlainAct::Pin(n, slot)),
        1 => (n(), proptest::option::of(20_u8..90))
            .prop_map(|(n, share)| PlainAct::Share(n, share)),
        1 => proptest::option::of(1_u32..5).prop_map(PlainAct::MaxJobs),
        2 => prop::bool::weighted(0.2).prop_map(PlainAct::Pause),
        1 => (0_u32..4).prop_map(PlainAct::Batch),
        1 => prop_oneof![2 => Just(Replication::One), 1 => Just(Replication::All)]
            .prop_map(PlainAct::Replicate),
        1 => prop_oneof![2 => Just(Policy::AtLeastOnce), 1 => Just(Policy::Exclusive)]
            .prop_map(PlainAct::Change),
    ];
    let operator = prop_oneof![
        16 => (back(), prop::bool::weighted(0.1)).prop_map(|(back, ends)| PlainAct::Turn(back, ends)),
        1 => Just(PlainAct::Restart),
    ];
    prop_oneof![49 => world, 12 => edits, 34 => operator]
}

fn run(moves_max: Option<usize>, acts: &[PlainAct]) -> Result<PlainPool, String> {
    let mut pool = PlainPool::new(moves_max);
    for (n, act) in acts.iter().enumerate() {
        pool.take(*act);
        if let Some(wrong) = pool.wrong() {
            return Err(format!("after act {n}, {act:?}: {wrong}"));
        }
    }
    pool.heal()?;
    Ok(pool)
}

proptest! {
    #![proptest_config(crate::seeds::cases_of(1))]

    /// Scope: up to five slots and eight jobs, one operator, up to 300 acts of any kind.
    #[test]
    fn jobs_of_plain_workers_move_in_small_steps_and_come_right_in_the_end(
        moves_max in proptest::option::of(1_usize..3),
        acts in proptest::collection::vec(act(), 0..300),
    ) {
        let run = run(moves_max, &acts);
        prop_assert!(run.is_ok(), "{}", run.unwrap_err());
    }
}
