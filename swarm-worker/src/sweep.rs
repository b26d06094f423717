//! Kills all processes that have a marker in their environment.
//!
//! Every process of a job is started with `SWARM_SESSION=…` in its environment. Its children
//! inherit the variable in any process group or session. So after the end of a worker, its parent
//! can kill the processes that the worker's guard could not kill. The sweep finds no process that was
//! started without the marker (`env -i`), and none whose environment cannot be read. So an empty
//! sweep proves no end. A worker finds such processes, since it adopts them (`end_adopted`), and so
//! does an operator ([`ends`](crate::ends)).
//!
//! A marker is random, so a process never has one by chance. A shell that a job started has a
//! marker, and a user may run this program from it. So the ancestors of this process are spared.
//!
//! The system may reuse a process id at any moment. So a pidfd first pins a process, and then the
//! marker is checked again. Only then is the process killed, through the pidfd.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use nix::unistd::getpgrp;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, pidfd_open, pidfd_send_signal, waitid,
};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::procs;

/// The variable that holds the job that a process belongs to.
const JOB: &str = "SWARM_JOB";
/// The variable that holds the session whose worker started a process.
pub(crate) const SESSION: &str = "SWARM_SESSION";
/// The variable that holds the worker instance that a process belongs to. The worker's own process
/// has it, too.
pub const INSTANCE: &str = "SWARM_INSTANCE";
/// The variable that holds the run of an operator, a random number that differs at each start.
pub const RUN: &str = "SWARM_RUN";
/// The variable that shows people the state directory of a process's operator. The sweep kills no
/// process by it.
pub const DIR: &str = "SWARM_DIR";

/// The time that one pass waits for the processes it killed, before the next pass.
const KILL_WAIT: Duration = Duration::from_millis(50);

/// The number of passes over adopted processes that do not end, such as in uninterruptible sleep.
const ADOPTED_PASSES: u32 = 20;

/// A mark that selects the processes to kill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Marker {
    /// The processes of one session of a worker: its guard and its jobs.
    Session(String),
    /// The processes of one worker instance that an operator started: the worker, its guard and its
    /// jobs.
    Instance(String),
    /// The processes of one run of an operator: its workers, their guards and their jobs.
    Run {
        /// The random number of that run.
        mark: String,
        /// The start of the run, in clock ticks since boot. An older process belongs to another
        /// run.
        since: u64,
    },
    /// The processes of all runs of an operator with this state directory, also if the directory
    /// was moved since.
    Directory(String),
}

impl Marker {
    /// Returns the entry in the environment of its processes.
    fn entry(&self) -> Vec<u8> {
        let (name, value) = match self {
            Self::Session(id) => (SESSION, id),
            Self::Instance(instance) => (INSTANCE, instance),
            Self::Run { mark, since: _ } => (RUN, mark),
            Self::Directory(dir) => (DIR, dir),
        };
        format!("{name}={value}").into_bytes()
    }

    /// Returns the earliest start of its processes, in clock ticks since boot.
    fn since(&self) -> u64 {
        match self {
            Self::Session(_) | Self::Instance(_) | Self::Directory(_) => 0,
            Self::Run { mark: _, since } => *since,
        }
    }
}

/// A process that has a marker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marked {
    /// Its process id.
    pub pid: Pid,
    /// The worker instance that it belongs to, if its environment names one.
    pub instance: Option<String>,
    /// The job that it belongs to; `None` for a worker and for a guard.
    pub job: Option<String>,
}

/// Kills every process with `marker` until none is left, and returns their number. This process and
/// its ancestors are spared.
///
/// The wait has no limit: a process in uninterruptible sleep ends only when the kernel wakes it.
/// The future may be dropped. Children of this process with the marker are reaped, so a caller that
/// waits for one of them must do so first.
///
/// # Errors
///
/// If `/proc` cannot be read: then the remaining processes are unknown.
pub async fn end_all(marker: &Marker) -> io::Result<usize> {
    Ok(end_each(marker).await?.len())
}

/// Does the same as [`end_all`], and returns the killed processes.
///
/// # Errors
///
/// If `/proc` cannot be read.
pub async fn end_each(marker: &Marker) -> io::Result<Vec<Marked>> {
    let (entry, since) = (marker.entry(), marker.since());
    // A process that did not end at once is found again by the next pass.
    let mut ended = BTreeMap::new();
    // While one pass reads the list, a process that it has not reached can fork and end.
    let mut empty_passes = 0;
    while empty_passes < 2 {
        let entry = entry.clone();
        let killed = spawn_blocking(move || marked(&entry, since).map(kill)).await;
        let killed = killed.map_err(io::Error::other)??;
        empty_passes = if killed.is_empty() { empty_passes + 1 } else { 0 };
        if killed.iter().any(|(_, is_refused)| *is_refused) {
            sleep(KILL_WAIT).await;
        }
        ended.extend(killed.into_iter().map(|(one, _)| (one.pid.as_raw_nonzero(), one)));
    }
    Ok(ended.into_values().collect())
}

/// Kills the processes with `marker` once, and returns them.
///
/// # Errors
///
/// If `/proc` cannot be read.
pub(crate) fn pass(marker: &Marker) -> io::Result<Vec<Marked>> {
    let killed = kill(marked(&marker.entry(), marker.since())?);
    Ok(killed.into_iter().map(|(process, _)| process).collect())
}

/// Finds the processes with `marker` and pins each of them. A single search can miss processes.
/// This process and its ancestors are left out.
///
/// # Errors
///
/// If `/proc` cannot be read.
pub async fn found(marker: &Marker) -> io::Result<Vec<(OwnedFd, Marked)>> {
    let (entry, since) = (marker.entry(), marker.since());
    spawn_blocking(move || marked(&entry, since)).await.map_err(io::Error::other)?
}

