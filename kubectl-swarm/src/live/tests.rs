use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use swarm_core::handover::{Cell, SessionId};
use swarm_core::life::{Lives, News, SummedLives};
use swarm_core::{JobName, JobPhase, Ledger, Token};
use swarm_view::picture::Bounds;

use super::entries::Entries;
use super::jobs::by_phase;
use super::objects::{LeaseObject, LedgerSpec, SwarmObject};
use super::operators::Operators;
use super::pool::LivePool;
use super::{status, top, workers};

const A: &str = "6f1c-0000000000000001";
const B: &str = "77aa-0000000000000002";
const NOW: &str = "2026-01-02T03:04:09Z";
const ENDED: &str = "88bb-0000000000000003";

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// A ledger of two sessions and a plain worker, with a job that changes hands.
fn ledger() -> Ledger {
    let spec: LedgerSpec = read(json!({
        "swarm": {"kind": "Swarm", "name": "cameras", "uid": "1"},
        "pool": {"kind": "StatefulSet", "name": "ingest", "uid": "2"},
        "writer": {"member": "swarm-1", "epoch": 3},
        "revision": 7, "version": 2, "firstToken": 100,
        "holdings": {
            "incarnation": 9,
            "holders": [
                {"session": A, "slot": 0, "worker": "ingest-0", "jobs": {"a": 101, "b": 102}},
                {"session": B, "slot": 1, "worker": "ingest-1", "jobs": {"c": 103},
                 "releasing": {"d": {"token": 104, "since": 7}}},
                {"session": ENDED, "slot": 2, "jobs": {}, "releasing": {"e": {"token": 105, "since": 6}}},
                {"session": "plain/99", "slot": 3, "worker": "ingest-3", "jobs": {"f": 106}},
            ],
            "waits": {"g": {"free": {"token": 107}}},
            "ofALaterVersion": true,
        },
    }));
    spec.ledger(Vec::new()).unwrap()
}

fn lease(session: &str, revision: u64, failing: &str) -> LeaseObject {
    read(json!({
        "metadata": {"name": session, "annotations": {
            "swarm.k8slab.info/ack":
                format!(r#"{{"write":3,"durationMs":20000,"incarnation":9,"revision":{revision}}}"#),
            "swarm.k8slab.info/failing": failing,
        }},
        "spec": {"holderIdentity": session, "renewTime": "2026-01-02T03:04:05.000000Z"},
    }))
}

fn pool(leases: &[LeaseObject]) -> LivePool {
    let swarm: SwarmObject = read(json!({
        "metadata": {"name": "cameras", "namespace": "media", "generation": 4},
        "spec": {"jobs": [{"name": "a", "title": "Front Door"}, {"name": "b"}]},
        "status": {"observedGeneration": 4, "conditions": []},
    }));
    let view = |session: &str, revision: u64, jobs: Value| {
        read(json!({
            "metadata": {"name": session},
            "spec": {"session": session, "incarnation": 9, "revision": revision, "jobs": jobs},
        }))
    };
    let views = vec![
        view(A, 5, json!({"a": {"token": 101, "params": {}}, "b": {"token": 102}})),
        view(B, 7, json!({"c": {"token": 103}})),
        view("other-1", 1, json!({})),
    ];
    LivePool::of(swarm, None, ledger(), leases, views, NOW.parse().unwrap())
}

fn phases(pool: &LivePool) -> Vec<(String, &'static str, Option<String>)> {
    let jobs = pool.jobs();
    jobs.map(|job| (job.name.to_string(), job.phase.as_str(), job.worker.map(str::to_owned)))
        .collect()
}

#[test]
fn a_job_runs_once_its_worker_has_confirmed_the_view() {
    let failing = r#"{"count":1,"worst":[{"job":"b","state":"restarting","restarts":4,
        "sinceUnixS":1,"lastExit":"ended with exit code 3","lastOutput":["401"]}]}"#;
    let pool = pool(&[lease(A, 5, failing), lease(B, 6, "")]);
    let on = |worker: &str| Some(worker.to_owned());
    let expected = vec![
        ("a".to_owned(), "running", on("ingest-0")),
        ("b".to_owned(), "failing", on("ingest-0")),
        // Its worker has confirmed an older view.
        ("c".to_owned(), "published", on("ingest-1")),
        ("d".to_owned(), "stopping", on("ingest-1")),
        // Its worker has left the slot.
        ("e".to_owned(), "stopping", None),
        // A plain worker confirms nothing.
        ("f".to_owned(), "published", on("ingest-3")),
        ("g".to_owned(), "waiting", None),
    ];
    assert_eq!(phases(&pool), expected);
    let name: JobName = "b".parse().unwrap();
    assert_eq!(pool.job(&name).unwrap().failing.unwrap().restarts, 4);
    assert!(pool.job(&"z".parse().unwrap()).is_none());
}

