//! Titles of jobs: free text next to the names, which restarts nothing.

use rustix::process::Signal;

use crate::local::operator::{Machine, until};

const MANIFEST: &str = "
apiVersion: swarm.k8slab.info/v1alpha1
kind: Swarm
metadata: {name: recorders}
spec:
  replicas: 1
  pool: {statefulSet: {name: w}}
  worker: {protocol: Session, runner: {command: [sh, -c, '{param.cmd}'], restart: {limit: 0}}}
  jobs:
  - {name: broken, title: Garage, params: {cmd: 'exit 3'}}
  - {name: door, title: Front Door, params: {cmd: 'exec sleep 1000'}}
  - {name: yard, params: {cmd: 'exec sleep 1000'}}
";

/// Waits until `ps` has the running job `door` with this title, and returns its process.
fn door(machine: &Machine, title: &str) -> u64 {
    until(&format!("door is {title:?}"), || {
        let job = machine.job("door");
        (job["title"] == *title && job["phase"] == "running").then(|| job["pid"].as_u64())?
    })
}

#[test]
fn a_title_is_shown_next_to_the_name_and_an_edit_of_it_restarts_nothing() {
    let machine = Machine::new();
    machine.write(MANIFEST);
    let mut operator = machine.settled();
    let before = door(&machine, "Front Door");
    let list = machine.asks(&["ps"]);
    let mut lines = list.lines();
    assert!(lines.next().unwrap().starts_with("JOB     TITLE       WORKER "), "{list}");
    assert!(list.contains("\ndoor    Front Door  w-0 "), "{list}");
    assert!(list.contains("\nyard                w-0 "), "{list}");
    assert_eq!(machine.asks(&["ps", "--job", "Front"]).lines().count(), 2);
    until("the failing job has its title", || {
        machine
            .asks(&["status"])
            .contains("✗ broken (Garage): not restarted any more")
            .then_some(())
    });

    machine.edit("Front Door", "Haustür");
    assert_eq!(door(&machine, "Haustür"), before);
    // A title that could control a terminal is refused, and the last one stays.
    machine.edit("Haustür", "\"a\\u001b[2J\"");
    until("the edit is refused", || {
        let status = machine.asks(&["status"]);
        let sentence = "job `door`: the title has the character '\\u{1b}' at position 1";
        (status.contains(sentence) && !status.contains('\u{1b}')).then_some(())
    });
    assert_eq!(door(&machine, "Haustür"), before);
    // A list without titles has no column for them.
    machine.edit("title: \"a\\u001b[2J\", ", "");
    machine.edit("title: Garage, ", "");
    until("the column has gone", || {
        machine.asks(&["ps"]).starts_with("JOB     WORKER ").then_some(())
    });
    operator.signal(Signal::TERM);
    operator.ended();
    assert_eq!(machine.processes(), []);
}
