//! Records a run of the operator on disk, so that the next operator can end the processes that it
//! left behind.
//!
//! Two things identify such a process. One is the random mark of the run, which only its processes
//! have in their environment. It is stored only here, in a directory that only this user can read.
//! The other is the record, which names the boot of the machine and the start of the run.
//!
//! A worker is also ended in order by its id, if the process with that id has the recorded start
//! time.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::File;
use std::io;
use std::num::NonZero;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use swarm_adapters_host::channel::HeldProcess;
use swarm_adapters_host::file::{self, ReadError};
use swarm_adapters_host::{clock, random};
use swarm_worker::ends::Unmarked;
use swarm_worker::procs;
use swarm_worker::sweep::{self, Marked, Marker};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::END_MARGIN;
use super::groups::{self, Groups};
use super::killed::Killed;
use crate::format;

/// Stop timeout of a run that did not record one.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Time between two checks for processes that were asked to end.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Maximum number of recorded kills.
const KILLED_MAX: usize = 1_000;

/// The format that this program writes, and the newest that it reads.
const FORMAT: u64 = 1;

/// Maximum size of a record.
const BYTES_MAX: u64 = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Run {
    /// The format of the record.
    #[serde(default = "format::first")]
    format: u64,
    /// The random mark of the run.
    mark: String,
    /// The boot id of the machine.
    boot: String,
    /// The operator's start in clock ticks since boot, as the kernel reports it.
    started: u64,
    /// Stop timeout of the jobs, in milliseconds. An earlier version did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stop_timeout_ms: Option<u64>,
    /// The workers that may run, by name.
    workers: BTreeMap<String, Worker>,
    /// The jobs and workers that did not end in time and were killed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    killed: Vec<Killed>,
}

impl Run {
    fn stop_timeout(&self) -> Duration {
        self.stop_timeout_ms.map_or(STOP_TIMEOUT, Duration::from_millis)
    }
}

/// The boot of the machine, which is a field of a record in any format.
#[derive(Deserialize)]
struct Boot {
    boot: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Worker {
    pid: i32,
    /// Start in clock ticks since boot.
    started: u64,
}

/// The record `DIR/run.json` of one operator.
#[derive(Debug)]
pub(super) struct Records {
    /// The directory, even if its path leads to another one: that one may have the record of another
    /// pool.
    dir: OwnedFd,
    mark: String,
    run: Mutex<Run>,
    groups: Groups,
}

impl Records {
    /// Begins a run: its mark is on disk before any process has it.
    pub(super) fn begin(dir: &Path, stop_timeout: Duration) -> io::Result<Self> {
        let mark = format!("{:016x}{:016x}", random::number()?, random::number()?);
        let me = getpid().as_raw_nonzero().get();
        let started = started(me).ok_or_else(|| io::Error::other("/proc cannot be read"))?;
        let (boot, workers) = (clock::boot_id()?, BTreeMap::new());
        let stop_timeout_ms = u64::try_from(stop_timeout.as_millis()).ok();
        let run = Run {
            format: FORMAT,
            mark: mark.clone(),
            boot,
            started,
            stop_timeout_ms,
            workers,
            killed: Vec::new(),
        };
        let groups = Groups::begin(dir)?;
        let dir = File::open(dir)?.into();
        write(&path_in(&dir), &run)?;
        Ok(Self { dir, mark, run: Mutex::new(run), groups })
    }

    /// Returns the mark of this run.
    pub(super) fn mark(&self) -> &str {
        &self.mark
    }

    /// Records a worker. If the operator dies before this call, the worker is not recorded, but it
    /// has the mark.
    pub(super) fn add(&self, name: &str, pid: Option<Pid>) {
        let worker = pid.and_then(|pid| {
            let pid = pid.as_raw_nonzero().get();
            Some(Worker { pid, started: started(pid)? })
        });
        self.edit(|run| {
            worker.map(|worker| run.workers.insert(name.to_owned(), worker));
        });
    }

    /// Records the first process of a job, which leads its group. The next operator finds the group by
    /// it, also if no environment in it can be read.
    pub(super) fn began(&self, pid: i32) {
        warn(self.groups.add(pid));
    }

    /// Records that no process of a job is left.
    pub(super) fn ended(&self, pid: i32) {
        warn(self.groups.remove(pid));
    }

