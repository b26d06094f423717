//! Jobs that fail: the time until a person knows about it.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::operator::{Machine, get, until};

const JOBS: usize = 5;

/// Jobs that end with code 3 as soon as there is a file with their name.
fn pool() -> Machine {
    let machine = Machine::new();
    let dir = machine.path().display();
    let names: Vec<_> = (0..JOBS).map(|n| format!("{{name: job-{n}}}")).collect();
    machine.write(&format!(
        r#"
apiVersion: swarm.k8slab.info/v1alpha1
kind: Swarm
metadata: {{name: recorders}}
spec:
  replicas: 2
  pool: {{statefulSet: {{name: w}}}}
  worker:
    protocol: Session
    runner:
      command: [sh, -c, "until test -e {dir}/$0; do sleep 0.01; done; echo no camera; exit 3", "{{job}}"]
      restart: {{limit: 0}}
  jobs: [{}]
"#,
        names.join(", ")
    ));
    machine
}

/// Before, a job's end was reported with the next renewal of a lease, every four seconds.
#[test]
fn a_failure_is_known_at_once_and_comes_first() {
    let machine = pool();
    let operator = machine.settled_with(&["--listen", "0"]);
    let output = operator.prints("http://");
    let address = output.split("http://").nth(1).unwrap().split_whitespace().next().unwrap();
    let failing = || {
        let answer = get(address, "/api/v1/swarm")?;
        let document: Value = serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()?;
        document["jobs"]["failing"].as_u64()
    };
    let took = (0..JOBS).map(|number| {
        let since = Instant::now();
        fs::write(machine.path().join(format!("job-{number}")), "").unwrap();
        until("the failure is known", || {
            (failing() == u64::try_from(number + 1).ok()).then_some(())
        });
        since.elapsed()
    });
    let mut took: Vec<_> = took.collect();
    took.sort();
    eprintln!("failures were known after {took:?}");
    assert!(took[0] < Duration::from_millis(800), "even with a busy machine: {took:?}");
    let named = "job-0 on w-";
    until("a person is told", || operator.prints("settled").contains(named).then_some(()));
    let output = operator.prints(named);
    assert!(output.contains("ended with exit code 3 (`no camera`)"), "{output}");
    let mut status = Command::new(env!("CARGO_BIN_EXE_swarm-operator"));
    let status = status.arg("status").arg("--dir").arg(machine.state()).output().unwrap();
    let status = String::from_utf8(status.stdout).unwrap();
    assert!(status.starts_with("recorders: failing: 5 jobs · settled\n"), "{status}");
    machine.edit("{name: job-0}, {name: job-1}, {name: job-2}, ", "");
    let output = operator.prints("2 jobs on 2 workers, 3 removed");
    let line = output.lines().find(|line| line.contains("3 removed")).unwrap();
    assert!(line.starts_with("failing: 2 jobs; settled in "), "{output}");
    operator.signal(Signal::TERM);
}
