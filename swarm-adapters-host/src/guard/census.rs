//! Finds out which processes belong to which job.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, pidfd_open, pidfd_send_signal, waitpid,
};

use crate::procs::{self, Process};
use crate::sweep::SESSION;

/// The live descendants of the guard, by job. A job's first process is not included once it ended.
#[derive(Debug, Default)]
pub(super) struct Census {
    /// By the id of the job's first process, which is also the id of its group.
    of_job: HashMap<i32, Vec<Process>>,
    /// Those that cannot be attributed to a running job.
    unattributed: Vec<Process>,
}

impl Census {
    /// Lists all processes, and reaps orphans that have ended. `leaders` are the first processes of
    /// the jobs, by name; they must not have been reaped yet, so that their ids do not mean other
    /// processes.
    pub(super) fn take(leaders: &BTreeMap<&str, i32>, session: &str) -> io::Result<Self> {
        let me = getpid();
        let all = procs::all()?;
        let is_leader: HashSet<i32> = leaders.values().copied().collect();
        let mut children: HashMap<i32, Vec<Process>> = HashMap::new();
        for process in all {
            children.entry(process.parent).or_default().push(process);
        }
        let mut census = Self::default();
        for child in children.remove(&raw(me)).unwrap_or_default() {
            let pid = raw(child.pid);
            if child.is_zombie && !is_leader.contains(&pid) {
                let _ = waitpid(Some(child.pid), WaitOptions::NOHANG);
                continue;
            }
            let owner = if is_leader.contains(&pid) {
                Some(pid)
            } else if is_leader.contains(&child.group) {
                Some(child.group)
            } else {
                marked(&child, leaders, session)
            };
            census.add(owner, child, &children);
        }
        Ok(census)
    }

    /// Adds a process and its descendants, which belong to the same job.
    fn add(&mut self, owner: Option<i32>, first: Process, children: &HashMap<i32, Vec<Process>>) {
        let mut rest = vec![first];
        while let Some(process) = rest.pop() {
            rest.extend(children.get(&raw(process.pid)).into_iter().flatten());
            if process.is_zombie {
                continue;
            }
            match owner {
                Some(leader) => self.of_job.entry(leader).or_default().push(process),
                None => self.unattributed.push(process),
            }
        }
    }

    /// The processes of the job of `leader`, and those that could be.
    pub(super) fn left(&self, leader: i32) -> impl Iterator<Item = &Process> {
        self.of_job.get(&leader).into_iter().flatten().chain(&self.unattributed)
    }

    /// Every descendant of the guard.
    pub(super) fn all(&self) -> impl Iterator<Item = &Process> {
        self.of_job.values().flatten().chain(&self.unattributed)
    }
}

fn raw(pid: Pid) -> i32 {
    pid.as_raw_nonzero().get()
}

/// The job that an orphan was started for, according to its environment.
fn marked(orphan: &Process, leaders: &BTreeMap<&str, i32>, session: &str) -> Option<i32> {
    if procs::value(orphan.pid, SESSION)? != session {
        return None;
    }
    leaders.get(procs::value(orphan.pid, super::serve::JOB)?.as_str()).copied()
}

/// Sends a signal to exactly this process, not to another one that has its id now.
pub(super) fn signal(process: &Process, signal: Signal) {
    let Ok(handle) = pidfd_open(process.pid, PidfdFlags::empty()) else { return };
    if procs::one(raw(process.pid)).is_some_and(|now| now.started == process.started) {
        let _ = pidfd_send_signal(&handle, signal);
    }
}
