use std::time::Duration;

use super::*;
use crate::handover::Record;
use crate::{FailingJob, FailingState, Slot, Token};

fn job(name: &str) -> JobName {
    name.parse().unwrap()
}

fn report(count: usize, names: &[&str]) -> Failing {
    let one = |name: &&str| FailingJob {
        job: job(name),
        state: FailingState::Restarting,
        restarts: 4,
        since_unix_s: 7,
        last_exit: "ended with exit code 3".to_owned(),
        last_output: Vec::new(),
    };
    Failing { count, worst: names.iter().map(one).collect() }
}

/// Looks for a job `a` that failed on another worker. Returns its present worker, if it fails still.
fn found(cell: Cell, reports: &[(&str, Failing)], is_unassigned: bool) -> Vec<Option<String>> {
    let mut ledger = Ledger::new(0);
    let (fails, name) = ([job("a"), job("removed")], job("a"));
    ledger.cells.jobs.insert(name, Record { cell, strikes: 0 });
    let reports = reports.iter().map(|(worker, report)| (format!("{worker}-1"), report));
    let worker = |session: &SessionId| format!("{}-1", session.pod_uid());
    let found = moved(&ledger, &fails, reports, |_| is_unassigned, worker);
    assert!(found.iter().all(|(job, _)| job.as_str() == "a"), "{found:?}");
    found.into_iter().map(|(_, worker)| worker).collect()
}

#[test]
fn a_job_fails_still_on_its_next_worker_and_on_its_way_there() {
    let (token, session) = (Token(3), SessionId::new("w", 1));
    let on = [Some("w-1".to_owned())];
    let granted = || Cell::Granted { session: session.clone(), token };
    assert_eq!(found(granted(), &[], false), on);
    assert_eq!(found(granted(), &[], true), on, "it runs until its worker has stopped it");
    assert_eq!(
        found(Cell::Releasing { session: session.clone(), token, since: 1 }, &[], false),
        on
    );
    let span = Duration::from_secs(60);
    for wait in [Cell::Free { token }, Cell::Hold { slot: Slot(0), span, token }] {
        assert_eq!(found(wait.clone(), &[], false), [None]);
        assert_eq!(found(wait, &[], true), []);
    }
    for ended in [
        Cell::Everywhere { token },
        Cell::ReleasingAll { token, since: 1 },
        Cell::Done { token },
        Cell::Quarantined { span, token },
    ] {
        assert_eq!(found(ended, &[], false), []);
    }
}

#[test]
fn a_job_that_a_worker_counts_is_not_counted_twice() {
    let granted = || Cell::Granted { session: SessionId::new("w", 1), token: Token(3) };
    for (worker, report, is_found) in [
        ("w", report(1, &["a"]), false),
        ("w", report(1, &["b"]), true),
        // One of the two that the worker does not name.
        ("w", report(2, &["b"]), false),
        ("other", report(2, &["b"]), true),
    ] {
        let reports = [(worker, report)];
        assert_eq!(!found(granted(), &reports, false).is_empty(), is_found, "{reports:?}");
    }
}

#[test]
fn a_report_counts_jobs_that_its_worker_holds() {
    let holds = |job: &JobName| job.as_str() == "a";
    let names = |it: &Failing| it.worst.iter().map(|it| it.job.to_string()).collect::<Vec<_>>();
    let whole = report(2, &["a", "b"]).held(holds);
    assert_eq!((whole.count, names(&whole)), (1, vec!["a".to_owned()]));
    // The names of the other jobs are unknown.
    let part = report(5, &["a", "b"]).held(holds);
    assert_eq!((part.count, names(&part)), (5, vec!["a".to_owned()]));
}
