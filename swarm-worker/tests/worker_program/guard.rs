//! Tests with real processes, killed and frozen: every process of a job ends with its worker.

#![expect(
    clippy::unwrap_used,
    reason = "clippy allows it in test functions only, and all of this is a test"
)]

mod hidden;
mod job_groups;
mod line;
pub(crate) mod machine;
mod oom;
mod output;
mod signals;
mod stopping;

use std::collections::BTreeSet;

use rustix::process::Signal;
use swarm_adapters_host::runlog::boottime_ns;

use line::Line;
use machine::{Machine, Who, seconds, sleepers, until};

/// A first process with a child in its own session. The child's parent has ended.
const DAEMON: &str = "(setsid sleep 600 & :); exec sleep 600";

fn joined_with(job: &str, end: &str, output: &str) -> String {
    format!(r#"{{"is":"joined","job":"{job}","end":{end},"output":{output}}}"#)
}

fn joined(job: &str, end: &str) -> String {
    format!(r#"{{"is":"joined","job":"{job}","end":{end}}}"#)
}

#[test]
fn a_job_that_ignores_sigterm_is_killed_after_its_grace_and_others_run_on() {
    let mut guard = Line::start("term");
    guard.start_job("deaf", "trap '' TERM; touch $0.ready; while :; do sleep 0.01; done");
    guard.start_job("other", "exec sleep 600");
    until("it is deaf", || guard.path("deaf.ready").exists().then_some(()));
    guard.send(r#"{"do":"stop","job":"deaf","grace_ms":50}"#);
    assert_eq!(guard.reply(), r#"{"is":"killing","job":"deaf"}"#);
    assert_eq!(guard.reply(), joined("deaf", r#"{"signal":9}"#));
    assert_eq!(guard.processes().len(), 2, "the guard and the other job");
    guard.end();
}

#[test]
fn a_job_is_joined_only_when_its_daemons_are_gone_too() {
    let mut guard = Line::start("daemon");
    guard.start_job("d", &DAEMON.replace("exec sleep 600", "exit 3"));
    assert_eq!(guard.reply(), joined("d", r#"{"code":3},"left":1"#));
    assert_eq!(guard.processes().len(), 1, "the guard");
    // A daemon that also hides its marks.
    let seconds = seconds(605);
    guard.start_job("h", &format!("(env -i setsid sleep {seconds} & :); exec sleep 600"));
    until("it hides", || (sleepers(&seconds) == 1).then_some(()));
    guard.send(r#"{"do":"stop","job":"h","grace_ms":2000}"#);
    assert_eq!(guard.reply(), joined("h", r#"{"signal":15}"#));
    assert_eq!(sleepers(&seconds), 0);
    guard.end();
}

#[test]
fn a_job_that_floods_its_output_can_be_stopped() {
    let mut guard = Line::start("flood");
    guard.start_job("loud", "exec yes");
    until("it is heard", || guard.log().contains("loud: y\nloud: y\n").then_some(()));
    guard.send(r#"{"do":"ping","number":7}"#);
    assert_eq!(guard.reply(), r#"{"is":"pong","number":7}"#);
    guard.send(r#"{"do":"stop","job":"loud","grace_ms":5000}"#);
    let last = r#"["y","y","y","y","y"]"#;
    assert_eq!(guard.reply(), joined_with("loud", r#"{"signal":15}"#, last));
    guard.end();
}

#[test]
fn a_job_that_fails_is_joined_with_the_last_lines_of_its_output() {
    let mut guard = Line::start("last");
    guard.start_job("f", "seq 9; printf 'no such camera' >&2; exit 3");
    let last = r#"["6","7","8","9","no such camera"]"#;
    assert_eq!(guard.reply(), joined_with("f", r#"{"code":3}"#, last));
    guard.end();
}

#[test]
fn a_program_that_does_not_exist_is_refused_in_a_sentence() {
    let mut guard = Line::start("missing");
    for program in ["no-such-program", "/no/such/program", "/etc/passwd"] {
        guard.send(&format!(
            r#"{{"do":"start","job":"m","token":1,"argv":["{program}"],"env":{{}},"grace_ms":0}}"#
        ));
        let reply = guard.reply();
        assert!(reply.starts_with(r#"{"is":"refused","job":"m","reason":""#), "{reply}");
        assert!(reply.contains(program) && reply.contains("program"), "{reply}");
    }
    let mut in_pod = Line::start_with(
        "missing-in-pod",
        &[("SWARM_IMAGE", "camera:7"), ("SWARM_CONTAINER", "worker")],
    );
    in_pod.send(
        r#"{"do":"start","job":"m","token":1,"argv":["no-such-ffmpeg"],"env":{},"grace_ms":0}"#,
    );
    let expected = "program `no-such-ffmpeg` is not in the image `camera:7` of container `worker`";
    let reply = in_pod.reply();
    assert!(reply.contains(expected), "{reply}");
    in_pod.end();
    guard.end();
}

#[test]
fn a_job_finds_what_it_needs_in_its_environment() {
    let mut guard = Line::start("environment");
    guard.start_job("e", "echo $SWARM_JOB $SWARM_TOKEN $SWARM_WORKER $SWARM_SESSION; cat");
    let said = format!(r#"["e 7 w-0 {}"]"#, guard.session);
    assert_eq!(guard.reply(), joined_with("e", r#"{"code":0}"#, &said));
    let expected = format!("e: e 7 w-0 {}\n", guard.session);
    until("the reply", || guard.log().contains(&expected).then_some(()));
    guard.end();
}

/// The environment of a worker may contain secrets, and a job must not get them by chance.
#[test]
fn a_job_inherits_what_is_listed_and_what_it_names_and_nothing_else() {
    let variables = [
        ("LC_ALL", "C"),
        ("TZ", "UTC"),
        ("AWS_SECRET_ACCESS_KEY", "of the worker"),
        ("SWARM_PARAM_PASSWORD", "of another job"),
        ("PROXY", "named"),
    ];
    let mut guard = Line::start_with("inherited", &variables);
    let path = guard.path("variables");
    let script = serde_json::to_string(&format!("env > {}", path.display())).unwrap();
    guard.send(&format!(
        r#"{{"do":"start","job":"v","token":7,"argv":["sh","-c",{script}],"env":{{"OWN":"1"}},"inherit":["PROXY","NONE"],"grace_ms":5000}}"#
    ));
    assert!(guard.reply().contains("started"));
    assert!(guard.reply().contains("joined"));
    let found = std::fs::read_to_string(path).unwrap();
    let names: BTreeSet<_> =
        found.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    let expected = [
        "LC_ALL",
        "TZ",
        "PROXY",
        "OWN",
        "PATH",
        "SWARM_JOB",
        "SWARM_TOKEN",
        "SWARM_WORKER",
        "SWARM_SESSION",
    ];
    let missing: Vec<_> = expected.iter().filter(|name| !names.contains(*name)).collect();
    assert!(missing.is_empty(), "{missing:?} of {found}");
    let listed = [
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "LANGUAGE",
        "TMPDIR",
        "LD_LIBRARY_PATH",
        "SWARM_RUN",
        "SWARM_INSTANCE",
        "SWARM_DIR",
        // The shell sets these variables itself.
        "PWD",
        "OLDPWD",
        "SHLVL",
        "_",
    ];
    let is_other = |name: &&&str| {
        !expected.contains(name) && !listed.contains(name) && !name.starts_with("LC_")
    };
    assert_eq!(names.iter().filter(is_other).count(), 0, "{names:?}");
    guard.end();
}

#[test]
fn jobs_end_at_the_deadline_unless_it_moves_and_run_again_when_it_does() {
    let mut guard = Line::start("deadline");
    let deadline = |ms: u64| {
        format!(r#"{{"do":"deadline","boottime_ns":{}}}"#, boottime_ns() + ms * 1_000_000)
    };
    guard.send(&deadline(60_000));
    guard.start_job("a", DAEMON);
    guard.send(&deadline(300));
    // From here on the worker could be frozen.
    let began = boottime_ns();
    assert_eq!(guard.reply(), joined("a", r#"{"signal":9}"#));
    let took_ms = (boottime_ns() - began) / 1_000_000;
    assert!((250..2_000).contains(&took_ms), "{took_ms} ms");
    assert_eq!(guard.processes().len(), 1, "the guard");
    guard.send(r#"{"do":"start","job":"a","token":1,"argv":["true"],"env":{},"grace_ms":0}"#);
    let reply = guard.reply();
    assert!(reply.contains("jobs may act has passed"), "{reply}");
    guard.send(&deadline(60_000));
    guard.start_job("a", "exec sleep 600");
    guard.end();
}

#[test]
fn everything_is_in_the_run_log_and_stops_are_written_after_the_end() {
    let mut guard = Line::start("log");
    guard.start_job("a", DAEMON);
    until("a sign of life", || guard.run_log().contains(r#""alive":"#).then_some(()));
    assert!(!guard.run_log().contains("stop"));
    guard.close();
    let log = guard.run_log();
    let last: Vec<_> = log.lines().rev().take(2).collect();
    assert!(last[0].ends_with(r#""event":"end"}"#), "{log}");
    assert!(last[1].contains(r#""event":"stop","job":"a","worker":"w-0","session":""#), "{log}");
}

/// Sends the signals of each case to a separate worker, in a separate thread, and checks the
/// result.
fn in_every_case(cases: &[&[(Who, Signal)]], comes_of_it: impl Fn(&Machine) + Sync) {
    std::thread::scope(|scope| {
        let comes_of_it = &comes_of_it;
        for case in cases {
            scope.spawn(move || {
                let machine = Machine::start(DAEMON);
                machine.until_the_job_runs_again(&[]);
                for (who, signal) in *case {
                    machine.signal(*who, *signal);
                }
                comes_of_it(&machine);
            });
        }
    });
}

const KILL: Signal = Signal::KILL;
const STOP: Signal = Signal::STOP;

#[test]
fn the_survivors_end_everything_when_others_are_killed_or_frozen() {
    let cases: &[&[(Who, Signal)]] = &[
        &[(Who::Worker, KILL)],
        &[(Who::Operator, KILL)],
        &[(Who::Operator, KILL), (Who::Worker, KILL)],
        &[(Who::Operator, STOP), (Who::Worker, KILL)],
        &[(Who::Guard, KILL), (Who::Operator, KILL)],
        &[(Who::Guard, STOP), (Who::Operator, KILL)],
    ];
    in_every_case(cases, |machine| {
        until("nothing is left", || machine.all_but(Who::Operator).is_empty().then_some(()));
    });
}

#[test]
fn a_worker_whose_guard_is_killed_or_frozen_ends_its_jobs_and_runs_them_again() {
    let cases: &[&[(Who, Signal)]] = &[
        &[(Who::Guard, KILL)],
        &[(Who::Guard, STOP)],
        &[(Who::Operator, STOP), (Who::Guard, KILL)],
        &[(Who::Operator, STOP), (Who::Guard, STOP)],
    ];
    in_every_case(cases, |machine| {
        let before = machine.jobs_at_first();
        machine.until_the_job_runs_again(&before);
        let log = machine.run_log();
        let events: Vec<_> = log.lines().filter(|line| line.contains(r#""job":"#)).collect();
        let is = |line: &str, event: &str| line.contains(&format!("\"event\":\"{event}\""));
        assert!(is(events[0], "start") && is(events[1], "stop") && is(events[2], "start"), "{log}");
    });
}

#[test]
fn a_process_without_the_mark_ends_too_when_the_guard_is_killed_or_frozen() {
    for (number, signal) in [(601, KILL), (602, STOP)] {
        let seconds = seconds(number);
        let machine = Machine::start(&format!("setsid env -i sleep {seconds} & exec sleep 600"));
        until("the process without the mark", || (sleepers(&seconds) == 1).then_some(()));
        machine.signal(Who::Guard, signal);
        // The job runs again only once nothing of its previous run is left.
        let log = || machine.run_log().matches(r#""event":"start""#).count();
        until("the job runs again", || (log() == 2).then_some(()));
        until("one process without the mark", || (0 < sleepers(&seconds)).then_some(()));
        assert_eq!(sleepers(&seconds), 1);
        machine.signal(Who::Operator, KILL);
        until("nothing is left", || (sleepers(&seconds) == 0).then_some(()));
    }
}

#[test]
fn a_check_of_an_ending_job_does_not_take_the_exit_code_of_a_probe() {
    let mut guard = Line::start("probes");
    guard.start_job("deaf", "trap '' TERM; echo up; while :; do sleep 0.05; done");
    guard.start_job("good", "exec sleep 600");
    until("it ignores SIGTERM", || guard.log().contains("deaf: up").then_some(()));
    guard.send(r#"{"do":"stop","job":"deaf","grace_ms":3600000}"#);
    for number in 0..300 {
        guard.send(r#"{"do":"probe","job":"good","argv":["true"]}"#);
        assert_eq!(guard.reply(), r#"{"is":"probed","job":"good","end":{"code":0}}"#, "{number}");
    }
    guard.end();
}

#[test]
fn leftover_processes_end_with_the_next_sweep() {
    let cases: &[&[(Who, Signal)]] = &[
        &[(Who::Guard, STOP), (Who::Worker, KILL)],
        &[(Who::Guard, KILL), (Who::Worker, STOP)],
        &[(Who::Guard, STOP), (Who::Worker, STOP)],
        &[(Who::Guard, STOP), (Who::Worker, STOP), (Who::Operator, KILL)],
        &[(Who::Guard, STOP), (Who::Worker, STOP), (Who::Operator, STOP)],
        &[(Who::Worker, STOP), (Who::Guard, KILL), (Who::Operator, KILL)],
    ];
    in_every_case(cases, |machine| {
        // The kernel may wake a frozen guard whose worker was killed (an orphaned process group).
        // The guard then ends everything itself, and the sweep must cope with that.
        machine.sweep();
        assert_eq!(machine.all_but(Who::Operator), []);
    });
}

#[test]
fn a_job_whose_first_process_is_frozen_is_stopped_nevertheless() {
    let mut guard = Line::start("frozen");
    guard.start_job("f", "kill -STOP $$; exit 0");
    guard.send(r#"{"do":"stop","job":"f","grace_ms":60000}"#);
    assert!(guard.reply().starts_with(r#"{"is":"joined","job":"f","#));
    guard.end();
}