#[test]
fn a_job_that_the_acknowledged_view_does_not_grant_is_not_running() {
    let mut pool = pool(&[lease(A, 5, "")]);
    assert_eq!(phases(&pool)[0].1, "running");
    // The ledger has a newer grant than the view that was read.
    let name: JobName = "a".parse().unwrap();
    let record = pool.ledger.cells.jobs.get_mut(&name).unwrap();
    record.cell = Cell::Granted { session: SessionId::from_stored(A), token: Token(110) };
    assert_eq!(phases(&pool)[0].1, "published");
}

#[test]
fn an_acknowledgement_of_another_incarnation_or_none_confirms_nothing() {
    let other = lease(A, 5, "").clone();
    let mut text = serde_json::to_value(json!({})).unwrap();
    text["metadata"] = json!({"name": A, "annotations": {
        "swarm.k8slab.info/ack": r#"{"write":3,"durationMs":1,"incarnation":8,"revision":50}"#}});
    for leases in [vec![], vec![read::<LeaseObject>(text)]] {
        assert_eq!(phases(&pool(&leases))[0].1, "published");
    }
    assert_eq!(phases(&pool(&[other]))[0].1, "running");
}

#[test]
fn jobs_run_while_their_worker_still_stops_another_one() {
    let text = r#"{"write":3,"reads":7,"jobs":{"d":104}}"#;
    let mut lease = serde_json::to_value(json!({})).unwrap();
    lease["metadata"] = json!({"name": B, "annotations": {
        "swarm.k8slab.info/ack": r#"{"write":3,"durationMs":1,"incarnation":9,"revision":6}"#,
        "swarm.k8slab.info/stopping": text,
    }});
    lease["spec"] = json!({"holderIdentity": B});
    let phase = |lease: &Value| phases(&pool(&[read(lease.clone())]))[2].1;
    assert_eq!(phase(&lease), "running");
    // Names of another write prove nothing.
    lease["metadata"]["annotations"]["swarm.k8slab.info/stopping"] = text.replace('3', "2").into();
    assert_eq!(phase(&lease), "published");
}

#[test]
fn a_job_of_a_worker_that_left_its_slot_is_shown_there() {
    let view = |session: &str, worker: &str| {
        read(json!({
            "metadata": {"name": session},
            "spec": {"worker": worker, "incarnation": 9, "revision": 7, "jobs": {}},
        }))
    };
    let swarm: SwarmObject = read(json!({
        "metadata": {"name": "cameras", "namespace": "media", "generation": 4},
    }));
    let labelled: LeaseObject = read(json!({
        "metadata": {"name": ENDED, "labels": {"swarm.k8slab.info/worker": "ingest-2"}},
    }));
    let job: JobName = "e".parse().unwrap();
    let now = NOW.parse().unwrap();
    let pool = LivePool::of(swarm.clone(), None, ledger(), &[labelled], Vec::new(), now);
    assert_eq!(pool.job(&job).unwrap().worker, Some("ingest-2"));
    let views = vec![view(ENDED, "ingest-2")];
    let pool = LivePool::of(swarm, None, ledger(), &[], views, now);
    assert_eq!(pool.job(&job).unwrap().worker, Some("ingest-2"));
    let states = workers::states(&pool, &workers::Nodes::default());
    let shown: Vec<_> = states.iter().map(|it| (it.worker.name.as_str(), it.row.state)).collect();
    let expected = [
        ("ingest-0", "unknown"),
        ("ingest-1", "unknown"),
        ("ingest-3", "plain"),
        ("ingest-2", "leaving"),
    ];
    assert_eq!(shown, expected);
    assert_eq!(states.iter().map(|it| it.row.releasing).collect::<Vec<_>>(), [0, 1, 0, 1]);
}

#[test]
fn failing_jobs_that_their_worker_does_not_name_are_not_running() {
    let failing = r#"{"count":2,"worst":[{"job":"b","state":"restarting","restarts":4,
        "sinceUnixS":1,"lastExit":"ended with exit code 3","lastOutput":[]}]}"#;
    let pool = pool(&[lease(A, 5, failing), lease(B, 7, "")]);
    let count = |phase| {
        let counts = by_phase(&pool);
        counts.iter().find(|(it, _)| *it == phase).map_or(0, |(_, count)| *count)
    };
    // `a` and `c` have confirmed their views, and one of them fails as well.
    assert_eq!((count(JobPhase::Running), count(JobPhase::Failing)), (1, 2));
}

