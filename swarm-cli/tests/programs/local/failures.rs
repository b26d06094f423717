//! Answers of the program about jobs that fail.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use rustix::process::Signal;
use serde_json::Value;

use crate::local::operator::{Machine, get, signal, until};

const JOBS: usize = 5;

/// Jobs that end with code 3 once a file with their name exists.
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
  # No lease is renewed while a test waits.
  handover: {{lease: 1h}}
  jobs: [{}]
"#,
        names.join(", ")
    ));
    machine
}

/// The end of a job is reported without a renewal of the lease.
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
    for number in 0..JOBS {
        fs::write(machine.path().join(format!("job-{number}")), "").unwrap();
        until("the failure is known", || {
            (failing() == u64::try_from(number + 1).ok()).then_some(())
        });
    }
    let named = "job-0 on w-";
    until("the failure is reported", || operator.prints("settled").contains(named).then_some(()));
    let output = operator.prints(named);
    assert!(output.contains("ended with exit code 3 (`no camera`)"), "{output}");
    assert_eq!(machine.document(&["status"])["status"], "AllJobsFailing");
    machine.edit("{name: job-0}, {name: job-1}, {name: job-2}, ", "");
    let output = operator.prints("2 jobs on 2 workers, 3 removed");
    let line = output.lines().find(|line| line.contains("3 removed")).unwrap();
    assert!(line.starts_with("failing: 2 jobs; settled in "), "{output}");
    operator.signal(Signal::TERM);
}

/// Prints a line that no file contains in this form, and fails at once.
const SECRET: &str = "hunter 2 is the password";
const LEAKS: &str = "
apiVersion: swarm.k8slab.info/v1alpha1
kind: Swarm
metadata: {name: leaks}
spec:
  replicas: 1
  pool: {statefulSet: {name: w}}
  worker:
    protocol: Session
    showOutput: false
    runner:
      command: [sh, -c, 'printf \"hunter %s is the password\\n\" 2; exit 3']
      restart: {limit: 0}
  jobs: [{name: bad}]
";

/// The paths of all files below `dir` that contain the secret.
fn with_secret(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(with_secret(&path));
        } else if fs::read(&path).is_ok_and(|text| String::from_utf8_lossy(&text).contains(SECRET))
        {
            found.push(path);
        }
    }
    found
}

/// Output that may hold secrets is in the log of the job, which its user alone reads.
#[test]
fn hidden_output_is_in_the_log_of_its_worker_alone() {
    let machine = Machine::new();
    machine.write(LEAKS);
    let operator = machine.settled_with(&["--listen", "0"]);
    let output = operator.prints("http://");
    let address = output.split("http://").nth(1).unwrap().split_whitespace().next().unwrap();
    let line = "bad on w-0 ended with exit code 3; it is not restarted any more";
    let answers = |output: &'static str| {
        let all = ["/api/v1/swarm", "/api/v1/jobs", "/api/v1/jobs/bad"].map(|it| get(address, it));
        all.into_iter().map(move |it| it.unwrap_or_default().contains(output))
    };
    operator.prints(line);
    let dir = machine.state();
    let said = |output: &str| {
        let asked = |command, format| machine.asks(&[command, "-o", format]);
        let all = ["status", "ps"].map(|it| [asked(it, "text"), asked(it, "json")]).concat();
        assert!(all.iter().all(|it| !it.is_empty()), "{all:?}");
        all.iter().any(|it| it.contains(output))
    };
    assert_eq!(machine.document(&["status"])["status"], "AllJobsFailing");
    assert!(!said(SECRET) && !answers(SECRET).any(|it| it));
    // The report is written with the next renewal of the lease.
    until("the report of the worker", || {
        let reports = fs::read_dir(dir.join("failing")).ok()?.flatten();
        let is_report =
            |path: &Path| fs::read_to_string(path).is_ok_and(|it| it.contains("exit code 3"));
        reports.map(|it| it.path()).find(|path| is_report(path))
    });
    let log = dir.join("logs/jobs/bad.log");
    assert_eq!(with_secret(&dir), [log.as_path()]);
    assert!(!operator.prints(line).contains(SECRET) && !operator.complaints().contains(SECRET));

    machine.edit("showOutput: false", "showOutput: true");
    until("the edit is in force", || said(SECRET).then_some(()));
    assert!(answers(SECRET).any(|it| it));
    machine.edit("showOutput: true", "showOutput: false");
    until("so is the next one", || (!said(SECRET)).then_some(()));
    until("the reports of the worker follow", || {
        (with_secret(&dir) == [log.as_path()]).then_some(())
    });
}

#[test]
fn the_death_of_a_worker_is_in_the_logs_of_its_jobs() {
    let machine = Machine::new();
    machine.write(&LEAKS.replace("exit 3'", "exec sleep 600'"));
    let mut operator = machine.settled();
    until("it printed", || machine.asks(&["logs", "bad"]).contains(SECRET).then_some(()));
    signal(machine.workers()["w-0"], Signal::KILL);
    let logs = until("it runs again", || {
        let logs = machine.asks(&["logs", "bad"]);
        (logs.matches(SECRET).count() == 2).then_some(logs)
    });
    let again = logs.split(" w-0 - its worker w-0 was ended by signal 9\n").nth(1);
    assert!(again.is_some_and(|again| again.contains(SECRET)), "{logs}");
    operator.signal(Signal::TERM);
    operator.ended();
    assert_eq!(machine.processes(), []);
}

