//! Tests of signals to all processes at once, as in a shutdown, and of the signals and limits that
//! jobs inherit.

use std::fs;

use nix::sys::signal::SigSet;
use rustix::process::{Pid, Signal, kill_process};

use crate::guard::line::Line;
use crate::guard::machine::{Machine, Who, until};
use crate::guard::{DAEMON, joined_with};

const ALL: [Signal; 3] = [Signal::TERM, Signal::INT, Signal::HUP];

/// A job that needs a moment to finalise.
const RECORDER: &str = "trap 'sleep 0.2; echo finalized; exit 0' TERM; touch $0.ready; \
                        while :; do sleep 0.01; done";

fn stopped(job: &str) -> String {
    let joined = joined_with(job, r#"{"code":0}"#, r#"["finalized"]"#);
    format!(r#"{},"was_stopped":true}}"#, joined.strip_suffix('}').unwrap())
}

fn process(pid: i32) -> Pid {
    Pid::from_raw(pid).unwrap()
}

#[test]
fn jobs_finalise_when_all_processes_get_a_signal_and_count_as_stopped() {
    for kind in ALL {
        let mut guard = Line::start(&format!("all-{}", kind.as_raw()));
        let pid = guard.start_job("r", RECORDER);
        guard.start_job("other", "exec sleep 600");
        until("it records", || guard.path("r.ready").exists().then_some(()));
        kill_process(guard.pid(), kind).unwrap();
        kill_process(process(pid), Signal::TERM).unwrap();
        assert_eq!(guard.reply(), stopped("r"));
        guard.send(r#"{"do":"ping","number":7}"#);
        assert_eq!(guard.reply(), r#"{"is":"pong","number":7}"#);
        assert_eq!(guard.processes().len(), 2, "the guard and the other job");
        guard.end();
    }
}

#[test]
fn a_job_that_ends_a_moment_before_the_guard_has_the_signal_was_stopped_as_well() {
    // On a busy machine the moment can be too long, so it is tried several times.
    let by_itself = joined_with("r", r#"{"code":0}"#, r#"["finalized"]"#);
    let reply = (0..50).map(|_| reply_to_a_signal_after_the_end()).find(|it| *it != by_itself);
    assert_eq!(reply, Some(stopped("r")), "the signal came after the end");
}

/// Ends a job by a signal, sends the signal to its guard after that, and returns the guard's reply.
fn reply_to_a_signal_after_the_end() -> String {
    let mut guard = Line::start("before");
    let pid = guard.start_job(
        "r",
        "trap 'echo finalized; exit 0' TERM; touch $0.ready; \
                                    while :; do sleep 0.01; done",
    );
    until("it records", || guard.path("r.ready").exists().then_some(()));
    kill_process(process(pid), Signal::TERM).unwrap();
    until("it has ended", || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        (!stat.contains(") S ") && !stat.contains(") R ")).then_some(())
    });
    kill_process(guard.pid(), Signal::TERM).unwrap();
    let reply = guard.reply();
    guard.end();
    reply
}

#[test]
fn a_job_that_gets_a_signal_alone_has_ended_by_itself() {
    let mut guard = Line::start("alone");
    let pid = guard.start_job("r", RECORDER);
    until("it records", || guard.path("r.ready").exists().then_some(()));
    kill_process(process(pid), Signal::TERM).unwrap();
    assert_eq!(guard.reply(), joined_with("r", r#"{"code":0}"#, r#"["finalized"]"#));
    guard.end();
}

/// A job that needs a moment to finalise, and breaks off at a second signal.
const TOUCHY: &str = "n=; trap 'n=x$n; touch $0.got; [ $n = x ] || exit 9' TERM; touch $0.ready; \
                      while [ -z \"$n\" ]; do sleep 0.01; done; \
                      for i in 1 2 3 4 5 6 7 8 9; do sleep 0.05; done; echo finalized; exit 0";

fn stop(guard: &mut Line, job: &str, grace_ms: u64) {
    guard.send(&format!(r#"{{"do":"stop","job":"{job}","grace_ms":{grace_ms}}}"#));
}

/// Sends a signal only to the guard, and waits for an answer. The guard has received the signal by
/// then.
fn signal_guard(guard: &mut Line, kind: Signal) {
    kill_process(guard.pid(), kind).unwrap();
    guard.send(r#"{"do":"ping","number":7}"#);
    assert_eq!(guard.reply(), r#"{"is":"pong","number":7}"#);
}

#[test]
fn a_job_that_a_signal_to_all_has_reached_gets_no_second_one_while_it_finalises() {
    let finalised = (0..50).map(|_| end_after_a_signal_to_all_and_a_stop()).find(|code| *code == 0);
    assert_eq!(finalised, Some(0), "a second signal came each time");
}

/// Returns the exit code of a job that got a signal with its guard, and that its worker stops after
/// that. A busy machine can need more time for this than the guard expects.
fn end_after_a_signal_to_all_and_a_stop() -> i64 {
    let mut guard = Line::start("second");
    let pid = guard.start_job("r", TOUCHY);
    until("it records", || guard.path("r.ready").exists().then_some(()));
    signal_guard(&mut guard, Signal::TERM);
    kill_process(process(pid), Signal::TERM).unwrap();
    until("it finalises", || guard.path("r.got").exists().then_some(()));
    stop(&mut guard, "r", 20_000);
    let reply: serde_json::Value = serde_json::from_str(&guard.reply()).unwrap();
    let code = reply["end"]["code"].as_i64().unwrap();
    if code == 0 {
        guard.until_log_has("r: finalized\n");
    }
    guard.end();
    code
}

#[test]
fn a_job_that_no_signal_has_reached_is_asked_to_end_after_half_of_its_time() {
    let mut guard = Line::start("half");
    guard.start_job("r", RECORDER);
    until("it records", || guard.path("r.ready").exists().then_some(()));
    signal_guard(&mut guard, Signal::TERM);
    stop(&mut guard, "r", 20_000);
    let reply = guard.reply();
    assert!(reply.contains(r#""end":{"code":0}"#), "{reply}");
    guard.until_log_has("r: finalized\n");
    guard.end();
}

#[test]
fn a_job_that_cannot_have_been_reached_by_the_guards_signal_is_asked_at_once() {
    // The first program ignores SIGHUP. The second has no handler, so SIGTERM would have ended it.
    for (kind, run) in [
        (
            Signal::HUP,
            "trap '' HUP; trap 'echo finalized; exit 0' TERM; touch $0.ready; \
                       while :; do sleep 0.01; done",
        ),
        (Signal::TERM, "touch $0.ready; while :; do sleep 0.01; done"),
    ] {
        let mut guard = Line::start(&format!("unreached-{}", kind.as_raw()));
        guard.start_job("r", run);
        until("it records", || guard.path("r.ready").exists().then_some(()));
        signal_guard(&mut guard, kind);
        // Half of this grace is longer than any test may take.
        stop(&mut guard, "r", 1_000_000);
        let reply = guard.reply();
        assert!(reply.contains(r#""is":"joined""#), "{reply}");
        guard.end();
    }
}

#[test]
fn a_worker_with_an_operator_takes_no_signal_for_an_order() {
    let machine = Machine::start(DAEMON);
    machine.until_the_job_runs_again(&[]);
    for kind in ALL {
        machine.signal(Who::Worker, kind);
        machine.signal(Who::Guard, kind);
    }
    // SIGINT may be ignored already: the shell starts the worker in the background.
    until("it has seen a signal", || machine.log().contains("SIGHUP is ignored").then_some(()));
    assert!(machine.log().contains("SIGTERM is ignored"), "{}", machine.log());
    machine.the_job_runs_still();
    assert!(!machine.log().contains("draining"), "{}", machine.log());
}

/// Returns the signals that a process blocks and the signals that it ignores, from its status.
fn of_signals(status: &str) -> (u64, u64) {
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.split_once(name)).unwrap();
        u64::from_str_radix(line.1.trim(), 16).unwrap()
    };
    (of("SigBlk:"), of("SigIgn:"))
}

fn bit(signal: Signal) -> u64 {
    1 << (signal.as_raw() - 1)
}

#[test]
fn a_job_starts_with_default_signals_and_the_limit_of_the_caller_whatever_that_has_set() {
    // A child inherits the mask of the thread that starts it.
    let mut blocked = SigSet::all();
    blocked.remove(nix::sys::signal::Signal::SIGCHLD);
    blocked.thread_block().unwrap();
    let mut guard = Line::start_from_shell("inherits", "trap '' HUP INT QUIT USR1; ulimit -Sn 100");
    SigSet::empty().thread_set_mask().unwrap();
    guard.start_job("j", "grep Sig /proc/self/status; ulimit -Sn; exec sleep 600");
    until("the limit", || guard.log().contains("j: 100\n").then_some(()));
    // Two signals belong to the C library, which lets no program change them.
    let (blocks, ignores) = of_signals(&guard.log());
    assert_eq!((blocks, ignores & !(0b11 << 31)), (0, 0), "{}", guard.log());
    let own = |name: &str| fs::read_to_string(format!("/proc/{}/{name}", guard.pid())).unwrap();
    let (blocks, ignores) = of_signals(&own("status"));
    let of_caller = bit(Signal::HUP) | bit(Signal::INT) | bit(Signal::QUIT);
    assert_eq!((blocks, ignores & of_caller), (0, of_caller));
    let limits = own("limits");
    let files = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    let words: Vec<_> = files.split_whitespace().collect();
    assert_eq!(words[0], words[1], "the soft one is the hard one");
    // The guard ignores this signal, so it does not count for the jobs.
    kill_process(guard.pid(), Signal::HUP).unwrap();
    guard.send(r#"{"do":"stop","job":"j","grace_ms":5000}"#);
    let reply = guard.reply();
    assert!(reply.contains(r#""signal":15"#) && !reply.contains("was_stopped"), "{reply}");
    guard.end();
}

/// Starts a shell that prints its niceness and its soft limit of open files, with these limits.
fn limited(guard: &mut Line, limits: &str) -> String {
    let script = "cut -d' ' -f19 /proc/self/stat; ulimit -Sn; exec sleep 600";
    guard.send(&format!(
        r#"{{"do":"start","job":"j","token":7,"argv":["sh","-c","{script}"],"env":{{}},"grace_ms":0,"limits":{limits}}}"#
    ));
    guard.reply()
}

#[test]
fn a_job_has_the_niceness_and_the_limit_of_open_files_of_its_runner() {
    let mut guard = Line::start("limits");
    let reply = limited(&mut guard, r#"{"nice":19,"open_files":77}"#);
    assert!(reply.starts_with(r#"{"is":"started""#) && !reply.contains("warning"), "{reply}");
    guard.until_log_has("j: 19\nj: 77\n");
    guard.end();
}

#[test]
fn more_open_files_than_the_hard_limit_are_refused() {
    let mut guard = Line::start_from_shell("refused", "ulimit -n 200");
    let reply = limited(&mut guard, r#"{"open_files":201}"#);
    for part in [r#""is":"refused""#, "openFiles: 201 is above the hard limit", " is 200; "] {
        assert!(reply.contains(part), "{part}: {reply}");
    }
    guard.end();
}

#[test]
fn a_guard_locks_with_its_worker_and_a_successor_waits_for_both() {
    let lock = tempfile::NamedTempFile::new().unwrap();
    let other = || fs::File::options().append(true).open(lock.path()).unwrap();
    let mut guard = Line::start_locked("lock", lock.path());
    guard.start_job("a", "exec sleep 600");
    assert!(other().try_lock().is_err(), "the guard has it");
    let held = other();
    held.try_lock_shared().unwrap();
    guard.close();
    assert!(other().try_lock().is_err(), "the worker has it");
    drop(held);
    // A child of another test has this process's files until it has become its program.
    until("nobody has it", || other().try_lock().ok());
}

#[test]
fn a_guard_that_cannot_lock_with_its_worker_starts_no_job() {
    let lock = tempfile::NamedTempFile::new().unwrap();
    let successor = lock.as_file();
    successor.try_lock().unwrap();
    let guard = Line::start_locked("locked", lock.path());
    until("it gives up", || guard.log().contains("another worker uses it").then_some(()));
}
