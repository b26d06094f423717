//! Invalid manifests, and programs that do not exist.

use std::fs;

use crate::chaos::job::{SHORT, manifest};
use crate::chaos::pool::Pool;

#[test]
fn input_that_makes_no_sense_is_one_sentence_and_exit_code_2() {
    let good = manifest(&format!("replicas: 2\n  {SHORT}"), &["a"]);
    let bomb = (1..12).fold("a0: &a0 [x,x,x,x,x,x,x,x]\n".to_owned(), |text, n| {
        let before = format!("*a{}", n - 1);
        text + &format!("a{n}: &a{n} [{}]\n", [before.as_str(); 8].join(","))
    });
    let deep = format!("spec: {}1{}\n", "[".repeat(20_000), "]".repeat(20_000));
    let cases = [
        (String::new(), ""),
        (bomb, ""),
        (deep, ""),
        ("\0\u{1}\u{7f}".to_owned(), ""),
        ("- a\n- b\n".to_owned(), ""),
        (good.replace("command:", "comand:"), "did you mean `command`?"),
        (good.replace("runner: {", "runner: {log: {}, "), "write exactly one"),
        (good.replace("handover: {policy: Exclusive", "handover: {policy: Maybe"), "Maybe"),
        (good.replace("lease: 3s", "lease: 1s"), "is too short; write 2s or more"),
        (good.replace("stopTimeout: 1s", "stopTimeout: 2500ms"), "; write 4s or more"),
        (good.replace("replicas: 2", "replicas: -1"), "write 0 to 100000"),
        (good.replace("{name: a}", "{name: a, share: 101}"), "share"),
        (good.replace("{name: a}", "{name: a, pin: -1}"), "pin"),
    ];
    for (text, expected) in cases {
        let pool = Pool::new(&text);
        let output = pool.output(&["--until-settled"]);
        let (stdout, stderr) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let start: String = text.chars().take(300).collect();
        assert_eq!(output.status.code(), Some(2), "{start}: {stdout}{stderr}");
        assert!(stdout.is_empty() && stderr.contains(expected), "{start}: {stderr}");
        let mut lines = stderr.trim_end().lines().skip(1);
        // The message contains the invalid line, with a mark below it.
        assert!(lines.all(|line| line.contains(" | ")), "{stderr}");
        assert!(stderr.len() < 1_000 && !stderr.contains("panicked"), "{stderr}");
    }
}

#[test]
fn a_command_that_does_not_exist_is_reported_in_the_worker_s_log_and_retried() {
    let text = manifest(&format!("replicas: 1\n  {SHORT}"), &["a", "b"]);
    let (before, rest) = text.split_once("command: [").unwrap();
    let (_, after) = rest.split_once(']').unwrap();
    let mut pool = Pool::new(&format!("{before}command: [no-such-program, x]{after}"));
    pool.start();
    // A settled pool has granted and acknowledged its jobs; only the worker's log reports whether a
    // program runs well.
    pool.until("settled", || pool.stdout().contains("settled in").then_some(()));
    pool.until("the worker reports why", || {
        let log = fs::read_to_string(pool.path("logs").join("w-0.log")).unwrap_or_default();
        let sentence =
            "program `no-such-program` is not on this machine: no directory of PATH has it";
        (4 <= log.matches(sentence).count()).then_some(())
    });
    assert_eq!(pool.complaints(), "");
    pool.end();
}

#[test]
fn a_second_operator_is_refused_and_changes_nothing() {
    let mut pool = Pool::new(&manifest(&format!("replicas: 2\n  {SHORT}"), &["a", "b"]));
    pool.start();
    let before = pool.settled(&["a", "b"]);
    let output = pool.output(&[]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains(" runs already, as process ") && stderr.lines().count() == 1,
        "{stderr}"
    );
    pool.runs_on(&["a", "b"]);
    assert_eq!(pool.settled(&["a", "b"]), before);
    pool.end();
    pool.judged();
}
