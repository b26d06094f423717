//! The workers of a pool as child processes of this one.
//!
//! A worker is the leader of a process group of its own, so that Ctrl-C in a terminal reaches only
//! the operator, which ends the workers in order. It is held by a pipe to its standard input: the
//! pipe closes when the operator lets go of the worker, and also when the operator is killed, and
//! then the worker stops its jobs and ends. On standard output it writes a [`Report`], one line
//! each, whenever it runs other jobs than before; its standard error goes to `DIR/logs/WORKER.log`.
//!
//! A worker that ends without being told to is started again, at once at first and ever more
//! slowly if it keeps ending.

mod leftovers;
mod life;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use swarm_core::Slot;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

pub use leftovers::end_leftovers;

use crate::report::Report;
use leftovers::Records;

/// How long a worker may take to end before it is killed.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest pause before a worker that keeps ending is started again, and how long it has to
/// live for its earlier ends to be forgotten.
const PAUSE_MAX: Duration = Duration::from_secs(5);
const PAUSE_MIN: Duration = Duration::from_millis(5);

/// A worker as its parent sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerProcess {
    /// The worker's name.
    pub name: String,
    /// Where it stands in its life.
    pub phase: Phase,
    /// What it told last in this life.
    pub report: Option<Report>,
    /// How often it ended without being told to.
    pub deaths: u32,
    /// How it ended the last time, or why it could not be started.
    pub last_death: Option<String>,
}

/// Where a worker stands in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It was started for the first time and has told nothing yet.
    Starting,
    /// It runs and has told what.
    Running,
    /// It ended at this time and has not told anything since.
    Away(Instant),
    /// It was told to end at this time and has not ended yet.
    Leaving(Instant),
}

/// All workers that run or should run. One whose end was awaited no longer stands in it.
pub type Workers = BTreeMap<Slot, WorkerProcess>;

/// What a worker is started with, by its name.
pub type Arguments = dyn Fn(&str) -> Vec<OsString> + Send + Sync;

/// Which program is a worker.
pub struct WorkerCommand {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Box<Arguments>,
}

/// Starts workers, keeps them running, ends them. If it is dropped, its workers see their pipes
/// close and end by themselves.
pub struct Processes {
    shared: Arc<Shared>,
    leave: BTreeMap<Slot, CancellationToken>,
    supervisors: JoinSet<()>,
}

struct Shared {
    logs: PathBuf,
    command: WorkerCommand,
    records: Records,
    workers: watch::Sender<Workers>,
}

impl Processes {
    /// A pool without workers that keeps its logs and records in `dir`.
    ///
    /// # Errors
    ///
    /// If the directory for the logs cannot be made.
    pub fn open(dir: &Path, command: WorkerCommand) -> io::Result<Self> {
        let logs = dir.join("logs");
        std::fs::create_dir_all(&logs)?;
        let workers = watch::Sender::new(Workers::new());
        let shared = Shared { logs, command, records: Records::open(dir), workers };
        Ok(Self { shared: Arc::new(shared), leave: BTreeMap::new(), supervisors: JoinSet::new() })
    }

    /// The workers as they are, now and after every change.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Workers> {
        self.shared.workers.subscribe()
    }

    /// Starts a worker in `slot`. A slot that is filled, if only by a worker that is leaving, stays
    /// as it is: ask again when that one is gone.
    pub fn start(&mut self, slot: Slot, name: &str) {
        let worker = WorkerProcess {
            name: name.to_owned(),
            phase: Phase::Starting,
            report: None,
            deaths: 0,
            last_death: None,
        };
        let is_free = self.shared.workers.send_if_modified(|workers| {
            let is_free = !workers.contains_key(&slot);
            workers.entry(slot).or_insert(worker);
            is_free
        });
        if is_free {
            let leave = CancellationToken::new();
            self.leave.insert(slot, leave.clone());
            self.supervisors.spawn(supervise(Arc::clone(&self.shared), slot, leave));
        }
        // The set would otherwise keep what ended supervisors returned, for ever.
        while self.supervisors.try_join_next().is_some() {}
    }

    /// Tells the worker in `slot` to end. It is gone from [`watch`](Self::watch) when it has ended,
    /// if need be by force after [`STOP_TIMEOUT`].
    pub fn leave(&mut self, slot: Slot) {
        if let Some(leave) = self.leave.remove(&slot) {
            leave.cancel();
        }
    }

    /// Ends all workers and returns when none is left.
    pub async fn end(mut self) {
        self.leave.values().for_each(CancellationToken::cancel);
        while self.supervisors.join_next().await.is_some() {}
    }
}

/// Keeps one worker running until it is to leave.
async fn supervise(shared: Arc<Shared>, slot: Slot, leave: CancellationToken) {
    let mut pause = PAUSE_MIN;
    while !leave.is_cancelled() {
        let born = Instant::now();
        let end = shared.live(slot, &leave).await;
        if leave.is_cancelled() {
            break;
        }
        shared.edit(slot, |worker| {
            let since = match worker.phase {
                // A worker that ends before it told anything never came back.
                Phase::Away(since) => since,
                Phase::Starting | Phase::Running | Phase::Leaving(_) => Instant::now(),
            };
            worker.phase = Phase::Away(since);
            worker.report = None;
            worker.deaths += 1;
            worker.last_death = Some(end);
        });
        if PAUSE_MAX < born.elapsed() {
            pause = PAUSE_MIN;
        }
        leave.run_until_cancelled(sleep(pause)).await;
        pause = PAUSE_MAX.min(pause * 4);
    }
    shared.workers.send_modify(|workers| {
        workers.remove(&slot);
    });
}

impl Shared {
    fn edit(&self, slot: Slot, edit: impl FnOnce(&mut WorkerProcess)) {
        self.workers.send_if_modified(|workers| {
            let Some(worker) = workers.get_mut(&slot) else { return false };
            let before = worker.clone();
            edit(worker);
            *worker != before
        });
    }
}

#[cfg(test)]
mod tests;
