//! Runs `swarm verify` on logs and checks its verdict.

#![expect(
    clippy::unwrap_used,
    reason = "clippy allows it in test functions only, and all of this is a test"
)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

/// Verifies logs with lines such as `1000 a s1 1 start`, with the time in milliseconds. A line that
/// begins with `{` or `!` is written unchanged, without the `!`.
fn verify(logs: &[&str], args: &[&str]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    command(dir.path(), logs, args).output().unwrap()
}

/// A command that checks these logs, which it writes to `dir`.
fn command(dir: &Path, logs: &[&str], args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_swarm"));
    command.arg("verify").args(args);
    for (number, log) in logs.iter().enumerate() {
        let line = |line: &str| match line.split_whitespace().collect::<Vec<_>>()[..] {
            [t, job, session, token, event] if !line.starts_with(['{', '!']) => format!(
                r#"{{"t":{t}000000,"job":"{job}","worker":"w-{session}","session":"{session}","token":{token},"event":"{event}"}}"#
            ),
            _ => line.trim_start_matches('!').to_owned(),
        };
        let lines: Vec<_> = log.lines().map(line).collect();
        let path = dir.join(format!("{number}.log"));
        fs::write(&path, lines.join("\n")).unwrap();
        command.arg(path);
    }
    command
}

/// Fails unless a text has all of these parts.
fn says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part}: {text}");
    }
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The page shows a log before each command, and the answer after it.
#[test]
fn the_logs_of_the_page_are_judged_as_it_shows() {
    let page = include_str!("../../../docs/run-log.md");
    let blocks = |start: &str| -> Vec<String> {
        let parts = page.split(start).skip(1);
        parts.map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
    };
    let (logs, answers) = (blocks("```json\n"), blocks("```console\n$ swarm verify run.log\n"));
    assert_eq!((logs.len(), answers.len()), (2, 2));
    for ((log, answer), expected) in logs.iter().zip(answers).zip([0, 3]) {
        let output = verify(&[log], &[]);
        assert_eq!(
            (code(&output), &*String::from_utf8_lossy(&output.stdout)),
            (expected, &*answer)
        );
    }
}

#[test]
fn a_good_log_is_0_and_one_document() {
    let log = "1000 a s1 1 start\n2000 a s1 1 tick\n2500 a s1 1 stop\n2700 a s2 2 start";
    let output = verify(&[log], &["-o", "json"]);
    let expected = json!({
        "jobs": 1, "runs": 2, "overlaps": [], "token_regressions": [], "longest_gap_ms": 200.0,
        "overlaps_left_out": 0, "token_regressions_left_out": 0, "longest_gap_job": "a",
        "torn_lines": 0, "torn_lines_unexplained": 0, "repeated_lines": 0,
        "unseen_ends": [],
        "beside": [],
        "runs_without_start": 0, "runs_without_stop": 0,
        "from": 1_000_000_000_u64, "until": 2_700_000_000_u64, "reboots": 0, "off_since": null,
        "gaps": [], "gaps_left_out": 0, "sessions_without_end": 0,
    });
    assert_eq!((code(&output), document(&output)), (0, expected));
    let output = verify(&[log], &[]);
    let text = String::from_utf8(output.stdout).unwrap();
    says(&text, &["1 job, 2 runs\n", "from 1.000 s to 2.700 s", "longest gap: 200 ms, a\n"]);
    assert_eq!(text.lines().count(), 4, "{text}");
}

#[test]
fn overlaps_and_regressions_are_3_and_logs_are_merged_by_time() {
    let (old, new) = ("1000 a s1 1 start\n3000 a s1 1 stop", "2000 a s2 2 start\n4000 a s2 2 tick");
    let output = verify(&[new, old], &["-o", "json"]);
    let found = document(&output);
    assert_eq!((code(&output), &found["overlaps"][0]["ms"]), (3, &json!(1000.0)));
    assert_eq!(found["overlaps"][0]["older"]["worker"], "w-s1");
    assert_eq!(found["longest_gap_ms"], 1000.0, "from the last event to the next start");
    assert_eq!(code(&verify(&[new, old], &["--replication-all"])), 0);
    let back = verify(&["1000 a s1 2 start\n1500 a s1 2 stop\n2000 a s2 1 start"], &["-o", "json"]);
    assert_eq!((code(&back), &document(&back)["token_regressions"][0]["token"]), (3, &json!(1)));
}

