//! Tests of `swarm local` with real processes.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "clippy allows it in test functions only, and all of this is a test"
)]

mod alerts;
mod answers;
#[cfg(feature = "terminal")]
mod attached;
mod background;
mod by_hand;
mod documented;
mod edits;
pub(crate) mod ends;
mod failures;
mod files;
mod formats;
mod hostile;
mod leftovers;
mod lives;
pub(crate) mod operator;
mod own_file;
mod ready;
mod reasons;
mod recorders;
mod remote;
mod report;
mod runners;
mod service;
mod signals;
mod slow_job;
mod steps;
mod stopping;
#[cfg(feature = "terminal")]
mod tasks;
#[cfg(feature = "terminal")]
pub(crate) mod terminal;
mod titles;
mod web;

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Output};

use operator::{Machine, signal, until};
use rustix::fs::{CWD, Mode, mkfifoat};
use rustix::process::Signal;

/// Returns the number of jobs of each worker, once every stream runs exactly once.
fn loads(machine: &Machine, workers: usize) -> BTreeMap<String, usize> {
    until("every stream runs once", || {
        let running = machine.running().filter(|running| running.len() == workers)?;
        let all: Vec<_> = running.values().flatten().collect();
        let distinct: BTreeSet<_> = all.iter().collect();
        let is_complete = all.len() == 27 && distinct.len() == 27;
        is_complete.then(|| running.into_iter().map(|(name, jobs)| (name, jobs.len())).collect())
    })
}

fn gone(machine: &Machine) {
    until("no process is left", || machine.processes().is_empty().then_some(()));
}

/// Returns the only message of a refused run.
fn refusal(output: &Output, code: i32) -> String {
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!((output.status.code(), &*stdout), (Some(code), ""), "{stderr}");
    // Below the sentence is only the invalid line, with a mark.
    let (sentence, rest) = stderr.split_once('\n').unwrap();
    assert!(rest.is_empty() || rest.lines().eq(rest.lines().filter(|it| it.contains(" | "))));
    assert!(rest.is_empty() || sentence.contains(".yaml:"), "{stderr}");
    stderr.into_owned()
}

#[test]
fn each_of_27_streams_runs_on_exactly_one_of_three_workers() {
    let machine = Machine::new();
    let operator = machine.settled();
    assert!(operator.prints("settled").contains("27 jobs on 3 workers, 27 new"));
    assert_eq!(loads(&machine, 3).into_values().collect::<Vec<_>>(), [9, 9, 9]);
}

#[test]
fn an_edit_of_the_file_moves_the_fewest_jobs() {
    let machine = Machine::new();
    let operator = machine.settled();
    machine.edit("replicas: 3", "replicas: 4");
    operator.prints("27 jobs on 4 workers, 6 moved");
    assert_eq!(loads(&machine, 4).into_values().collect::<Vec<_>>(), [7, 7, 7, 6]);
    machine.edit("    - name: stream:foo:new\n", "");
    operator.prints("26 jobs on 4 workers, 1 removed");
    machine.edit("  jobs:\n", "  jobs:\n    - name: stream:lego:new\n");
    operator.prints("27 jobs on 4 workers, 1 new");
    machine.edit("replicas: 4", "replicas: 2");
    operator.prints("27 jobs on 2 workers, 13 moved");
    assert_eq!(loads(&machine, 2).into_values().collect::<Vec<_>>(), [14, 13]);
}

/// Two seconds are long enough to see that workers are not stopped earlier.
#[test]
fn workers_are_started_and_stopped_as_the_jobs_need_them() {
    let machine = Machine::new();
    let terms = "  autoscale: {max: 9, jobsPerWorker: 9, cooldown: 2s}\n  pool:\n";
    machine.edit("  pool:\n", terms);
    let operator = machine.settled();
    assert!(operator.prints("settled").contains("27 jobs on 3 workers, 27 new"));
    machine.edit("jobsPerWorker: 9", "jobsPerWorker: 6");
    operator.prints("27 jobs on 5 workers, ");
    machine.edit("jobsPerWorker: 6", "jobsPerWorker: 14");
    operator.prints("27 jobs on 2 workers, ");
    assert_eq!(loads(&machine, 2).into_values().collect::<Vec<_>>(), [14, 13]);
}

