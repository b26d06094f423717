//! The formats of the reading commands: the same as on a cluster.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::local::operator::{Machine, signal, until};
use crate::local::web::ONE_FAILS;

/// The fields of `status -o json` that both homes promise.
const STATUS: [&str; 13] = [
    "conditions",
    "failing",
    "guarantee",
    "healthy",
    "jobs",
    "moving",
    "name",
    "namespace",
    "ready",
    "revision",
    "settled",
    "unassigned",
    "workers",
];
const JOBS: [&str; 6] = ["failing", "moving", "running", "suspended", "total", "unassigned"];
const WORKER: [&str; 7] = ["jobs", "lastHeardMs", "load", "name", "node", "slot", "state"];
const FAILING: [&str; 5] = ["job", "lastExit", "lastOutput", "restarts", "worker"];
const UNASSIGNED: [&str; 3] = ["job", "message", "reason"];
const MOVING: [&str; 7] = ["ageMs", "atMostMs", "from", "job", "phase", "reason", "to"];
const EXPLAIN: [&str; 8] = ["came", "job", "since", "slot", "token", "waitsFor", "why", "worker"];
const WAIT: [&str; 4] = ["ageMs", "atMostMs", "what", "who"];

/// The commands, each with the names that `-o name` prints.
const COMMANDS: [(&[&str], &[&str]); 7] = [
    (&["status"], &["state"]),
    (&["jobs"], &["bad", "good"]),
    (&["who", "bad", "good"], &["w-0", "w-0"]),
    (&["workers"], &["w-0"]),
    (&["explain", "good"], &["w-0"]),
    (&["history"], &["bad", "good"]),
    (&["diff", "0"], &["bad", "good"]),
];

fn has(value: &Value, fields: &[&str]) {
    let missing: Vec<_> = fields.iter().filter(|it| value.get(**it).is_none()).collect();
    assert!(missing.is_empty(), "{missing:?} are missing in {value:#}");
}

/// Returns the paths of all fields.
fn paths(value: &Value, within: &str) -> BTreeSet<String> {
    let below = |(name, value): (String, &Value)| {
        let path = format!("{within}.{name}");
        paths(value, &path).into_iter().chain([path])
    };
    match value {
        Value::Object(all) => all.iter().map(|(k, v)| (k.clone(), v)).flat_map(below).collect(),
        Value::Array(all) => {
            let all = all.iter().enumerate().map(|(n, value)| (n.to_string(), value));
            all.flat_map(below).collect()
        }
        _ => BTreeSet::new(),
    }
}

#[test]
fn every_reading_command_has_the_formats_of_a_cluster() {
    let machine = Machine::new();
    machine.write(ONE_FAILS);
    let _operator = machine.settled();
    until("the job has failed", || (machine.job("bad")["phase"] == "failed").then_some(()));
    until("the history is written", || {
        machine.asks(&["history", "-o", "name"]).contains("good").then_some(())
    });
    for (words, names) in COMMANDS {
        let asked = |format: &str| machine.asks(&[words, &["-o", format]].concat());
        let json: Value = serde_json::from_str(&asked("json")).unwrap();
        let yaml: Value = serde_yaml::from_str(&asked("yaml")).unwrap();
        assert_eq!(paths(&json, ""), paths(&yaml, ""), "{words:?}");
        assert_eq!(asked("name").lines().collect::<Vec<_>>(), names, "{words:?}");
        let (text, wide) = (asked("text"), asked("wide"));
        assert!(!text.is_empty() && text.lines().count() <= wide.lines().count(), "{wide}");
    }
}

#[test]
fn a_job_that_every_worker_runs_is_shown_with_all_of_them() {
    let machine = Machine::new();
    let all = ONE_FAILS
        .replace("replicas: 1", "replicas: 2")
        .replace("spec:\n", "spec:\n  replication: All\n");
    machine.write(&all.replace(", {name: bad}", ""));
    let _operator = machine.settled();
    for words in [&["jobs"][..], &["jobs", "--worker", "w-1"], &["who", "good"]] {
        until(&format!("{words:?} shows it"), || {
            machine.asks(words).contains("good  (every worker)  running").then_some(())
        });
    }
    let explained = machine.asks(&["explain", "good"]);
    assert!(explained.contains("every worker runs every job"), "{explained}");
    let workers = machine.document(&["workers"]);
    assert_eq!(
        (&workers["workers"][1]["jobs"], &workers["workers"][1]["pool"]),
        (&1.into(), &"state".into())
    );
}