/// The lives of an operator that has seen `job` fail on a worker.
fn lives(jobs: &[&str]) -> SummedLives {
    let (mut worker, mut pool) = (Lives::begin(1), SummedLives::begin(1));
    for (at, job) in (10..).zip(jobs) {
        let job = job.parse().unwrap();
        worker.learn(at, &job, "", News::Restarting("ended with exit code 3"));
    }
    pool.take(20, "earlier-1", "ingest-9", &worker, |_| true);
    pool
}

#[test]
fn a_failing_job_that_moved_fails_as_long_as_the_operator_counts_it() {
    let failing = r#"{"count":1,"worst":[{"job":"b","state":"restarting","restarts":4,
        "sinceUnixS":1,"lastExit":"ended with exit code 3","lastOutput":[]}]}"#;
    let shown = |counted: u64| {
        let mut pool = pool(&[lease(A, 5, failing), lease(B, 7, "")]);
        pool.swarm.status.failing = counted;
        // Job `c` has a next worker, `g` waits for one, and `z` was removed.
        let pool = pool.living(Some(lives(&["c", "g", "z"])));
        let states = workers::states(&pool, &workers::Nodes::default());
        let document = status::document(&pool, &states, &by_phase(&pool));
        let rows = document.failing.iter().map(|row| format!("{} {}", row.job, row.worker));
        let entries = Entries::of(&pool);
        let entry = |job: &str| entries.find(&job.parse().unwrap()).unwrap().entry;
        let entries = ["c", "g"].map(|job| (entry(job).phase, entry(job).failing.is_some()));
        let of_b = document.workers.iter().find(|row| row.name == "ingest-1").unwrap().failing;
        (document.jobs.failing, rows.collect::<Vec<_>>().join(", "), entries, of_b)
    };
    let all = "b ingest-0, c ingest-1, g ingest-9".to_owned();
    assert_eq!(shown(3), (3, all, [("failing", true), ("waiting", true)], 1));
    // The operator has found that one of both runs well. Job `c` failed before `g`.
    let one = "b ingest-0, g ingest-9".to_owned();
    assert_eq!(shown(2), (2, one, [("running", false), ("waiting", true)], 0));
    let none = "b ingest-0".to_owned();
    assert_eq!(shown(1), (1, none, [("running", false), ("waiting", false)], 0));
}

#[test]
fn the_live_view_reads_the_state_of_a_swarm() {
    let failing = r#"{"count":1,"worst":[{"job":"b","state":"restarting","restarts":4,
        "sinceUnixS":1,"lastExit":"ended with exit code 3","lastOutput":["401"]}]}"#;
    let mut pool = pool(&[lease(A, 5, failing), lease(B, 6, "")]);
    pool.swarm.status.unassigned.insert("capacity".to_owned(), 1);
    let states = workers::states(&pool, &workers::Nodes::default());
    let shown = format!("{:?}", top::sight(&pool, &states));
    for fact in [
        r#"name: "media/cameras""#,
        "revision: 7,",
        r#"reason: "Unknown", message: "the operator has not seen it yet""#,
        r#"name: "ingest-0", slot: 0, node: None, state: "ready""#,
        r#"name: "ingest-3", slot: 3, node: None, state: "plain""#,
        r#"JobEntry { name: "c", title: None, state: "published", slot: Some(1), worker: Some("ingest-1")"#,
        r#"JobEntry { name: "d", title: None, state: "releasing", slot: Some(1), worker: Some("ingest-1")"#,
        r#"FailingRow { job: "b", title: None, worker: "ingest-0", state: "restarting", restarts: 4"#,
        r#"UnassignedRow { job: "g", reason: "capacity""#,
    ] {
        assert!(shown.contains(fact), "{fact}: {shown}");
    }
    assert!(shown.contains("Front Door"), "{shown}");
}

#[test]
fn the_document_of_a_swarm_has_the_promised_fields() {
    let pool = pool(&[lease(A, 5, "")]);
    let states = workers::states(&pool, &workers::Nodes::default());
    let document = status::document(&pool, &states, &by_phase(&pool));
    let document = serde_json::to_value(document).unwrap();
    let has = |value: &Value, fields: &str| {
        for field in fields.split(' ') {
            assert!(value.get(field).is_some(), "{field} is missing in {value:#}");
        }
    };
    has(&document, "name namespace revision ready settled healthy guarantee jobs workers moving");
    has(&document, "unassigned failing conditions");
    has(&document["jobs"], "total running moving unassigned failing suspended");
    has(&document["workers"][0], "name slot node state jobs load lastHeardMs");
    has(&document["moving"][0], "job from to phase reason ageMs atMostMs");
}

