//! A job that stops slowly, with other jobs that leave the same worker in the same turn.

use std::fs;

use serde_json::json;

use crate::local::operator::{Machine, until};

/// Each job records its start and end. `slow` ends once the file `go` exists.
const MANIFEST: &str = r#"
apiVersion: swarm.k8slab.info/v1alpha1
kind: Swarm
metadata: {name: moving}
spec:
  replicas: 2
  pool: {statefulSet: {name: w}}
  worker:
    protocol: Session
    runner: {command: [sh, -c, "{param.cmd}"]}
  handover: {policy: POLICY, stopTimeout: 30s, lease: 60s}
  jobs:
    - {name: quick-1, pin: 0, params: {cmd: "QUICK"}}
    - {name: quick-2, pin: 0, params: {cmd: "QUICK"}}
    - {name: slow, pin: 0, params: {cmd: "SLOW"}}
"#;

/// An event of a job, and its time in nanoseconds.
struct Noted {
    what: String,
    at: u128,
}

fn manifest(machine: &Machine, policy: &str) -> String {
    let dir = machine.path().display();
    let note = |what: &str| format!("echo $SWARM_JOB {what} $(date +%s%N) >> {dir}/notes");
    let (starts, ends) = (note("starts"), note("ends"));
    let waits = format!("until [ -e {dir}/go ]; do sleep 0.02; done");
    let rests = "while :; do sleep 0.02; done";
    let quick = format!("{starts}; trap '{ends}; exit 0' TERM; {rests}");
    let slow = format!("{starts}; trap '{waits}; {ends}; exit 0' TERM; {rests}");
    MANIFEST.replace("POLICY", policy).replace("QUICK", &quick).replace("SLOW", &slow)
}

/// Returns the records of a job, in order.
fn notes(machine: &Machine, job: &str) -> Vec<Noted> {
    let text = fs::read_to_string(machine.path().join("notes")).unwrap_or_default();
    let noted = |line: &str| {
        let mut words = line.split(' ');
        let (of, what) = (words.next()?, words.next()?);
        let at = words.next()?.parse().ok()?;
        (of == job).then(|| Noted { what: what.to_owned(), at })
    };
    text.lines().filter_map(noted).collect()
}

fn starts(machine: &Machine, job: &str) -> usize {
    notes(machine, job).iter().filter(|it| it.what == "starts").count()
}

/// Returns the gap of a job that has moved once, in milliseconds.
fn stood_still(machine: &Machine, job: &str) -> u128 {
    let notes = notes(machine, job);
    let at = |n: usize| notes.get(n).map(|it| it.at).unwrap();
    assert_eq!(notes[1].what, "ends");
    (at(2) - at(1)) / 1_000_000
}

#[test]
fn quick_jobs_move_while_a_slow_one_still_stops_and_the_status_names_that_one() {
    for policy in ["Exclusive", "AtLeastOnce"] {
        let machine = Machine::new();
        machine.write(&manifest(&machine, policy));
        let operator = machine.settled();
        for job in ["quick-1", "quick-2", "slow"] {
            until("the jobs start", || (starts(&machine, job) == 1).then_some(()));
        }
        machine.write(&manifest(&machine, policy).replace("pin: 0", "pin: 1"));
        for job in ["quick-1", "quick-2"] {
            until("a quick job starts elsewhere", || (starts(&machine, job) == 2).then_some(()));
        }
        assert_eq!(notes(&machine, "slow").len(), 1, "it still stops");
        let status = until("the status has the reason", || {
            Some(machine.document(&["status"])).filter(|it| it["status"] == "JobsWaiting")
        });
        assert_eq!(status["moving"][0]["job"], "slow", "{status:#}");
        let slow = machine.job("slow");
        assert_eq!((&slow["movesTo"], &slow["movesFor"]), (&"w-1".into(), &"pin".into()));
        assert_eq!(slow["waitsFor"][0]["what"], "the end of its run");
        fs::write(machine.path().join("go"), "").unwrap();
        until("the slow job starts elsewhere", || (starts(&machine, "slow") == 2).then_some(()));
        operator.prints("3 moved");
        assert_eq!(machine.document(&["status"])["moving"], json!([]));
        let still = ["quick-1", "quick-2"].map(|job| stood_still(&machine, job));
        eprintln!("{policy}: the quick jobs stood still for {still:?} ms");
    }
}