    pub(super) fn remove(&self, name: &str) {
        self.edit(|run| {
            run.workers.remove(name);
        });
    }

    /// Records a killed job or worker.
    pub(super) fn killed(&self, killed: Killed) {
        if self.run().killed.len() < KILLED_MAX {
            self.edit(|run| run.killed.push(killed));
        }
    }

    /// Returns the jobs and workers killed in this run.
    pub(super) fn all_killed(&self) -> Vec<Killed> {
        self.run().killed.clone()
    }

    fn run(&self) -> MutexGuard<'_, Run> {
        // A thread that panicked while holding the lock cannot have left an incomplete entry.
        self.run.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn edit(&self, edit: impl FnOnce(&mut Run)) {
        let mut run = self.run();
        edit(&mut run);
        if let Err(error) = write(&path_in(&self.dir), &run) {
            tracing::warn!(%error, "the list of worker processes, run.json, cannot be written");
        }
    }
}

fn warn(written: io::Result<()>) {
    if let Err(error) = written {
        tracing::warn!(%error, "the list of jobs' processes cannot be written");
    }
}

/// Writes without sync: after a loss of power no processes exist.
fn write(path: &Path, run: &Run) -> io::Result<()> {
    file::swap(path, &serde_json::to_vec(run)?)
}

fn path(dir: &Path) -> PathBuf {
    dir.join("run.json")
}

/// The path of the record in an open directory.
fn path_in(dir: &OwnedFd) -> PathBuf {
    path(Path::new(&format!("/proc/self/fd/{}", dir.as_raw_fd())))
}

/// Returns the last run recorded in `dir`, if its processes may still exist.
fn last(dir: &Path) -> io::Result<Option<Run>> {
    let path = path(dir);
    let text = match file::read_regular_text(&path, BYTES_MAX) {
        Ok(text) => text,
        Err(ReadError::Missing) => return Ok(None),
        Err(ReadError::Failed(error)) if error.kind() == io::ErrorKind::NotADirectory => {
            return Ok(None);
        }
        Err(error) => return Err(io::Error::other(format!("{}: {error}", path.display()))),
    };
    // No process outlives a reboot, so a record of an earlier boot means nothing in any format.
    if serde_json::from_str(&text).is_ok_and(|Boot { boot }| clock::boot_id().ok() == Some(boot)) {
        format::check(&path, &text, FORMAT).map_err(io::Error::other)?;
    }
    let Ok(run) = serde_json::from_str::<Run>(&text) else {
        // A loss of power can damage the record; then no process is left.
        let path = path.display();
        tracing::warn!(%path, "it is not a record of a run; leftover processes of that run go on");
        return Ok(None);
    };
    // Other processes could have a mark of another format.
    let is_ours = run.mark.len() == 32 && run.mark.bytes().all(|it| it.is_ascii_hexdigit());
    Ok((is_ours && run.boot == clock::boot_id()?).then_some(run))
}

/// Ended processes of an earlier run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Leftovers {
    /// The workers.
    pub(crate) workers: usize,
    /// Other processes: guards and jobs.
    pub(crate) others: usize,
    /// Number of processes that did not end in time and were killed.
    pub(crate) killed: usize,
    /// Jobs and workers of the killed processes, if known.
    pub(crate) killed_jobs: Vec<Killed>,
}

/// Processes of an earlier run that have not ended yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Remaining {
    /// Number of workers.
    pub(crate) workers: usize,
    /// Number of other processes: guards and jobs.
    pub(crate) others: usize,
    /// Time at which the remaining processes are killed, if their end begins now or has begun.
    pub(crate) until: std::time::Instant,
    /// The processes that this user may not end.
    pub(crate) held: Vec<HeldProcess>,
}

/// Time that leftovers have to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// The stop timeout of their run.
    AsRecorded,
    /// No time: they are killed at once.
    None,
}

/// A process with the mark of the run, and its pidfd.
type Found = (OwnedFd, Marked);

/// A worker of the last run that still runs.
struct Left {
    name: String,
    pid: Pid,
    process: OwnedFd,
    instance: Option<String>,
}