#[test]
fn a_torn_line_is_1_unless_a_killed_writer_explains_it() {
    let torn = r#"{"t":1500000000,"job":"a","worker":"w-s1","session":"s1","tok"#;
    let explained = format!("1000 a s1 1 start\n{torn}\n2000 a s2 2 start");
    let output = verify(&[&explained], &["-o", "json"]);
    assert_eq!((code(&output), &document(&output)["torn_lines"]), (0, &json!(1)));
    let output = verify(&[&format!("{explained}\n3000 b s1 3 start")], &["-o", "json"]);
    assert_eq!((code(&output), &document(&output)["torn_lines_unexplained"]), (1, &json!(1)));
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert!(complaint.ends_with("; the first is line 2\n"), "{complaint}");
}

#[test]
fn a_log_that_spans_a_reboot_is_judged_before_and_after_it() {
    let log = "900000 a s1 1 start\n901000 a s1 1 tick\n5000 a s2 2 start\n6000 a s2 2 stop";
    let output = verify(&[log], &["-o", "json"]);
    assert_eq!((code(&output), &document(&output)["longest_gap_ms"]), (0, &json!(0.0)));
}

#[test]
fn a_file_that_is_not_a_run_log_is_2_without_standard_output() {
    for (logs, args, expected) in [
        (&["!hello\nworld"][..], &[][..], " is not a run log: "),
        (&[][..], &["/no/such/log"][..], "/no/such/log: the file does not exist"),
    ] {
        let output = verify(logs, args);
        assert_eq!((code(&output), &output.stdout[..]), (2, &b""[..]));
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert!(complaint.contains(expected), "{complaint}");
    }
    assert_eq!(code(&verify(&[], &[])), 2);
}

#[test]
fn what_the_logs_do_not_show_is_not_judged() {
    let text = |output: &Output| String::from_utf8(output.stdout.clone()).unwrap();
    let empty = verify(&[""], &[]);
    assert_eq!((code(&empty), text(&empty).lines().count()), (1, 2), "{}", text(&empty));
    says(&text(&empty), &["0 jobs, 0 runs\n", "not judged"]);
    let cut = verify(&["1000 a s1 1 tick\n2000 b s1 1 start\n2500 a s1 1 stop"], &[]);
    assert_eq!((code(&cut), text(&cut).lines().count()), (1, 4), "{}", text(&cut));
    let parts =
        ["2 jobs, 1 run\n", "not judged", "from 1.000 s to 2.500 s", "1 run without a start"];
    says(&text(&cut), &parts);
    let killed = verify(&["1000 a s1 1 start\n2000 a s1 1 tick\n2500 a s2 2 start"], &[]);
    assert_eq!((code(&killed), text(&killed).lines().count()), (0, 5), "{}", text(&killed));
    let parts =
        ["1 job, 2 runs\n", "from 1.000 s to 2.500 s", "1 run without a stop", "500 ms, a\n"];
    says(&text(&killed), &parts);
    let lowered = verify(&["1000 a s1 4 start\n2000 a s1 5 tick\n2500 a s1 5 stop"], &[]);
    assert_eq!(code(&lowered), 1, "{}", text(&lowered));
}

#[test]
fn the_rotated_beginning_of_a_log_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let line = |t: u32, event: &str| {
        format!(r#"{{"t":{t},"job":"a","worker":"w","session":"s1","token":1,"event":"{event}"}}"#)
            + "\n"
    };
    let (log, rotated) = (dir.path().join("run.log"), dir.path().join("run.log.1"));
    fs::write(&rotated, line(1, "start")).unwrap();
    fs::write(&log, line(2, "tick")).unwrap();
    let verify = |logs: &[&std::path::PathBuf]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_swarm"));
        command.arg("verify").args(logs).output().unwrap()
    };
    let output = verify(&[&log]);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(code(&output) == 1 && complaint.contains("run.log.1 has what"), "{complaint}");
    let output = verify(&[&log, &rotated]);
    assert_eq!((code(&output), &output.stderr[..]), (0, &b""[..]));
}

