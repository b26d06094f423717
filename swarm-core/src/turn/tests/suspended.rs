//! Suspended jobs are released, run nowhere, and are granted again later.

use super::*;
use crate::{JobCounts, Progress};

fn exclusive(names: &[&str]) -> Desired {
    Desired { policy: Policy::Exclusive, ..desired(names) }
}

fn suspend(want: &Desired, job: &str) -> Desired {
    let mut want = want.clone();
    want.jobs.get_mut(job).unwrap().suspend = true;
    want
}

fn counts(decision: &Decision, want: &Desired, seen: &Observed) -> JobCounts {
    Progress::of(decision, want, seen, vec![]).jobs
}

#[test]
fn a_suspended_job_is_released_runs_nowhere_and_is_granted_again() {
    let want = exclusive(&["a", "b"]);
    let held = decide(&Ledger::new(1), &want, &acked(&[0, 0])).ledger;
    let rest = suspend(&want, "a");
    let asked = decide(&held, &rest, &acked(&[1, 1]));
    assert!(matches!(asked.ledger.cells.jobs["a"].cell, Cell::Releasing { .. }));
    assert!(matches!(asked.ledger.cells.jobs["b"].cell, Cell::Granted { .. }));
    assert_eq!(asked.plan.unassigned["a"], Unassigned::Suspended);
    let step = &asked.plan.moves[0];
    assert_eq!((step.to, step.reason), (None, MoveReason::Unassigned(Unassigned::Suspended)));
    let revision = asked.ledger.revision();
    let free = decide(&asked.ledger, &rest, &acked(&[revision, revision]));
    assert!(matches!(free.ledger.cells.jobs["a"].cell, Cell::Free { .. }));
    let found = counts(&free, &rest, &acked(&[revision; 2]));
    assert_eq!((found.suspended, found.unassigned, found.granted), (1, 0, 1));
    let still = decide(&free.ledger, &rest, &acked(&[revision; 2]));
    assert_eq!(still.ledger, free.ledger, "it is at rest");
    assert!(Progress::of(&still, &rest, &acked(&[revision; 2]), vec![]).is_settled());
    let again = decide(&free.ledger, &want, &acked(&[revision; 2])).ledger;
    let (before, after) = (held.cells.jobs["a"].cell.token(), again.cells.jobs["a"].cell.token());
    assert!(matches!(again.cells.jobs["a"].cell, Cell::Granted { .. }));
    assert!(before < after, "{before:?} {after:?}");
}

#[test]
fn a_suspended_swarm_runs_nothing_under_either_replication() {
    for replication in [Replication::One, Replication::All] {
        let want = Desired { replication, ..exclusive(&["a", "b"]) };
        let held = decide(&Ledger::new(1), &want, &acked(&[0, 0])).ledger;
        let rest = Desired { suspend: true, ..want.clone() };
        let asked = decide(&held, &rest, &acked(&[1, 1]));
        assert!(asked.ledger.session_views().values().all(|view| view.jobs.is_empty()));
        let revision = asked.ledger.revision();
        let free = decide(&asked.ledger, &rest, &acked(&[revision; 2]));
        assert_eq!(counts(&free, &rest, &acked(&[revision; 2])).suspended, 2);
        let more = acked(&[revision, revision, 0]);
        let grown = decide(&free.ledger, &rest, &more).ledger;
        assert!(grown.session_views().values().all(|view| view.jobs.is_empty()));
        let again = decide(&free.ledger, &want, &acked(&[revision; 2]));
        assert_eq!(counts(&again, &want, &acked(&[revision; 2])).granted, 2);
    }
}

#[test]
fn a_pause_comes_before_a_suspension() {
    let want = exclusive(&["a", "b"]);
    let held = decide(&Ledger::new(1), &want, &acked(&[0, 0])).ledger;
    let paused = Desired { paused: true, suspend: true, ..want };
    let decision = decide(&held, &paused, &acked(&[1, 1]));
    assert_eq!(decision.ledger, held);
    assert!(decision.plan.unassigned.is_empty(), "they run on: {:?}", decision.plan);
}

#[test]
fn without_a_plan_suspended_jobs_are_distinguished_from_others() {
    let want = exclusive(&["a", "b"]);
    let reasons = |want: Desired| {
        let [cold, paused] = [false, true].map(|paused| {
            let unready = observed(&[Presence::NotReady(Duration::ZERO)]);
            let decision = decide(&Ledger::new(1), &Desired { paused, ..want.clone() }, &unready);
            decision.plan.unassigned.into_values().collect::<Vec<_>>()
        });
        [cold, paused]
    };
    let of = |why| [Unassigned::Suspended, why];
    let one = [of(Unassigned::PoolIncomplete), of(Unassigned::Paused)];
    assert_eq!(reasons(suspend(&want, "a")), one.map(Vec::from));
    let all = Desired { suspend: true, ..want };
    assert_eq!(reasons(all), [vec![Unassigned::Suspended; 2], vec![Unassigned::Suspended; 2]]);
}

#[test]
fn a_job_that_is_done_stays_done_while_it_is_suspended_and_afterwards() {
    let mut want = exclusive(&["a"]);
    want.jobs.get_mut("a").unwrap().run_once = true;
    let held = decide(&Ledger::new(1), &want, &acked(&[0])).ledger;
    let mut seen = acked(&[1]);
    let token = held.cells.jobs["a"].cell.token();
    let known = seen.evidence.values_mut().next().unwrap();
    known.finished = [("a".parse().unwrap(), token)].into();
    let done = decide(&held, &want, &seen).ledger;
    assert!(matches!(done.cells.jobs["a"].cell, Cell::Done { .. }));
    let rest = suspend(&want, "a");
    let still = decide(&done, &rest, &acked(&[2]));
    assert_eq!(still.ledger, done);
    let found = counts(&still, &rest, &acked(&[2]));
    assert_eq!((found.done, found.suspended), (1, 0));
    assert_eq!(decide(&done, &want, &acked(&[2])).ledger, done);
}

#[test]
fn a_busy_run_to_completion_job_moves_only_when_its_worker_goes() {
    let mut want = exclusive(&["a", "b"]);
    want.jobs.values_mut().for_each(|job| job.run_once = true);
    let held = decide(&Ledger::new(1), &want, &acked(&[0])).ledger;
    let grown = decide(&held, &want, &acked(&[1, 0]));
    assert_eq!(grown.ledger.assignment(), held.assignment(), "both are busy");
    let mut seen = acked(&[1, 2]);
    seen.workers.get_mut(&Slot(0)).unwrap().presence = Presence::Draining;
    let asked = decide(&grown.ledger, &want, &seen).ledger;
    let is_releasing = |record: &Record| matches!(record.cell, Cell::Releasing { .. });
    assert!(asked.cells.jobs.values().all(is_releasing));
}
