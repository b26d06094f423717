//! Jobs of several kinds: each names the runner that runs it.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use super::operator::{Machine, until};
use super::refusal;
use super::steps::until_phase;

const MANIFEST: &str = r"
apiVersion: swarm.k8slab.info/v1alpha1
kind: Swarm
metadata: {name: kinds}
spec:
  replicas: 1
  pool: {statefulSet: {name: w}}
  worker:
    protocol: Session
    maxRestarting: 100%
    runner: {command: [sleep, '600']}
    runners:
      record: {command: [sleep, '601'], env: {VERSION: one}}
      encode: {command: [sleep, '{param.seconds}']}
  jobs:
    - {name: plain}
    - {name: first, runner: record}
    - {name: second, runner: record}
    - {name: film, runner: encode, params: {seconds: '602'}}
";

/// Returns the process of each job.
fn pids(machine: &Machine) -> BTreeMap<String, u64> {
    until_phase(machine, 4, "running")
}

/// Returns the last argument of a process, and its variable `VERSION`.
fn program(pid: u64) -> (String, String) {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let (arguments, variables) = (read("cmdline"), read("environ"));
    let last = arguments.trim_end_matches('\0').rsplit('\0').next().unwrap_or_default();
    let version = variables.split('\0').find_map(|it| it.strip_prefix("VERSION="));
    (last.to_owned(), version.unwrap_or_default().to_owned())
}

/// Waits until the job's process has this last argument and this version.
fn until_runs(machine: &Machine, job: &str, wanted: (&str, &str)) -> BTreeMap<String, u64> {
    until(&format!("`{job}` runs as {wanted:?}"), || {
        let pids = pids(machine);
        let (last, version) = program(pids[job]);
        ((&*last, &*version) == wanted).then_some(pids)
    })
}

#[test]
fn each_job_runs_by_the_runner_that_it_names_and_an_edit_of_one_restarts_only_its_jobs() {
    let machine = Machine::new();
    machine.write(MANIFEST);
    let mut operator = machine.settled();
    until_runs(&machine, "plain", ("600", ""));
    until_runs(&machine, "first", ("601", "one"));
    until_runs(&machine, "second", ("601", "one"));
    let before = until_runs(&machine, "film", ("602", ""));

    machine.edit("VERSION: one", "VERSION: two");
    until_runs(&machine, "first", ("601", "two"));
    let after = until_runs(&machine, "second", ("601", "two"));
    for job in ["plain", "film"] {
        assert_eq!(after[job], before[job], "`{job}` names another runner");
    }

    machine.edit("{name: second, runner: record}", "{name: second}");
    let last = until_runs(&machine, "second", ("600", ""));
    for job in ["plain", "first", "film"] {
        assert_eq!(last[job], after[job], "`{job}` is as it was");
    }
    // The view has only the runners that its jobs name.
    machine.edit("runner: encode, params: {seconds: '602'}", "params: {seconds: '602'}");
    until_runs(&machine, "film", ("600", ""));
    let sessions = fs::read_dir(machine.state().join("sessions")).unwrap().flatten();
    let views = sessions.filter_map(|it| fs::read_to_string(it.path().join("view.json")).ok());
    assert!(views.into_iter().all(|view| view.contains("record") && !view.contains("encode")));
    operator.signal(rustix::process::Signal::TERM);
    assert!(operator.ended().success());
}

#[test]
fn a_name_that_no_runner_has_is_refused_before_the_start_and_in_an_edit() {
    let machine = Machine::new();
    machine.write(&MANIFEST.replace("second, runner: record", "second, runner: recrod"));
    let expected = "Swarm `kinds`: spec.jobs[2]: job `second` names the runner `recrod`, which is not \
                    in spec.worker.runners; did you mean `record`?";
    let mut plan = Command::new(env!("CARGO_BIN_EXE_swarm"));
    let plan = refusal(&plan.arg("plan").arg(machine.file()).output().unwrap(), 2);
    assert!(plan.contains(expected), "{plan}");
    let start = refusal(&machine.output(&[]), 2);
    assert!(start.contains(expected), "{start}");
    machine.write(&MANIFEST.replace("seconds}']", "seconds}'], workingDir: /no/such/dir"));
    let missing = refusal(&machine.output(&[]), 2);
    assert!(missing.contains("spec.worker.runners.encode.workingDir: the directory"), "{missing}");

    machine.write(MANIFEST);
    let operator = machine.settled();
    let before = pids(&machine);
    machine.edit("second, runner: record", "second, runner: recrod");
    until("a complaint", || operator.complaints().contains(expected).then_some(()));
    assert_eq!(pids(&machine), before, "the last valid state stays");
}

/// The recipe of the page of questions, whose commands may begin with variables.
#[test]
fn a_param_that_names_the_program_may_begin_with_variables() {
    let page = include_str!("../../../../docs/faq.md");
    let recipe = page.split("## A different program for each job").nth(1).unwrap();
    let recipe = recipe.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    let given = ["./record.sh front-door", "LANG=C ./poll.sh --every 60"];
    let programs = ["sleep 603", "VERSION=two LANG=C sleep 604"];
    let recipe = given.iter().zip(programs).fold(recipe.to_owned(), |recipe, (given, program)| {
        assert!(recipe.contains(given), "{recipe}");
        recipe.replace(given, program)
    });
    let recipe = recipe.replace("runner: {command", "protocol: Session, runner: {command");
    let head = MANIFEST.split("  worker:").next().unwrap();
    let machine = Machine::new();
    machine.write(&format!("{head}  {}\n", recipe.trim_end().replace('\n', "\n  ")));
    let _operator = machine.started();
    let pids = until_phase(&machine, 2, "running");
    until("both programs run", || {
        let front = program(pids["front-door"]).0;
        let weather = program(pids["weather"]);
        (front == "603" && weather == ("604".to_owned(), "two".to_owned())).then_some(())
    });
}