#[test]
fn a_log_that_is_given_twice_counts_once() {
    let log = "1000 a s1 1 start\n2000 a s1 1 tick\n2500 a s1 1 stop\n2700 a s2 2 start";
    let output = verify(&[log, log], &["-o", "json"]);
    let found = document(&output);
    assert_eq!(
        (code(&output), &found["runs"], &found["repeated_lines"]),
        (0, &json!(2), &json!(4))
    );
}

/// The contents of a log are untrusted.
#[test]
fn names_in_a_log_do_not_steer_the_terminal() {
    let line = |t: u64, session: &str, event: &str| {
        format!(
            r#"{{"t":{t}000000,"job":"a\u001b[2J","worker":"w\u009b2J\u202e","session":"{session}\r","token":1,"event":"{event}"}}"#
        )
    };
    let log = [line(1, "s1", "start"), line(2, "s2", "start"), line(3, "s1", "stop")].join("\n");
    for (args, code) in [(&[][..], 3), (&["--output", "json"], 3)] {
        let output = verify(&[&log], args);
        let shown = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(code), "{shown}");
        assert!(shown.contains("[2J") && shown.contains("u{202e}") | shown.contains("u202e"));
        let steers = |c: char| c != '\n' && c.is_control() || c == '\u{202e}';
        assert!(!shown.contains(steers), "{shown:?}");
    }
}

#[test]
fn a_reader_that_has_gone_does_not_change_the_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    let good = "1000 a s1 1 start\n2500 a s1 1 stop\n2700 a s2 2 start";
    let bad = "1000 a s1 1 start\n2000 a s2 2 start\n3000 a s1 1 stop";
    for (log, expected) in [(good, 0), (bad, 3)] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = command(dir.path(), &[log], &[]).stdout(writer).output().unwrap();
        let complaint = String::from_utf8(output.stderr.clone()).unwrap();
        assert_eq!((code(&output), &*complaint), (expected, ""));
    }
}

/// A log of format 2: one session that runs `a` under token 1, with `lines` after its start.
fn second_format(lines: &[&str]) -> String {
    let session = r#"{"at":1000000000,"format":2,"writer":5,"n":0,"worker":"w","session":"s5","since":1000000000}"#;
    let start = r#"{"at":1000000001,"writer":5,"n":1,"event":"start","job":"a","worker":"w","session":"s5","token":1}"#;
    [&[session, start], lines].concat().join("\n")
}

#[test]
fn a_missing_line_is_1_and_named() {
    let alive = r#"{"at":2000000000,"alive":5,"n":2}"#;
    let later = r#"{"at":9000000000,"alive":5,"n":5}"#;
    assert_eq!(code(&verify(&[&second_format(&[alive])], &[])), 0);
    let output = verify(&[&second_format(&[alive, later])], &[]);
    assert_eq!(code(&output), 1);
    let missing = "missing: lines of session s5 from 2.000 s to 9.000 s\n";
    let parts =
        ["1 job, 1 run\n", "not judged", "from 1.000 s to 9.000 s", missing, "7000 ms, a\n"];
    says(&String::from_utf8_lossy(&output.stdout), &parts);
    let document = document(&verify(&[&second_format(&[alive, later])], &["-o", "json"]));
    let gap = json!({"session": "s5", "from": 2_000_000_000_u64, "until": 9_000_000_000_u64, "ms": 7000.0});
    assert_eq!(document["gaps"], json!([gap]));
    // A double run is worse than a missing line.
    let twice = "2500 a s6 2 start";
    assert_eq!(code(&verify(&[&second_format(&[alive, twice, later])], &[])), 3);
}

#[test]
fn a_log_that_is_switched_off_is_1_and_says_so() {
    let stop = r#"{"at":2000000000,"writer":5,"n":2,"event":"stop","job":"a","worker":"w","session":"s5","token":1}"#;
    let off = r#"{"at":3000000000,"format":2,"event":"off"}"#;
    let output = verify(&[&second_format(&[stop, off])], &[]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(code(&output) == 1 && said.contains("\noff: since 3.000 s "), "{said}");
}

#[test]
fn a_log_of_a_later_format_is_2() {
    let output = verify(&[&second_format(&[r#"{"at":2,"format":3}"#])], &[]);
    let complaint = String::from_utf8_lossy(&output.stderr);
    let expected = "line 3 has format 3, ";
    assert!(code(&output) == 2 && complaint.contains(expected), "{complaint}");
}