/// Returns the worker of each job that has one.
fn workers(machine: &Machine) -> BTreeMap<String, String> {
    let document = machine.document(&["ps"]);
    let entries = document["jobs"].as_array().into_iter().flatten();
    let text = |entry: &Value, field: &str| entry[field].as_str().map(str::to_owned);
    entries.filter_map(|it| Some((text(it, "job")?, text(it, "worker")?))).collect()
}

#[test]
fn a_job_that_fails_on_one_worker_tries_another_and_no_other_job_moves() {
    let machine = Machine::new();
    let first = machine.path().join("first");
    let path = first.display();
    machine.write(&format!(
        r#"
apiVersion: swarm.k8slab.info/v1alpha1
kind: Swarm
metadata: {{name: recorders}}
spec:
  replicas: 3
  pool: {{statefulSet: {{name: w}}}}
  worker:
    protocol: Session
    runner:
      command: [sh, -c, "case $0 in bad) test -e {path} || echo $1 > {path};
        test $(cat {path}) != $1 || exit 3;; esac; exec sleep 1000", "{{job}}", "{{worker}}"]
      restart: {{failover: 3, maxPause: 100ms}}
  jobs: [{{name: bad}}, {{name: a}}, {{name: b}}, {{name: c}}, {{name: d}}, {{name: e}}]
"#
    ));
    let mut operator = machine.started();
    let before = until("each job has a worker", || {
        let workers = workers(&machine);
        let worker = fs::read_to_string(&first).ok()?;
        (workers.len() == 6 && workers["bad"] == worker.trim()).then_some(workers)
    });
    let after = until("the job has another worker", || {
        let workers = workers(&machine);
        (*workers.get("bad")? != before["bad"]).then_some(workers)
    });
    let others = |of: &BTreeMap<String, String>| {
        let others = of.iter().filter(|(job, _)| *job != "bad");
        others.map(|(job, worker)| (job.clone(), worker.clone())).collect::<Vec<_>>()
    };
    assert_eq!(others(&before), others(&after));
    let life = until("the move is counted", || {
        Some(machine.document(&["history", "bad"])["life"].clone())
            .filter(|life| life["failovers"] == 1)
    });
    let moved = format!("to {}", after["bad"]);
    let events = life["events"].as_array().unwrap();
    let is_move = |it: &Value| it["cause"] == "failover" && it["detail"] == moved.as_str();
    assert!(events.iter().any(is_move) && life["crashes"].as_u64() >= Some(3), "{life}");
    operator.signal(Signal::TERM);
    operator.ended();
    let mut verify = Command::new(env!("CARGO_BIN_EXE_swarm"));
    let verified = verify.arg("verify").arg(machine.state().join("run.log")).output().unwrap();
    assert!(verified.status.success(), "{verified:?}");
    assert_eq!(machine.processes(), []);
}

/// Writes a pool that pings these targets.
fn pings(machine: &Machine, targets: &[&str]) {
    let jobs: Vec<_> = targets.iter().map(|target| format!("{{name: '{target}'}}")).collect();
    let jobs = jobs.join(", ");
    machine.write(&format!(
        "apiVersion: swarm.k8slab.info/v1alpha1\nkind: Swarm\nmetadata: {{name: peers}}\nspec:\n  \
         replicas: 1\n  pool: {{statefulSet: {{name: w}}}}\n  worker:\n    protocol: Session\n    \
         runner: {{ping: {{interval: 100ms}}}}\n  jobs: [{jobs}]\n"
    ));
}

#[test]
fn a_target_that_never_answers_fails_with_the_reason_and_is_pinged_on() {
    let machine = Machine::new();
    // A port that this test keeps, and on which nothing answers at first.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    // Nothing listens on the port `discard`.
    pings(&machine, &[&address, "127.0.0.1:9"]);
    let _operator = machine.started();
    let failing = |job: &str| {
        let failing = machine.document(&["status"])["failing"].clone();
        let row = failing.as_array()?.iter().find(|row| row["job"] == job)?.clone();
        Some(row["lastExit"].as_str().unwrap_or_default().to_owned())
    };
    let why = until("the closed port fails", || failing("127.0.0.1:9"));
    assert!(why.starts_with("127.0.0.1:9 cannot be reached: "), "{why}");
    assert_eq!(machine.run(&["status"]).status.code(), Some(3));
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut stream: TcpStream = stream;
            let mut head = [0; 1024];
            let _ = stream.read(&mut head);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
    });
    until("the target answers", || {
        machine.asks(&["logs", &address]).contains("answered in ").then_some(())
    });
    assert!(failing("127.0.0.1:9").is_some());
}

#[test]
fn a_name_that_can_never_be_pinged_is_refused_with_the_name_to_write() {
    let machine = Machine::new();
    pings(&machine, &["127.0.0.1:9", "camera-1"]);
    let file = machine.file();
    for words in [&["plan", file.to_str().unwrap()][..], &["local", file.to_str().unwrap()]] {
        let output = Command::new(env!("CARGO_BIN_EXE_swarm")).args(words).output().unwrap();
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{complaint}");
        let sentence = "job `camera-1` cannot be pinged by its name; write HOST:PORT";
        assert!(complaint.contains(sentence), "{complaint}");
    }
}
