//! The JSON that the feature `serde` writes, and the JSON that it refuses to read.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, from_value, json, to_value};
use swarm_core::handover::{
    Ack, Holder, Lease, LeaseVersion, LeaseWrite, Policy, SessionId, SessionView, Stopping,
};
use swarm_core::session::{Details, WorkerView};
use swarm_core::stored::Stored;
use swarm_core::{
    Assignment, Desired, Job, JobName, Jobs, Ledger, Mode, Move, MoveReason, Observed, Params,
    Plan, Pool, Position, Presence, Replication, Request, Rules, RunnerName, Share, Slot, Timing,
    Title, Token, Unassigned, View, WorkerSeen, decide, jobs,
};

/// Checks what is written, and that the same value is read from it.
fn is_written_as<T>(value: &T, written: &Value)
where
    T: Serialize + DeserializeOwned + PartialEq + Debug,
{
    assert_eq!(to_value(value).unwrap(), *written);
    assert_eq!(from_value::<T>(written.clone()).unwrap(), *value);
    // As text, where the keys of maps are numbers and names in quotes.
    let text = serde_json::to_string(value).unwrap();
    assert_eq!(serde_json::from_str::<T>(&text).unwrap(), *value);
}

fn refusal<T: DeserializeOwned + Debug>(written: Value) -> String {
    from_value::<T>(written).unwrap_err().to_string()
}

fn name(text: &str) -> JobName {
    text.parse().unwrap()
}

#[test]
fn a_plan_has_the_words_and_numbers_that_people_know() {
    let mut wanted = jobs(["a", "b", "c"]).unwrap();
    wanted.insert(name("far"), Job { pin: Some(Slot(7)), ..Job::default() });
    let held: Assignment =
        ["a", "b", "c", "far", "old"].map(|job| (name(job), Slot(0))).into_iter().collect();
    let rules = Rules { moves_max: Some(0), ..Rules::default() };
    let plan = Request { jobs: &wanted, held: &held, pool: &Pool::ready(2), rules }.plan();
    let [deferred] = &plan.deferred.iter().collect::<Vec<_>>()[..] else { panic!("{plan:?}") };
    let written = json!({
        "assignment": { "a": 0, "b": 0, "c": 0 },
        "unassigned": { "far": "pin" },
        "moves": [
            { "job": "far", "from": 0, "to": null, "reason": { "unassigned": "pin" } },
            { "job": "old", "from": 0, "to": null, "reason": "removed" },
        ],
        "deferred": [deferred],
        "minimumMoves": 1,
    });
    is_written_as(&plan, &written);
    is_written_as(&plan.assignment, &written["assignment"]);
    is_written_as(&plan.moves, &written["moves"]);
    is_written_as(&Plan::default().moves, &json!([]));
}

#[test]
fn every_reason_is_its_documented_word() {
    use {MoveReason as Reason, Unassigned as Without};
    for reason in [
        Reason::New,
        Reason::Removed,
        Reason::WorkerGone,
        Reason::Balance,
        Reason::NotReady,
        Reason::Pin,
        Reason::Capacity,
    ] {
        is_written_as(&reason, &json!(reason.as_str()));
    }
    for without in [
        Without::NoWorkers,
        Without::PoolIncomplete,
        Without::Pin,
        Without::Capacity,
        Without::Paused,
    ] {
        is_written_as(&without, &json!(without.as_str()));
        is_written_as(&Reason::Unassigned(without), &json!({ "unassigned": without.as_str() }));
    }
    let step = Move { job: name("a"), from: None, to: Some(Slot(3)), reason: Reason::New };
    is_written_as(&step, &json!({ "job": "a", "from": null, "to": 3, "reason": "new" }));
}

#[test]
fn a_job_is_written_with_what_it_asks_for() {
    let params = Params::from_iter([("url".to_owned(), "http://a".to_owned())]);
    let (pin, share) = (Some(Slot(2)), Some(Share::new(50).unwrap()));
    let title = Some(Title::new("Haustür").unwrap());
    let runner = Some(RunnerName::new("record").unwrap());
    let all =
        Job { pin, priority: -3, share, run_once: true, suspend: true, title, runner, params };
    let written = json!({
        "pin": 2, "priority": -3, "share": 50, "runOnce": true, "suspend": true,
        "title": "Haustür", "runner": "record", "params": { "url": "http://a" },
    });
    is_written_as(&all, &written);
    is_written_as(&Job::default(), &json!({}));
    let wanted: Jobs = jobs(["a", "b"]).unwrap();
    is_written_as(&wanted, &json!({ "a": {}, "b": {} }));
}

