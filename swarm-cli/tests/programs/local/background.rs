//! Pools in the background, `attach`, and several pools on one machine.

use std::path::PathBuf;
use std::process::{Command, Output};

use nix::unistd::{self, getsid};
use rustix::process::Signal;

use crate::local::operator::{Machine, signal, until};

const PROGRAM: &str = env!("CARGO_BIN_EXE_swarm");

fn manifest(name: &str, jobs: &str) -> String {
    format!(
        "
apiVersion: swarm.k8slab.info/v1alpha1
kind: Swarm
metadata: {{name: {name}}}
spec:
  replicas: 2
  pool: {{statefulSet: {{name: w}}}}
  worker: {{protocol: Session, runner: {{command: [sleep, '1000']}}}}
  jobs: {jobs}
"
    )
}

/// Two jobs.
fn recorders() -> String {
    manifest("recorders", "[{name: garden}, {name: yard}]")
}

fn command(machine: &Machine, words: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(words).env("XDG_STATE_HOME", machine.path());
    command
}

/// Runs a command to its end, and returns its output, its complaint, and its exit code.
fn ran(machine: &Machine, words: &[&str]) -> (String, String, Option<i32>) {
    let Output { status, stdout, stderr } = command(machine, words).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(stdout), text(stderr), status.code())
}

