//! The workers of a pool as child processes of this one.
//!
//! A worker is the leader of its own process group, so that Ctrl-C in a terminal reaches only the
//! operator, which ends the workers in order. The operator holds a pipe to the worker's standard
//! input, and gives its [orders](orders) there: when it closes the pipe, or is killed, the worker stops
//! its jobs and ends. The worker's output goes to `DIR/logs/WORKER.log`, which is rotated while it runs.
//!
//! Each start of a worker is an *instance* with an identity of its own, which the worker and all
//! processes that it starts have in their environment. When an instance has ended, every process
//! that still has its identity is killed, and only then is the worker [away](Phase::Away): from
//! then on, it is certain that nothing of that instance runs.
//!
//! A worker that ends without a request is restarted: at once the first time, and after growing
//! pauses if it keeps ending.

mod instance;
mod leftovers;
mod logs;
pub mod orders;
mod peer;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use swarm_core::Slot;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet, spawn_blocking};
use tokio::time::sleep;

pub use leftovers::{Leftovers, end_leftovers};
pub use logs::{aside as rotated_log, open as open_log, path as log_path};
pub use peer::Peer;

use crate::file;
use leftovers::Records;

/// How long a worker may take to end before it is killed.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest pause before a worker that keeps ending is restarted, and how long an instance has
/// to run for the pauses to start over.
const PAUSE_MAX: Duration = Duration::from_secs(5);
const PAUSE_MIN: Duration = Duration::from_millis(5);

/// A worker as its parent sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerProcess {
    /// The worker's name.
    pub name: String,
    /// The identity of its current instance; while the worker is away, of its last one.
    pub instance: String,
    /// Its phase.
    pub phase: Phase,
    /// How often it ended without a request.
    pub deaths: u32,
    /// How it last ended, or why it could not be started.
    pub last_death: Option<String>,
}

/// The phase of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It runs.
    Up,
    /// It ended at this time, with all processes it had started, and has not been restarted yet.
    Away(Instant),
    /// It was asked to end at this time and has not ended yet.
    Leaving(Instant),
}

/// All workers that run or should run. A worker that was asked to end and has ended is removed.
pub type Workers = BTreeMap<Slot, WorkerProcess>;

/// The arguments of a worker, from its name and the identity of its instance.
pub type Arguments = dyn Fn(&str, &str) -> Vec<OsString> + Send + Sync;

/// The program of a worker.
pub struct WorkerCommand {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Box<Arguments>,
}

/// Starts workers, keeps them running, and ends them. If it is dropped, the pipes of its workers
/// close, and they end by themselves.
pub struct Processes {
    shared: Arc<Shared>,
    orders: BTreeMap<Slot, watch::Sender<Order>>,
    supervisors: JoinSet<()>,
    /// The last rotation of logs.
    rotation: Option<JoinHandle<()>>,
}

/// What a worker's supervisor shall ensure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// The worker runs; an instance that ends is replaced. The number rises with every kill.
    Run { kills: u32 },
    /// The worker was asked to end, and has until then to release its jobs.
    Drain { until: Instant },
    /// The worker's pipe is closed.
    End,
}

struct Shared {
    dir: PathBuf,
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
    /// If the directory for the logs cannot be created, or the run cannot be recorded.
    pub fn open(dir: &Path, command: WorkerCommand) -> io::Result<Self> {
        let logs = dir.join("logs");
        file::create_dir(&logs)?;
        let workers = watch::Sender::new(Workers::new());
        let records = Records::begin(dir)?;
        let shared = Shared { dir: dir.to_owned(), logs, command, records, workers };
        let (orders, supervisors) = (BTreeMap::new(), JoinSet::new());
        Ok(Self { shared: Arc::new(shared), orders, supervisors, rotation: None })
    }

    /// The workers, now and after every change.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Workers> {
        self.shared.workers.subscribe()
    }

    /// Starts a worker in `slot`. The call has no effect while the slot is filled, even by a worker
    /// that is leaving: call again when that worker is gone.
    pub fn start(&mut self, slot: Slot, name: &str) {
        let worker = WorkerProcess {
            name: name.to_owned(),
            instance: String::new(),
            phase: Phase::Up,
            deaths: 0,
            last_death: None,
        };
        let is_free = self.shared.workers.send_if_modified(|workers| {
            let is_free = !workers.contains_key(&slot);
            workers.entry(slot).or_insert(worker);
            is_free
        });
        if is_free {
            let (orders, order) = watch::channel(Order::Run { kills: 0 });
            self.orders.insert(slot, orders);
            self.supervisors.spawn(supervise(Arc::clone(&self.shared), slot, order));
        }
        // Otherwise the set would keep the results of ended supervisors for ever.
        while self.supervisors.try_join_next().is_some() {}
    }

    /// Asks the worker in `slot` to release its jobs and end; after `patience` it is killed. It is
    /// gone from [`watch`](Self::watch) when it has ended.
    pub fn leave(&mut self, slot: Slot, patience: Duration) {
        if let Some(orders) = self.orders.get(&slot) {
            let until = Instant::now() + patience;
            orders.send_if_modified(|order| {
                let runs = matches!(order, Order::Run { .. });
                if runs {
                    *order = Order::Drain { until };
                }
                runs
            });
        }
    }

    /// Kills this instance of the worker in `slot`, with all processes that it has started, and
    /// restarts the worker.
    pub fn kill(&self, slot: Slot, instance: &str) {
        let is_current =
            self.shared.workers.borrow().get(&slot).is_some_and(|w| w.instance == instance);
        if let Some(orders) = self.orders.get(&slot).filter(|_| is_current) {
            orders.send_if_modified(|order| match order {
                Order::Run { kills } => {
                    *kills += 1;
                    true
                }
                Order::Drain { .. } => {
                    *order = Order::Drain { until: Instant::now() };
                    true
                }
                Order::End => false,
            });
        }
    }

    /// Rotates the logs of workers that have grown large, in the background.
    pub fn rotate_logs(&mut self) {
        if self.rotation.as_ref().is_some_and(|rotation| !rotation.is_finished()) {
            return;
        }
        let names = |workers: &Workers| workers.values().map(|it| it.name.clone()).collect();
        let names: Vec<_> = names(&self.shared.workers.borrow());
        let dir = self.shared.logs.clone();
        self.rotation = Some(spawn_blocking(move || logs::rotate_all(&dir, &names)));
    }

    /// Ends all workers, and returns when none is left.
    pub async fn end(mut self) {
        for orders in self.orders.values() {
            orders.send_replace(Order::End);
        }
        while self.supervisors.join_next().await.is_some() {}
    }
}

/// Keeps one worker running until it is asked to leave.
async fn supervise(shared: Arc<Shared>, slot: Slot, mut order: watch::Receiver<Order>) {
    let is_leaving = |order: &Order| !matches!(order, Order::Run { .. });
    let mut pause = PAUSE_MIN;
    while !is_leaving(&order.borrow()) {
        let started = Instant::now();
        let end = shared.run_instance(slot, &mut order).await;
        if is_leaving(&order.borrow()) {
            break;
        }
        shared.edit(slot, |worker| {
            worker.phase = Phase::Away(Instant::now());
            worker.deaths += 1;
            worker.last_death = Some(end);
        });
        if PAUSE_MAX < started.elapsed() {
            pause = PAUSE_MIN;
        }
        tokio::select! {
            () = sleep(pause) => {}
            _ = order.wait_for(is_leaving) => break,
        }
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