#[test]
fn another_runner_and_other_params_reach_jobs_where_they_run() {
    let machine = Machine::new();
    let run = |word: &str| {
        format!("command: [sh, -c, 'echo \"{word} $SWARM_PARAM_URL\"; exec sleep 600']")
    };
    machine.edit("stream:foo:new\n", "stream:foo:new\n      params: {url: one}\n");
    let operator = machine.settled();
    let (before, workers) = (machine.running().unwrap(), machine.workers());
    let logs = || machine.logs();
    machine.edit("log: {}", &run("first"));
    until("the program to run", || (logs().matches("first").count() == 27).then_some(()));
    assert!(logs().contains("first one\n"), "{}", logs());
    machine.edit("url: one", "url: two");
    until("the new param", || logs().contains("first two\n").then_some(()));
    assert_eq!(logs().matches("first").count(), 28, "the others run on");
    // A worker that ends at once is restarted like any other, and its successor starts as well.
    machine.edit(&run("first"), "command: [sh, -c, 'echo broken; exit 3']");
    until("failures", || logs().contains("ended with exit code 3").then_some(()));
    machine.edit("command: [sh, -c, 'echo broken; exit 3']", &run("last"));
    until("the last program to run", || (logs().matches("last").count() == 27).then_some(()));
    assert_eq!((machine.running().unwrap(), machine.workers()), (before, workers.clone()));
    operator.signal(Signal::TERM);
}

#[test]
fn a_broken_edit_says_what_is_wrong_and_keeps_the_last_good_state() {
    let machine = Machine::new();
    let operator = machine.settled();
    machine.edit("  jobs:", "  jbos:");
    let complaint = until("a complaint", || {
        Some(operator.complaints()).filter(|complaints| complaints.ends_with("^\n"))
    });
    let expected = "unknown field `spec.jbos`; did you mean `jobs`?; the last valid state stays\n\
                    119 |   jbos:\n    |   ^\n";
    assert!(complaint.ends_with(expected), "{complaint}");
    assert_eq!(loads(&machine, 3).len(), 3);
    machine.edit("  jbos:", "  jobs:");
    operator.prints("nothing moved");
    std::fs::remove_file(machine.file()).unwrap();
    until("a complaint", || {
        operator.complaints().contains("the file does not exist; the last valid").then_some(())
    });
    assert_eq!(loads(&machine, 3).len(), 3);
}

#[test]
fn jobs_of_a_killed_worker_run_again_where_they_ran() {
    let machine = Machine::new();
    let operator = machine.settled();
    let before = machine.running().unwrap();
    let killed = machine.workers()["swarm-worker-1"];
    signal(killed, Signal::KILL);
    operator.prints("swarm-worker-1 was ended by signal 9; restarting it\nsettled in");
    // The report and the history tell the same.
    operator.prints("27 jobs on 3 workers, 9 returned\n");
    assert_ne!(machine.workers()["swarm-worker-1"], killed);
    assert_eq!(machine.running().unwrap(), before);
}

#[test]
fn signals_end_the_operator_with_0_and_leave_no_process_behind() {
    for kind in [Signal::INT, Signal::TERM] {
        let machine = Machine::new();
        let mut operator = machine.settled();
        operator.signal(kind);
        assert_eq!(operator.ended().code(), Some(0));
        assert_eq!(machine.processes(), []);
        let output = operator.prints("ended in");
        assert!(output.ends_with("ms: 3 workers stopped, no process is left\n"), "{output}");
    }
}

#[test]
fn workers_of_a_killed_operator_end_by_themselves_and_the_next_resumes() {
    let machine = Machine::new();
    let mut operator = machine.settled();
    let before = machine.running().unwrap();
    operator.signal(Signal::KILL);
    operator.ended();
    gone(&machine);
    let next = machine.settled();
    assert!(next.prints("settled").contains("27 jobs on 3 workers, 27 returned"));
    assert_eq!(machine.running().unwrap(), before);
}

#[test]
fn a_worker_that_was_frozen_when_its_operator_was_killed_is_gone_before_the_next_settles() {
    let machine = Machine::new();
    let mut operator = machine.settled();
    let frozen = machine.workers()["swarm-worker-2"];
    signal(frozen, Signal::STOP);
    operator.signal(Signal::KILL);
    operator.ended();
    let _next = machine.settled();
    assert!(machine.processes().iter().all(|(pid, _)| *pid != frozen));
    assert_eq!(loads(&machine, 3).into_values().collect::<Vec<_>>(), [9, 9, 9]);
}

#[test]
fn a_second_operator_on_the_same_directory_is_refused() {
    let machine = Machine::new();
    let _operator = machine.settled();
    let message = refusal(&machine.output(&[]), 1);
    assert!(message.starts_with("swarm: streams runs already, as process "), "{message}");
    assert_eq!(loads(&machine, 3).len(), 3);
}