#[test]
fn the_documents_have_the_fields_of_a_cluster() {
    let machine = Machine::new();
    let stubborn = ONE_FAILS.replace("exec sleep 600", "trap \"\" TERM && sleep 600");
    let pinned = "{name: bad}, {name: pinned, pin: 7}";
    let stubborn = stubborn.replace("{name: bad}", pinned).replace("replicas: 1", "replicas: 2");
    machine.write(&stubborn.replace("{name: good}", "{name: good, pin: 0}"));
    let _operator = machine.started();
    // The pool answers once it has started.
    let json = |words: &[&str]| -> Value {
        let answer = machine.asks(&[words, &["-o", "json"]].concat());
        serde_json::from_str(&answer).unwrap_or_default()
    };
    let status = until("a job fails and one has no worker", || {
        let status = json(&["status"]);
        let has_both = status["failing"][0].is_object() && status["unassigned"][0].is_object();
        (has_both && status["jobs"]["running"] == 1).then_some(status)
    });
    has(&status, &STATUS);
    has(&status["jobs"], &JOBS);
    has(&status["workers"][0], &WORKER);
    has(&status["failing"][0], &FAILING);
    has(&status["unassigned"][0], &UNASSIGNED);
    assert_eq!(
        (&status["guarantee"], &status["ready"]),
        (&"AtLeastOnce, lease 20 s".into(), &false.into())
    );
    has(&json(&["explain", "good"]), &EXPLAIN);
    machine.edit("{name: good, pin: 0}", "{name: good, pin: 1}");
    let moving = until("the job stops", || {
        let status = json(&["status"]);
        let moving = status["moving"].as_array().into_iter().flatten();
        moving.into_iter().find(|it| it["job"] == "good").cloned()
    });
    has(&moving, &MOVING);
    assert_eq!((&moving["from"], &moving["to"]), (&"w-0".into(), &"w-1".into()));
    assert_eq!(moving["reason"], "pin");
    let wait = json(&["explain", "good"])["waitsFor"][0].clone();
    has(&wait, &WAIT);
    assert_eq!(wait["who"], "w-0");
    let left = wait["atMostMs"].as_u64().unwrap();
    assert!(left <= 5_000, "the stop timeout is 5 s: {left}");
}

#[test]
fn a_watched_command_prints_each_change_after_an_empty_line() {
    let machine = Machine::new();
    machine.write(ONE_FAILS);
    let _operator = machine.settled();
    let mut watch = Command::new(env!("CARGO_BIN_EXE_swarm"))
        .args(["jobs", "-o", "name", "--watch", "--dir"])
        .arg(machine.state())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut next = |count: usize| lines.by_ref().take(count).collect::<Vec<_>>();
    assert_eq!(next(2), ["bad", "good"]);
    machine.edit("{name: good}", "{name: good}, {name: more}");
    assert_eq!(next(4), ["", "bad", "good", "more"]);
    watch.kill().unwrap();
    watch.wait().unwrap();
}

/// Runs a good job, which ignores SIGTERM, and another one.
fn stubborn() -> String {
    let manifest = ONE_FAILS.replace("exec sleep 600", "trap \"\" TERM && echo up && sleep 600");
    let manifest = manifest.replace("{name: bad}", "{name: other, runner: quick}");
    let quick = "  runners: {quick: {command: [sleep, \"600\"]}}\n  jobs:";
    manifest
        .replace("replicas: 1", "replicas: 2")
        .replace("  jobs:", &format!("    {}", quick.trim_start()))
}

#[test]
fn a_pool_that_ends_is_neither_ready_nor_settled() {
    let machine = Machine::new();
    machine.write(&stubborn());
    let operator = machine.settled();
    until("the job ignores the signal", || {
        machine.asks(&["logs", "good"]).contains("up").then_some(())
    });
    operator.signal(Signal::TERM);
    let status = until("one job is left", || {
        let status = machine.document(&["status"]);
        (status["ending"]["left"] == 1).then_some(status)
    });
    for field in ["ready", "settled", "healthy"] {
        assert_eq!(status[field], false, "{field}");
    }
    assert_eq!((&status["status"], &status["jobs"]["running"]), (&"Ending".into(), &1.into()));
    let phases = machine.document(&["jobs"]);
    let phase = |n: usize| phases["jobs"][n]["phase"].clone();
    assert_eq!((phase(0), phase(1)), ("stopping".into(), "ended".into()), "{phases:#}");
    assert_eq!(machine.run(&["status"]).status.code(), Some(3));
}

#[test]
fn a_move_from_a_frozen_worker_is_bounded_by_its_lease_and_a_kill_is_a_cause() {
    let machine = Machine::new();
    machine.write(&stubborn().replace("{name: good}", "{name: good, pin: 0}"));
    let _operator = machine.settled();
    let frozen = machine.workers()["w-0"];
    signal(frozen, Signal::STOP);
    machine.edit("{name: good, pin: 0}", "{name: good, pin: 1}");
    let wait = until("the job is to stop", || {
        let explained = machine.document(&["explain", "good"]);
        explained["waitsFor"].get(0).cloned()
    });
    assert_eq!(wait["what"], "an answer of its worker");
    assert!(5_000 < wait["atMostMs"].as_u64().unwrap(), "more than the stop timeout: {wait}");
    signal(frozen, Signal::KILL);
    until("the history names the kill", || {
        let history = machine.asks(&["history"]);
        history.contains("worker w-0 was ended by signal 9").then_some(())
    });
    let beyond = machine.run(&["diff", "0", "99"]);
    let complaint = String::from_utf8(beyond.stderr).unwrap();
    assert_eq!(beyond.status.code(), Some(3), "{complaint}");
    assert!(complaint.contains("it has nothing about 99"), "{complaint}");
}
