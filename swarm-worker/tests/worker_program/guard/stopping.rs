//! Tests of the way in which a job is asked to end: which processes get which signal, and when.

use crate::guard::joined;
use crate::guard::line::Line;
use crate::guard::machine::{seconds, sleepers, until};

/// Half of this grace is longer than any test may take.
const NEVER_MS: u64 = 1_000_000;
/// The processes get SIGTERM after half of this grace.
const HALF_MS: u64 = 20_000;

/// A server whose child has a task: the server asks the child to end after it, and a signal to the
/// child breaks the task off.
const PREFORK: &str = r#"
    trap 'touch $0.asked' TERM
    sh -c 'trap "echo interrupted; exit 1" TERM; touch $0.ready
           while [ ! -e $0.asked ]; do sleep 0.01; done; sleep 0.2; echo complete' $0 &
    wait $!; wait $!; exit 0"#;

/// A recorder that finalises at SIGINT only.
const RECORDER: &str = "trap 'echo finalised; exit 0' INT; touch $0.ready; \
                        while :; do sleep 0.01; done";

fn started(name: &str, script: &str) -> Line {
    let mut guard = Line::start(name);
    guard.start_job("j", script);
    until("it is ready", || guard.path("j.ready").exists().then_some(()));
    guard
}

fn stop(guard: &mut Line, grace_ms: u64, way: &str) {
    guard.send(&format!(r#"{{"do":"stop","job":"j","grace_ms":{grace_ms},"way":{way}}}"#));
}

#[test]
fn a_stop_of_the_main_process_leaves_its_children_to_it() {
    let mut guard = started("main", PREFORK);
    stop(&mut guard, NEVER_MS, r#"{"to":"Main"}"#);
    let reply = guard.reply();
    assert!(reply.starts_with(r#"{"is":"joined","job":"j","end":{"code":0}"#), "{reply}");
    guard.until_log_has("j: complete\n");
    guard.end();
    let mut guard = started("all", PREFORK);
    stop(&mut guard, NEVER_MS, "{}");
    guard.until_log_has("j: interrupted\n");
    guard.end();
}

#[test]
fn a_job_gets_the_signal_that_its_way_names() {
    for way in [r#"{"signal":"SIGINT"}"#, r#"{"signal":"SIGINT","to":"Main"}"#] {
        let mut guard = started("int", RECORDER);
        stop(&mut guard, NEVER_MS, way);
        let reply = guard.reply();
        assert!(reply.starts_with(r#"{"is":"joined","job":"j","end":{"code":0}"#), "{reply}");
        guard.until_log_has("j: finalised\n");
        guard.end();
    }
}

#[test]
fn what_the_main_process_leaves_gets_sigterm_as_soon_as_that_has_ended() {
    let script = r#"
        trap 'exit 5' INT
        sh -c 'trap "echo asked; exit 0" TERM; touch $0.ready
               while :; do sleep 0.01; done' $0 &
        while :; do sleep 0.01; done"#;
    let mut guard = started("left", script);
    stop(&mut guard, NEVER_MS, r#"{"signal":"SIGINT","to":"Main"}"#);
    let reply = guard.reply();
    assert!(reply.starts_with(r#"{"is":"joined","job":"j","end":{"code":5}"#), "{reply}");
    guard.until_log_has("j: asked\n");
    guard.end();
}

#[test]
fn a_job_that_ignores_its_signal_gets_sigterm_after_half_of_its_time() {
    let script = "trap '' INT; touch $0.ready; while :; do sleep 0.01; done";
    for way in [r#"{"signal":"SIGINT"}"#, r#"{"signal":"SIGINT","to":"Main"}"#] {
        let mut guard = started("ignores", script);
        stop(&mut guard, HALF_MS, way);
        assert_eq!(guard.reply(), joined("j", r#"{"signal":15}"#), "{way}");
        guard.end();
    }
}

#[test]
fn no_process_gets_sigterm_twice() {
    // The child has SIGTERM after half of the time. The main process would fail at a second one.
    let script = r#"
        n=; trap 'n=x$n; [ $n = x ] || exit 9' TERM
        sh -c 'trap "touch $0.half; exit 0" TERM; touch $0.ready
               while :; do sleep 0.01; done' $0 &
        while [ ! -e $0.half ]; do sleep 0.01; done
        sleep 0.3; echo finalised; exit 0"#;
    let mut guard = started("twice", script);
    stop(&mut guard, HALF_MS, r#"{"to":"Main"}"#);
    let reply = guard.reply();
    assert!(reply.starts_with(r#"{"is":"joined","job":"j","end":{"code":0}"#), "{reply}");
    guard.until_log_has("j: finalised\n");
    guard.end();
}

/// A client of a server: it ends when the server does what the command asks for.
const CLIENT: &str = "trap 'exit 9' TERM; touch $0.ready; \
                      while [ ! -e $0.done ]; do sleep 0.01; done; exit 0";

/// A way to stop a job by a shell with `script`. `$0` is the path of the job.
fn by_command(guard: &Line, script: &str) -> String {
    let path = guard.path("j");
    serde_json::json!({"command": ["sh", "-c", script, path]}).to_string()
}

#[test]
fn a_command_stops_a_job_instead_of_the_signal_and_is_no_process_of_it() {
    let mut guard = started("command", CLIENT);
    // It goes on after it has done its work, so the end of the job has to end it.
    let seconds = seconds(607);
    let script = format!("[ $SWARM_JOB = j ] && touch $0.done; exec sleep {seconds}");
    let way = by_command(&guard, &script);
    stop(&mut guard, NEVER_MS, &way);
    assert_eq!(guard.reply(), joined("j", r#"{"code":0}"#));
    assert_eq!(sleepers(&seconds), 0);
    assert_eq!(guard.processes().len(), 1, "the guard");
    guard.end();
}

#[test]
fn a_command_that_fails_or_cannot_start_is_followed_by_the_signal_at_once() {
    for (command, reason) in [
        (r#"["sh","-c","exit 3"]"#, "it ended with exit code 3"),
        (r#"["no-such-program"]"#, "program `no-such-program`"),
    ] {
        let mut guard = started("fails", RECORDER);
        let way = format!(r#"{{"signal":"SIGINT","to":"Main","command":{command}}}"#);
        stop(&mut guard, NEVER_MS, &way);
        let reply = guard.reply();
        let expected = format!(r#"{{"is":"stop_failed","job":"j","reason":"{reason}"#);
        assert!(reply.starts_with(&expected), "{reply}");
        let reply = guard.reply();
        assert!(reply.starts_with(r#"{"is":"joined","job":"j","end":{"code":0}"#), "{reply}");
        guard.until_log_has("j: finalised\n");
        guard.end();
    }
}

#[test]
fn a_command_that_succeeds_proves_nothing() {
    let mut guard = started("lies", CLIENT);
    stop(&mut guard, HALF_MS, r#"{"command":["true"]}"#);
    assert_eq!(guard.reply(), joined("j", r#"{"code":9}"#), "it got SIGTERM after half");
    guard.end();
}

#[test]
fn a_command_is_killed_with_the_job_when_the_time_is_over() {
    let script = "trap '' TERM; touch $0.ready; while :; do sleep 0.01; done";
    let mut guard = started("late", script);
    let seconds = seconds(608);
    let way = by_command(&guard, &format!("exec sleep {seconds}"));
    stop(&mut guard, 50, &way);
    assert_eq!(guard.reply(), r#"{"is":"killing","job":"j"}"#);
    assert_eq!(guard.reply(), joined("j", r#"{"signal":9}"#));
    assert_eq!(sleepers(&seconds), 0);
    guard.end();
}

#[test]
fn a_second_stop_leaves_the_command_of_the_first_one_what_it_is() {
    let mut guard = started("second", CLIENT);
    // A process of the job would have the whole time to end.
    let script = "trap '' TERM; touch $0.runs; while [ ! -e $0.go ]; do sleep 0.01; done; \
                  touch $0.done; while :; do sleep 0.01; done";
    let way = by_command(&guard, script);
    stop(&mut guard, NEVER_MS, &way);
    until("it runs", || guard.path("j.runs").exists().then_some(()));
    stop(&mut guard, NEVER_MS, &way);
    std::fs::write(guard.path("j.go"), "").unwrap();
    assert_eq!(guard.reply(), joined("j", r#"{"code":0}"#));
    assert_eq!(guard.processes().len(), 1, "the guard");
    guard.end();
}

#[test]
fn a_command_ends_with_its_guard() {
    let mut guard = started("with-guard", CLIENT);
    let seconds = seconds(609);
    let way = by_command(&guard, &format!("exec sleep {seconds}"));
    stop(&mut guard, NEVER_MS, &way);
    until("it runs", || (sleepers(&seconds) == 1).then_some(()));
    guard.close();
    assert_eq!(sleepers(&seconds), 0);
}
