//! The jobs of guards that were lost, until their ends are proven.
//!
//! The orphans of a guard become children of its worker. So a job has ended when its group has no process,
//! and no child is left that may belong to the job. Other jobs do not wait for it: they get a new guard.

use std::collections::{BTreeMap, HashSet};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use swarm_adapters_host::channel::HeldProcess;
use swarm_core::JobName;

use crate::procs::{self, Process};
use crate::sweep;

/// The jobs of the guards that a worker lost, each with the means to report its end.
pub(super) struct Lost<T> {
    /// The start of the first of these guards, in clock ticks since boot: its orphans are not older.
    since: u64,
    jobs: BTreeMap<JobName, (Option<Pid>, T)>,
    /// The adopted processes that were left after the last check.
    left: Vec<Process>,
}

impl<T> Default for Lost<T> {
    fn default() -> Self {
        Self { since: 0, jobs: BTreeMap::new(), left: Vec::new() }
    }
}

impl<T> Lost<T> {
    /// Adds the jobs of a guard that started at `since`, with the groups of started jobs.
    pub(super) fn add(
        &mut self,
        since: u64,
        jobs: impl IntoIterator<Item = (JobName, (Option<Pid>, T))>,
    ) {
        self.since = if self.jobs.is_empty() { since } else { self.since.min(since) };
        self.jobs.extend(jobs);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    pub(super) fn has(&self, job: &JobName) -> bool {
        self.jobs.contains_key(job)
    }

    /// Kills the remaining processes, and returns the jobs that have ended. None has ended if `/proc`
    /// cannot be read.
    pub(super) async fn ended(&mut self) -> Vec<(JobName, T)> {
        let Ok(left) = sweep::end_adopted(self.since).await else { return Vec::new() };
        self.left = left;
        let groups = self.groups();
        let has_ended = |group: Option<Pid>| {
            group.is_none_or(is_gone) && self.of(group, &groups).next().is_none()
        };
        let ended = self.jobs.iter().filter(|(_, (group, _))| has_ended(*group));
        let ended: Vec<_> = ended.map(|(job, _)| job.clone()).collect();
        let taken = ended.into_iter().filter_map(|job| {
            let (_, it) = self.jobs.remove(&job)?;
            Some((job, it))
        });
        taken.collect()
    }

    /// Returns the jobs that processes keep from ending, with these processes.
    pub(super) fn held(&self) -> impl Iterator<Item = (&JobName, &T, Vec<HeldProcess>)> {
        let groups = self.groups();
        let held = self.jobs.iter().map(move |(job, (group, it))| {
            let processes = self.of(*group, &groups).map(|it| procs::held(it.pid.as_raw_pid()));
            (job, it, processes.collect::<Vec<_>>())
        });
        held.filter(|(.., processes)| !processes.is_empty())
    }

    /// Returns the groups of all jobs.
    fn groups(&self) -> HashSet<i32> {
        self.jobs.values().filter_map(|(group, _)| group.map(Pid::as_raw_pid)).collect()
    }

    /// Returns the processes that may belong to a job: members of its group, and of none of all `groups`.
    fn of(&self, group: Option<Pid>, groups: &HashSet<i32>) -> impl Iterator<Item = &Process> {
        let group = group.map(Pid::as_raw_pid);
        self.left.iter().filter(move |it| Some(it.group) == group || !groups.contains(&it.group))
    }
}

/// Reaps the ended children in a group and kills the live ones. Returns whether the group was
/// empty.
fn is_gone(group: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    loop {
        match waitid(WaitId::Pgid(Some(group)), options) {
            Ok(Some(_)) => {}
            Ok(None) => {
                let _ = kill_process_group(group, Signal::KILL);
                return false;
            }
            Err(_) => return true,
        }
    }
}
