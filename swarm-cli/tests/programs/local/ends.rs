//! Jobs that become root, so that the user of the pool may not end them.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustix::process::{Signal, getuid};
use serde_json::Value;

use crate::local::operator::{Machine, Operator, signal, until};

/// A user without any right, whose pool it is.
pub(crate) const NOBODY: u32 = 65_533;

/// The words that start a program as that user.
pub(crate) const AS_NOBODY: [&str; 4] =
    ["setpriv", "--reuid=65533", "--regid=65533", "--clear-groups"];

/// The command of a job that becomes root. It holds a lock for as long as it lives, and writes down each
/// start. A start that finds the lock taken has the exit code 9.
const JOB: &str = r#"[./become, --reuid=0, --regid=0, --clear-groups, flock, -n, -E, "9",
        "{job}.lock", sh, -c, "echo $$ >>$0.starts; exec sleep 600", "{job}"]"#;

struct Pool {
    machine: Machine,
}

impl Pool {
    /// Makes a pool of this many workers; `None` where this user cannot make such a program.
    fn new(workers: u32) -> Option<Self> {
        let machine = Machine::new();
        if !getuid().is_root() {
            eprintln!("skipped: only root can make a program that becomes root");
            return None;
        }
        let dir = machine.path();
        copy_program("setpriv", &dir.join("become"), 0o4755);
        fs::set_permissions(dir, Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(machine.state()).unwrap();
        copy_program(env!("CARGO_BIN_EXE_swarm"), &dir.join("swarm"), 0o755);
        for path in [dir, &machine.state()] {
            chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        machine.write(&format!(
            "apiVersion: swarm.k8slab.info/v1alpha1\nkind: Swarm\nmetadata: {{name: roots}}\nspec:\n  \
             replicas: {workers}\n  pool: {{statefulSet: {{name: w}}}}\n  worker:\n    protocol: \
             Session\n    runner:\n      workingDir: {}\n      command: {JOB}\n  \
             handover: {{policy: Exclusive, \
             stopTimeout: 1s, lease: 4s}}\n  jobs: [{{name: a}}, {{name: b}}]\n",
            dir.display()
        ));
        Some(Self { machine })
    }

    fn started(&self) -> Operator<'_> {
        started_by(&self.machine, &AS_NOBODY, &self.program())
    }

    fn program(&self) -> PathBuf {
        self.machine.path().join("swarm")
    }

    /// Runs another command for the pool.
    fn run(&self, words: &[&str]) -> Output {
        self.run_with(&[words, &["--dir"]].concat(), &self.machine.state())
    }

    fn run_with(&self, words: &[&str], last: &Path) -> Output {
        let mut command = Command::new(AS_NOBODY[0]);
        command.args(&AS_NOBODY[1..]).arg(self.program()).args(words).arg(last);
        command.output().unwrap()
    }

    /// The entry of a job in the list of jobs; `null` without one.
    fn job(&self, job: &str) -> Value {
        let document = self.run(&["ps", "-o", "json"]).stdout;
        let document: Value = serde_json::from_slice(&document).unwrap_or_default();
        let mut jobs = document["jobs"].as_array().into_iter().flatten();
        jobs.find(|entry| entry["job"] == job).cloned().unwrap_or_default()
    }

    /// The processes that the starts of a job have had, in their order.
    fn starts(&self, job: &str) -> Vec<i32> {
        let starts = fs::read_to_string(self.machine.path().join(format!("{job}.starts")));
        starts.unwrap_or_default().lines().map(|pid| pid.parse().unwrap()).collect()
    }

    fn until_started(&self, job: &str, times: usize) -> i32 {
        until("it was started", || {
            let starts = self.starts(job);
            (starts.len() == times).then(|| *starts.last().unwrap())
        })
    }

    /// Whether a start of this job found an earlier one alive, as its exit code says.
    fn has_met_another(&self, job: &str) -> bool {
        let log = self.machine.state().join(format!("logs/{}.log", "w-0"));
        let all = [log, self.machine.state().join("logs/w-1.log")];
        let logs: String = all.iter().filter_map(|it| fs::read_to_string(it).ok()).collect();
        logs.lines().any(|line| line.contains(job) && line.contains("exit code 9"))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for job in ["a", "b"] {
            self.starts(job).into_iter().for_each(end);
        }
    }
}

/// Starts an operator from a copy of the program, with words before its command.
pub(crate) fn started_by<'a>(machine: &'a Machine, words: &[&str], program: &Path) -> Operator<'a> {
    // The operator's own command follows, whose first word may be in a directory of root.
    let other = ["sh", "-c", r#"shift; exec "$0" "$@""#, program.to_str().unwrap()];
    machine.started_by(&[words, &other].concat())
}

