//! The view of `attach` on a terminal: it shows and steers a pool that another process runs.

use std::ffi::OsString;

use rustix::process::Signal;

use crate::local::operator::{Machine, until};
use crate::local::terminal::{OPERATOR, Tty};

const MANIFEST: &str = "
apiVersion: swarm.k8slab.info/v1alpha1
kind: Swarm
metadata: {name: recorders}
spec:
  replicas: 1
  pool: {statefulSet: {name: w}}
  worker:
    protocol: Session
    runner: {command: [sh, -c, '{param.cmd}'], restart: {limit: 0}}
  jobs:
  - {name: broken, params: {cmd: 'exit 3'}}
  - {name: garden, params: {cmd: 'printf \"\\\\033[2Jrecording\\\\n\"; exec sleep 1000'}}
";

fn attached(machine: &Machine) -> Tty<'_> {
    let words = [OPERATOR.into(), "attach".into(), "--dir".into(), machine.state().into()];
    Tty::run(machine, &words.map(|word: OsString| word), &[], "")
}

#[test]
fn a_view_of_a_pool_steers_its_jobs_and_leaves_it_running() {
    let machine = Machine::new();
    machine.write(MANIFEST);
    let mut operator = machine.settled();
    let mut tty = attached(&machine);
    let shown = tty.shows("jobs of w-0 2");
    assert!(shown.starts_with(" recorders  ● "), "{shown}");
    assert!(shown.contains(" q detach   ? keys"), "{shown}");
    tty.shows("not restarted any more");
    // Without a selection nothing happens.
    tty.type_in(b"r");
    tty.shows("select a job first");
    tty.type_in(b"\tj\r");
    // The output of a job cannot control the terminal.
    tty.shows("\\u{1b}[2Jrecording");
    tty.shows("params: cmd=printf");
    let shown = tty.shows("phase: running · process ");
    let process = |shown: &str| {
        let (_, rest) = shown.split_once(" · process ")?;
        rest.split_whitespace().next().map(str::to_owned)
    };
    let first = process(&shown).unwrap();
    tty.type_in(b"r");
    tty.shows("stop garden and begin it again?  y: yes   any other key: no");
    tty.type_in(b"n");
    tty.shows(" Esc back");
    assert_eq!(process(&tty.shown()), Some(first.clone()));
    tty.type_in(b"ry");
    tty.shows("asked w-0 to restart garden");
    until("another process runs it", || process(&tty.shown()).filter(|now| *now != first));
    tty.type_in(b"s");
    tty.shows("stop garden until it is resumed?");
    tty.type_in(b"y");
    tty.shows("phase: suspended");
    tty.type_in(b"s");
    tty.shows("resumed garden");
    tty.shows("phase: running");
    // The other job cannot be resumed, only retried.
    tty.type_in(b"\x1b");
    tty.shows("by hand: resumed garden");
    tty.type_in(b"kt");
    tty.shows("asked w-0 to retry broken");
    tty.type_in(b"?");
    tty.shows("detach: the pool goes on");
    tty.type_in(b"\x1b");
    tty.type_in(b"\x03");
    assert_eq!(tty.ended().code(), Some(0));
    tty.shows("detached; the pool goes on");
    assert!(!tty.is_taken());
    assert!(operator.ended_already().is_none());
    operator.signal(Signal::TERM);
    operator.ended();
    assert_eq!(machine.processes(), []);
}

#[test]
fn a_view_ends_with_its_pool() {
    let machine = Machine::new();
    machine.write(MANIFEST);
    let mut operator = machine.settled();
    let mut tty = attached(&machine);
    tty.shows("jobs of w-0 2");
    operator.signal(Signal::TERM);
    operator.ended();
    assert_eq!(tty.ended().code(), Some(0));
    tty.shows("has ended");
    assert!(!tty.is_taken());
    // A pool whose operator was killed leaves processes for a while.
    let mut operator = machine.settled();
    let mut tty = attached(&machine);
    tty.shows("jobs of w-0 2");
    operator.signal(Signal::KILL);
    operator.ended();
    assert_eq!(tty.ended().code(), Some(0));
    assert!(!tty.is_taken());
}
