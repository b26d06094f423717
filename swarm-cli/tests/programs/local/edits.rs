//! Edits of the file as programs make them: slowly, line by line, cut off, and by a rename.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::thread::sleep;
use std::time::Duration;

use rustix::process::Signal;

use super::operator::{Machine, Operator, get, until};

/// Makes a Swarm of `jobs` jobs, whose workers only write lines to their logs.
fn manifest(jobs: u32) -> String {
    let mut text = "apiVersion: swarm.k8slab.info/v1alpha1\n\
                    kind: Swarm\n\
                    metadata: {name: slow}\n\
                    spec:\n  replicas: 2\n  pool: {statefulSet: {name: w}}\n  \
                    worker: {protocol: Session, runner: {log: {}}}\n  jobs:\n"
        .to_owned();
    for n in 1..=jobs {
        writeln!(text, "    - {{name: camera-{n}, params: {{url: \"rtsp://camera-{n}\"}}}}")
            .unwrap();
    }
    text
}

/// A machine whose pool of 60 jobs is settled, and what is to be done there.
fn with_60_jobs(act: impl FnOnce(&Machine, &Operator<'_>)) {
    let machine = Machine::new();
    machine.write(&manifest(60));
    let operator = machine.settled();
    act(&machine, &operator);
}

fn complains(operator: &Operator<'_>, words: &str) {
    until(&format!("{words:?} on standard error"), || {
        operator.complaints().contains(words).then_some(())
    });
}

#[test]
fn a_file_that_cannot_be_watched_is_read_again_and_the_limit_is_named() {
    let without = "echo 0 >/proc/sys/user/max_inotify_instances && exec \"$0\" \"$@\"";
    let words = ["unshare", "--user", "--map-root-user", "sh", "-c", without];
    let can = std::process::Command::new(words[0]).args(&words[1..]).arg("true").status();
    if !can.is_ok_and(|it| it.success()) {
        eprintln!("skipped: this user cannot make a user namespace");
        return;
    }
    let machine = Machine::new();
    let operator = machine.started_by(&words);
    operator.prints("settled in");
    for part in ["no inotify instances left", " 5 s ", "sysctl -w fs.inotify.max_user_instances="] {
        assert!(operator.complaints().contains(part), "{part}: {}", operator.complaints());
    }
    machine.edit("replicas: 3", "replicas: 4");
    operator.prints("27 jobs on 4 workers");
    let mut check = std::process::Command::new(words[0]);
    check.args(&words[1..]).args([env!("CARGO_BIN_EXE_swarm"), "check"]);
    let check = check.output().unwrap();
    let check = String::from_utf8(check.stdout).unwrap();
    let row = check.lines().find(|line| line.starts_with("file watches")).unwrap();
    assert!(row.contains("WRONG") && row.contains("no inotify instances left"), "{check}");
}

#[test]
fn a_loop_that_closes_the_file_at_each_line_makes_one_edit() {
    with_60_jobs(|machine, operator| {
        File::create(machine.file()).unwrap();
        for line in manifest(61).lines() {
            let mut file = OpenOptions::new().append(true).open(machine.file()).unwrap();
            writeln!(file, "{line}").unwrap();
            drop(file);
            // A shell that starts a process for each line has the same delay.
            sleep(Duration::from_millis(3));
        }
        let output = operator.prints("61 jobs on 2 workers, 1 new");
        assert!(!output.contains("removed"), "{output}");
        assert_eq!(operator.complaints(), "");
    });
}

#[test]
fn the_history_names_the_edited_fields_and_shows_no_text_of_them() {
    with_60_jobs(|machine, _| {
        machine.edit("url: \"rtsp://camera-7\"", "url: \"rtsp://camera-7/new\", fps: \"5\"");
        machine.edit("{protocol: Session,", "{protocol: Session, maxJobs: 90,");
        machine.edit("replicas: 2", "replicas: 3");
        machine.edit("  pool:", "  rebalance: {maxMovesInFlight: 7}\n  pool:");
        let last = until("an episode with the edits", || {
            let history = machine.document(&["history"]);
            let causes = history["episodes"].as_array()?.iter().rev().flat_map(|it| {
                it["causes"].as_array().into_iter().flatten().filter_map(|it| it.as_str())
            });
            let causes = causes.collect::<Vec<_>>().join("; ");
            causes.contains("rebalance").then_some(causes)
        });
        for part in [
            "job camera-7 was changed (params.fps, params.url)",
            "worker.maxJobs set to 90",
            "replicas from 2 to 3",
        ] {
            assert!(last.contains(part), "{last}");
        }
        assert!(last.contains("rebalance added") && !last.contains("rtsp"), "{last}");
        let explained = machine.asks(&["explain", "camera-7"]);
        assert!(explained.contains("s ago): params.fps, params.url\n"), "{explained}");
    });
}

#[test]
fn a_move_that_goes_on_is_in_the_history_at_once() {
    let machine = Machine::new();
    let go = machine.path().join("go");
    let waits = format!("while [ ! -e {} ]; do sleep 0.05; done; exit", go.display());
    let runs = format!("trap '{waits}' TERM; while :; do sleep 0.05; done");
    let runner = format!("runner: {{command: [sh, -c, \"{runs}\"]}}");
    machine.write(&manifest(4).replace("runner: {log: {}}", &runner));
    let _operator = machine.settled();
    let holder = |job: &str| machine.job(job)["worker"].as_str().map(str::to_owned);
    let before = holder("camera-1").unwrap();
    let slot = i32::from(before.ends_with("-0"));
    machine.edit("{name: camera-1,", &format!("{{name: camera-1, pin: {slot},"));
    let reason = || {
        let history = machine.document(&["history", "camera-1"]);
        let last = history["moves"].as_array()?.last()?["move"].clone();
        Some((last["reason"].as_str()?.to_owned(), last["from"].as_str().map(str::to_owned)))
    };
    // Its worker cannot stop the job yet.
    until("the move in the history", || {
        reason().filter(|it| *it == ("recent".to_owned(), Some(before.clone())))
    });
    let revision = machine.document(&["history"])["episodes"][0]["lastRevision"].to_string();
    let differs = machine.asks(&["diff", &revision]);
    assert!(differs.contains("- camera-1  recent"), "{differs}");
    File::create(go).unwrap();
    until("its reason", || reason().filter(|(reason, _)| reason == "pin"));
    assert_ne!(holder("camera-1"), Some(before));
}

#[test]
fn a_file_that_stays_open_takes_effect_when_it_is_closed_and_its_writer_is_named() {
    with_60_jobs(|machine, operator| {
        let text = manifest(61);
        let (half, rest) = text.split_at(text.find("    - {name: camera-21,").unwrap());
        let mut file = File::create(machine.file()).unwrap();
        file.write_all(half.as_bytes()).unwrap();
        complains(operator, "its edit waits, since process ");
        assert_eq!(operator.complaints().lines().count(), 1, "{}", operator.complaints());
        file.write_all(rest.as_bytes()).unwrap();
        drop(file);
        let output = operator.prints("61 jobs on 2 workers, 1 new");
        assert!(!output.contains("removed"), "{output}");
    });
}

#[test]
fn a_file_that_was_cut_off_takes_effect_and_is_announced_with_the_count() {
    with_60_jobs(|machine, operator| {
        machine.write(&manifest(20));
        operator.prints("20 jobs on 2 workers, 40 removed");
        complains(operator, "40 of 60 jobs are removed ");
    });
}

#[test]
fn many_removed_jobs_end_status_with_3_also_after_a_restart_until_the_edit_is_undone() {
    let machine = Machine::new();
    machine.write(&manifest(39));
    let mut operator = machine.settled_with(&["--listen", "0"]);
    let removed = || {
        let output = machine.run(&["status"]);
        let shown = String::from_utf8(output.stdout).unwrap();
        let has_sentence = shown.contains("30 of 39 jobs are removed ");
        assert_eq!(has_sentence, output.status.code() == Some(3), "{shown}");
        has_sentence
    };
    assert!(!removed());
    machine.write(&manifest(9));
    until("the removal is shown", || removed().then_some(()));
    // The pool itself is well.
    assert_eq!(machine.run(&["status", "--wait"]).status.code(), Some(0));
    let gauge = |value: u32, operator: &Operator<'_>| {
        let output = operator.prints("http://");
        let address = output.split("http://").nth(1).unwrap().split_whitespace().next().unwrap();
        until("the metric follows", || {
            let metrics = get(address, "/metrics")?;
            metrics.contains(&format!("\nswarm_pool_removed_jobs {value}\n")).then_some(())
        });
    };
    gauge(30, &operator);
    operator.signal(Signal::TERM);
    operator.ended();
    drop(operator);

    let operator = machine.settled_with(&["--listen", "0"]);
    until("the next operator knows it", || removed().then_some(()));
    gauge(30, &operator);
    machine.write(&manifest(39));
    until("the edit is undone", || (!removed()).then_some(()));
    gauge(0, &operator);
}

