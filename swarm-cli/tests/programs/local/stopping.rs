//! The end of jobs, pools and workers: every job has its stop timeout, however it ends.

use std::path::Path;
use std::process::{Command, Output};
use std::thread;

use rustix::process::Signal;
use serde_json::Value;

use crate::local::operator::{Machine, Operator, until};

/// A pool with `workers`, whose jobs do `when_asked` on SIGTERM.
pub(crate) fn pool(workers: u32, handover: &str, when_asked: &str, jobs: &str) -> Machine {
    let machine = Machine::new();
    machine.write(&format!(
        r#"
apiVersion: swarm.k8slab.info/v1alpha1
kind: Swarm
metadata: {{name: recorders}}
spec:
  replicas: {workers}
  pool: {{statefulSet: {{name: w}}}}
  worker:
    protocol: Session
    runner:
      command: [sh, -c, "trap '{when_asked}' TERM; echo recording; while :; do sleep 0.1; done"]
      # The shell must handle SIGTERM before it can be sent one.
      ready: {{line: recording}}
  handover: {handover}
  jobs: [{jobs}]
"#
    ));
    machine
}

/// Longer than was ever waited for by default.
pub(crate) const SLOW: &str = "echo finalizing; sleep 7; echo FINALIZED; exit 0";
pub(crate) const NEVER: &str = "echo no";

pub(crate) fn record(machine: &Machine, jobs: usize) {
    until("all jobs record", || {
        // Lines that quote the runner are excluded.
        let count = machine.logs().lines().filter(|line| line.ends_with(" | recording")).count();
        (jobs <= count).then_some(())
    });
}

pub(crate) fn finalized(machine: &Machine) -> usize {
    machine.logs().lines().filter(|line| line.ends_with(" | FINALIZED")).count()
}

pub(crate) fn stop(dir: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_swarm"));
    command.arg("stop").args(words).arg("--dir").arg(dir).output().unwrap()
}

pub(crate) fn text(output: &Output) -> (String, String) {
    let of = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (of(&output.stdout), of(&output.stderr))
}

#[test]
fn a_job_has_its_stop_timeout_whatever_ends_the_pool() {
    let ends_by = |kind: Option<Signal>| {
        let machine = pool(1, "{stopTimeout: 40s}", SLOW, "{name: rec}");
        let mut operator = machine.settled();
        record(&machine, 1);
        if let Some(kind) = kind {
            operator.signal(kind);
        } else {
            let output = stop(&machine.state(), &[]);
            let (printed, remarks) = text(&output);
            assert_eq!(output.status.code(), Some(0), "{printed}{remarks}");
            assert!(printed.ends_with(": no process is left\n"), "{printed}");
            let expected = "1 of 1 job is still stopping, at most ";
            assert!(remarks.contains(expected), "{remarks}");
        }
        assert_eq!(operator.ended().code(), Some(0));
        assert_eq!((finalized(&machine), machine.processes()), (1, vec![]), "{kind:?}");
        let output = operator.prints("ended in");
        assert!(output.contains("1 of 1 job is still stopping, at most "), "{output}");
        assert!(!output.contains("killed"), "{output}");
    };
    thread::scope(|scope| {
        for kind in [Some(Signal::TERM), Some(Signal::INT), Some(Signal::HUP), None] {
            scope.spawn(move || ends_by(kind));
        }
    });
}

#[test]
fn a_job_has_its_stop_timeout_where_its_worker_is_not_wanted_any_more() {
    let handover = "{stopTimeout: 40s}";
    let machine = pool(2, handover, SLOW, "{name: a}, {name: b}");
    let operator = machine.settled();
    record(&machine, 2);
    machine.edit("replicas: 2", "replicas: 1");
    operator.prints("2 jobs on 1 worker, 1 moved");
    until("the worker has ended", || (machine.workers().len() == 1).then_some(()));
    assert_eq!(finalized(&machine), 1);
    assert!(!operator.complaints().contains("killed"), "{}", operator.complaints());
    // The other end would take its time.
    operator.signal(Signal::QUIT);
}

#[test]
fn what_a_killed_operator_left_behind_has_its_stop_timeout() {
    let machine = pool(1, "{stopTimeout: 40s}", SLOW, "{name: rec}");
    let mut operator = machine.settled();
    record(&machine, 1);
    operator.signal(Signal::KILL);
    operator.ended();
    let next = machine.settled();
    assert_eq!(finalized(&machine), 1, "before it was started again");
    assert!(!next.complaints().contains("killed"), "{}", next.complaints());
    next.signal(Signal::QUIT);
}

