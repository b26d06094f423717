//! Answers of the commands where the pool gives none, and where their reader wants no more.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use rustix::process::Signal;

use super::operator::{Machine, until};
use super::stopping::{NEVER, pool, record, stop, text};

/// Runs a command that must end with this code, and returns its complaint.
fn complaint(machine: &Machine, words: &[&str], code: i32) -> String {
    let output = machine.run(words);
    let (printed, complaint) = text(&output);
    assert_eq!((output.status.code(), &*printed), (Some(code), ""), "{words:?}: {complaint}");
    complaint
}

#[test]
fn an_operator_without_a_socket_is_named_and_stopped() {
    for words in [&["--now"][..], &[]] {
        let machine = Machine::new();
        let mut operator = machine.settled();
        let socket = machine.state().join("api.sock");
        fs::remove_file(&socket).unwrap();
        // The operator does not replace another file.
        fs::write(&socket, "").unwrap();
        let file = machine.file();
        for words in [&["status"][..], &["ps"], &["plan", file.to_str().unwrap()]] {
            let complaint = complaint(&machine, words, 1);
            let process = format!("(process {})", operator.pid());
            assert!(complaint.contains("an operator runs in /"), "{complaint}");
            assert!(complaint.contains(&process), "{complaint}");
            assert!(complaint.contains("end it with `swarm stop --dir /"), "{complaint}");
        }
        let output = stop(&machine.state(), words);
        let (printed, complaint) = text(&output);
        assert_eq!(output.status.code(), Some(0), "{complaint}");
        assert!(printed.ends_with("no process is left\n"), "{printed}");
        assert_eq!(operator.ended().code(), Some(0));
        assert_eq!(machine.processes(), []);
    }
}

#[test]
fn a_socket_that_was_removed_is_there_again_soon() {
    let machine = Machine::new();
    let operator = machine.settled();
    fs::remove_file(machine.state().join("api.sock")).unwrap();
    let output = machine.run(&["status"]);
    assert_eq!(output.status.code(), Some(0), "{:?}", text(&output));
    operator.signal(Signal::QUIT);
}

/// The shell makes its program ignore SIGINT and SIGQUIT.
#[test]
fn a_pool_in_the_background_of_a_script_is_killed_at_once() {
    let machine = pool(1, "{stopTimeout: 10m}", NEVER, "{name: deaf}");
    let operator = machine.started_by(&["sh", "-c", "\"$@\" & wait", "sh"]);
    operator.prints("settled in");
    record(&machine, 1);
    let output = stop(&machine.state(), &["--now"]);
    let (printed, complaint) = text(&output);
    assert_eq!(output.status.code(), Some(0), "{complaint}");
    assert!(printed.contains("1 killed as asked: deaf on w-0"), "{printed}");
    // An operator that is killed itself prints nothing.
    operator.prints("ended in");
    assert_eq!(machine.processes(), []);
}

#[test]
fn a_log_of_no_worker_is_refused() {
    let machine = Machine::new();
    let mut operator = machine.settled();
    for worker in ["swarm-worker-7", "../run", "operator"] {
        let words = ["logs", "stream:cars:new", "-w", worker];
        let said = complaint(&machine, &words, 3);
        let expected = format!("has no worker `{worker}`; it has swarm-worker-0, ");
        assert!(said.contains(&expected), "{said}");
    }
    operator.signal(Signal::TERM);
    operator.ended();
    let said = complaint(&machine, &["logs", "stream:cars:new", "-w", "../run"], 3);
    assert!(said.ends_with("/logs has no log of a worker `../run`\n"), "{said}");
}

#[test]
fn a_followed_log_ends_with_its_reader() {
    let machine = Machine::new();
    let operator = machine.settled();
    let mut command = Command::new(env!("CARGO_BIN_EXE_swarm"));
    command.args(["logs", "stream:cars:new", "-f", "--dir"]).arg(machine.state());
    let mut logs = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(logs.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains(" started "), "{line}");
    let ended = until("the command has ended", || logs.try_wait().unwrap());
    assert_eq!(ended.code(), Some(0));
    operator.signal(Signal::QUIT);
}

