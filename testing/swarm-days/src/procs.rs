//! The processes of a pool, found by what their operator put into their environment.

use std::fs;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

/// The role of a process in its pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Operator,
    Worker(String),
    /// The guard of a worker's jobs; the name is the worker's.
    Guard(String),
    Job(String),
}

/// A process of a pool.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) role: Role,
    /// The worker that it belongs to.
    pub(crate) worker: Option<String>,
}

/// The processes of the pool with this state directory.
pub(crate) fn of_pool(state: &Path) -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| process(pid, state)).collect()
}

fn process(pid: u32, state: &Path) -> Option<Process> {
    let state = state.to_str()?;
    let words = entries(pid, "cmdline")?;
    let environment = entries(pid, "environ")?;
    let variable = |name: &str| {
        let of = |entry: &String| Some(entry.strip_prefix(name)?.strip_prefix('=')?.to_owned());
        environment.iter().find_map(of)
    };
    let is_operator = words.first()?.ends_with("swarm")
        && words.get(1).is_some_and(|word| word == "local")
        && words.iter().any(|word| word == state);
    if is_operator {
        return Some(Process { pid, role: Role::Operator, worker: None });
    }
    if variable("SWARM_DIR")? != state {
        return None;
    }
    let worker = variable("SWARM_INSTANCE")?.rsplit_once('.')?.0.to_owned();
    let role = match variable("SWARM_JOB") {
        Some(job) => Role::Job(job),
        None if words.iter().any(|word| word.starts_with("--name=")) => {
            Role::Worker(worker.clone())
        }
        None => Role::Guard(worker.clone()),
    };
    Some(Process { pid, role, worker: Some(worker) })
}

/// Whether a process runs the job.
pub(crate) fn runs(pid: u32, job: &str) -> bool {
    let entry = format!("SWARM_JOB={job}");
    entries(pid, "environ").is_some_and(|all| all.contains(&entry))
}

/// The texts of a file below `/proc`; `None` if the process has ended.
fn entries(pid: u32, name: &str) -> Option<Vec<String>> {
    let bytes = fs::read(format!("/proc/{pid}/{name}")).ok()?;
    let texts = bytes.split(|byte| *byte == 0).filter(|text| !text.is_empty());
    let texts: Vec<_> = texts.map(|text| String::from_utf8_lossy(text).into_owned()).collect();
    (!texts.is_empty()).then_some(texts)
}

/// Sends a signal; the process may have just ended.
pub(crate) fn signal(pid: u32, kind: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let _ = pid.map(|pid| kill_process(pid, kind));
}