#[test]
fn what_is_asked_for_is_written_with_what_differs_from_the_defaults() {
    let mut desired = Desired::new(jobs(["a"]).unwrap());
    let fence = json!(swarm_core::handover::LeaseTerms::default().fence_wait().as_millis() + 1);
    let timing = json!({
        "initialWaitMs": 60_000, "returnGraceMs": 30_000, "notReadyGraceMs": 300_000,
        "releaseTimeoutMs": 60_000, "fenceWaitMs": fence,
    });
    let written = json!({ "jobs": { "a": {} }, "timing": timing });
    assert_eq!(to_value(&desired).unwrap(), written);
    assert_eq!(from_value::<Desired>(json!({ "jobs": { "a": {} } })).unwrap(), desired);

    desired.replication = Replication::All;
    desired.rules = Rules { mode: Mode::Canonical, moves_max: Some(0), share_tolerance: Some(10) };
    desired.max_jobs = Some(0);
    desired.max_jobs_by_slot = [(Slot(12), 40)].into();
    desired.capacity_by_slot = [(Slot(12), Share::new(50).unwrap())].into();
    let millis = Duration::from_millis;
    desired.timing = Timing {
        initial_wait: millis(0),
        return_grace: millis(1),
        not_ready_grace: None,
        release_timeout: millis(2),
        fence_wait: millis(3),
    };
    desired.policy = Policy::Exclusive;
    desired.paused = true;
    desired.suspend = true;
    desired.batch_window = millis(4);
    desired.replicas = Some(0);
    let written = json!({
        "jobs": { "a": {} },
        "replication": "all",
        "rules": { "mode": "canonical", "movesMax": 0, "shareTolerance": 10 },
        "maxJobs": 0,
        "maxJobsBySlot": { "12": 40 },
        "capacityBySlot": { "12": 50 },
        "timing": {
            "initialWaitMs": 0, "returnGraceMs": 1, "notReadyGraceMs": null,
            "releaseTimeoutMs": 2, "fenceWaitMs": 3,
        },
        "policy": "exclusive",
        "paused": true,
        "suspend": true,
        "batchWindowMs": 4,
        "replicas": 0,
    });
    is_written_as(&desired, &written);
    is_written_as(&Rules::default(), &json!({}));
    for (policy, word) in [(Policy::AtLeastOnce, "atLeastOnce"), (Policy::Exclusive, "exclusive")] {
        is_written_as(&policy, &json!(word));
    }
    is_written_as(&Mode::Sticky, &json!("sticky"));
    is_written_as(&Replication::One, &json!("one"));
}

#[test]
fn a_time_that_is_written_is_no_shorter_when_it_is_read() {
    let return_grace = Duration::new(3, 1);
    let written = to_value(Timing { return_grace, ..Timing::default() }).unwrap();
    assert_eq!(from_value::<Timing>(written).unwrap().return_grace, Duration::from_millis(3001));
    let most = to_value(Timing { return_grace: Duration::MAX, ..Timing::default() }).unwrap();
    let read = from_value::<Timing>(most).unwrap().return_grace;
    assert_eq!(read, Duration::from_millis(u64::MAX));
}

#[test]
fn a_view_of_plain_workers_has_the_fields_of_its_yaml() {
    let view = Ledger::new(0).next(&[(name("a"), Slot(0))].into_iter().collect(), &Pool::ready(1));
    let mut view = view.view();
    let written =
        json!({ "workloads": { "worker-0": { "jobs": ["a"], "version": 1 } }, "version": 1 });
    is_written_as(&view, &written);
    view.workers.values_mut().for_each(|entry| entry.slot = Some(Slot(3)));
    let written = json!({
        "workloads": { "worker-0": { "jobs": ["a"], "slot": 3, "version": 1 } }, "version": 1,
    });
    is_written_as(&view, &written);
    // As of the predecessors, which had no versions.
    let older = json!({ "workloads": { "w-0": { "jobs": ["a"] } } });
    assert_eq!(from_value::<View>(older).unwrap().workers["w-0"].version, 0);
    assert_eq!(from_value::<View>(json!({})).unwrap(), View::default());
}

#[test]
fn what_breaks_an_invariant_is_refused_with_a_sentence() {
    let message = refusal::<JobName>(json!("two words"));
    assert!(message.starts_with("job name `two words` has the character ' '"), "{message}");
    assert!(refusal::<Jobs>(json!({ "": {} })).starts_with("a job name is empty"));
    assert!(refusal::<Assignment>(json!({ "two words": 1 })).starts_with("job name `two words`"));
    for percent in [0, 101] {
        let message = refusal::<Job>(json!({ "share": percent }));
        assert_eq!(message, format!("a share of {percent} percent; use 1 to 100"));
    }
    assert!(refusal::<Job>(json!({ "pni": 1 })).starts_with("unknown field `pni`"));
    let jobs = json!({ "a": 1 });
    let holders = json!([
        { "session": "pod-a-0000000000000001", "slot": 0, "worker": "w-0", "jobs": jobs },
        { "session": "pod-b-0000000000000001", "slot": 1, "worker": "w-1", "jobs": jobs },
    ]);
    let ledger = json!({ "revision": 1, "version": 1, "firstToken": 0, "holders": holders });
    assert_eq!(refusal::<Ledger>(ledger), "job `a` occurs twice");
    // To ask for nothing would stop everything, and what is misspelt would not be done.
    assert!(refusal::<Desired>(json!({})).starts_with("missing field `jobs`"));
    let misspelt = json!({ "jobs": {}, "max_jobs": 3 });
    assert!(refusal::<Desired>(misspelt).starts_with("unknown field `max_jobs`"));
    assert!(refusal::<Rules>(json!({ "moves": 3 })).starts_with("unknown field `moves`"));
    assert!(refusal::<Timing>(json!({ "returnGrace": 3 })).starts_with("unknown field"));
    // A lease that says nothing acknowledges nothing.
    assert!(refusal::<Ack>(json!({})).starts_with("missing field"));
}

