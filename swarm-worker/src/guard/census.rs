//! Attributes processes to jobs.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io;

use rustix::io::Errno;
use rustix::process::{PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};

use crate::procs::{self, Identity, Process, STARTED_UNKNOWN, is_reaped};
use crate::sweep::SESSION;

/// The variable that names a job in the environment of its processes.
pub(super) const JOB: &str = "SWARM_JOB";

/// The first process of a job, with the state that its other processes inherit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leader {
    /// Its process id, which is also the id of its group.
    pub(super) pid: i32,
    /// The pipe of the job's output.
    pub(super) output: Option<u64>,
}

/// The running jobs, by name.
pub(super) type Leaders<'a> = BTreeMap<&'a str, Leader>;

/// The children of the guard that are first processes of no job.
#[derive(Debug, Default)]
pub(super) struct Aside {
    /// The programs next to jobs, which are processes of the jobs. They are not reaped here, since
    /// another part of the guard needs their exit codes.
    pub(super) probes: HashSet<i32>,
    /// The programs that stop jobs. They and their descendants belong to no job while they run.
    pub(super) commands: HashSet<i32>,
}

/// Remembers the job of every process that was seen, so that a process that hides later is still
/// attributed.
#[derive(Debug, Default)]
pub(super) struct Memory(HashMap<Identity, i32>);

/// The live descendants of the guard, by job. The first process of a job is left out once it has
/// ended.
#[derive(Debug, Default)]
pub(super) struct Census {
    /// The processes of each job, by the id of the job's first process.
    of_job: HashMap<i32, Vec<Process>>,
    /// The processes that cannot be attributed to a running job.
    unattributed: Vec<Process>,
    /// The start time of each job's first process.
    started: HashMap<i32, u64>,
    /// Whether `started` has an entry for every job.
    has_all: bool,
}

impl Census {
    /// Lists all processes, and reaps orphans that have ended. The `leaders` must not have been
    /// reaped yet: then none of their ids can belong to another process.
    pub(super) fn take(
        leaders: &Leaders,
        aside: &Aside,
        session: &str,
        memory: &mut Memory,
    ) -> io::Result<Self> {
        let me = getpid();
        // The order matters: each child that `/proc` shows is then in the second list.
        let mine = procs::children_of_this()?;
        let all = procs::all()?;
        let is_leader: HashSet<i32> = leaders.values().map(|leader| leader.pid).collect();
        let mut children: HashMap<i32, Vec<Process>> = HashMap::new();
        for process in all {
            children.entry(process.parent).or_default().push(process);
        }
        let shown: HashSet<i32> =
            children.get(&me.as_raw_pid()).into_iter().flatten().map(of_id).collect();
        let hidden =
            mine.into_iter().filter(|pid| !shown.contains(pid) && !is_leader.contains(pid));
        // A child whose start is unknown may belong to any job.
        let hidden: Vec<_> = hidden.filter_map(procs::hidden_child).collect();
        children.entry(me.as_raw_pid()).or_default().extend(hidden);
        let mut census = Self::default();
        let mut unknown = Vec::new();
        for child in children.remove(&me.as_raw_pid()).unwrap_or_default() {
            let pid = child.pid.as_raw_pid();
            if aside.commands.contains(&pid) {
                continue;
            }
            if is_leader.contains(&pid) {
                census.started.insert(pid, child.started);
            } else if child.is_zombie && (aside.probes.contains(&pid) || is_reaped(child.pid)) {
                continue;
            }
            let tree = tree(child, &children);
            let owner = Some(pid).filter(|pid| is_leader.contains(pid));
            match owner.or_else(|| owner_of(&tree, leaders, &is_leader, session, memory)) {
                Some(leader) => census.of_job.entry(leader).or_default().extend(tree),
                None => unknown.push(tree),
            }
        }
        census.has_all = census.started.len() == leaders.len();
        census.attribute_by_group(unknown);
        memory.keep(&census, &is_leader);
        Ok(census)
    }

    /// Attributes processes that share a group with processes of a job to that job.
    fn attribute_by_group(&mut self, unknown: Vec<Vec<Process>>) {
        let mut groups = HashMap::new();
        for (leader, processes) in &self.of_job {
            groups.extend(processes.iter().map(|process| (process.group, *leader)));
        }
        for tree in unknown {
            match tree.iter().find_map(|process| groups.get(&process.group)) {
                Some(leader) => self.of_job.entry(*leader).or_default().extend(tree),
                None => self.unattributed.extend(tree),
            }
        }
    }

