//! Finds the processes of an ended operator that have no readable mark: programs of another user, and
//! with an empty environment. Their parents are gone, so the proof of a subreaper is not possible.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};
use swarm_adapters_host::channel::HeldProcess;

use crate::job_groups::JobGroups;
use crate::procs::{self, Identity, Process};
use crate::sweep::{self, Marked, RUN};

/// The group of a job's processes, by its first process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// The id of the first process and of the group.
    pub id: i32,
    /// The start of the first process, in clock ticks since boot.
    pub started: u64,
    /// The session of the group.
    pub session: i32,
}

impl Group {
    /// Describes the group that a process leads; `None` if the process has ended.
    #[must_use]
    pub fn of(first: i32) -> Option<Self> {
        let process = procs::one(first)?;
        Some(Self { id: first, started: process.started, session: process.session })
    }
}

/// The processes without a mark that an operator left behind.
#[derive(Debug, Default)]
pub struct Unmarked {
    /// The mark of the operator's run.
    run: String,
    /// The groups of its jobs, by id.
    groups: HashMap<i32, Group>,
    /// The control groups of its jobs, where such groups are delegated.
    job_groups: Option<JobGroups>,
    /// The processes that were found and live.
    found: BTreeSet<Identity>,
    /// The processes of them that this user may not end.
    refused: BTreeSet<i32>,
}

impl Unmarked {
    /// Begins with the mark of the operator's run and the recorded groups of its jobs.
    #[must_use]
    pub fn of(run: String, groups: Vec<Group>) -> Self {
        let groups = groups.into_iter().map(|it| (it.id, it)).collect();
        Self { run, groups, job_groups: JobGroups::find().ok(), ..Self::default() }
    }

    /// Looks for processes: in a recorded group, in a control group of a job without a guard, or
    /// below a process that has the mark and could not hide. A process that was found once counts until it has ended.
    ///
    /// # Errors
    ///
    /// If `/proc` cannot be read.
    pub fn look(&mut self, marked: &[(OwnedFd, Marked)]) -> io::Result<()> {
        let spared = procs::line_of(getpid());
        let marked: BTreeSet<i32> = marked.iter().map(|(_, it)| it.pid.as_raw_pid()).collect();
        let all: BTreeMap<i32, Process> =
            procs::all()?.into_iter().map(|it| (it.pid.as_raw_pid(), it)).collect();
        let job_groups = self.job_groups.as_ref();
        let in_job_group = job_groups.map(|all| all.stale_processes(&self.run)).unwrap_or_default();
        let is_left = |process: &&Process| {
            !process.is_zombie
                && !spared.contains(&process.pid)
                && !marked.contains(&process.pid.as_raw_pid())
                && (self.found.contains(&process.identity())
                    || in_job_group.contains(&process.pid.as_raw_pid())
                    || (in_group(process, &self.groups, &all) || is_below(process, &marked, &all))
                        && procs::value(process.pid, RUN).is_none())
        };
        self.found = all.values().filter(is_left).map(Process::identity).collect();
        self.refused.retain(|pid| self.found.iter().any(|it| it.0 == *pid));
        Ok(())
    }

    /// Asks the processes to end.
    pub fn ask(&self) {
        self.found.iter().filter_map(|it| pinned(*it)).for_each(|process| sweep::ask(&process));
    }

    /// Kills the processes, and returns whether any is left.
    ///
    /// # Errors
    ///
    /// If `/proc` cannot be read.
    pub fn kill(&mut self) -> io::Result<bool> {
        if let Some(groups) = &self.job_groups {
            groups.end_stale();
        }
        for process in &self.found {
            let killed = pinned(*process).map(|it| pidfd_send_signal(&it, Signal::KILL));
            if killed == Some(Err(rustix::io::Errno::PERM)) {
                self.refused.insert(process.0);
            }
        }
        self.look(&[])?;
        Ok(!self.found.is_empty())
    }

    /// Returns the number of processes.
    #[must_use]
    pub fn count(&self) -> usize {
        self.found.len()
    }

    /// Returns the processes that this user may not end.
    #[must_use]
    pub fn held(&self) -> Vec<HeldProcess> {
        self.refused.iter().map(|pid| procs::held(*pid)).collect()
    }
}

/// Whether a process is in a recorded group. The kernel gives the id of a group to no process while
/// the group has members. So while its first process lives, the group is known by that. Without it,
/// only a process whose environment is not readable counts: another group can have got the id.
fn in_group(process: &Process, groups: &HashMap<i32, Group>, all: &BTreeMap<i32, Process>) -> bool {
    let Some(group) = groups.get(&process.group) else { return false };
    let may_be_its = group.started <= process.started && group.session == process.session;
    may_be_its
        && match all.get(&process.group) {
            Some(first) => first.started == group.started,
            None => !procs::shows_environment(process.pid),
        }
}

/// Whether a process descends from one of these.
fn is_below(process: &Process, marked: &BTreeSet<i32>, all: &BTreeMap<i32, Process>) -> bool {
    let mut above = BTreeSet::new();
    let mut next = process.parent;
    while above.insert(next) {
        if marked.contains(&next) {
            return true;
        }
        let Some(parent) = all.get(&next) else { return false };
        next = parent.parent;
    }
    false
}

fn pinned((pid, started): Identity) -> Option<OwnedFd> {
    // The pidfd is opened first: it refers to the same process as the check after it.
    let process = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
    procs::one(pid).filter(|now| now.started == started).map(|_| process)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, parent: i32, group: i32, started: u64) -> Process {
        let pid = Pid::from_raw(pid).unwrap();
        Process { pid, parent, group, session: 1, is_zombie: false, started }
    }

    #[test]
    fn a_group_is_known_by_its_first_process_for_as_long_as_that_lives() {
        let group = |id, started| (id, Group { id, started, session: 1 });
        let groups = HashMap::from([group(7, 50), group(9, 50)]);
        let all = [process(7, 1, 7, 50), process(8, 1, 7, 60), process(9, 1, 9, 70)];
        let all: BTreeMap<_, _> = all.into_iter().map(|it| (it.pid.as_raw_pid(), it)).collect();
        let known = |it: &Process| in_group(it, &groups, &all);
        assert!(all.values().map(known).eq([true, true, false]), "another one has the id 9");
        assert!(!known(&process(8, 1, 7, 40)), "older");
        assert!(!known(&Process { session: 2, ..process(8, 1, 7, 60) }));
        // The environment of a process that does not exist cannot be read.
        assert!(in_group(&process(i32::MAX, 1, 7, 60), &groups, &BTreeMap::new()));
        let me = getpid().as_raw_pid();
        assert!(!in_group(&process(me, 1, 7, 60), &groups, &BTreeMap::new()), "anybody's");
    }

    #[test]
    fn a_process_below_a_marked_one_is_found_whatever_parents_say() {
        let all =
            [process(2, 1, 2, 0), process(3, 2, 3, 0), process(4, 5, 4, 0), process(5, 4, 5, 0)];
        let all: BTreeMap<_, _> = all.into_iter().map(|it| (it.pid.as_raw_pid(), it)).collect();
        let below = |pid: i32| is_below(&all[&pid], &BTreeSet::from([2]), &all);
        assert_eq!([2, 3, 4].map(below), [false, true, false]);
    }
}
