//! Starts workers, kills what they leave behind, and waits until nothing is left.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::AsFd as _;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use nix::unistd::getpgrp;
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal, set_child_subreaper,
};
use swarm_adapters_host::channel::HeldProcess;
use tokio::process::Child;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::{Ends, Look};
use crate::job_groups::JobGroups;
use crate::procs::{self, Identity, Process, is_reaped};
use crate::sweep::{self, INSTANCE, Marker};

/// The minimum and the maximum pause between two looks. The end of an orphan causes one at once.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_secs(1);

static REAPER: OnceLock<Reaper> = OnceLock::new();

/// The parent and subreaper of an operator's workers. There is one per process.
#[derive(Debug)]
pub struct Reaper {
    ends: Mutex<Ends>,
    /// The control groups of jobs, where such groups are delegated.
    groups: Option<JobGroups>,
    /// The children that this process had before its first worker.
    inherited: BTreeSet<Identity>,
}

/// The result of one pass about an instance.
#[derive(Debug)]
struct Pass {
    has_ended: bool,
    /// The processes that this user may not end.
    refused: BTreeSet<i32>,
}

impl Reaper {
    /// Makes this process a subreaper, and returns its reaper. Call it before this process starts
    /// a worker.
    ///
    /// # Errors
    ///
    /// If this process cannot become a subreaper, or `/proc` cannot be read.
    pub fn begin() -> io::Result<&'static Self> {
        set_child_subreaper(Some(getpid()))?;
        if let Some(reaper) = REAPER.get() {
            return Ok(reaper);
        }
        let inherited = procs::children()?.iter().map(Process::identity).collect();
        let groups = JobGroups::find().ok();
        Ok(REAPER.get_or_init(|| Self { ends: Mutex::default(), groups, inherited }))
    }

    /// Starts the worker `instance` by `spawn`. Its process must lead a group of its own.
    ///
    /// # Errors
    ///
    /// If `spawn` fails.
    pub fn start(
        &self,
        instance: &str,
        spawn: impl FnOnce() -> io::Result<Child>,
    ) -> io::Result<Child> {
        // Without the lock, a look could take the new process for an orphan.
        let mut ends = self.lock();
        let child = spawn()?;
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).unwrap_or_default();
        // An unknown start is earlier than any other.
        let started = procs::one(pid).map_or(0, |process| process.started);
        ends.started(instance, (pid, started));
        drop(ends);
        Ok(child)
    }

    /// Reaps the orphans that have ended, and notes the others. An orphan that is noted before any
    /// worker has ended belongs to none: the first process of a container gets such orphans. O(children).
    ///
    /// # Errors
    ///
    /// If `/proc` cannot be read.
    pub fn look(&self) -> io::Result<()> {
        let mut ends = self.lock();
        self.see(&mut ends, procs::listed_children()?);
        Ok(())
    }

    /// Kills the processes that a worker has left, until none is left. The worker itself must have
    /// been waited for. Without a limit: a process of another user ends only when that user ends
    /// it. `held` receives such processes whenever they change.
    pub async fn end(&'static self, instance: &str, mut held: impl FnMut(Vec<HeldProcess>)) {
        self.lock().reaped(instance);
        let mut children = signal(SignalKind::child()).ok();
        let (mut pause, mut said) = (PAUSE_MIN, BTreeSet::new());
        loop {
            let its = instance.to_owned();
            let pass = spawn_blocking(move || self.pass(&its)).await;
            match pass.map_err(io::Error::other).and_then(|pass| pass) {
                Ok(Pass { has_ended: true, .. }) => return,
                Ok(Pass { refused, .. }) if refused != said => {
                    held(refused.iter().map(|pid| procs::held(*pid)).collect());
                    said = refused;
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(instance, %error, "it is unknown which processes are left");
                    pause = PAUSE_MAX;
                }
            }
            let ended = async {
                match &mut children {
                    Some(children) => drop(children.recv().await),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = ended => {}
                () = sleep(pause) => pause = PAUSE_MAX.min(2 * pause),
            }
        }
    }

    fn pass(&self, instance: &str) -> io::Result<Pass> {
        let marked = sweep::pass(&Marker::Instance(instance.to_owned()))?;
        let mut ends = self.lock();
        self.see(&mut ends, procs::children()?);
        let left: Vec<_> = ends.left(instance).collect();
        if let Some(groups) = self.groups.as_ref().filter(|_| !left.is_empty()) {
            groups.end_stale();
        }
        let refused = left.iter().filter(|it| is_refused(**it)).map(|it| it.0).collect();
        let has_ended = ends.judge(instance, !marked.is_empty());
        Ok(Pass { has_ended, refused })
    }

    /// Learns the orphans among the children of this process, and reaps the ended ones.
    fn see(&self, ends: &mut Ends, children: Vec<Process>) {
        let workers: BTreeMap<i32, Identity> = ends.running().map(|(_, it)| (it.0, it)).collect();
        let mut look = Look::default();
        for child in children {
            let (identity, pid) = (child.identity(), child.pid);
            let is_worker = workers.get(&identity.0).is_some_and(|it| it.1 == 0 || *it == identity);
            if is_worker || self.inherited.contains(&identity) {
                continue;
            }
            let named = procs::value(pid, INSTANCE).filter(|instance| ends.knows(instance));
            // This process starts workers in groups of their own, and everything else in its own.
            if child.group == getpgrp().as_raw() && named.is_none() {
                continue;
            }
            if !(child.is_zombie && is_reaped(pid)) {
                look.orphans.insert(identity, named);
            }
        }
        let has_ended = |(_, process): &(&String, Identity)| {
            let now = procs::one(process.0);
            now.is_none_or(|now| now.is_zombie || process.1 != 0 && now.started != process.1)
        };
        look.ended =
            ends.running().filter(has_ended).map(|(instance, _)| instance.clone()).collect();
        ends.see(&look);
    }

    fn lock(&self) -> MutexGuard<'_, Ends> {
        // Each change is complete before anything can panic.
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Kills an orphan, and returns whether this user may not. An orphan keeps its id until this process
/// reaps it.
fn is_refused((pid, _): Identity) -> bool {
    let Some(pid) = Pid::from_raw(pid) else { return false };
    let killed = pidfd_open(pid, PidfdFlags::empty())
        .and_then(|process| pidfd_send_signal(process.as_fd(), Signal::KILL));
    killed == Err(Errno::PERM)
}