/// The last run in a directory, and its workers that still run.
struct Earlier {
    marker: Marker,
    /// Its processes without a mark.
    unmarked: Unmarked,
    stop_timeout: Duration,
    workers: Vec<Left>,
}

impl Earlier {
    /// Reads the last run in `dir`, if its processes may still exist.
    fn of(dir: &Path) -> io::Result<Option<Self>> {
        let Some(run) = last(dir)? else { return Ok(None) };
        let stop_timeout = run.stop_timeout();
        let entry = format!("{}={}", sweep::RUN, run.mark);
        let workers = run.workers.into_iter();
        let workers = workers.filter_map(|(name, it)| pinned(name, it, entry.as_bytes()));
        let workers = workers.collect();
        let unmarked = Unmarked::of(run.mark.clone(), groups::read(dir)?);
        let marker = Marker::Run { mark: run.mark, since: run.started };
        Ok(Some(Self { marker, unmarked, stop_timeout, workers }))
    }

    /// Returns the time that the leftovers have to end. Workers have more time than their jobs.
    fn limit(&self) -> Duration {
        let margin = if self.workers.is_empty() { Duration::ZERO } else { END_MARGIN };
        self.stop_timeout.saturating_add(margin)
    }

    fn is_worker(&self, process: &Marked) -> bool {
        self.workers.iter().any(|worker| worker.pid == process.pid)
    }

    fn remaining(&self, found: &[Found], until: Instant) -> Option<Remaining> {
        let workers = self.workers.len();
        let others = found.iter().filter(|(_, it)| !self.is_worker(it)).count();
        let others = others + self.unmarked.count();
        let (until, held) = (until.into_std(), self.unmarked.held());
        (0 < workers + others).then_some(Remaining { workers, others, until, held })
    }

