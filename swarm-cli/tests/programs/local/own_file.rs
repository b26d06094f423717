//! The program's own file, which is replaced, removed or not executable while a pool runs.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use rustix::process::Signal;

use crate::local::ends::{copy_program, started_by};
use crate::local::operator::{Machine, Operator, signal, until};
use crate::local::{gone, loads};

/// The program that the operator runs from, in the directory of a test.
fn program(machine: &Machine) -> PathBuf {
    machine.path().join("swarm")
}

/// Starts an operator from a file of its own, and waits until its pool is settled.
fn settled(machine: &Machine) -> Operator<'_> {
    copy_program(env!("CARGO_BIN_EXE_swarm"), &program(machine), 0o755);
    let operator = started_by(machine, &[], &program(machine));
    operator.prints("settled in");
    operator
}

/// Kills a worker, and waits until another process has its jobs.
fn replaced(machine: &Machine, worker: &str) {
    let killed = machine.workers()[worker];
    signal(killed, Signal::KILL);
    until("another process is the worker", || {
        machine.workers().get(worker).filter(|pid| **pid != killed).map(|_| ())
    });
    loads(machine, 3);
}

#[test]
fn a_worker_is_replaced_after_the_file_of_the_program_was_removed() {
    let machine = Machine::new();
    let operator = settled(&machine);
    fs::remove_file(program(&machine)).unwrap();
    replaced(&machine, "swarm-worker-0");
    // The worker has the name of the program in lists of processes.
    let pid = machine.workers()["swarm-worker-0"];
    assert_eq!(fs::read_to_string(format!("/proc/{pid}/comm")).unwrap(), "swarm\n");
    let words = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
    assert!(words.starts_with(program(&machine).to_str().unwrap()), "{words}");
    drop(operator);
    gone(&machine);
}

#[test]
fn status_has_the_reason_why_a_worker_cannot_be_started() {
    let machine = Machine::new();
    let operator = settled(&machine);
    let file = program(&machine);
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    signal(machine.workers()["swarm-worker-0"], Signal::KILL);
    let expected = format!("cannot be started: {}: Permission denied", file.display());
    let expected = format!("✗ swarm-worker-0 {expected}");
    let status = until("the reason is in the status", || {
        Some(machine.asks(&["status"])).filter(|it| it.contains(&expected))
    });
    assert!(status.contains("; trying it again\n"), "{status}");
    fs::set_permissions(&file, Permissions::from_mode(0o755)).unwrap();
    loads(&machine, 3);
    until("the problem is over", || {
        (!machine.asks(&["status"]).contains("cannot be started")).then_some(())
    });
    drop(operator);
    gone(&machine);
}

#[test]
fn status_and_check_name_an_operator_whose_program_was_replaced() {
    let machine = Machine::new();
    let operator = settled(&machine);
    let file = program(&machine);
    let new = machine.path().join("swarm.new");
    assert!(machine.run(&["status"]).stderr.is_empty());
    fs::copy(&file, &new).unwrap();
    fs::rename(&new, &file).unwrap();
    let output = machine.run(&["status"]);
    let said = String::from_utf8(output.stderr).unwrap();
    let shown = file.display();
    let expected =
        format!("the operator runs the program that was in {shown} until it was replaced at 2");
    assert!(
        said.contains(&expected) && said.contains("stop the pool and start it again"),
        "{said}"
    );
    assert_eq!(output.status.code(), Some(0), "the pool is healthy");
    let check = machine.asks(&["check"]);
    assert!(check.contains(&expected), "{check}");
    fs::remove_file(&file).unwrap();
    let said = String::from_utf8(machine.run(&["status"]).stderr).unwrap();
    assert!(
        said.contains(&format!("runs a program whose file {shown} was removed; it runs on")),
        "{said}"
    );
    drop(operator);
    gone(&machine);
}