fn ledger() -> Ledger {
    let worker = |n: u32, session| {
        let (name, presence) = (format!("w-{n}"), Presence::Ready);
        (Slot(n), WorkerSeen::new(name, presence, Some(session)))
    };
    let workers = [worker(0, SessionId::plain("pod-a")), worker(1, SessionId::new("pod-b", 7))];
    let observed = Observed::new(workers, 1, []);
    let desired = Desired::new(jobs(["a", "b"]).unwrap());
    decide(&Ledger::new(5), &desired, &observed).ledger
}

#[test]
fn a_ledger_is_written_in_its_stored_form() {
    let ledger = ledger();
    assert_eq!(ledger.assignment().len(), 2);
    let mut written = to_value(Stored::from(&ledger)).unwrap();
    is_written_as(&ledger, &written);
    // A ledger from an older version does not have the longest duration of its Leases.
    assert_eq!((ledger.longest_lease, written.get("longestLeaseMs")), (Duration::ZERO, None));
    let mut ledger = Ledger { longest_lease: Duration::from_secs(20), ..ledger };
    written["longestLeaseMs"] = json!(20_000);
    is_written_as(&ledger, &written);
    ledger.cells.has_shares = true;
    written["hasShares"] = json!(true);
    is_written_as(&ledger, &written);
    is_written_as(
        &Position { incarnation: 5, revision: 1 },
        &json!({ "incarnation": 5, "revision": 1 }),
    );
}

#[test]
fn a_view_names_its_session_as_stores_do() {
    let mut jobs = Jobs::new();
    let params = Params::from_iter([("url".to_owned(), "http://a".to_owned())]);
    let runner = Some(RunnerName::new("record").unwrap());
    jobs.insert(name("b"), Job { run_once: true, runner, params, ..Job::default() });
    let runners = ["copy", "record"].map(|it| (RunnerName::new(it).unwrap(), "log".to_owned()));
    let details = Details::of(&jobs).with_runners(runners.into());
    let grants = [(name("a"), Token(8)), (name("b"), Token(u64::MAX))];
    let session = SessionId::new("pod", 7);
    let view = SessionView { session, incarnation: 5, revision: 3, jobs: grants.into() };
    let jobs = json!({ "a": 8, "b": u64::MAX });
    let session = "pod-0000000000000007";
    let written =
        |jobs| json!({ "session": session, "incarnation": 5, "revision": 3, "jobs": jobs });
    is_written_as(&view, &written(jobs));
    let run_once = json!({
        "token": u64::MAX, "runOnce": true, "runner": "record", "params": { "url": "http://a" },
    });
    let mut whole = written(json!({ "a": { "token": 8 }, "b": run_once }));
    whole["runners"] = json!({ "record": "log" });
    is_written_as::<WorkerView>(&view.with_details(&details), &whole);
    is_written_as(&SessionId::plain("pod"), &json!("plain/pod"));
}

#[test]
fn a_lease_is_written_with_its_acknowledgement() {
    let finished = BTreeMap::from([(name("a"), Token(8))]);
    let stopping = Stopping { reads: 4, jobs: [(name("b"), Token(7))].into() };
    let ack = Ack { incarnation: 5, revision: 3, stopping, finished, is_draining: true };
    let stopping = json!({ "reads": 4, "jobs": { "b": 7 } });
    let written = json!({
        "incarnation": 5, "revision": 3, "stopping": stopping, "finished": { "a": 8 }, "draining": true
    });
    is_written_as(&ack, &written);
    let short = Ack { incarnation: 5, revision: 3, ..Ack::default() };
    is_written_as(&short, &json!({ "incarnation": 5, "revision": 3 }));
    let lease = Lease { version: LeaseVersion(2), holder: Holder::Session, number: 4, ack };
    let holder = json!({ "version": 2, "holder": "session", "number": 4, "ack": written });
    is_written_as(&lease, &holder);
    for (holder, word) in [(Holder::Closed, "closed"), (Holder::Revoked, "revoked")] {
        is_written_as(&holder, &json!(word));
    }
    let write =
        LeaseWrite { expected: None, holder: Holder::Session, number: 1, ack: Ack::default() };
    let ack = json!({ "incarnation": 0, "revision": 0 });
    let written = json!({ "expected": null, "holder": "session", "number": 1, "ack": ack });
    is_written_as(&write, &written);
}
