//! The counts of a job, over its workers and over the restarts of its operator.

use std::fs;

use rustix::process::Signal;
use serde_json::Value;

use crate::local::operator::{Machine, signal, until};

/// A job that always fails soon, and one that does not stop when it is asked to.
const MANIFEST: &str = "
apiVersion: swarm.k8slab.info/v1alpha1
kind: Swarm
metadata: {name: recorders}
spec:
  replicas: 2
  pool: {statefulSet: {name: w}}
  worker:
    protocol: Session
    runner: {command: [sh, -c, '{param.cmd}'], restart: {maxPause: 100ms}}
  handover: {stopTimeout: 1s}
  jobs:
  - {name: bad, pin: 0, params: {cmd: 'sleep 0.1; echo no camera; exit 3'}}
  - {name: deaf, params: {cmd: 'trap \"\" TERM; while true; do sleep 1; done'}}
";

/// The failure of the job in `status`, which must not end while the job moves.
struct Failure {
    worker: String,
    restarts: u64,
    since: u64,
}

fn failure(machine: &Machine) -> Option<Failure> {
    let status = machine.document(&["status"]);
    let row = &status["failing"][0];
    Some(Failure {
        worker: row["worker"].as_str()?.to_owned(),
        restarts: row["restarts"].as_u64()?,
        since: row["sinceUnixS"].as_u64()?,
    })
}

/// Waits until the job has failed again on a worker. Until then it fails in each answer, with counts that
/// never fall.
fn fails_again_on(machine: &Machine, worker: &str, before: &Failure) -> Failure {
    let mut last = before.restarts;
    let mut seen = None;
    until(&format!("it has failed on {worker}"), || {
        let now = failure(machine);
        assert!(now.is_some(), "it does not fail while it moves");
        let now = now?;
        assert!(last <= now.restarts, "{last} restarts, then {}", now.restarts);
        assert_eq!(now.since, before.since);
        last = now.restarts;
        if now.worker != worker {
            return None;
        }
        let at_first = *seen.get_or_insert(now.restarts);
        (at_first + 2 <= now.restarts).then_some(now)
    })
}

fn life(machine: &Machine, job: &str) -> Value {
    machine.document(&["history", job])["life"].clone()
}

#[test]
fn a_failing_job_keeps_its_counts_over_moves_and_restarts_of_worker_and_operator() {
    let machine = Machine::new();
    machine.write(MANIFEST);
    let mut operator = machine.started();
    let before = until("it fails", || failure(&machine).filter(|it| 2 <= it.restarts));
    assert_eq!(before.worker, "w-0");
    machine.edit("pin: 0", "pin: 1");
    let moved = fails_again_on(&machine, "w-1", &before);
    signal(machine.workers()["w-1"], Signal::KILL);
    let again = fails_again_on(&machine, "w-1", &moved);

    let of_list = machine.job("bad");
    assert!(again.restarts <= of_list["restarts"].as_u64().unwrap(), "{of_list}");
    assert!(of_list["life"]["crashes"].as_u64() >= Some(again.restarts), "{of_list}");
    assert_eq!(of_list["life"].get("events"), None, "a list has no events");
    assert!(machine.asks(&["explain", "bad"]).contains("Counted:"));
    operator.signal(Signal::TERM);
    operator.ended();

    let ended = life(&machine, "bad");
    assert!(ended["crashes"].as_u64() >= Some(again.restarts), "{ended}");
    let events = ended["events"].as_array().unwrap();
    assert!(events.len() <= 16 && events.iter().all(|it| it["cause"] == "crash"), "{ended}");
    assert_eq!(events[0]["detail"], "ended with exit code 3");
    let mut operator = machine.started();
    let restarted = until("it fails after the restart", || failure(&machine));
    assert_eq!(restarted.since, before.since);
    assert!(again.restarts <= restarted.restarts);
    let text = machine.asks(&["history", "bad"]);
    assert!(text.contains("in its life: ") && text.contains(" crashes since "), "{text}");
    assert!(text.contains("  crash  w-"), "{text}");
    machine
        .edit("  - {name: bad, pin: 1, params: {cmd: 'sleep 0.1; echo no camera; exit 3'}}\n", "");
    let is_gone =
        || !fs::read_to_string(machine.state().join("jobs.json")).unwrap().contains("bad");
    until("the removed job leaves the file", || is_gone().then_some(()));
    operator.signal(Signal::TERM);
    operator.ended();
    assert_eq!(machine.processes(), []);
}

#[test]
fn orders_and_late_kills_are_counted_and_a_damaged_file_stops_no_job() {
    let machine = Machine::new();
    machine.write(MANIFEST);
    let mut operator = machine.settled();
    operator.signal(Signal::TERM);
    operator.ended();
    fs::write(machine.state().join("jobs.json"), "{\"jobs\":").unwrap();
    let mut operator = machine.started();
    until("it runs", || (machine.job("deaf")["phase"] == "running").then_some(()));
    assert!(operator.complaints().contains("jobs.damaged.json"));
    assert!(machine.state().join("jobs.damaged.json").exists());
    assert_eq!(life(&machine, "deaf")["killedLate"], 0);
    assert!(machine.run(&["restart", "deaf"]).status.success());
    let counted = until("it is killed", || {
        Some(life(&machine, "deaf")).filter(|life| life["killedLate"] == 1)
    });
    assert_eq!(counted["restartsByHand"], 1);
    assert_eq!(
        (&counted["crashes"], &counted["events"][0]["detail"]),
        (&0.into(), &"restart".into())
    );
    operator.signal(Signal::KILL);
    operator.ended();
    until("its processes have ended", || machine.processes().is_empty().then_some(()));
}