#[test]
fn a_job_that_every_worker_runs_counts_on_each_and_fails_if_it_fails_on_one() {
    let failing = r#"{"count":1,"worst":[{"job":"g","state":"restarting","restarts":4,
        "sinceUnixS":1,"lastExit":"ended with exit code 3","lastOutput":[]}]}"#;
    let job: JobName = "g".parse().unwrap();
    let everywhere = |leases: &[LeaseObject]| {
        let mut pool = pool(leases);
        let record = pool.ledger.cells.jobs.get_mut(&job).unwrap();
        record.cell = Cell::Everywhere { token: Token(107) };
        pool
    };
    let fails = everywhere(&[lease(A, 5, ""), lease(B, 7, failing)]);
    let state = fails.job(&job).unwrap();
    assert_eq!((state.phase, state.is_everywhere), (JobPhase::Failing, true));
    let states = workers::states(&fails, &workers::Nodes::default());
    assert_eq!(states.iter().map(|it| it.row.jobs).collect::<Vec<_>>(), [3, 2, 2]);
}

#[test]
fn the_bounds_of_a_handover_are_those_of_the_spec_or_their_defaults() {
    let bounds = |handover: Value| {
        let mut pool = pool(&[]);
        pool.swarm.spec = json!({"handover": handover, "rebalance": {"returnGrace": "9s"}});
        let Bounds { stop, release, return_grace, .. } = pool.picture().bounds;
        assert_eq!(return_grace.as_secs(), 9);
        (stop.as_secs(), release.map(|it| it.as_secs()))
    };
    assert_eq!(bounds(json!({})), (5, Some(60)));
    // A job may take its whole stop timeout.
    assert_eq!(bounds(json!({"stopTimeout": "5m"})), (300, Some(310)));
    assert_eq!(bounds(json!({"lease": "10s"})), (5, Some(30)));
    assert_eq!(bounds(json!({"policy": "Exclusive", "stopTimeout": "20s"})), (20, None));
}