#[test]
fn a_job_that_does_not_end_is_killed_and_named_everywhere() {
    let machine = pool(1, "{stopTimeout: 1s}", NEVER, "{name: deaf}");
    let mut operator = machine.settled();
    record(&machine, 1);
    let output = stop(&machine.state(), &["-o", "json"]);
    let (printed, remarks) = text(&output);
    assert_eq!(output.status.code(), Some(0), "{remarks}");
    let answer: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(answer["killedJobs"], serde_json::json!(["deaf on w-0"]), "{answer}");
    assert_eq!(operator.ended().code(), Some(0));
    let said = "deaf on w-0 did not end in time and was killed";
    assert!(operator.complaints().contains(said), "{}", operator.complaints());
    let output = operator.prints("ended in");
    let expected = "no process is left; 1 did not end in time, killed: deaf on w-0\n";
    assert!(output.ends_with(expected), "{output}");
    assert!(machine.logs().contains(said));
}

#[test]
fn a_stop_waits_as_long_as_it_is_asked_to_and_kills_where_it_is_asked_to() {
    let machine = pool(1, "{stopTimeout: 10m}", NEVER, "{name: deaf}");
    let mut operator = machine.settled();
    record(&machine, 1);
    let output = stop(&machine.state(), &["--timeout", "1s"]);
    let (printed, complaint) = text(&output);
    assert_eq!((output.status.code(), &*printed), (Some(1), ""), "{complaint}");
    let expected = "has not ended within 1s, and goes on ending; 1 of 1 job is still stopping";
    assert!(complaint.contains(expected), "{complaint}");
    assert!(complaint.contains(" s: deaf on w-0 (process "), "{complaint}");
    assert!(complaint.contains("`swarm stop --now --dir /"), "{complaint}");
    assert_eq!(machine.document(&["status"])["ending"]["left"], 1);
    let output = stop(&machine.state(), &["--now", "-o", "json"]);
    let (printed, complaint) = text(&output);
    assert_eq!(output.status.code(), Some(0), "{complaint}");
    let answer: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(answer["killedJobs"], serde_json::json!(["deaf on w-0"]), "{answer}");
    assert_eq!(operator.ended().code(), Some(0));
    assert_eq!(machine.processes(), []);
}

#[test]
fn a_second_interrupt_kills_and_a_second_sigterm_does_not() {
    let machine = pool(1, "{stopTimeout: 10m}", NEVER, "{name: deaf}");
    let mut operator = machine.settled();
    record(&machine, 1);
    operator.signal(Signal::TERM);
    operator.prints("1 of 1 job is still stopping");
    let messages = |operator: &Operator<'_>| {
        operator.prints("still stopping").matches("1 of 1 job is still stopping").count()
    };
    let before = messages(&operator);
    operator.signal(Signal::TERM);
    // The first message after the signal may be older than its handling; the second is not.
    until("two more messages", || {
        assert_eq!(operator.ended_already(), None);
        (before + 2 <= messages(&operator)).then_some(())
    });
    assert!(!machine.workers().is_empty());
    // It ends before the stop timeout, which is longer than any wait of these tests.
    operator.signal(Signal::INT);
    assert_eq!(operator.ended().code(), Some(0));
    let output = operator.prints("ended in");
    assert!(output.ends_with("; 1 killed as asked: deaf on w-0\n"), "{output}");
}

#[test]
fn a_suspended_pool_is_killed_as_well() {
    let machine = pool(1, "{stopTimeout: 10m}", NEVER, "{name: deaf}");
    let mut operator = machine.settled();
    record(&machine, 1);
    operator.signal(Signal::STOP);
    let output = stop(&machine.state(), &["--now"]);
    assert_eq!(output.status.code(), Some(0), "{:?}", text(&output));
    operator.ended();
    assert_eq!(machine.processes(), []);
}

/// A lease of 20 s would be too short for that, and the manifest sets none.
#[test]
fn a_stop_timeout_needs_no_lease_and_one_that_is_too_short_is_refused_with_what_to_write() {
    let machine = pool(1, "{stopTimeout: 2m}", "exit 0", "{name: rec}");
    let mut operator = machine.settled();
    operator.signal(Signal::TERM);
    assert_eq!(operator.ended().code(), Some(0));
    machine.edit("{stopTimeout: 2m}", "{stopTimeout: 2m, lease: 1m}");
    let output = machine.output(&[]);
    assert_eq!(output.status.code(), Some(2));
    let complaint = text(&output).1;
    let first = complaint.lines().next().unwrap();
    assert!(first.ends_with("a stopTimeout of 120s; write 121s or more"), "{complaint}");
}
