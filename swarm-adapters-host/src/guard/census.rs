//! Which processes belong to which job.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, pidfd_open, pidfd_send_signal, waitpid,
};

use crate::procs::{self, Process};
use crate::sweep::SESSION;

/// The live descendants of the guard, by job; a job's first process is not counted once it ended.
#[derive(Debug, Default)]
pub(super) struct Census {
    /// By the first process of the job, whose number is the job's group too.
    of_job: HashMap<i32, Vec<Process>>,
    /// Those that nothing ties to a job that runs.
    of_nobody: Vec<Process>,
}

impl Census {
    /// Looks at all processes, and takes note of orphans that have ended. `leaders` are the first
    /// processes of the jobs, by name; they must not have been reaped yet, so that their numbers
    /// mean nobody else.
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

    /// Adds a process and its descendants, who belong where it belongs.
    fn add(&mut self, owner: Option<i32>, first: Process, children: &HashMap<i32, Vec<Process>>) {
        let mut rest = vec![first];
        while let Some(process) = rest.pop() {
            rest.extend(children.get(&raw(process.pid)).into_iter().flatten());
            if process.is_zombie {
                continue;
            }
            match owner {
                Some(leader) => self.of_job.entry(leader).or_default().push(process),
                None => self.of_nobody.push(process),
            }
        }
    }

    /// What is left of the job of `leader`, and what could be of it.
    pub(super) fn left(&self, leader: i32) -> impl Iterator<Item = &Process> {
        self.of_job.get(&leader).into_iter().flatten().chain(&self.of_nobody)
    }

    /// Every descendant of the guard.
    pub(super) fn all(&self) -> impl Iterator<Item = &Process> {
        self.of_job.values().flatten().chain(&self.of_nobody)
    }
}

fn raw(pid: Pid) -> i32 {
    pid.as_raw_nonzero().get()
}

/// The job that an orphan was started for, as its environment says.
fn marked(orphan: &Process, leaders: &BTreeMap<&str, i32>, session: &str) -> Option<i32> {
    if procs::value(orphan.pid, SESSION)? != session {
        return None;
    }
    leaders.get(procs::value(orphan.pid, super::serve::JOB)?.as_str()).copied()
}

/// Sends a signal to the very process that was looked at.
pub(super) fn signal(process: &Process, signal: Signal) {
    let Ok(handle) = pidfd_open(process.pid, PidfdFlags::empty()) else { return };
    if procs::one(raw(process.pid)).is_some_and(|now| now.started == process.started) {
        let _ = pidfd_send_signal(&handle, signal);
    }
}