#[test]
fn an_attached_view_ends_with_its_reader() {
    let machine = Machine::new();
    let operator = machine.settled();
    let mut command = Command::new(env!("CARGO_BIN_EXE_swarm"));
    command.args(["attach", "--plain", "--dir"]).arg(machine.state());
    let mut attached = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(attached.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "streams: Settled\n");
    let ended = until("the command has ended", || attached.try_wait().unwrap());
    assert_eq!(ended.code(), Some(0));
    operator.signal(Signal::QUIT);
}

#[test]
fn a_number_of_episodes_limits_every_format_and_a_pipe_gets_whole_causes() {
    let machine = Machine::new();
    let operator = machine.settled();
    let count = |words: &[&str], list: &str| {
        machine.document(&[&["history"], words].concat())[list].as_array().unwrap().len()
    };
    assert!(0 < count(&[], "episodes"));
    assert_eq!(count(&["-n", "1"], "episodes"), 1);
    assert_eq!(count(&["stream:cars:new"], "moves"), 1);
    assert_eq!(machine.run(&["history", "-n", "0"]).status.code(), Some(2));
    let shown = machine.asks(&["history"]);
    assert!(!shown.contains("has the whole causes"), "{shown}");
    operator.signal(Signal::QUIT);
}

#[test]
fn colors_that_are_asked_for_are_in_titles_and_states() {
    const GREEN: &str = "\u{1b}[32m";
    const BOLD: &str = "\u{1b}[1m";
    let machine = Machine::new();
    let operator = machine.settled();
    for words in [&["status"][..], &["ps"], &["explain", "stream:cars:new"], &["diff", "0"]] {
        let plain = machine.asks(words);
        let colored = machine.asks(&[words, &["--color=always"]].concat());
        assert!(!plain.contains('\u{1b}') && colored.contains(BOLD), "{plain}{colored}");
        assert_eq!(colored.contains(GREEN), words != ["diff", "0"], "{colored}");
    }
    operator.signal(Signal::QUIT);
}

const OTHER: &str = "has the state of pool `streams`";

#[test]
fn the_directory_of_another_pool_is_refused_and_keeps_its_state() {
    let machine = Machine::new();
    let file = machine.file();
    let plan = ["plan", file.to_str().unwrap()];
    let mut operator = machine.settled();
    machine.edit("kind: Swarm\nmetadata:\n  name: streams", "kind: Swarm\nmetadata:\n  name: b");
    let said = complaint(&machine, &plan, 2);
    assert!(said.contains(OTHER), "{said}");
    operator.signal(Signal::TERM);
    operator.ended();
    let said = complaint(&machine, &plan, 2);
    assert!(said.contains(OTHER), "{said}");
    let ledger = fs::read_to_string(machine.state().join("ledger.json")).unwrap();
    let output = machine.output(&["--until-settled"]);
    let said = text(&output).1;
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains(OTHER), "{said}");
    assert_eq!(fs::read_to_string(machine.state().join("ledger.json")).unwrap(), ledger);
    machine.edit("name: b", "name: streams");
    assert_eq!(machine.output(&["--until-settled"]).status.code(), Some(0));
}

#[test]
fn a_plan_refuses_what_the_pool_refuses_in_the_same_sentence() {
    let machine = pool(1, "{stopTimeout: 5s}", NEVER, "{name: a}");
    let operator = machine.settled();
    let file = machine.file();
    let plan = ["plan", file.to_str().unwrap()];
    let edits = [
        ("{stopTimeout: 5s}", "{stopTimeout: 30s}", "spec.handover.stopTimeout: it cannot change"),
        ("statefulSet: {name: w}", "statefulSet: {name: v}", "the name of its pool cannot change"),
    ];
    for (from, to, expected) in edits {
        machine.edit(from, to);
        let planned = complaint(&machine, &plan, 2);
        assert!(planned.contains(expected), "{planned}");
        let sentence = planned.lines().next().unwrap().trim_start_matches("swarm: ");
        until("the pool refuses it", || operator.complaints().contains(sentence).then_some(()));
        machine.edit(to, from);
    }
    assert_eq!(machine.run(&plan).status.code(), Some(0));
    operator.signal(Signal::QUIT);
}
