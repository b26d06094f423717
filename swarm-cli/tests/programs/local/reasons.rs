//! Jobs without a worker say why, and mistakes that a start would only repeat are refused before it.

use std::process::Command;

use super::operator::{Machine, Operator, until};
use super::refusal;

/// One worker with room for one job. No slot of the pool has the number of the pin.
const MANIFEST: &str = "
apiVersion: swarm.k8slab.info/v1alpha1
kind: Swarm
metadata: {name: cameras}
spec:
  replicas: 1
  pool: {statefulSet: {name: w}}
  worker:
    protocol: Session
    maxJobs: 1
    runner: {command: [sleep, '{param.seconds}']}
  jobs:
  - {name: low, params: {seconds: '1000'}}
  - {name: pinned, pin: 7, params: {seconds: '1000'}}
";

/// Returns the reason of a job and its sentence, as the API has them.
fn why(machine: &Machine, job: &str) -> (String, String) {
    let entry = machine.job(job);
    assert_eq!(entry["job"], job);
    let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
    (text("unassigned"), text("unassignedMessage"))
}

fn started(machine: &Machine) -> Operator<'_> {
    machine.write(MANIFEST);
    let operator = machine.started();
    operator.prints("settled in");
    operator
}

#[test]
fn a_job_without_a_worker_says_why_everywhere() {
    let machine = Machine::new();
    let operator = started(&machine);
    let (reason, sentence) = why(&machine, "pinned");
    assert!(reason == "pin" && !sentence.is_empty(), "{reason}: {sentence}");
    operator.prints(&format!("\n  `pinned`: {sentence}\n"));
    assert_eq!(why(&machine, "low"), (String::new(), String::new()));
    let listed = machine.asks(&["ps", "--unassigned"]);
    assert!(listed.contains(&format!("pinned  unassigned (pin)  {sentence}\n")), "{listed}");
    let status = machine.asks(&["status"]);
    assert!(status.contains(&format!("no worker: pin (`pinned`: {sentence})\n")), "{status}");
    let file = machine.file();
    let plan = machine.asks(&["plan", file.to_str().unwrap()]);
    assert!(plan.contains(&format!("pinned  pin     {sentence}\n")), "{plan}");
    machine.asks(&["suspend", "low"]);
    let dir = machine.state().canonicalize().unwrap();
    let undo = format!(": swarm resume --dir {} low", dir.display());
    until("it is suspended", || {
        let (reason, sentence) = why(&machine, "low");
        (reason == "suspended" && sentence.ends_with(&undo)).then_some(())
    });
}

#[test]
fn a_displaced_job_is_reported_with_the_job_that_took_its_place() {
    let machine = Machine::new();
    let operator = started(&machine);
    machine.edit("jobs:\n", "jobs:\n  - {name: high, priority: 5, params: {seconds: '1000'}}\n");
    operator.prints(" `high` (priority 5) on w-0, and waits for room: low (priority 0)\n");
    let (reason, sentence) = why(&machine, "low");
    assert!(reason == "capacity" && sentence.contains("`high` (priority 5)"), "{sentence}");
    operator.prints(&format!("`low`: {sentence}\n"));
}

#[test]
fn a_param_that_jobs_lack_is_refused_before_the_start_and_in_an_edit() {
    let machine = Machine::new();
    machine.write(&MANIFEST.replacen("{seconds: '1000'}", "{second: '1000'}", 1));
    let expected = "spec.worker.runner.command: 1 of 2 jobs has no param for `{param.seconds}`: \
                    low; `low` has only second; write one, as in `{name: low, params: {seconds: \
                    VALUE}}`";
    let refused = refusal(&machine.output(&[]), 2);
    assert!(refused.contains(expected), "{refused}");
    let file = machine.file();
    let plan = Command::new(env!("CARGO_BIN_EXE_swarm")).arg("plan").arg(file).output().unwrap();
    let plan = refusal(&plan, 2);
    assert!(plan.contains(expected), "{plan}");

    let operator = started(&machine);
    machine.edit("{param.seconds}", "{param.hours}");
    until("the edit is refused", || {
        operator
            .complaints()
            .contains("2 of 2 jobs have no param for `{param.hours}`")
            .then_some(())
    });
    let status = machine.asks(&["status"]);
    assert!(status.contains("✗") && status.contains("keeps running"), "{status}");
    assert_eq!(why(&machine, "low"), (String::new(), String::new()));
}

#[test]
fn a_directory_and_a_secret_that_are_missing_are_refused_before_the_start() {
    let machine = Machine::new();
    for (more, expected) in [
        (
            "workingDir: /no/such/dir",
            "spec.worker.runner.workingDir: the directory `/no/such/dir` cannot be used: No such \
             file or directory",
        ),
        (
            "paramsFrom: [{name: noSuch, secretKeyRef: {name: camera, key: password}}]",
            " has no variable SWARM_PARAM_NOSUCH, ",
        ),
    ] {
        let with = format!("'{{param.seconds}}'], {more}}}");
        machine.write(&MANIFEST.replace("'{param.seconds}']}", &with));
        let refused = refusal(&machine.output(&[]), 2);
        assert!(refused.contains(expected), "{refused}");
    }
    let operator = started(&machine);
    machine.edit("'{param.seconds}']}", "'{param.seconds}'], workingDir: /no/such/dir}");
    until("the edit is refused", || {
        operator.complaints().contains("the directory `/no/such/dir`").then_some(())
    });
    assert_eq!(why(&machine, "low"), (String::new(), String::new()));
}