    /// Returns the processes of the job of `leader`, and the unattributed processes that could
    /// belong to it. A process is never older than its job.
    pub(super) fn left(&self, leader: i32) -> impl Iterator<Item = &Process> {
        let since = self.started.get(&leader).copied().unwrap_or_default();
        let could_be = self.unattributed.iter().filter(move |process| since <= process.started);
        self.of_job.get(&leader).into_iter().flatten().chain(could_be)
    }

    /// Returns the number of the processes that certainly belong to the job of `leader`.
    pub(super) fn known(&self, leader: i32) -> usize {
        self.of_job.get(&leader).map_or(0, Vec::len)
    }

    /// Returns the unattributed processes that are older than every running job.
    pub(super) fn strays(&self) -> impl Iterator<Item = &Process> {
        let first = self.started.values().min().copied().unwrap_or(u64::MAX);
        let first = if self.has_all { first } else { 0 };
        self.unattributed.iter().filter(move |process| process.started < first)
    }

    /// Returns every descendant of the guard.
    pub(super) fn all(&self) -> impl Iterator<Item = &Process> {
        self.of_job.values().flatten().chain(&self.unattributed)
    }
}

impl Memory {
    /// Adds the results of a census. A census can miss a process, so earlier entries stay while
    /// their processes live.
    fn keep(&mut self, census: &Census, is_leader: &HashSet<i32>) {
        let found: HashMap<_, _> = census
            .of_job
            .iter()
            .flat_map(|(leader, all)| all.iter().map(move |it| (it.identity(), *leader)))
            .collect();
        self.0.retain(|known, leader| {
            let lives = || procs::one(known.0).is_some_and(|now| now.started == known.1);
            is_leader.contains(leader) && !found.contains_key(known) && lives()
        });
        self.0.extend(found);
    }
}

/// Returns a process and its descendants, which belong to the same job, except processes
/// that have ended.
fn tree(first: Process, children: &HashMap<i32, Vec<Process>>) -> Vec<Process> {
    let mut rest = vec![first];
    let mut tree = Vec::new();
    while let Some(process) = rest.pop() {
        rest.extend(children.get(&process.pid.as_raw_pid()).into_iter().flatten());
        tree.extend(Some(process).filter(|process| !process.is_zombie));
    }
    tree
}

/// Finds the job of an orphan and its descendants. It looks at the group of each of them, at
/// earlier results, at the environment, and at the output, in this order: the last two take longer.
fn owner_of(
    tree: &[Process],
    leaders: &Leaders,
    is_leader: &HashSet<i32>,
    session: &str,
    memory: &Memory,
) -> Option<i32> {
    let by_group = |it: &Process| Some(it.group).filter(|group| is_leader.contains(group));
    let known = |it: &Process| {
        let leader = memory.0.get(&it.identity()).copied();
        leader.filter(|leader| is_leader.contains(leader))
    };
    let first_of = |find: &dyn Fn(&Process) -> Option<i32>| tree.iter().find_map(find);
    first_of(&by_group)
        .or_else(|| first_of(&known))
        .or_else(|| first_of(&|it| marked(it, leaders, session)))
        .or_else(|| first_of(&|it| writes(it, leaders)))
}

fn of_id(process: &Process) -> i32 {
    process.pid.as_raw_pid()
}

/// Finds the job that an orphan was started for in the orphan's environment.
fn marked(orphan: &Process, leaders: &Leaders, session: &str) -> Option<i32> {
    if procs::value(orphan.pid, SESSION)? != session {
        return None;
    }
    let leader = leaders.get(procs::value(orphan.pid, JOB)?.as_str())?;
    Some(leader.pid)
}

/// Finds the job whose output an orphan has open.
fn writes(orphan: &Process, leaders: &Leaders) -> Option<i32> {
    let files = fs::read_dir(format!("/proc/{}/fd", orphan.pid.as_raw_nonzero())).ok()?;
    let pipe = |file: io::Result<fs::DirEntry>| {
        let target = fs::read_link(file.ok()?.path()).ok()?;
        target.to_str()?.strip_prefix("pipe:[")?.strip_suffix(']')?.parse().ok()
    };
    let pipes: HashSet<u64> = files.filter_map(pipe).collect();
    let of_orphan = |leader: &&Leader| leader.output.is_some_and(|pipe| pipes.contains(&pipe));
    leaders.values().find(of_orphan).map(|leader| leader.pid)
}

/// Sends a signal to exactly this process, never to another process that reuses its id. Returns whether
/// this user may not.
pub(super) fn is_refused(process: &Process, signal: Signal) -> bool {
    let Ok(handle) = pidfd_open(process.pid, PidfdFlags::empty()) else { return false };
    let is_it =
        || procs::one(process.pid.as_raw_pid()).is_some_and(|now| now.started == process.started);
    (process.started == STARTED_UNKNOWN || is_it())
        && pidfd_send_signal(&handle, signal) == Err(Errno::PERM)
}
