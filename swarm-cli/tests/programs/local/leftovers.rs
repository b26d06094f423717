//! Commands about a pool whose operator was killed, and the next start of that pool.

use std::process::{Command, Output};

use rustix::process::Signal;

use crate::local::operator::{Machine, until};
use crate::local::stopping::{NEVER, SLOW, finalized, pool, record, stop, text};

/// Kills the operator of a pool with one job, whose worker and guard go on.
fn killed(handover: &str, when_asked: &str) -> Machine {
    let machine = pool(1, handover, when_asked, "{name: rec}");
    let mut operator = machine.settled();
    record(&machine, 1);
    operator.signal(Signal::KILL);
    operator.ended();
    drop(operator);
    machine
}

fn status(machine: &Machine) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_swarm"));
    command.args(["status", "--dir"]).arg(machine.state()).output().unwrap()
}

const LEFT: &str = "1 worker and ";
const ENDING: &str = " of an earlier run are still ending, at most ";

#[test]
fn a_stop_waits_for_what_a_killed_operator_left() {
    let machine = killed("{stopTimeout: 40s}", SLOW);
    let output = stop(&machine.state(), &[]);
    let (printed, remarks) = text(&output);
    assert_eq!(output.status.code(), Some(0), "{printed}{remarks}");
    assert_eq!((finalized(&machine), machine.processes()), (1, vec![]));
    assert!(remarks.starts_with("no operator runs in /"), "{remarks}");
    assert!(remarks.contains(LEFT) && remarks.contains(ENDING), "{remarks}");
    assert!(printed.ends_with(" leftovers ended; no process is left\n"), "{printed}");
    let again = stop(&machine.state(), &[]);
    assert_eq!(again.status.code(), Some(3));
    assert!(text(&again).1.starts_with("swarm: no pool runs in /"));
}

#[test]
fn what_a_killed_operator_left_is_seen_and_killed() {
    let machine = killed("{stopTimeout: 10m}", NEVER);
    let output = status(&machine);
    let (printed, sentence) = text(&output);
    assert_eq!((output.status.code(), &*printed), (Some(3), ""));
    assert!(sentence.starts_with("swarm: no operator runs in /"), "{sentence}");
    assert!(sentence.contains(LEFT) && sentence.contains(ENDING), "{sentence}");
    let output = stop(&machine.state(), &["--timeout", "1s"]);
    let sentence = text(&output).1;
    assert_eq!(output.status.code(), Some(1), "{sentence}");
    assert!(sentence.contains(" has not ended within 1s; 1 worker and "), "{sentence}");
    assert!(sentence.contains("write `swarm stop --now --dir /"), "{sentence}");
    assert!(!machine.workers().is_empty());
    let output = stop(&machine.state(), &["--now"]);
    let (printed, remarks) = text(&output);
    assert_eq!(output.status.code(), Some(0), "{remarks}");
    assert!(printed.contains(": 1 killed as asked: rec on w-0; "), "{printed}");
    assert!(printed.ends_with("; no process is left\n"), "{printed}");
    assert_eq!(machine.processes(), []);
}

#[test]
fn a_start_says_what_it_waits_for_and_names_what_a_guard_had_to_kill() {
    let machine = killed("{stopTimeout: 3s}", NEVER);
    let next = machine.started();
    let output = next.prints("; the pool starts after that\n");
    assert!(output.contains(LEFT) && output.contains(ENDING), "{output}");
    let expected = "of an earlier run, 1 did not end in time, killed: rec on w-0\n";
    until("the job is named", || next.complaints().ends_with(expected).then_some(()));
    next.prints("settled in");
    next.signal(Signal::QUIT);
}

#[test]
fn a_start_that_waits_answers_and_takes_signals() {
    let machine = killed("{stopTimeout: 10m}", NEVER);
    let mut next = machine.started();
    next.prints("; the pool starts after that\n");
    let output = status(&machine);
    assert_eq!(output.status.code(), Some(3), "no job runs yet");
    let (printed, _) = text(&output);
    assert!(printed.starts_with("recorders: starting: 1 worker and "), "{printed}");
    assert!(printed.contains(ENDING), "{printed}");
    let file = machine.file();
    for words in [&["ps"][..], &["ps", "-w", "w-7"], &["plan", file.to_str().unwrap()]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_swarm"));
        let output = command.args(words).arg("--dir").arg(machine.state()).output().unwrap();
        let (printed, complaint) = text(&output);
        assert_eq!((output.status.code(), &*printed), (Some(1), ""), "{words:?}: {complaint}");
        assert!(complaint.contains(" is starting: 1 worker and "), "{complaint}");
        assert!(complaint.contains(ENDING), "{complaint}");
    }
    next.signal(Signal::INT);
    let output = next.prints("the pool does not start; 1 worker and ");
    assert!(output.ends_with("; Ctrl-C kills them\n"), "{output}");
    let output = stop(&machine.state(), &["--timeout", "1s"]);
    assert!(text(&output).1.contains(" has not ended within 1s"), "{:?}", text(&output));
    next.signal(Signal::INT);
    assert_eq!(next.ended().code(), Some(0), "{}", next.complaints());
    assert!(next.complaints().contains("killed as asked: rec on w-0\n"), "{}", next.complaints());
    assert_eq!(machine.processes(), []);
}

/// Both wait for the same processes, and one of them ends them.
#[test]
fn two_stops_at_once_both_return_when_nothing_is_left() {
    let machine = killed("{stopTimeout: 40s}", SLOW);
    let state = machine.state();
    let codes = std::thread::scope(|scope| {
        let stops = [(); 2].map(|()| scope.spawn(|| stop(&state, &[]).status.code()));
        stops.map(|stop| stop.join().unwrap())
    });
    assert_eq!((codes, finalized(&machine)), ([Some(0), Some(0)], 1));
    assert_eq!(machine.processes(), []);
}
