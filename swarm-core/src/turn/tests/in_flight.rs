//! Jobs in flight: their moves as people see them, and their weight in the plan.

use super::*;

/// Returns four jobs of one session. Two of them should move to a second worker.
fn growing(rules: Rules) -> (Desired, Ledger) {
    let want = Desired { policy: Policy::Exclusive, rules, ..desired(&["a", "b", "c", "d"]) };
    let ledger = decide(&Ledger::new(1), &want, &acked(&[0])).ledger;
    (want, ledger)
}

#[test]
fn a_job_that_is_being_released_is_reported_as_moving_from_its_holder() {
    let (want, one) = growing(Rules::default());
    let first = decide(&one, &want, &acked(&[1, 0]));
    assert_eq!((first.plan.moves.len(), first.ledger.releases().len()), (2, 1));
    let next = decide(&first.ledger, &want, &acked(&[1, 0]));
    assert_eq!((next.ledger, next.plan.moves), (first.ledger, first.plan.moves));
}

#[test]
fn a_job_that_goes_back_to_its_holder_is_reported_as_not_moving() {
    let (want, one) = growing(Rules::default());
    let releasing = decide(&one, &want, &acked(&[1, 0])).ledger;
    let back = decide(&releasing, &want, &acked(&[1]));
    assert_eq!((back.plan.moves, back.plan.assignment.len()), (vec![], 4));
}

#[test]
fn a_budget_counts_jobs_that_are_still_being_released() {
    let (want, one) = growing(Rules { moves_max: Some(1), ..Rules::default() });
    let first = decide(&one, &want, &acked(&[1, 0])).ledger;
    let waits = decide(&first, &want, &acked(&[1, 0]));
    assert_eq!((&waits.ledger, waits.plan.deferred.len()), (&first, 1));
    let second = decide(&first, &want, &acked(&[2, 0])).ledger;
    assert_eq!(second.assignment().by_slot()[&Slot(1)].len(), 1);
    let third = decide(&second, &want, &acked(&[2, 0])).ledger;
    assert_eq!(third.releases().into_values().collect::<Vec<_>>(), [third.revision()]);
}

#[test]
fn a_failing_job_that_is_being_released_uses_the_budget_of_other_moves_once() {
    let rules = Rules { moves_max: Some(2), ..Rules::default() };
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let want = Desired { policy: Policy::Exclusive, rules, ..desired(&names) };
    let even = decide(&Ledger::new(1), &want, &acked(&[0, 0])).ledger;
    // A third worker should get two jobs. One that would stay fails on the first worker.
    let moves = decide(&even, &want, &acked(&[1, 1, 0])).plan.moves;
    let stays = |job: &&JobName| moves.iter().all(|step| step.job != **job);
    let failing = even.assignment().by_slot()[&Slot(0)].iter().find(stays).unwrap().clone();
    let relocation = Relocation { home: Slot(0), failed_on: [Slot(0)].into() };
    let seen = |revisions: &[u64]| {
        let relocations = [(failing.clone(), relocation.clone())].into();
        Observed { relocations, ..acked(revisions) }
    };
    let leaving = |ledger: &Ledger| ledger.cells.jobs.values().filter(|it| is_moving(it)).count();
    let first = decide(&even, &want, &seen(&[1, 1])).ledger;
    let second = decide(&first, &want, &seen(&[1, 1, 0])).ledger;
    assert_eq!((moves.len(), leaving(&first), leaving(&second)), (2, 1, 2));
}
