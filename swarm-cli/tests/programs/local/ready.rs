//! Settings of a program that start no process, and when a pool counts as settled for
//! `--until-settled`.

use std::fs;
use std::process::Output;

use super::operator::{Machine, until};

/// A Swarm of two jobs that run a program as these fields say.
fn manifest(runner: &str) -> String {
    format!(
        "apiVersion: swarm.k8slab.info/v1alpha1\nkind: Swarm\nmetadata: {{name: ready}}\nspec:\n  \
         replicas: 2\n  pool: {{statefulSet: {{name: w}}}}\n  worker:\n    protocol: Session\n    \
         runner: {{{runner}}}\n  jobs: [{{name: a}}, {{name: b}}]\n"
    )
}

/// Returns how often a job has begun.
fn starts(machine: &Machine, job: &str) -> usize {
    let begins = format!("{job} has begun");
    machine.logs().lines().filter(|line| line.ends_with(&begins)).count()
}

fn starts_of_both(machine: &Machine) -> [usize; 2] {
    ["a", "b"].map(|job| starts(machine, job))
}

#[test]
fn settings_that_start_no_process_reach_running_jobs_and_touch_none() {
    let machine = Machine::new();
    let command = "command: [sh, -c, 'echo $SWARM_JOB has begun; exec sleep 600']";
    let runner = format!("{command}, restart: {{limit: 10}}");
    machine.write(&manifest(&runner));
    let _operator = machine.settled();
    until("both jobs to run", || (starts_of_both(&machine) == [1, 1]).then_some(()));
    let taken = |times: usize| {
        until("both workers to have the settings", || {
            (machine.logs().matches("with the new settings of spec.worker.runner").count()
                == 2 * times)
                .then_some(())
        });
    };
    machine.edit("limit: 10", "limit: 11");
    taken(1);
    machine.edit("restart:", "ready: {line: up, timeout: 1s}, restart:");
    taken(2);
    // A job that begins later fails the check. So the earlier jobs would have failed it before.
    machine.edit("{name: b}", "{name: b}, {name: later}");
    until("a later job to fail the check twice", || (3 <= starts(&machine, "later")).then_some(()));
    machine.edit("{name: b}, {name: later}", "{name: b}");
    assert_eq!(starts_of_both(&machine), [1, 1], "{}", machine.logs());
    machine.edit("restart:", "env: {A: b}, restart:");
    until("both jobs to begin again", || {
        starts_of_both(&machine).iter().all(|starts| 2 <= *starts).then_some(())
    });
}

/// Lengthens the time to be ready of jobs that are not ready yet, and that become ready later than
/// their first time allows. Returns the logs; `None` if that time ended before the edit took effect.
fn lengthened(first_s: u64) -> Option<String> {
    let machine = Machine::new();
    let program = format!(
        "echo $SWARM_JOB has begun; while ! [ -e edited ]; do sleep 0.01; done; \
         sleep {first_s}; echo up; exec sleep 600"
    );
    let dir = machine.path().display().to_string();
    let ready = format!("ready: {{line: up, timeout: {first_s}s}}");
    let runner = format!("command: [sh, -c, '{program}'], workingDir: {dir}, {ready}");
    machine.write(&manifest(&runner));
    let _operator = machine.settled();
    machine.edit(&format!("timeout: {first_s}s"), "timeout: 1h");
    until("both workers to have the longer time", || {
        let taken = machine.logs().matches("with the new settings of spec.worker.runner").count();
        (taken == 2).then_some(())
    });
    if machine.logs().contains("was not ready within") {
        return None;
    }
    fs::write(machine.path().join("edited"), "").unwrap();
    until("both jobs to be ready", || {
        (machine.logs().matches("after_ms=").count() == 2).then_some(())
    });
    Some(machine.logs())
}

#[test]
fn a_longer_time_to_be_ready_reaches_jobs_that_are_not_ready_yet() {
    let logs = (2..).find_map(|power| lengthened(1 << power)).unwrap();
    let begun = logs.lines().filter(|line| line.ends_with("has begun")).count();
    assert_eq!(begun, 2, "{logs}");
}

fn run(runner: &str, args: &[&str]) -> (Machine, Output) {
    let machine = Machine::new();
    machine.write(&manifest(runner));
    let output = machine.output(&[&["--until-settled"], args].concat());
    assert_eq!(machine.processes(), []);
    (machine, output)
}

#[test]
fn until_settled_waits_until_every_job_is_ready() {
    let runner = "command: [sh, -c, 'sleep 2; echo up; exec sleep 600'], ready: {line: up}";
    let (machine, output) = run(runner, &[]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(machine.logs().matches("after_ms=").count(), 2);
}

#[test]
fn until_settled_ends_with_3_and_the_reason_once_a_job_is_given_up() {
    let (_, output) = run("command: [/no/such/program], restart: {limit: 2}", &[]);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(complaint.contains("/no/such/program"), "{complaint}");
    assert!(complaint.contains("it is not restarted any more"), "{complaint}");
}

#[test]
fn until_settled_ends_with_an_error_after_its_time() {
    let (_, output) = run("command: [sh, -c, 'exit 4']", &["--timeout", "7s"]);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(complaint.contains("not settled within 7s: 2 jobs are not ready"), "{complaint}");
}

#[test]
fn until_settled_counts_jobs_that_are_done() {
    let machine = Machine::new();
    let once =
        manifest("command: [sh, -c, 'exit 0']").replace("name: a}", "name: a, runOnce: true}");
    machine.write(&once.replace(", {name: b}", ", {name: b, runOnce: true}"));
    let output = machine.output(&["--until-settled", "--timeout", "5m"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}
