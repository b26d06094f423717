//! Workers of different sizes: each has its own maximum of jobs.

use proptest::prelude::*;

use super::*;

fn exclusive(maxima: &[(u32, u32)]) -> Desired {
    let max_jobs_by_slot = maxima.iter().map(|(slot, most)| (Slot(*slot), *most)).collect();
    Desired { policy: Policy::Exclusive, max_jobs_by_slot, ..desired(&["a", "b", "c", "d", "e"]) }
}

fn loads(decision: &Decision) -> Vec<usize> {
    decision.plan.assignment.by_slot().values().map(BTreeSet::len).collect()
}

#[test]
fn every_worker_has_its_own_maximum_and_the_others_the_one_for_all() {
    let seen = acked(&[0, 0, 0]);
    let decision = decide(&Ledger::new(1), &exclusive(&[(0, 3), (2, 1)]), &seen);
    assert_eq!(loads(&decision), [2, 2, 1]);
    let mut want = exclusive(&[(0, 3)]);
    want.max_jobs = Some(1);
    let decision = decide(&Ledger::new(1), &want, &seen);
    assert_eq!((loads(&decision), decision.plan.unassigned.len()), (vec![3, 1, 1], 0));
    want.max_jobs_by_slot = [(Slot(0), 0), (Slot(1), 2)].into();
    let decision = decide(&Ledger::new(1), &want, &seen);
    assert_eq!((loads(&decision), decision.plan.unassigned.len()), (vec![2, 1], 2));
    assert!(decision.plan.unassigned.values().all(|why| *why == Unassigned::Capacity));
}

#[test]
fn a_worker_that_may_have_fewer_now_gives_up_the_surplus() {
    let seen = acked(&[0, 0]);
    let before = decide(&Ledger::new(1), &exclusive(&[]), &seen).ledger;
    let decision = decide(&before, &exclusive(&[(0, 1)]), &acked(&[1, 1]));
    assert_eq!(loads(&decision), [1, 4]);
    let reasons: Vec<_> = decision.plan.moves.iter().map(|step| step.reason).collect();
    assert!(!reasons.is_empty() && reasons.iter().all(|it| *it == MoveReason::Capacity));
}

proptest! {
    /// Pins change from turn to turn, and sessions answer in any order. No worker ever holds more
    /// jobs than its own maximum, including jobs that it is asked to release. In the end all jobs
    /// are as planned.
    #[test]
    fn nobody_ever_holds_more_than_its_own_maximum(
        maxima in proptest::collection::btree_map(0..3_u32, 0..4_u32, 0..4),
        max_jobs in proptest::option::of(0..4_u32),
        turns in proptest::collection::vec(
            (proptest::collection::vec(proptest::option::of(0..3_u32), 5), 0..3_usize), 1..12),
    ) {
        let maxima: Vec<_> = maxima.into_iter().collect();
        let mut want = Desired { max_jobs, ..exclusive(&maxima) };
        let (mut ledger, mut revisions) = (Ledger::new(1), [0; 3]);
        let at_rest = [0, 1, 2].repeat(8).into_iter().map(|acks| (None, acks));
        let turns = turns.into_iter().map(|(pins, acks)| (Some(pins), acks)).chain(at_rest);
        let mut planned = Assignment::default();
        for (pins, acks) in turns {
            for (job, pin) in want.jobs.values_mut().zip(pins.into_iter().flatten()) {
                job.pin = pin.map(Slot);
            }
            let decision = decide(&ledger, &want, &acked(&revisions));
            (ledger, planned) = (decision.ledger, decision.plan.assignment);
            for (slot, record) in &ledger.slots {
                let holds = |it: &&Record| it.cell.holder() == Some(&record.session);
                let held = ledger.cells.jobs.values().filter(holds).count();
                let most = want.max_jobs_of(*slot).map_or(usize::MAX, |most| most as usize);
                prop_assert!(held <= most, "slot {slot} has {held} of at most {most} jobs");
            }
            revisions[acks] = ledger.revision();
        }
        prop_assert_eq!(ledger.unreleased_assignment(), planned);
    }
}