#[test]
fn jobs_of_a_silent_or_ended_worker_are_not_running() {
    let silent = lease(A, 5, "");
    let mut late = pool(&[silent]);
    // The bound is 17 s.
    late.now = "2026-01-02T03:04:21Z".parse().unwrap();
    assert_eq!((phases(&late)[0].1, late.lost().len()), ("running", 1), "B has no Lease");
    late.now = "2026-01-02T03:04:22Z".parse().unwrap();
    assert_eq!((phases(&late)[0].1, late.lost().len()), ("published", 2));
    let mut closed = json!({"metadata": {"name": A, "annotations": {
        "swarm.k8slab.info/ack": r#"{"write":3,"durationMs":1,"incarnation":9,"revision":5}"#}},
        "spec": {"holderIdentity": "", "renewTime": "2026-01-02T03:04:08.000000Z"}});
    assert_eq!(phases(&pool(&[read(closed.clone())]))[0].1, "published");
    closed["spec"]["holderIdentity"] = A.into();
    assert_eq!(phases(&pool(&[read(closed)]))[0].1, "running");
}

proptest! {
    /// Ages are in seconds. The bounds are 11 s for operators and 17 s for workers.
    #[test]
    fn no_document_calls_well_what_has_no_young_evidence(
        operator in 0_i64..40, first in 0_i64..40, second in 0_i64..40,
    ) {
        let now: Timestamp = NOW.parse().unwrap();
        let ago = |seconds| (now - SignedDuration::from_secs(seconds)).to_string();
        let lease = |session: &str, seconds| {
            let ack = r#"{"write":3,"durationMs":20000,"incarnation":9,"revision":7}"#;
            read(json!({
                "metadata": {"name": session, "annotations": {"swarm.k8slab.info/ack": ack}},
                "spec": {"holderIdentity": session, "renewTime": ago(seconds)},
            }))
        };
        let mut pool = pool(&[lease(A, first), lease(B, second)]);
        pool.swarm.status = read(json!({"observedGeneration": 4, "conditions": [
            {"type": "Ready", "status": "True", "reason": "Settled", "message": "7 jobs"},
        ]}));
        let operators = read(json!({"metadata": {"name": "swarm-1", "namespace": "o"},
            "spec": {"renewTime": ago(operator)}}));
        let pool = pool.beside(&Operators::of(vec![operators]));
        let states = workers::states(&pool, &workers::Nodes::default());
        let document = status::document(&pool, &states, &by_phase(&pool));
        let (is_served, are_heard) = (operator < 11, first < 17 && second < 17);
        prop_assert_eq!(document.jobs.running, 2 * usize::from(first < 17) + usize::from(second < 17));
        prop_assert_eq!((document.ready, document.settled), (is_served, is_served));
        prop_assert_eq!(document.healthy, is_served && are_heard);
        prop_assert_eq!(document.standing(0).0.contains("Settled"), is_served);
        let reason = document.out_of_date.map(|it| it.reason);
        let are_silent = 17 <= first && 17 <= second;
        let expected = if are_silent { "NothingWritten" } else { "NoOperator" };
        prop_assert_eq!(reason.as_deref(), (!is_served).then_some(expected));
    }
}

#[test]
fn lost_workers_are_listed_with_the_time_since_when() {
    let mut pool = pool(&[lease(A, 5, ""), lease(B, 6, "")]);
    pool.swarm.status = read(json!({"missingWorkers": [
        {"worker": "ingest-0", "slot": 0, "since": "2026-01-02T03:00:00Z"},
        {"worker": "ingest-9", "slot": 9, "since": "2026-01-02T03:01:00Z"},
        {"slot": 10, "since": "2026-01-02T03:02:00Z"},
    ]}));
    let states = workers::states(&pool, &workers::Nodes::default());
    let rows = workers::rows(&pool, &states);
    let shown = |name: &str| {
        let row = rows.iter().find(|row| row.name == name).unwrap();
        format!("{} {}", row.state, row.remarks(None))
    };
    assert_eq!(shown("ingest-0"), "ready not ready since 2026-01-02 03:00:00 UTC");
    assert_eq!(shown("ingest-9"), "away lost since 2026-01-02 03:01:00 UTC");
    assert_eq!(shown("slot 10"), "away lost since 2026-01-02 03:02:00 UTC");
}

#[test]
fn names_that_resemble_a_wrong_one_come_first() {
    let names = ["door", "cam-044", "cam-440", "x"];
    assert_eq!(
        super::nearest("cam-44", names.into_iter()),
        "; the nearest names are `cam-044`, `cam-440`"
    );
    assert_eq!(super::nearest("a", [].into_iter()), "; it has none");
    assert_eq!(super::nearest("b", ["a", "a"].into_iter()), "; it has `a`");
    let many: Vec<_> = (0..9).map(|n| format!("w-{n}")).collect();
    assert_eq!(
        super::some(many.iter().map(String::as_str)),
        "`w-0`, `w-1`, `w-2`, `w-3`, `w-4`, and 4 more"
    );
}

#[test]
fn each_job_without_a_worker_has_its_own_reason_and_others_wait() {
    let mut pool = pool(&[lease(A, 5, "")]);
    let free = |token| Cell::Free { token: Token(token) };
    for (name, token) in [("h", 108), ("i", 109)] {
        let record = pool.ledger.cells.jobs["g"].clone();
        pool.ledger.cells.jobs.insert(name.parse().unwrap(), record);
        pool.ledger.cells.jobs.get_mut(name).unwrap().cell = free(token);
    }
    let mut shown = |status: Value| {
        pool.swarm.status = read(status);
        let entries = Entries::of(&pool);
        let shown = ["g", "h", "i"].map(|name| {
            let entry = entries.find(&name.parse().unwrap()).unwrap().entry;
            format!("{} {}", entry.phase, entry.unassigned.unwrap_or_default())
        });
        shown.join(", ")
    };
    let named = json!([{"job": "g", "reason": "capacity"}, {"job": "h", "reason": "pin"}]);
    let both = json!({"unassigned": {"capacity": 1, "pin": 1}, "unassignedJobs": named});
    assert_eq!(shown(both), "unassigned capacity, unassigned pin, waiting ");
    // Beyond the named jobs there is only a word about all of them.
    let more = json!({"unassigned": {"capacity": 1, "pin": 2}, "unassignedJobs": named});
    assert_eq!(shown(more), "unassigned capacity, unassigned pin, unassigned unassigned");
    // An older operator names none.
    let one = json!({"unassigned": {"capacity": 3}});
    assert_eq!(shown(one), ["unassigned capacity"; 3].join(", "));
}
