//! `restart`, `retry`, `suspend` and `resume`: a person acts on jobs of a pool.

use rustix::process::Signal;
use serde_json::Value;

use crate::local::operator::{Machine, signal, until};

/// Three jobs: one that runs, one that ends at once and is not restarted, one that the file suspends.
const MANIFEST: &str = "
apiVersion: swarm.k8slab.info/v1alpha1
kind: Swarm
metadata: {name: recorders}
spec:
  replicas: 2
  pool: {statefulSet: {name: w}}
  worker:
    protocol: Session
    runner: {command: [sh, -c, '{param.cmd}'], restart: {limit: 0}}
  jobs:
  - {name: garden, params: {cmd: 'exec sleep 1000'}}
  - {name: broken, params: {cmd: 'exit 3'}}
  - {name: idle, suspend: true, params: {cmd: 'exec sleep 1000'}}
";

/// Returns the printed text of a command that ends with this code, and its complaint.
fn ended(machine: &Machine, words: &[&str], code: i32) -> (String, String) {
    let output = machine.run(words);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let (printed, complaint) = (text(output.stdout), text(output.stderr));
    assert_eq!(output.status.code(), Some(code), "{words:?}: {printed}{complaint}");
    (printed, complaint)
}

/// Waits until a job has this phase, and returns its entry.
fn runs(machine: &Machine, job: &str, phase: &str) -> Value {
    until(&format!("{job} is {phase}"), || {
        Some(machine.job(job)).filter(|entry| entry["phase"] == phase)
    })
}

#[test]
fn a_person_restarts_and_retries_jobs() {
    let machine = Machine::new();
    machine.write(MANIFEST);
    let mut operator = machine.started();
    let before = runs(&machine, "garden", "running");
    let (printed, _) = ended(&machine, &["restart", "garden"], 0);
    assert!(printed.starts_with("restarted garden on w-"), "{printed}");
    // The answer comes once another process runs it.
    let now = machine.job("garden");
    assert!(now["phase"] == "running" && now["pid"] != before["pid"], "{now}");

    runs(&machine, "broken", "failed");
    let (printed, complaint) = ended(&machine, &["retry", "broken", "garden"], 3);
    assert!(printed.starts_with("retried broken on w-"), "{printed}");
    assert!(complaint.contains("`garden` is running, and retry is for jobs"), "{complaint}");
    let logs = until("it has run twice", || {
        let (logs, _) = ended(&machine, &["logs", "broken"], 0);
        (logs.matches(" - started ").count() == 2).then_some(logs)
    });
    assert!(logs.contains("restarting it by hand"), "{logs}");
    let (_, complaint) = ended(&machine, &["restart", "idle"], 3);
    assert!(complaint.contains("`idle` is suspended, and runs on no worker"), "{complaint}");
    operator.signal(Signal::TERM);
    operator.ended();
    assert_eq!(machine.processes(), []);
}

#[test]
fn a_frozen_worker_does_not_answer_a_person_until_it_goes_on() {
    let machine = Machine::new();
    machine.write(&MANIFEST.replace("replicas: 2", "replicas: 1"));
    let mut operator = machine.started();
    let before = runs(&machine, "garden", "running");
    let worker = machine.workers()["w-0"];
    signal(worker, Signal::STOP);
    let (printed, complaint) = ended(&machine, &["restart", "garden"], 3);
    assert_eq!(printed, "");
    assert!(complaint.contains("; the restart of `garden` is pending until it"), "{complaint}");
    let (_, complaint) = ended(&machine, &["suspend", "garden"], 3);
    assert!(complaint.starts_with("swarm: w-0 has not answered for "), "{complaint}");
    let stopping = runs(&machine, "garden", "stopping");
    assert_eq!((&stopping["movesFor"], &stopping["pid"]), (&"suspended".into(), &before["pid"]));
    signal(worker, Signal::CONT);
    runs(&machine, "garden", "suspended");
    operator.signal(Signal::TERM);
    operator.ended();
    assert_eq!(machine.processes(), []);
}

#[test]
fn nothing_is_done_if_one_name_is_unknown() {
    let machine = Machine::new();
    machine.write(MANIFEST);
    let mut operator = machine.started();
    runs(&machine, "garden", "running");
    let (printed, complaint) = ended(&machine, &["suspend", "garden", "broke", "cams"], 3);
    assert_eq!(printed, "");
    for part in ["swarm: the pool has no jobs `broke`, `cams`; ", " `broken`; ", "`--pool POOL`\n"]
    {
        assert!(complaint.contains(part), "{part}: {complaint}");
    }
    assert_eq!(machine.job("garden")["phase"], "running");
    operator.signal(Signal::TERM);
    operator.ended();
    assert_eq!(machine.processes(), []);
}

#[test]
fn a_job_that_is_suspended_by_hand_stays_so_until_it_is_resumed() {
    let machine = Machine::new();
    machine.write(MANIFEST);
    let mut operator = machine.started();
    runs(&machine, "garden", "running");
    assert_eq!(ended(&machine, &["suspend", "garden"], 0).0, "suspended garden\n");
    runs(&machine, "garden", "suspended");
    let history = until("the episode to end", || {
        let history = machine.asks(&["history"]);
        history.contains("suspended 1 ").then_some(history)
    });
    let line = history.lines().last().unwrap();
    assert!(line.contains(" suspended 1 "), "a move and its cause are one episode: {history}");
    assert!(line.ends_with("  job garden was suspended"), "{history}");
    let undo = format!(": swarm resume garden --dir {}\n", machine.state().display());
    let status = machine.run(&["status"]);
    assert!(String::from_utf8(status.stdout).unwrap().contains(&undo));
    // An edit of the file, and a restart of the pool, keep it.
    machine.edit("replicas: 2", "replicas: 1");
    until("the edit is done", || {
        let workers = machine.document(&["status"])["workers"].as_array()?.len();
        (workers == 1).then_some(())
    });
    runs(&machine, "garden", "suspended");
    operator.signal(Signal::TERM);
    operator.ended();
    let mut operator = machine.started();
    runs(&machine, "garden", "suspended");

    let (_, complaint) = ended(&machine, &["resume", "idle"], 3);
    assert!(complaint.contains("the file suspends `idle`"), "{complaint}");
    assert_eq!(ended(&machine, &["resume", "garden"], 0).0, "resumed garden\n");
    runs(&machine, "garden", "running");
    operator.signal(Signal::TERM);
    operator.ended();
    assert_eq!(machine.processes(), []);
}

#[test]
fn a_job_that_is_done_says_how_it_runs_again() {
    let machine = Machine::new();
    machine.write(&MANIFEST.replace(
        "broken, params: {cmd: 'exit 3'}",
        "once, runOnce: true, params: {cmd: 'exit 0'}",
    ));
    let _operator = machine.started();
    runs(&machine, "once", "done");
    for verb in ["restart", "retry"] {
        let (_, complaint) = ended(&machine, &[verb, "once"], 3);
        assert!(
            complaint.contains("`once` is done, since it has `runOnce`; to run it again"),
            "{complaint}"
        );
    }
    let file = machine.file();
    let (planned, note) = ended(&machine, &["plan", file.to_str().unwrap()], 0);
    assert!(!planned.contains("once") && !planned.contains("new"), "{planned}");
    assert!(note.contains("1 job with `runOnce` is done, so no worker gets it"), "{note}");
    let (explained, _) = ended(&machine, &["explain", "once"], 0);
    assert!(explained.contains("it is done, so no worker runs it; to run it again"), "{explained}");
}
