//! Tests of the way in which a job is asked to end: which processes get which signal, and when.

use crate::guard::joined;
use crate::guard::line::Line;
use crate::guard::machine::until;

/// Half of this grace is longer than any test may take.
const NEVER_MS: u64 = 1_000_000;
/// The processes get SIGTERM after half of this grace.
const HALF_MS: u64 = 20_000;

/// A server whose child has a task: the server asks the child to end after it, and a signal to the
/// child breaks the task off.
const PREFORK: &str = r#"
    sh -c 'trap "echo interrupted; exit 1" TERM; touch $0.ready
           while [ ! -e $0.asked ]; do sleep 0.01; done; sleep 0.2; echo complete' $0 &
    trap 'touch $0.asked' TERM
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
        sh -c 'trap "echo asked; exit 0" TERM; touch $0.ready
               while :; do sleep 0.01; done' $0 &
        trap 'exit 5' INT
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
        sh -c 'trap "touch $0.half; exit 0" TERM; touch $0.ready
               while :; do sleep 0.01; done' $0 &
        n=; trap 'n=x$n; [ $n = x ] || exit 9' TERM
        while [ ! -e $0.half ]; do sleep 0.01; done
        sleep 0.3; echo finalised; exit 0"#;
    let mut guard = started("twice", script);
    stop(&mut guard, HALF_MS, r#"{"to":"Main"}"#);
    let reply = guard.reply();
    assert!(reply.starts_with(r#"{"is":"joined","job":"j","end":{"code":0}"#), "{reply}");
    guard.until_log_has("j: finalised\n");
    guard.end();
}
