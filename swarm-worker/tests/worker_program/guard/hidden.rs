//! Tests with processes that hide from their job: outside its group, and without its marks in their
//! environment.

use std::time::{Duration, Instant};

use crate::guard::joined;
use crate::guard::line::Line;
use crate::guard::machine::{copy_program, seconds, sleepers, until};

/// The script of a job whose daemon hides, ignores SIGTERM, and sleeps for `seconds`.
fn with_daemon(seconds: &str, output: &str) -> String {
    let daemon = format!("trap \"\" TERM; exec sleep {seconds}");
    format!("(env -i setsid sh -c '{daemon}' {output} & :); exec sleep 600")
}

fn is_hidden(seconds: &str) {
    until("it hides", || (sleepers(seconds) == 1).then_some(()));
}

#[test]
fn a_hidden_process_delays_no_job_but_the_one_whose_output_it_has() {
    let seconds = seconds(611);
    let mut guard = Line::start("output");
    guard.start_job("older", "exec sleep 600");
    guard.start_job("hides", &with_daemon(&seconds, ""));
    is_hidden(&seconds);
    guard.start_job("younger", "exec sleep 600");
    guard.send(r#"{"do":"stop","job":"hides","grace_ms":600000}"#);
    for other in ["older", "younger"] {
        guard.send(&format!(r#"{{"do":"stop","job":"{other}","grace_ms":600000}}"#));
        assert_eq!(guard.reply(), joined(other, r#"{"signal":15}"#));
    }
    assert_eq!(sleepers(&seconds), 1, "it has the time that its job has");
    // The shorter of the two times counts.
    guard.send(r#"{"do":"stop","job":"hides","grace_ms":0}"#);
    assert_eq!(guard.reply(), r#"{"is":"killing","job":"hides"}"#);
    assert_eq!(guard.reply(), joined("hides", r#"{"signal":15}"#));
    assert_eq!(sleepers(&seconds), 0);
    guard.end();
}

#[test]
fn a_process_without_any_mark_delays_no_job_that_is_younger_than_it() {
    let seconds = seconds(612);
    let mut guard = Line::start("unknown");
    guard.start_job("hides", &with_daemon(&seconds, ">/dev/null 2>&1"));
    is_hidden(&seconds);
    // Start times are counted in hundredths of a second.
    let since = Instant::now();
    until("the next hundredth", || (Duration::from_millis(20) <= since.elapsed()).then_some(()));
    guard.start_job("younger", "exec sleep 600");
    guard.send(r#"{"do":"stop","job":"younger","grace_ms":600000}"#);
    assert_eq!(guard.reply(), joined("younger", r#"{"signal":15}"#));
    assert_eq!(sleepers(&seconds), 1, "it belongs to an older one");
    guard.send(r#"{"do":"stop","job":"hides","grace_ms":100}"#);
    assert_eq!(guard.reply(), r#"{"is":"killing","job":"hides"}"#);
    assert_eq!(guard.reply(), joined("hides", r#"{"signal":15}"#));
    assert_eq!(sleepers(&seconds), 0, "joined only when nothing is left");
    guard.end();
}

#[test]
fn a_process_that_was_seen_below_its_job_is_known_when_it_hides() {
    let mut guard = Line::start("seen");
    // The process hides on request: its parent then continues as another program.
    let (seconds, parent) = (seconds(613), seconds(614));
    let hides = format!(
        "env -i setsid sh -c 'trap \"\" TERM; exec sleep {seconds}' >/dev/null 2>&1 & \
         until test -e $0.hide; do sleep 0.01; done"
    );
    guard.start_job("older", "exec sleep 600");
    guard.start_job("hides", &format!("({hides}); exec sleep {parent}"));
    is_hidden(&seconds);
    // The end of any job makes the guard take a census.
    guard.start_job("short", "exec true");
    assert_eq!(guard.reply(), joined("short", r#"{"code":0}"#));
    std::fs::write(guard.path("hides.hide"), "").unwrap();
    until("the parent has ended", || (sleepers(&parent) == 1).then_some(()));
    guard.send(r#"{"do":"stop","job":"older","grace_ms":600000}"#);
    assert_eq!(guard.reply(), joined("older", r#"{"signal":15}"#));
    assert_eq!(sleepers(&seconds), 1);
    guard.end();
}

#[test]
#[expect(clippy::print_stderr, reason = "people who run the test read it")]
fn a_job_has_ended_only_when_a_process_that_proc_hides_has_ended() {
    let Some(mut guard) = Line::start_with_hidepid("hidepid") else {
        eprintln!("skipped: only root can mount /proc and become another user");
        return;
    };
    // The kernel hides another user's program that may be executed but not read.
    let program = guard.path("unreadable");
    copy_program("/bin/sleep", &program, 0o711);
    let seconds = seconds(619);
    let script = format!(
        "trap 'exit 0' TERM; (trap '' TERM; exec \"${{0%/*}}/unreadable\" {seconds}) & wait; wait"
    );
    guard.start_job("hides", &script);
    guard.start_job("younger", "exec sleep 600");
    is_hidden(&seconds);
    guard.send(r#"{"do":"stop","job":"younger","grace_ms":600000}"#);
    assert_eq!(guard.reply(), joined("younger", r#"{"signal":15}"#));
    guard.send(r#"{"do":"stop","job":"hides","grace_ms":1000}"#);
    assert_eq!(guard.reply(), r#"{"is":"killing","job":"hides"}"#);
    assert_eq!(guard.reply(), joined("hides", r#"{"code":0}"#));
    assert_eq!(sleepers(&seconds), 0, "joined only when nothing is left");
    guard.end();
}