#[test]
fn a_settled_pool_ends_with_0_where_that_was_asked_for() {
    let machine = Machine::new();
    let output = machine.output(&["--until-settled", "--workers", "2"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(machine.processes(), []);
    assert!(String::from_utf8_lossy(&output.stdout).contains("27 jobs on 2 workers, 27 new"));
    let none = machine.output(&["--until-settled", "--workers", "0"]);
    assert_eq!(none.status.code(), Some(3), "as `plan` does");
    assert!(String::from_utf8_lossy(&none.stdout).contains("27 without a worker (no-workers)"));
}

/// Settings about pods in these files have no effect here.
#[test]
fn files_of_managed_pools_run_as_they_are() {
    let samples = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/samples");
    for (sample, expected) in [
        ("managed.yaml", "27 jobs on 3 workers, 27 new"),
        ("autoscale.yaml", "6 jobs on 2 workers, 6 new"),
        ("cameras/cameras.yaml", "4 jobs on 2 workers, 4 new"),
    ] {
        let machine = Machine::new();
        machine.write(&std::fs::read_to_string(format!("{samples}/{sample}")).unwrap());
        let output = machine.output(&["--until-settled"]);
        let (stdout, stderr) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{sample}: {stderr}");
        assert!(stdout.contains(expected), "{sample}: {stdout}");
    }
}

/// Replaces the file with a named pipe.
fn make_pipe(machine: &Machine) {
    std::fs::remove_file(machine.file()).unwrap();
    mkfifoat(CWD, machine.file(), Mode::RUSR | Mode::WUSR).unwrap();
}

#[test]
fn a_pipe_instead_of_the_file_does_not_keep_it_from_following_edits_or_ending() {
    let machine = Machine::new();
    let good = std::fs::read_to_string(machine.file()).unwrap();
    let mut operator = machine.settled();
    make_pipe(&machine);
    until("a complaint", || operator.complaints().contains("not a regular file").then_some(()));
    std::fs::remove_file(machine.file()).unwrap();
    machine.write(&good.replace("replicas: 3", "replicas: 4"));
    operator.prints("27 jobs on 4 workers, 6 moved");
    make_pipe(&machine);
    operator.signal(Signal::INT);
    assert_eq!(operator.ended().code(), Some(0));
    assert_eq!(machine.processes(), []);
}

#[test]
fn a_pipe_that_is_there_from_the_start_is_read_once_or_until_a_signal() {
    let machine = Machine::new();
    let good = std::fs::read_to_string(machine.file()).unwrap();
    make_pipe(&machine);
    let mut operator = machine.started();
    operator.signal_once_it_waits(Signal::TERM);
    assert_eq!(operator.ended().code(), Some(1));
    assert!(operator.complaints().contains("before FILE was read"), "{}", operator.complaints());
    let operator = machine.started();
    std::fs::write(machine.file(), good).unwrap();
    let output = operator.prints("27 jobs on 3 workers, 27 new");
    assert!(!output.contains("see what moves"), "{output}");
}

#[test]
fn the_command_that_kills_a_worker_in_the_readme_means_that_worker_alone() {
    let readme = include_str!("../../../README.md");
    let line = readme.lines().find_map(|line| line.strip_prefix("pkill -KILL ")).unwrap();
    let machine = Machine::new();
    machine.write(include_str!("../../../deploy/samples/cameras/cameras.yaml"));
    let _operator = machine.settled_with(&["--workers", "12"]);
    let line = line.replace("swarm/cameras ", "/state ");
    let found = Command::new("sh").args(["-c", &format!("exec pgrep {line}")]).output().unwrap();
    let found = String::from_utf8(found.stdout).unwrap();
    let workers = machine.workers();
    let is_ours = |pid: &i32| workers.values().any(|ours| ours == pid);
    let found: Vec<_> = found.lines().map(|pid| pid.parse().unwrap()).filter(is_ours).collect();
    assert_eq!((found, workers.len()), (vec![workers["cameras-1"]], 12));
}

#[test]
fn wrong_input_is_exit_code_2_one_sentence_and_nothing_on_standard_output() {
    let mistakes = [
        ("  jobs:", "  jbos:", "unknown field `spec.jbos`; did you mean `jobs`?\n"),
        ("  jobs:", "  jbos:", " |   jbos:\n"),
        ("stream:foo:new", "stream:cars:new", "job `stream:cars:new` occurs twice"),
        ("stream:foo:new", "\"two words\"", "job name `two words` has the character ' '"),
        ("metadata:\n", "metadata: {\n", "document 1 does not parse"),
        ("name: swarm-worker\n", "name: other\n", "set it with --workers"),
        ("replicas: 3", "replicas: 70000", "exceed the limit of 1000 on one machine"),
    ];
    for (right, wrong, expected) in mistakes {
        let machine = Machine::new();
        machine.edit(right, wrong);
        let message = refusal(&machine.output(&["--until-settled"]), 2);
        assert!(message.contains("streams.yaml:") && message.contains(expected), "{message}");
    }
    let machine = Machine::new();
    for program in ["/no/such/worker", "./no-such-worker", "no-such-worker", "/"] {
        let message = refusal(&machine.output(&["--worker", program]), 2);
        assert!(
            message.contains(&format!("the program {program} cannot be found; write")),
            "{message}"
        );
    }
    std::fs::remove_file(machine.file()).unwrap();
    let message = refusal(&machine.output(&[]), 2);
    assert!(message.ends_with("streams.yaml: the file does not exist\n"), "{message}");
}
