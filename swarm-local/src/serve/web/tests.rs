use proptest::prelude::*;
use swarm_core::{FailingJob, FailingState, Job, Params};
use swarm_view::status::{FailingRow, Status, UnassignedRow};
use swarm_view::workers::WorkerRow;

use super::*;
use crate::pool::snapshot::JobRow;

/// The beginning of each value of a param. No other text has it.
const SECRET: &str = "pass-";

/// A pool with one job in each phase that a document describes. Each job has params, and the first one
/// has a runner.
fn snapshot(params: &[Params]) -> Snapshot {
    let mut snapshot = Snapshot::default();
    let states = ["granted", "granted", "releasing", "free", "everywhere"];
    let names: Vec<_> = (0..params.len()).map(|n| format!("job-{n}")).collect();
    let row = |(n, name): (usize, &String)| JobRow {
        name: name.clone(),
        title: None,
        state: states[n % states.len()],
        slot: (n % states.len() < 3).then_some(0),
        token: 7,
    };
    snapshot.holders = names.iter().enumerate().map(row).collect();
    snapshot.holders.sort_by(|a, b| a.name.cmp(&b.name));
    let failing = FailingJob {
        job: "job-0".parse().unwrap(),
        state: FailingState::Restarting,
        restarts: 3,
        since_unix_s: 1,
        last_exit: "ended with exit code 3".to_owned(),
        last_output: vec!["401".to_owned()],
    };
    let unassigned = UnassignedRow { job: "job-3".to_owned(), reason: "pin".into(), message: None };
    snapshot.status = Status {
        name: "cams".to_owned(),
        workers: vec![WorkerRow { name: "w-0".to_owned(), state: "ready", ..WorkerRow::default() }],
        failing: vec![FailingRow::of(failing, "w-0")],
        unassigned: if params.len() < 4 { Vec::new() } else { vec![unassigned] },
        ..Status::default()
    };
    let job = |(n, params): (usize, &Params)| {
        let runner =
            (n == 0).then(|| swarm_core::RunnerName::new(&format!("{SECRET}runner")).unwrap());
        (names[n].parse().unwrap(), Job { params: params.clone(), runner, ..Job::default() })
    };
    snapshot.wanted = params.iter().enumerate().map(job).collect();
    snapshot
}

/// Returns all documents about a pool for a reader.
fn documents(snapshot: &Arc<Snapshot>, reader: Reader) -> String {
    let reports = Reports::default();
    let entries = || Entries { snapshot: Arc::clone(snapshot), reports: reports.clone(), reader };
    let one = entries();
    let of_jobs = snapshot.holders.iter();
    let of_jobs = of_jobs.map(|row| {
        let entry: JobEntry<&str> = snapshot.picture().entry(one.facts(&one.failing(), row));
        json(&entry)
    });
    let list: Vec<u8> = JobList::pieces(entries()).flatten().collect();
    let list = String::from_utf8(list).unwrap();
    let status = json(&snapshot.answer(&reports));
    [status].into_iter().chain(of_jobs).chain([list]).collect()
}

fn json(document: &impl serde::Serialize) -> String {
    serde_json::to_string(document).unwrap()
}

proptest! {
    #[test]
    fn only_the_user_of_a_pool_gets_a_param(
        params in prop::collection::vec(
            prop::collection::btree_map("[a-z]{1,8}", "[ -~]{0,20}", 1..4), 1..8),
    ) {
        let params: Vec<Params> = params
            .into_iter()
            .map(|all| all.into_iter().map(|(name, value)| (name, format!("{SECRET}{value}"))).collect())
            .collect();
        let snapshot = Arc::new(snapshot(&params));
        prop_assert!(!documents(&snapshot, Reader::Anyone).contains(SECRET));
        // The same search finds what the user gets.
        let found = documents(&snapshot, Reader::User).matches(SECRET).count();
        prop_assert!(params.iter().map(|all| all.len()).sum::<usize>() < found);
    }
}
