//! The workers of a pool as child processes of this one.
//!
//! A worker is the leader of a process group of its own, so that Ctrl-C in a terminal reaches only
//! the operator, which ends the workers in order. It is held by a pipe to its standard input: the
//! pipe closes when the operator lets go of the worker, and also when the operator is killed, and
//! then the worker stops its jobs and ends. Its output goes to `DIR/logs/WORKER.log`.
//!
//! Each life of a worker has an identity of its own, which the worker and all it starts bear in
//! their environment. When a life has ended, whatever still bears it is ended too, and only then is
//! the worker [away](Phase::Away): from there on nothing of that life runs, for certain.
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

pub use leftovers::end_leftovers;

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
    /// Its current life, or its last one while it is away.
    pub life: String,
    /// Where it stands in its life.
    pub phase: Phase,
    /// How often it ended without being told to.
    pub deaths: u32,
    /// How it ended the last time, or why it could not be started.
    pub last_death: Option<String>,
}

/// Where a worker stands in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It runs.
    Up,
    /// It ended at this time, with all it had started, and was not started again yet.
    Away(Instant),
    /// It was told to end at this time and has not ended yet.
    Leaving(Instant),
}

/// All workers that run or should run. One whose end was awaited no longer stands in it.
pub type Workers = BTreeMap<Slot, WorkerProcess>;

/// What a worker is started with, by its name and its life.
pub type Arguments = dyn Fn(&str, &str) -> Vec<OsString> + Send + Sync;

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
    orders: BTreeMap<Slot, watch::Sender<Order>>,
    supervisors: JoinSet<()>,
}

/// What a worker's supervisor is to see to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// The worker runs; killed lives are replaced. The number rises with every kill.
    Run { kills: u32 },
    /// The worker was told to end, and has until then to let go of its jobs.
    Drain { until: Instant },
    /// The worker is let go of.
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
    /// If the directory for the logs cannot be made.
    pub fn open(dir: &Path, command: WorkerCommand) -> io::Result<Self> {
        let logs = dir.join("logs");
        std::fs::create_dir_all(&logs)?;
        let workers = watch::Sender::new(Workers::new());
        let shared =
            Shared { dir: dir.to_owned(), logs, command, records: Records::open(dir), workers };
        Ok(Self { shared: Arc::new(shared), orders: BTreeMap::new(), supervisors: JoinSet::new() })
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
            life: String::new(),
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
        // The set would otherwise keep what ended supervisors returned, for ever.
        while self.supervisors.try_join_next().is_some() {}
    }

    /// Tells the worker in `slot` to let go of its jobs and end. It is gone from
    /// [`watch`](Self::watch) when it has ended, if need be by force after `patience`.
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

    /// Kills the worker in `slot` in its life `life`, with all it has started, and starts it anew.
    pub fn kill(&self, slot: Slot, life: &str) {
        let is_current = self.shared.workers.borrow().get(&slot).is_some_and(|w| w.life == life);
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

    /// Ends all workers and returns when none is left.
    pub async fn end(mut self) {
        for orders in self.orders.values() {
            orders.send_replace(Order::End);
        }
        while self.supervisors.join_next().await.is_some() {}
    }
}

/// Keeps one worker running until it is to leave.
async fn supervise(shared: Arc<Shared>, slot: Slot, mut order: watch::Receiver<Order>) {
    let is_leaving = |order: &Order| !matches!(order, Order::Run { .. });
    let mut pause = PAUSE_MIN;
    while !is_leaving(&order.borrow()) {
        let born = Instant::now();
        let end = shared.live(slot, &mut order).await;
        if is_leaving(&order.borrow()) {
            break;
        }
        shared.edit(slot, |worker| {
            worker.phase = Phase::Away(Instant::now());
            worker.deaths += 1;
            worker.last_death = Some(end);
        });
        if PAUSE_MAX < born.elapsed() {
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