fn file(machine: &Machine, name: &str, text: &str) -> String {
    let path: PathBuf = machine.path().join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

/// Starts a pool in the background, and returns its output and its operator.
fn detached(machine: &Machine, file: &str) -> (String, i32) {
    let (printed, complaint, code) = ran(machine, &["local", "-d", file]);
    assert_eq!((code, &*complaint), (Some(0), ""), "{printed}");
    let pid = printed.split_once("as process ").unwrap().1;
    let pid = pid.lines().next().unwrap().parse().unwrap();
    (printed, pid)
}

fn stop(machine: &Machine, name: &str) {
    let (printed, complaint, code) = ran(machine, &["stop", name]);
    assert_eq!(code, Some(0), "{printed}{complaint}");
    assert!(printed.ends_with("no process is left\n"), "{printed}");
}

#[test]
fn a_pool_runs_in_the_background_and_keeps_nothing_of_its_caller() {
    let machine = Machine::new();
    let (printed, pid) = detached(&machine, &file(&machine, "r.yaml", &recorders()));
    assert!(printed.starts_with("recorders: 2 jobs for 2 workers on this machine\n"), "{printed}");
    assert!(printed.ends_with("\n  end it:           swarm stop recorders\n"), "{printed}");
    // The output of `local` ended, so nothing holds its pipe; the streams lead elsewhere.
    let stream = |n| std::fs::read_link(format!("/proc/{pid}/fd/{n}")).unwrap();
    let log = machine.path().join("swarm/recorders/logs/operator.log");
    let nothing = PathBuf::from("/dev/null");
    assert_eq!([stream(0), stream(1), stream(2)], [nothing.clone(), nothing, log.clone()]);
    let id = unistd::Pid::from_raw(pid);
    assert_eq!(getsid(Some(id)).unwrap(), id);
    // The first question after the start has the final answer.
    let (status, _, code) = ran(&machine, &["status", "recorders"]);
    assert!(code == Some(0) && status.contains("recorders: Settled"), "{status}");
    until("the log says so", || {
        std::fs::read_to_string(&log).unwrap().contains("settled in").then_some(())
    });

    // A second start is refused, with the code of the operator.
    let again = file(&machine, "again.yaml", &recorders());
    let (printed, complaint, code) = ran(&machine, &["local", "-d", &again]);
    assert_eq!((&*printed, code), ("", Some(1)));
    let already = format!("swarm: recorders runs already, as process {pid}, since 20");
    assert!(complaint.starts_with(&already), "{complaint}");
    assert!(complaint.contains("r.yaml; see it with `swarm attach recorders`, "), "{complaint}");

    // The name of a job is not the name of a pool.
    let (_, complaint, code) = ran(&machine, &["ps", "garden"]);
    let hint = "swarm: no pool `garden` runs; recorders runs, and garden is a job of recorders: ";
    assert_eq!((complaint, code), (format!("{hint}`swarm ps --job garden`\n"), Some(3)));
    let (_, complaint, code) = ran(&machine, &["stop", "garden"]);
    assert_eq!((complaint, code), (format!("{hint}`swarm suspend garden`\n"), Some(3)));
    stop(&machine, "recorders");
    let (logs, complaint, code) = ran(&machine, &["logs", "garden"]);
    assert_eq!((&*complaint, code), ("", Some(0)), "the only pool with such a job has ended");
    assert!(logs.contains(" - started "), "{logs}");
    assert_eq!(machine.processes(), []);
}

/// A pool whose job ignores SIGTERM once it is ready.
const STUBBORN: &str = "\
apiVersion: swarm.k8slab.info/v1alpha1
kind: Swarm
metadata: {name: recorders}
spec:
  replicas: 1
  pool: {managed: {}}
  handover: {stopTimeout: 10m}
  worker:
    protocol: Session
    runner:
      command: [sh, -c, 'trap \"\" TERM; echo up; exec sleep 600']
      ready: {line: up}
  jobs: [{name: a}]
";

#[test]
fn no_second_pool_starts_where_the_directory_of_the_first_was_renamed() {
    let machine = Machine::new();
    let pool = file(&machine, "r.yaml", STUBBORN);
    let (_, operator) = detached(&machine, &pool);
    let settled = || {
        until("the pool is settled, and its job ignores signals", || {
            let is_settled = ran(&machine, &["status", "recorders"]).2 == Some(0);
            let jobs = ran(&machine, &["ps", "recorders"]).0;
            (is_settled && jobs.contains("ready")).then_some(())
        });
    };
    settled();
    let home = machine.path().join("swarm");
    let start = || {
        let (printed, complaint, code) = ran(&machine, &["local", "-d", &pool]);
        assert_eq!(code, Some(1), "{printed}{complaint}");
        complaint
    };
    std::fs::rename(home.join("recorders"), home.join("moved")).unwrap();
    let complaint = start();
    assert!(complaint.contains("another operator runs in") || complaint.contains("runs already"));
    settled();

    // A worker without an operator ends once its job has.
    signal(operator, Signal::KILL);
    // The end of its last thread wakes frozen workers, so none is frozen before.
    until("it has ended", || {
        let process = std::fs::read_to_string(format!("/proc/{operator}/stat"));
        let process = process.unwrap_or_default();
        let threads = std::fs::read_dir(format!("/proc/{operator}/task"));
        let is_alone = threads.map_or(0, Iterator::count) <= 1;
        (process.is_empty() || process.contains(") Z ") && is_alone).then_some(())
    });
    // Without its directory a worker loses its lease and ends at once, unless it is frozen.
    let workers = machine.workers();
    assert_eq!(workers.len(), 1);
    for worker in workers.values() {
        signal(*worker, Signal::STOP);
    }
    std::fs::rename(home.join("recorders"), home.join("left")).unwrap();
    let complaint = until("the operator has ended", || {
        Some(start()).filter(|complaint| !complaint.contains("another operator runs"))
    });
    assert!(complaint.contains("renamed or removed"), "{complaint}");
    let (printed, complaint, code) = ran(&machine, &["stop", "left", "--now"]);
    assert_eq!(code, Some(0), "{printed}{complaint}");
    assert!(printed.ends_with("no process is left\n"), "{printed}");
    assert_eq!(machine.processes(), []);
}

#[test]
fn a_start_that_fails_is_reported_by_the_caller() {
    let machine = Machine::new();
    let wrong = file(&machine, "wrong.yaml", &recorders().replace("jobs:", "jbos:"));
    let (printed, complaint, code) = ran(&machine, &["local", "--detach", &wrong]);
    assert_eq!((&*printed, code), ("", Some(2)));
    assert!(complaint.contains("did you mean `jobs`?"), "{complaint}");
    let (_, complaint, code) = ran(&machine, &["local", "-d", "--until-settled", &wrong]);
    assert_eq!(code, Some(2));
    assert!(complaint.contains("cannot be used with"), "{complaint}");
    // The state directory cannot be used.
    let file = file(&machine, "right.yaml", &recorders());
    let (printed, complaint, code) = ran(&machine, &["local", "-d", "--dir", "/proc/none", &file]);
    assert_eq!((&*printed, code), ("", Some(1)));
    assert!(complaint.contains("/proc/none"), "{complaint}");
    assert_eq!(machine.processes(), []);
}

#[test]
fn several_pools_are_listed_and_one_of_them_that_fails_is_the_answer() {
    let machine = Machine::new();
    let yard = file(&machine, "yard.yaml", &manifest("yard", "[{name: a}]"));
    detached(&machine, &yard);
    detached(&machine, &file(&machine, "r.yaml", &recorders()));
    let listed = until("both are settled", || {
        let (status, _, code) = ran(&machine, &["status"]);
        (code == Some(0) && status.matches("  Settled").count() == 2).then_some(status)
    });
    let rows: Vec<Vec<_>> = listed.lines().map(|it| it.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["NAME", "STATE", "JOBS", "WORKERS", "SINCE", "FILE"]);
    assert_eq!(rows[1][..4], ["recorders", "Settled", "2", "2"]);
    assert_eq!((rows[2][0], rows[2][2]), ("yard", "1"));
    assert_eq!(rows[2].last(), Some(&&*yard));
    let (printed, ..) = ran(&machine, &["status", "-o", "json"]);
    let document: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(document["pools"][1]["name"], "yard");
    assert_eq!(document["pools"][1]["file"], *yard);
    assert!(document["pools"][1]["dir"].as_str().unwrap().ends_with("/swarm/yard"));

    std::fs::write(&yard, "jobs: [").unwrap();
    until("one of them is not healthy", || {
        let (status, _, code) = ran(&machine, &["status"]);
        (code == Some(3) && status.contains("file invalid")).then_some(())
    });
    let (_, complaint, _) = ran(&machine, &["status", "nope"]);
    assert!(complaint.ends_with("/swarm/nope; recorders, yard run\n"), "{complaint}");
    let (_, complaint, code) = ran(&machine, &["attach"]);
    assert_eq!(code, Some(2));
    let commands = "\n  swarm attach --pool recorders\n  swarm attach --pool yard\n";
    assert!(
        complaint.ends_with(&format!("several pools run; name one of them:{commands}")),
        "{complaint}"
    );
    stop(&machine, "yard");
    stop(&machine, "recorders");
    assert_eq!(machine.processes(), []);
}

#[test]
fn without_a_terminal_attach_prints_lines_until_the_pool_ends() {
    let machine = Machine::new();
    let (_, complaint, code) = ran(&machine, &["attach", "recorders"]);
    assert_eq!(code, Some(3), "{complaint}");
    let manifest = file(&machine, "r.yaml", &recorders());
    detached(&machine, &manifest);
    let out = machine.path().join("attached");
    let mut attached = command(&machine, &["attach", "recorders"]);
    attached.stdout(std::fs::File::create(&out).unwrap()).stdin(std::process::Stdio::null());
    let mut attached = attached.spawn().unwrap();
    let prints = |words: &str| {
        until(words, || {
            let printed = std::fs::read_to_string(&out).unwrap();
            printed.contains(words).then_some(printed)
        })
    };
    prints("logs:  ");
    std::fs::write(&manifest, recorders().replace("replicas: 2", "replicas: 1")).unwrap();
    prints("2 jobs on 1 worker");
    // SIGTERM ends the view, and the pool goes on.
    signal(attached.id().cast_signed(), Signal::TERM);
    let ended = until("attach has ended", || attached.try_wait().unwrap());
    assert_eq!(ended.code(), Some(0));
    prints("detached; the pool goes on");
    prints("`swarm attach recorders`");
    assert_eq!(ran(&machine, &["status", "recorders"]).2, Some(0));

    let mut attached = command(&machine, &["attach", "--plain"]);
    attached.stdout(std::fs::File::create(&out).unwrap());
    let mut attached = attached.spawn().unwrap();
    prints("logs:  ");
    stop(&machine, "recorders");
    let ended = until("attach has ended", || attached.try_wait().unwrap());
    assert_eq!(ended.code(), Some(0));
    let printed = prints("the pool in ");
    assert!(printed.ends_with("/swarm/recorders has ended\n"), "{printed}");
    assert_eq!(machine.processes(), []);
}

#[test]
fn a_pool_whose_operator_was_killed_is_named_until_it_is_started_or_stopped() {
    let machine = Machine::new();
    let [one, two] = ["one", "two"]
        .map(|name| file(&machine, &format!("{name}.yaml"), &manifest(name, "[{name: a}]")));
    let (_, pid) = detached(&machine, &one);
    detached(&machine, &two);
    assert_eq!(ran(&machine, &["status"]).2, Some(0));
    signal(pid, Signal::KILL);
    let sentence = "the operator of one ended without being asked";
    // Its workers end first.
    until("no process of the pool is left", || {
        ran(&machine, &["status", "one"]).1.contains(sentence).then_some(())
    });
    for words in [&["status"][..], &["status", "-A"]] {
        let (listed, complaint, code) = ran(&machine, words);
        assert!(code == Some(3) && complaint.contains(sentence), "{listed}{complaint}");
        let first = listed.lines().nth(1).unwrap();
        assert!(first.starts_with("one   no operator"), "{listed}");
        assert_eq!(listed.lines().count(), 3, "{listed}");
    }
    let (listed, _, _) = ran(&machine, &["status", "-A", "-o", "json"]);
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    assert!(listed["pools"][0]["error"].as_str().unwrap().starts_with(sentence), "{listed}");
    let (checked, _, code) = ran(&machine, &["check"]);
    assert!(code == Some(3) && checked.contains(sentence), "{checked}");
    let (_, _) = detached(&machine, &one);
    assert_eq!(ran(&machine, &["status"]).2, Some(0));
    let outages = || {
        let (history, _, _) = ran(&machine, &["history", "--pool", "one"]);
        let outages = history.lines().filter(|line| line.contains("  outage  "));
        outages.map(str::to_owned).collect::<Vec<_>>()
    };
    let outage = until("the outage in the history", || outages().pop());
    let words = ["no operator ran for ", "; up to 1 job stood still"];
    assert!(words.iter().all(|it| outage.contains(it)), "{outage}");
    stop(&machine, "one");
    // The history has no outage for an end that was asked for.
    let (_, pid) = detached(&machine, &one);
    until("its next start in the history", || {
        let (history, _, _) = ran(&machine, &["history", "--pool", "one"]);
        (history.matches("the operator started").count() == 2).then_some(())
    });
    assert_eq!(outages(), [outage]);
    signal(pid, Signal::KILL);
    until("the operator has ended", || (ran(&machine, &["status"]).2 == Some(3)).then_some(()));
    stop(&machine, "one");
    let (listed, complaint, code) = ran(&machine, &["status", "-A"]);
    assert!(code == Some(0) && !listed.contains("one"), "{listed}{complaint}");
    stop(&machine, "two");
    assert_eq!(ran(&machine, &["check"]).2, Some(0));
}