    /// Asks all leftovers to end, and waits until they have ended or the time is over. A worker asks
    /// its jobs itself, and is killed if it is late.
    async fn end(&mut self, progress: &watch::Sender<Option<Remaining>>) -> io::Result<Leftovers> {
        let mut ended = Leftovers { workers: self.workers.len(), ..Leftovers::default() };
        self.workers.iter().for_each(|worker| sweep::ask(&worker.process));
        let mut until = Instant::now() + self.limit();
        let (mut asked, mut keepers) = (HashSet::new(), usize::MAX);
        loop {
            self.workers.retain(|worker| !has_ended(&worker.process, Duration::ZERO));
            if until <= Instant::now() {
                ended.killed_jobs.extend(self.workers.drain(..).map(Left::kill));
            }
            let found = sweep::found(&self.marker).await?;
            self.unmarked.look(&found)?;
            if self.workers.len() < keepers {
                // Jobs outlive their worker and guard if both were killed at once.
                keepers = self.workers.len();
                self.unmarked.ask();
                if self.ask_orphans(&found, &mut asked) || 0 < self.unmarked.count() {
                    until = until.max(Instant::now() + self.stop_timeout);
                }
            }
            let remaining = self.remaining(&found, until);
            progress.send_replace(remaining.clone());
            let others = remaining.as_ref().map(|it| it.others).unwrap_or_default();
            ended.others = ended.others.max(others);
            if remaining.is_none() || self.workers.is_empty() && until <= Instant::now() {
                return Ok(ended);
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Asks processes without a worker to end, each once. Returns whether any exist.
    fn ask_orphans(&self, found: &[Found], asked: &mut HashSet<NonZero<i32>>) -> bool {
        let kept: HashSet<_> = self.workers.iter().filter_map(|it| it.instance.as_ref()).collect();
        let is_kept = |it: &Marked| it.instance.as_ref().is_some_and(|it| kept.contains(it));
        let orphans = found.iter().filter(|(_, it)| !is_kept(it) && !self.is_worker(it));
        let mut is_any = false;
        for (process, orphan) in orphans {
            if asked.insert(orphan.pid.as_raw_nonzero()) {
                sweep::ask(process);
                is_any = true;
            }
        }
        is_any
    }
}

/// Returns the killed processes' jobs, and the workers without jobs.
fn named(killed: &[Marked]) -> impl Iterator<Item = Killed> {
    killed.iter().filter_map(|process| {
        let (worker, _) = process.instance.as_deref()?.rsplit_once('.')?;
        Some(Killed { worker: worker.to_owned(), job: process.job.clone() })
    })
}

/// Returns the processes that the last run in `dir` left behind, if any.
///
/// # Errors
///
/// The record or `/proc` cannot be read, so leftovers are unknown.
pub(crate) async fn remaining(dir: &Path) -> io::Result<Option<Remaining>> {
    let Some(mut earlier) = Earlier::of(dir)? else { return Ok(None) };
    let found = sweep::found(&earlier.marker).await?;
    earlier.unmarked.look(&found)?;
    Ok(earlier.remaining(&found, Instant::now() + earlier.limit()))
}

/// Ends all processes that the last run in `dir` left behind, and publishes the progress. Returns
/// when no process is left. Processes that exceed the run's stop timeout are killed. No operator may
/// run there. This function is cancel safe.
///
/// # Errors
///
/// The record or `/proc` cannot be read, so leftovers are unknown.
pub(crate) async fn end_leftovers(
    dir: &Path,
    patience: Patience,
    progress: &watch::Sender<Option<Remaining>>,
) -> io::Result<Leftovers> {
    let Some(mut earlier) = Earlier::of(dir)? else { return Ok(Leftovers::default()) };
    let ended = match patience {
        Patience::AsRecorded => earlier.end(progress).await?,
        Patience::None => Leftovers::default(),
    };
    finish(&mut earlier, ended, progress).await
}

/// Kills the remaining processes, and waits until none is left.
async fn finish(
    earlier: &mut Earlier,
    mut ended: Leftovers,
    progress: &watch::Sender<Option<Remaining>>,
) -> io::Result<Leftovers> {
    let until = Instant::now();
    // A process without a mark is recognised by its parents, so they are seen first.
    earlier.unmarked.look(&sweep::found(&earlier.marker).await?)?;
    let mut killed = sweep::end_each(&earlier.marker).await?;
    while earlier.unmarked.kill()? {
        progress.send_replace(earlier.remaining(&[], until));
        sleep(LOOK_EVERY).await;
        killed.extend(sweep::end_each(&earlier.marker).await?);
        earlier.unmarked.look(&[])?;
    }
    ended.others = ended.others.max(killed.len());
    ended.killed = killed.len();
    let names: BTreeSet<_> = ended.killed_jobs.drain(..).chain(named(&killed)).collect();
    let of_jobs = names.iter().filter(|it| it.job.is_some());
    let have_jobs: BTreeSet<_> = of_jobs.map(|it| it.worker.as_str()).collect();
    let names = names.iter();
    let names = names.filter(|it| it.job.is_some() || !have_jobs.contains(it.worker.as_str()));
    ended.killed_jobs = names.cloned().collect();
    Ok(ended)
}

/// Returns the stop timeout and the kills that the last run in `dir` recorded.
///
/// # Errors
///
/// If the record cannot be read.
pub(crate) fn recorded(dir: &Path) -> io::Result<Option<(Duration, Vec<Killed>)>> {
    Ok(last(dir)?.map(|run| (run.stop_timeout(), run.killed)))
}

/// Opens a pidfd of a worker, unless it has ended or its id belongs to another process.
fn pinned(name: String, worker: Worker, entry: &[u8]) -> Option<Left> {
    let pid = Pid::from_raw(worker.pid)?;
    // The pidfd is opened first: it refers to the same process as the check below.
    let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    let is_it = started(worker.pid) == Some(worker.started)
        && procs::has_entry(pid, entry)
        && !procs::line_of(getpid()).contains(&pid);
    let instance = procs::value(pid, sweep::INSTANCE);
    (is_it && !has_ended(&process, Duration::ZERO)).then_some(Left { name, pid, process, instance })
}

impl Left {
    fn kill(self) -> Killed {
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
        Killed { worker: self.name, job: None }
    }
}

/// Waits at most `at_most` for a process to end.
pub(super) fn has_ended(process: &OwnedFd, at_most: Duration) -> bool {
    let mut fds = [PollFd::new(process, PollFlags::IN)];
    let at_most = Timespec::try_from(at_most).ok();
    poll(&mut fds, at_most.as_ref()).is_ok_and(|ready| 0 < ready)
}

fn started(pid: i32) -> Option<u64> {
    procs::one(pid).map(|process| process.started)
}

#[cfg(test)]
mod tests;
