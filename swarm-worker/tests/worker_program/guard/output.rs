//! Tests of the output of jobs, which reaches the log and the replies with any kind of line break.

use crate::guard::line::Line;
use crate::guard::machine::{Machine, until};

/// Returns the lines of a job in the log of its guard.
fn lines(guard: &Line, job: &str) -> Vec<String> {
    let prefix = format!("{job}: ");
    guard.log().lines().filter_map(|line| line.strip_prefix(&prefix)).map(str::to_owned).collect()
}

/// Returns the last lines of output in the reply about the end of a job.
fn last_output(guard: &mut Line) -> Vec<String> {
    let reply: serde_json::Value = serde_json::from_str(&guard.reply()).unwrap();
    assert_eq!(reply["is"], "joined", "{reply}");
    serde_json::from_value(reply["output"].clone()).unwrap()
}

/// Starts a shell with `script`, whose output is searched for `text`.
fn start_awaiting(guard: &mut Line, job: &str, text: &str, script: &str) {
    let argv = serde_json::json!(["sh", "-c", script, guard.path(job)]);
    guard.send(&format!(
        r#"{{"do":"start","job":"{job}","token":7,"argv":{argv},"env":{{}},"grace_ms":5000,"line":"{text}"}}"#
    ));
    assert!(guard.reply().contains("started"));
}

/// Prints progress like ffmpeg: each line overwrites the previous one, on standard error.
const FRAMES: &str = r"for i in $(seq 1 60); do
    printf 'frame=%5d fps= 25 q=-1.0 size=%8dkB speed=1x    \r' $((i*25)) $((i*128)) >&2; done;";

#[test]
fn the_last_line_of_progress_and_the_reason_of_a_failure_are_logged() {
    let mut guard = Line::start("progress");
    let reason = "rtsp://camera-1.example/live: Connection timed out";
    guard.start_job("p", &format!("{FRAMES} echo '{reason}' >&2; exit 1"));
    let last = "frame= 1500 fps= 25 q=-1.0 size=    7680kB speed=1x    ";
    assert_eq!(last_output(&mut guard), [last, reason]);
    let lines = lines(&guard, "p");
    assert_eq!(lines[lines.len() - 2..], [last, reason], "{lines:?}");
    assert!(lines.len() < 30, "of 60 lines at most one a second is logged: {lines:?}");
    guard.end();
}

#[test]
fn progress_is_logged_while_the_job_runs() {
    let mut guard = Line::start("running");
    guard.start_job("p", &format!("{FRAMES} exec sleep 600"));
    let last = "frame= 1500 fps= 25 q=-1.0 size=    7680kB speed=1x    ";
    until("the last one is logged", || {
        lines(&guard, "p").iter().any(|it| it == last).then_some(())
    });
    guard.end();
}

#[test]
fn a_prompt_is_logged_once_the_program_waits() {
    let mut guard = Line::start("prompt");
    guard.start_job("p", "printf 'Password: '; exec sleep 600");
    until("the prompt", || (lines(&guard, "p") == ["Password: "]).then_some(()));
    guard.end();
}

#[test]
fn the_ends_of_lines_leave_no_trace_and_other_control_characters_are_escaped() {
    let mut guard = Line::start("ends");
    guard.start_job("e", r"printf 'one\r\n\r\ntwo\033[2J\377\r\nthree\n'");
    let expected = ["one", "", "two\\u{1b}[2J\\xff", "three"];
    assert_eq!(last_output(&mut guard), expected);
    assert_eq!(lines(&guard, "e"), expected);
    guard.end();
}

#[test]
fn of_a_long_line_both_ends_are_logged_and_the_end_is_reported() {
    let mut guard = Line::start("long");
    let middle = "head -c 100000 /dev/zero | tr '\\0' x";
    guard.start_job("l", &format!("printf opening; {middle}; echo ': no such camera'; exit 3"));
    let last = last_output(&mut guard);
    assert_eq!((last.len(), last[0].len()), (1, 256), "{last:?}");
    assert!(last[0].starts_with("…xx") && last[0].ends_with("xx: no such camera"), "{last:?}");
    let lines = lines(&guard, "l");
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    assert!(line.starts_with("openingxx") && line.ends_with("xx: no such camera"), "{line}");
    let length = "opening".len() + 100_000 + ": no such camera".len();
    assert!(line.contains(&format!("x … {} bytes left out … x", length - 4096)), "{line}");
    guard.end();
}

#[test]
fn a_text_is_seen_across_writes_and_without_an_end_of_its_line() {
    let mut guard = Line::start("seen");
    let script = "printf 'camera is rea'; until [ -e $0.go ]; do sleep 0.01; done; printf 'dy';
        exec sleep 600";
    start_awaiting(&mut guard, "s", "is ready", script);
    // The beginning of the line was logged already.
    until("it waits", || (lines(&guard, "s") == ["camera is rea"]).then_some(()));
    std::fs::write(guard.path("s.go"), "").unwrap();
    assert_eq!(guard.reply(), r#"{"is":"seen","job":"s"}"#);
    start_awaiting(&mut guard, "p", "frame=", &format!("{FRAMES} exec sleep 600"));
    assert_eq!(guard.reply(), r#"{"is":"seen","job":"p"}"#);
    guard.end();
}

#[test]
fn of_a_flood_every_line_is_logged_or_counted_and_the_last_ones_are_logged() {
    let mut guard = Line::start("flooded");
    guard.start_job("f", "yes | head -n 500000; echo 'no such camera' >&2; exit 3");
    assert_eq!(last_output(&mut guard), ["y", "y", "y", "y", "no such camera"]);
    let lines = lines(&guard, "f");
    assert_eq!(lines.last().unwrap(), "no such camera");
    let dropped = lines.iter().filter_map(|line| {
        let (count, _) = line.strip_prefix("swarm dropped ")?.split_once(" line")?;
        count.parse::<usize>().ok()
    });
    let dropped: usize = dropped.sum();
    let logged = lines.iter().filter(|line| !line.starts_with("swarm ")).count();
    assert_eq!(dropped + logged, 500_001);
    guard.end();
}

#[test]
fn the_last_lines_of_a_job_that_is_stopped_are_those_before_the_stop() {
    let mut guard = Line::start("stopped");
    let script = "trap 'echo goodbye; exit 0' TERM; echo connecting; while :; do sleep 0.01; done";
    guard.start_job("s", script);
    until("it works", || (lines(&guard, "s") == ["connecting"]).then_some(()));
    guard.send(r#"{"do":"stop","job":"s","grace_ms":20000}"#);
    assert_eq!(last_output(&mut guard), ["connecting"]);
    // The guard does not wait for the output of a job that was asked to end.
    let last = || lines(&guard, "s").last().cloned();
    until("its last line is logged", || (last()? == "goodbye").then_some(()));
    guard.end();
}

#[test]
fn the_output_of_a_job_is_logged_before_its_worker_says_how_it_ended() {
    let machine = Machine::start(&format!("{FRAMES} printf 'no such camera'; exit 3"));
    let end = "ended with exit code 3";
    let log = until("it ended", || Some(machine.log()).filter(|log| log.contains(end)));
    let before = log.split(end).next().unwrap();
    let frames = before.find("frame= 1500").unwrap();
    assert!(before[frames..].contains("\na: no such camera\n"), "{log}");
}
