//! Signals to all processes of a pool at once, and what its callers ignore, block and limit.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::local::operator::{Machine, signal, until};

/// Jobs of a program in the shell.
fn manifest(script: &str, workers: usize, jobs: &str) -> String {
    let script = serde_json::to_string(script).unwrap();
    format!(
        "apiVersion: swarm.k8slab.info/v1alpha1
kind: Swarm
metadata: {{name: term}}
spec:
  replicas: {workers}
  pool: {{statefulSet: {{name: s}}}}
  worker: {{protocol: Session, runner: {{command: [sh, -c, {script}]}}}}
  handover: {{stopTimeout: 4s}}
  jobs: [{jobs}]
"
    )
}

/// Six recorders that need some time to finalise. One of them would otherwise be done by then.
const JOBS: &str =
    "{name: a}, {name: b}, {name: c}, {name: d}, {name: e}, {name: f, runOnce: true}";

/// Every process of the pool but its operator.
fn others(machine: &Machine) -> BTreeSet<i32> {
    let entry = format!("SWARM_DIR={}", machine.state().display());
    let is_of_pool = |pid: &i32| {
        let all = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        all.split(|byte| *byte == 0).any(|one| one == entry.as_bytes())
    };
    let pids =
        fs::read_dir("/proc").unwrap().filter_map(|it| it.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(is_of_pool).collect()
}

fn lines(machine: &Machine, end: &str) -> usize {
    machine.logs().lines().filter(|line| line.ends_with(end)).count()
}

#[test]
fn every_job_finalises_when_all_processes_are_asked_to_end_in_any_order() {
    let script = "trap 'sleep $0; echo finalized; exit 0' TERM; echo recording; \
                  while :; do sleep 0.05; done";
    // In the order of their ids, as systemd sends it, and jobs first; a job can be done at once.
    for (takes, jobs_first) in [("0.5", false), ("0", true), ("0", false)] {
        let machine = Machine::new();
        machine.write(&manifest(&script.replace("$0", takes), 3, JOBS));
        let mut operator = machine.settled();
        until("the jobs record", || (lines(&machine, " | recording") == 6).then_some(()));
        let mut all: Vec<_> = others(&machine).into_iter().chain([operator.pid()]).collect();
        all.sort_unstable();
        if jobs_first {
            all.reverse();
        }
        for pid in all {
            signal(pid, Signal::TERM);
        }
        assert_eq!(operator.ended().code(), Some(0));
        let log = machine.logs();
        assert_eq!(lines(&machine, " | finalized"), 6, "{log}");
        assert_eq!(lines(&machine, " | recording"), 6, "none begins again: {log}");
        for bad in ["killing", "restarting", "SIGKILL)", "finished"] {
            assert!(!log.contains(bad), "{bad}: {log}");
        }
        assert!(others(&machine).is_empty());
        // The run-to-completion job was stopped, and is not done.
        let _next = machine.settled();
        until("all run again", || (lines(&machine, " | recording") == 12).then_some(()));
    }
}

#[test]
fn a_job_gets_one_signal_when_systemd_asks_the_operator_first_and_then_all() {
    // It breaks off at a second signal, as ffmpeg does.
    let script = "n=; trap 'n=x$n; echo asked' TERM; echo recording; \
                  while [ -z \"$n\" ]; do sleep 0.01; done; \
                  for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.05; done; \
                  [ $n = x ] && echo finalized";
    // A service is stopped, or its first process has died.
    for first in [Signal::TERM, Signal::KILL] {
        let machine = Machine::new();
        machine.write(&manifest(script, 2, "{name: a}, {name: b}, {name: c}, {name: d}"));
        let mut operator = machine.settled();
        until("the jobs record", || (lines(&machine, " | recording") == 4).then_some(()));
        let all = others(&machine);
        operator.signal(first);
        // systemd needs some milliseconds.
        let begun = Instant::now();
        until("the others are signalled", || {
            let is_time = Duration::from_millis(40) < begun.elapsed();
            (is_time || 0 < lines(&machine, " | asked")).then_some(())
        });
        for pid in all {
            signal(pid, Signal::TERM);
        }
        operator.ended();
        until("all have ended", || others(&machine).is_empty().then_some(()));
        let log = machine.logs();
        assert_eq!((lines(&machine, " | asked"), lines(&machine, " | finalized")), (4, 4), "{log}");
    }
}

#[test]
fn a_pool_that_is_started_with_nohup_outlives_its_terminal_and_its_jobs_start_with_defaults() {
    let machine = Machine::new();
    machine.write(&manifest("grep SigIgn /proc/self/status; exec sleep 600", 2, "{name: a}"));
    let script = "trap '' HUP INT QUIT; exec \"$0\" \"$@\"";
    let mut operator = machine.started_by(&["sh", "-c", script]);
    operator.prints("settled in");
    until("the job says", || machine.logs().contains(" | SigIgn:").then_some(()));
    // Two signals belong to the C library, which lets no program change them.
    let zero = ["0000000000000000\n", "0000000180000000\n"];
    let is_zero = zero.iter().any(|mask| machine.logs().contains(&format!("| SigIgn:\t{mask}")));
    assert!(is_zero, "{}", machine.logs());
    let workers = machine.workers();
    for kind in [Signal::HUP, Signal::INT, Signal::QUIT] {
        operator.signal(kind);
        for pid in workers.values() {
            signal(*pid, kind);
        }
    }
    machine.edit("{name: a}", "{name: a}, {name: b}");
    operator.prints("2 jobs on 2 workers");
    assert_eq!(machine.workers(), workers, "{}{}", operator.complaints(), machine.logs());
    operator.signal(Signal::TERM);
    assert_eq!(operator.ended().code(), Some(0));
}

#[test]
fn a_pool_uses_the_hard_limit_of_open_files_and_its_jobs_get_that_of_the_caller() {
    let machine = Machine::new();
    machine.write(&manifest("echo limit $(ulimit -Sn); exec sleep 600", 1, &jobs(60)));
    let operator = machine.started_by(&["sh", "-c", "ulimit -Sn 40; exec \"$0\" \"$@\""]);
    operator.prints("settled in");
    until("the jobs say", || (lines(&machine, " | limit 40") == 60).then_some(()));
    assert_eq!(operator.complaints(), "");
}

#[test]
fn a_hard_limit_that_is_too_low_for_the_jobs_is_named_at_the_start() {
    let machine = Machine::new();
    machine.write(&manifest("exec sleep 600", 1, &jobs(60)));
    let operator = machine.started_by(&["sh", "-c", "ulimit -n 100; exec \"$0\" \"$@\""]);
    let said = until("a complaint", || {
        Some(operator.complaints()).filter(|complaints| complaints.contains("LimitNOFILE="))
    });
    assert!(said.contains("60 jobs, for which 124 open files are needed"), "{said}");
}

fn jobs(count: usize) -> String {
    (1..=count).map(|n| format!("{{name: j{n}}}")).collect::<Vec<_>>().join(", ")
}

#[test]
fn the_processes_of_another_namespace_are_refused_at_the_start() {
    let machine = Machine::new();
    let unshare = ["unshare", "--pid", "--fork"];
    if !Command::new("unshare")
        .args(["--pid", "--fork", "true"])
        .status()
        .is_ok_and(|it| it.success())
    {
        eprintln!("skipped: only root can make a PID namespace");
        return;
    }
    let mut operator = machine.started_by(&unshare);
    assert_eq!(operator.ended().code(), Some(1));
    let said = operator.complaints();
    assert!(said.contains("another PID namespace") && said.contains("--mount-proc"), "{said}");
    assert!(!machine.state().exists());
    // The right one is good, also when it hides other users' processes.
    let mount = "mount -t proc -o hidepid=2 proc /proc && exec \"$0\" \"$@\"";
    let own = ["unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", mount];
    machine.started_by(&own).prints("settled in");
}