/// Asks a process to end, with SIGTERM.
pub fn ask(process: &OwnedFd) {
    let _ = pidfd_send_signal(process, Signal::TERM);
    // A stopped process cannot end before it continues.
    let _ = pidfd_send_signal(process, Signal::CONT);
}

/// Kills every process that this process adopted since the time `since`, in clock ticks since boot,
/// and that has no session in its environment. Returns the processes that this user may not end, or that
/// live after [`ADOPTED_PASSES`] passes.
///
/// After the end of a guard its descendants are children of this process, in groups of their own. A
/// job may have started one without the [marker](Marker) (`env -i`), so [`end_all`] does not find
/// it. Processes that this process started are in its own group, or are guards, which have a
/// session.
///
/// # Errors
///
/// If `/proc` cannot be read.
pub(crate) async fn end_adopted(since: u64) -> io::Result<Vec<procs::Process>> {
    let (mut left, mut refused_passes) = (Vec::new(), 0);
    for _ in 0..ADOPTED_PASSES {
        let killed = spawn_blocking(move || adopted(since).map(kill)).await;
        let killed = killed.map_err(io::Error::other)??;
        // As in `end_each`.
        let are_refused = killed.iter().all(|(_, is_refused)| *is_refused);
        refused_passes = if are_refused { refused_passes + 1 } else { 0 };
        left = killed.into_iter().map(|(process, _)| process).collect();
        if refused_passes == 2 {
            break;
        }
    }
    Ok(left)
}

/// Returns the adopted processes, each pinned.
fn adopted(since: u64) -> io::Result<Vec<(OwnedFd, procs::Process)>> {
    let group = getpgrp().as_raw();
    let is_adopted = |process: &procs::Process| {
        process.group != group
            && since <= process.started
            && !process.is_zombie
            && procs::value(process.pid, SESSION).is_none()
    };
    // A child keeps its id until this process reaps it.
    let pinned = |it: procs::Process| Some((pidfd_open(it.pid, PidfdFlags::empty()).ok()?, it));
    Ok(procs::children()?.into_iter().filter(is_adopted).filter_map(pinned).collect())
}

/// Kills pinned processes, and waits briefly for their end. Returns each with whether this user may not
/// end it.
fn kill<T>(found: Vec<(OwnedFd, T)>) -> Vec<(T, bool)> {
    let signalled = |(handle, process): (OwnedFd, T)| {
        // After a refused signal, the next pass finds the process again.
        let is_refused = pidfd_send_signal(&handle, Signal::KILL) == Err(Errno::PERM);
        (handle, process, is_refused)
    };
    let signalled: Vec<_> = found.into_iter().map(signalled).collect();
    for (handle, ..) in signalled.iter().filter(|(.., is_refused)| !is_refused) {
        reap(handle);
    }
    signalled.into_iter().map(|(_, process, is_refused)| (process, is_refused)).collect()
}

/// Returns the processes that have the entry now, each pinned.
fn marked(entry: &[u8], since: u64) -> io::Result<Vec<(OwnedFd, Marked)>> {
    let spared = procs::line_of(getpid());
    let is_candidate = |process: &procs::Process| {
        !process.is_zombie && since <= process.started && !spared.contains(&process.pid)
    };
    let all = procs::all()?.into_iter().filter(is_candidate);
    let with_entry = all.filter(|process| procs::has_entry(process.pid, entry));
    Ok(with_entry.filter_map(|process| pinned(process.pid, entry)).collect())
}

/// Returns a pidfd of the process, provided that it has the entry.
fn pinned(pid: Pid, entry: &[u8]) -> Option<(OwnedFd, Marked)> {
    let handle = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    let value = |name| procs::value(pid, name);
    procs::has_entry(pid, entry)
        .then(|| (handle, Marked { pid, instance: value(INSTANCE), job: value(JOB) }))
}

fn reap(handle: &OwnedFd) {
    let mut fds = [PollFd::new(handle, PollFlags::IN)];
    let _ = poll(&mut fds, Timespec::try_from(KILL_WAIT).ok().as_ref());
    // The wait fails unless the process is a child of this one, for example an adopted orphan.
    let _ = waitid(WaitId::PidFd(handle.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[tokio::test]
    async fn processes_with_the_marker_are_killed_in_any_group_and_no_others() {
        let id = format!("test-{}", std::process::id());
        let marker = Marker::Session(id.clone());
        let dir = tempfile::tempdir().unwrap();
        let ready = dir.path().join("ready");
        let script = format!("(setsid sleep 600 & setsid sleep 600 & :) & touch {ready:?}; wait");
        let start = |id: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", &script]).env(SESSION, id).spawn().unwrap()
        };
        let mut child = start(&id);
        let mut other = Command::new("sleep").arg("600").env(SESSION, "other").spawn().unwrap();
        let is_marked = |pid| procs::has_entry(pid, &marker.entry());
        let count = || procs::all().unwrap().into_iter().filter(|p| is_marked(p.pid)).count();
        let began = std::time::Instant::now();
        while !ready.exists() || count() < 2 {
            assert!(began.elapsed() < crate::DEADLINE, "{} processes", count());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let ended = end_all(&marker).await.unwrap();
        let is_alive = other.try_wait().unwrap().is_none();
        other.kill().unwrap();
        other.wait().unwrap();
        // The sweep has reaped it already.
        let _ = child.wait();
        assert!(is_alive && 2 <= ended, "{ended} ended, the other alive: {is_alive}");
        assert_eq!((count(), end_all(&marker).await.unwrap()), (0, 0));
    }
}