/// Copies a program of the system, or the file of a program.
pub(crate) fn copy_program(program: &str, to: &Path, mode: u32) {
    let places = ["/usr/bin", "/bin"].map(|dir| Path::new(dir).join(program));
    // A copy by this process could be "busy": a child that another test starts keeps its descriptor.
    let mut install = Command::new("install");
    install.arg("-m").arg(format!("{mode:o}")).arg(places.iter().find(|it| it.exists()).unwrap());
    assert!(install.arg(to).status().unwrap().success(), "{program}");
}

/// Ends a process that a job has started as root, unless its id has another program now.
pub(crate) fn end(pid: i32) {
    let command = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    if command.starts_with("sleep") {
        signal(pid, Signal::KILL);
    }
}

/// The worker of the job is asked to end, killed, and its lease runs out: none of it is an end.
#[test]
fn a_job_that_became_root_moves_only_when_its_process_has_ended() {
    let Some(pool) = Pool::new(2) else { return };
    let operator = pool.started();
    operator.prints("settled in");
    let processes = ["a", "b"].map(|job| pool.until_started(job, 1));
    let moved = ["a", "b"].into_iter().find(|job| pool.job(job)["worker"] == "w-1").unwrap();
    let process = processes[usize::from(moved == "b")];
    pool.machine.edit("replicas: 2", "replicas: 1");
    until("its time is over", || {
        operator.complaints().contains("did not end in time and was killed").then_some(())
    });
    signal(pool.machine.workers()["w-1"], Signal::KILL);
    until("its lease was revoked", || {
        let leases = fs::read_dir(pool.machine.state().join("leases")).unwrap();
        let mut texts = leases.filter_map(|it| fs::read_to_string(it.unwrap().path()).ok());
        texts.any(|text| text.to_lowercase().contains("revoked")).then_some(())
    });
    // Turns that grant something follow.
    pool.machine.edit("{name: b}", "{name: b}, {name: c}");
    pool.until_started("c", 1);
    assert_eq!(pool.job(moved)["phase"], "stopping");
    assert_eq!(pool.starts(moved), [process]);
    end(process);
    pool.until_started(moved, 2);
    assert_eq!(pool.job(moved)["worker"], "w-0");
    assert!(!["a", "b"].iter().any(|job| pool.has_met_another(job)));
    for job in ["a", "b", "c"] {
        pool.starts(job).into_iter().for_each(end);
    }
}

/// Neither a stop nor a new start takes a refused signal for an end.
#[test]
fn a_pool_with_a_job_that_became_root_ends_and_starts_only_when_its_process_has_ended() {
    let Some(pool) = Pool::new(1) else { return };
    let mut operator = pool.started();
    operator.prints("settled in");
    let processes = ["a", "b"].map(|job| pool.until_started(job, 1));
    assert!(operator.complaints().contains("`./become` can become another user"), "once");
    let held = |output: &Output| {
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{complaint}");
        assert!(complaint.contains("this user may not end its process "), "{complaint}");
        assert!(complaint.contains(" of user root; write `sudo kill "), "{complaint}");
    };
    held(&pool.run(&["stop"]));
    held(&pool.run(&["stop", "--now"]));
    for (job, process) in ["a", "b"].into_iter().zip(processes) {
        assert_eq!(pool.job(job)["phase"], "stopping");
        let command = fs::read_to_string(format!("/proc/{process}/cmdline")).unwrap();
        assert!(command.starts_with("sleep"), "{command}");
    }
    operator.signal(Signal::KILL);
    operator.ended();
    for (worker, _) in pool.machine.processes() {
        if !processes.contains(&worker) {
            signal(worker, Signal::KILL);
        }
    }
    held(&pool.run(&["stop"]));
    let next = pool.started();
    next.prints("an earlier run cannot be stopped: ");
    assert_eq!(pool.run(&["status"]).status.code(), Some(3));
    assert_eq!(["a", "b"].map(|job| pool.starts(job).len()), [1, 1]);
    processes.into_iter().for_each(end);
    for job in ["a", "b"] {
        pool.until_started(job, 2);
    }
    assert!(!["a", "b"].iter().any(|job| pool.has_met_another(job)));
    let verified = pool.run_with(&["verify"], &pool.machine.state().join("run.log"));
    assert_eq!(verified.status.code(), Some(1), "{verified:?}");
    let printed = String::from_utf8_lossy(&verified.stdout).into_owned();
    assert!(printed.contains("not seen: the end of a on w-0 "), "{printed}");
    for job in ["a", "b"] {
        pool.starts(job).into_iter().for_each(end);
    }
}