#[test]
fn a_file_that_an_editor_renames_into_place_takes_effect() {
    with_60_jobs(|machine, operator| {
        let rename = |text: &str| {
            let new = machine.path().join(".streams.yaml.swp");
            fs::write(&new, text).unwrap();
            fs::rename(new, machine.file()).unwrap();
        };
        rename(&manifest(61));
        operator.prints("61 jobs on 2 workers, 1 new");
        rename(&manifest(59));
        operator.prints("59 jobs on 2 workers, 2 removed");
        assert_eq!(operator.complaints(), "");
    });
}

#[test]
fn a_text_without_a_value_is_no_list_and_the_last_list_stays() {
    with_60_jobs(|machine, operator| {
        let none = manifest(0);
        for (text, place) in [
            (String::new(), "no Swarm in it"),
            ("# jobs come later\n---\n".to_owned(), "no Swarm in it"),
            (none.clone(), "spec.jobs"),
            (none.replace("jobs:", "jobs: ~"), "spec.jobs"),
        ] {
            let before = operator.complaints();
            machine.write(&text);
            until("a complaint", || {
                let complaints = operator.complaints();
                let new = complaints.strip_prefix(&before)?;
                let says = |words: &str| new.contains(words);
                (says(place) && says("empty list") && says("[]`")).then_some(())
            });
            machine.write(&manifest(60));
        }
        let output = operator.prints("nothing moved");
        assert!(!output.contains("removed"), "{output}");
        machine.write(&none.replace("jobs:", "jobs: []"));
        operator.prints("0 jobs on 2 workers, 60 removed");
    });
}
