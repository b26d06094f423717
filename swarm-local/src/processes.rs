//! The workers of a pool as child processes of this one.
//!
//! A worker leads its own process group, so Ctrl-C in a terminal reaches only the operator, which
//! ends the workers in order. The worker's standard input is one end of a [channel]. When the
//! operator closes its end, or is killed, the worker stops its jobs and ends. The worker's output
//! goes to `DIR/logs/WORKER.log`, which is rotated while it runs. The output of a job goes to a
//! [file of its own](crate::logs::job_log) in `DIR/logs/jobs`.
//!
//! However a worker ends, its jobs have the stop timeout of the pool to end. A worker that takes
//! [`END_MARGIN`] longer than that is killed. [`kill_all`](Processes::kill_all) kills all workers
//! at once.
//!
//! Each start of a worker is an *instance* with its own identity, which the worker and all its
//! processes have in their environment. When the process of an instance has ended, every process that
//! it left behind is killed. Only when [none lives](swarm_worker::ends) is the worker
//! [away](Phase::Away).
//!
//! A worker that ends without a request is restarted: at once the first time, and after growing
//! pauses if it keeps ending.

mod groups;
mod instance;
mod killed;
mod leftovers;
mod logs;
mod peer;
mod problems;
pub(crate) mod reports;
pub(crate) mod worker;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use swarm_core::Slot;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet, spawn_blocking};
use tokio::time::sleep;

pub(crate) use killed::Killed;
pub(crate) use leftovers::{Leftovers, Patience, Remaining, end_leftovers, recorded, remaining};
pub(crate) use logs::{
    OPERATOR as OPERATOR_LOG, aside as rotated_log, job_logs, open as open_log, path as log_path,
};
pub(crate) use peer::Peer;

use swarm_adapters_host::channel::{self, HeldProcess, WorkerState};
use swarm_adapters_host::file;
use swarm_worker::ends::Reaper;

use leftovers::Records;
use reports::{Reports, WorkerStates};

/// Time to end that a worker has after the stop timeout of its jobs. In it the guard reports the ends
/// of jobs, the session is closed, and the guard ends. Then the worker is killed.
pub(crate) const END_MARGIN: Duration = Duration::from_secs(5);

/// Maximum time that a worker of an earlier version keeps its jobs while they are moved.
const FORMER_DRAIN: Duration = Duration::from_mins(1);

/// Maximum number of requests of a person that wait for a worker.
const REQUESTS_MAX: usize = 1_000;

/// Maximum number of warnings of workers that wait to be told.
const WARNINGS_MAX: usize = 1_000;

/// Maximum pause before a worker that keeps ending is restarted. An instance that runs this long
/// resets the pause.
const PAUSE_MAX: Duration = Duration::from_secs(5);
const PAUSE_MIN: Duration = Duration::from_millis(5);

/// State of a worker process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WorkerProcess {
    /// The worker's name.
    pub(crate) name: String,
    /// The identity of the current instance, or of the last one while the worker is away.
    pub(crate) instance: String,
    /// The process, once it is started.
    pub(crate) pid: Option<i32>,
    /// The phase of the process.
    pub(crate) phase: Phase,
    /// The number of ends without a request.
    pub(crate) deaths: u32,
    /// The last end, or the reason why the worker could not be started.
    pub(crate) last_death: Option<String>,
    /// The reason why the worker cannot be started, from a failed start until a start succeeds.
    pub(crate) unstarted: Option<String>,
    /// The processes that it left behind and that this user may not end.
    pub(crate) held: Vec<HeldProcess>,
}

/// The phase of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It runs.
    Up,
    /// The worker ended at this time with all its processes, and is not restarted yet.
    Away(Instant),
    /// The worker's own process ended at this time without a request. Processes that it started may
    /// still run.
    Ending(Instant),
    /// The worker was asked to end at this time and has not ended yet.
    Leaving(Instant),
}

/// All workers that run or should run. A worker that ended on request is removed.
pub(crate) type Workers = BTreeMap<Slot, WorkerProcess>;

/// The arguments of a worker, from its name and the identity of its instance.
pub(crate) type Arguments = dyn Fn(&str, &str) -> Vec<OsString> + Send + Sync;

/// The program of a worker.
pub(crate) struct WorkerCommand {
    /// The program.
    pub(crate) program: PathBuf,
    /// The name of the program in sentences and in lists of processes.
    pub(crate) shown: PathBuf,
    /// Its arguments.
    pub(crate) arguments: Box<Arguments>,
}

/// Starts workers, keeps them running, and ends them. Dropping it closes the workers' pipes, so that
/// they end by themselves.
pub(crate) struct Processes {
    shared: Arc<Shared>,
    orders: BTreeMap<Slot, watch::Sender<Order>>,
    /// Requests of a person to each worker.
    requests: BTreeMap<Slot, mpsc::Sender<channel::Order>>,
    supervisors: JoinSet<()>,
    stop_timeout: Duration,
    /// The last rotation of logs, which may be running.
    rotation: Option<JoinHandle<()>>,
}

/// State that a worker's supervisor ensures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// The worker runs; an instance that ends is replaced. The number rises with every kill.
    Run { kills: u32 },
    /// The worker is asked to release its jobs within this time, while they are moved.
    Drain { within: Duration },
    /// The worker is asked to end, and its end of the channel is closed. It is killed at this time.
    End { until: Instant },
    /// The worker is killed, with all processes that it has started.
    Kill,
}

struct Shared {
    dir: PathBuf,
    logs: PathBuf,
    command: WorkerCommand,
    records: Records,
    reaper: &'static Reaper,
    workers: watch::Sender<Workers>,
    /// Reports of the workers.
    reported: Reports,
    /// The workers' warnings about programs.
    warnings: Mutex<Vec<String>>,
    /// Changes with every report that a user should see at once.
    news: watch::Sender<u64>,
}

impl Processes {
    /// Creates a pool without workers that keeps its logs and records in `dir`. Jobs always have
    /// `stop_timeout` to stop.
    ///
    /// # Errors
    ///
    /// The directory for the logs cannot be created, or the run cannot be recorded.
    pub(crate) fn open(
        dir: &Path,
        command: WorkerCommand,
        stop_timeout: Duration,
        reported: Reports,
    ) -> io::Result<Self> {
        let logs = dir.join("logs");
        file::create_dir(&logs)?;
        let workers = watch::Sender::new(Workers::new());
        let records = Records::begin(dir, stop_timeout)?;
        let (news, dir, reaper) = (watch::Sender::new(0), dir.to_owned(), Reaper::begin()?);
        let warnings = Mutex::default();
        let shared =
            Shared { dir, logs, command, records, reaper, workers, reported, warnings, news };
        let (orders, requests, supervisors) = (BTreeMap::new(), BTreeMap::new(), JoinSet::new());
        let shared = Arc::new(shared);
        Ok(Self { shared, orders, requests, supervisors, stop_timeout, rotation: None })
    }

    /// Subscribes to changes when jobs of a worker begin or cease to fail, or are killed.
    #[must_use]
    pub(crate) fn news(&self) -> watch::Receiver<u64> {
        self.shared.news.subscribe()
    }

    /// Returns the workers' reports over their channels. A worker of an earlier version reports
    /// nothing.
    pub(crate) fn reported(&self) -> MutexGuard<'_, WorkerStates> {
        self.shared.reported.lock()
    }

    /// Returns the jobs and workers of this run that did not end in time and were killed.
    #[must_use]
    pub(crate) fn killed(&self) -> Vec<Killed> {
        self.shared.records.all_killed()
    }

    /// Returns the workers' warnings about programs since the last call.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = self.shared.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *warnings)
    }

    /// Subscribes to the workers.
    #[must_use]
    pub(crate) fn watch(&self) -> watch::Receiver<Workers> {
        self.shared.workers.subscribe()
    }

    /// Starts a worker in `slot`. The call has no effect while the slot is filled, even by a leaving
    /// worker: call again when that worker has ended.
    pub(crate) fn start(&mut self, slot: Slot, name: &str) {
        let worker = WorkerProcess {
            name: name.to_owned(),
            instance: String::new(),
            pid: None,
            phase: Phase::Up,
            deaths: 0,
            last_death: None,
            unstarted: None,
            held: Vec::new(),
        };
        let is_free = self.shared.workers.send_if_modified(|workers| {
            let is_free = !workers.contains_key(&slot);
            workers.entry(slot).or_insert(worker);
            is_free
        });
        if is_free {
            let (orders, order) = watch::channel(Order::Run { kills: 0 });
            self.orders.insert(slot, orders);
            let (requests, requested) = mpsc::channel(REQUESTS_MAX);
            self.requests.insert(slot, requests);
            let asked = Asked { order, requested };
            self.supervisors.spawn(supervise(Arc::clone(&self.shared), slot, asked));
        }
        // Removes results of ended supervisors, which would otherwise accumulate.
        while self.supervisors.try_join_next().is_some() {}
    }

    /// Asks the worker in `slot` to release its jobs and end. It has `patience`, or the stop timeout
    /// if that is longer, and is killed [`END_MARGIN`] later. After its end, [`watch`](Self::watch)
    /// no longer lists it.
    pub(crate) fn leave(&mut self, slot: Slot, patience: Duration) {
        if let Some(orders) = self.orders.get(&slot) {
            let within = patience.max(self.stop_timeout);
            orders.send_if_modified(|order| {
                let runs = matches!(order, Order::Run { .. });
                if runs {
                    *order = Order::Drain { within };
                }
                runs
            });
        }
    }

    /// Asks the worker in `slot` to restart a job. Returns `false` if that worker does not
    /// run, or if too many requests wait for it.
    pub(crate) fn restart_job(&self, slot: Slot, job: &str) -> bool {
        let order = channel::Order::Restart { job: job.to_owned() };
        self.requests.get(&slot).is_some_and(|worker| worker.try_send(order).is_ok())
    }

    /// Kills this instance of the worker in `slot` with all its processes, and restarts the worker.
    pub(crate) fn kill(&self, slot: Slot, instance: &str) {
        let is_current =
            self.shared.workers.borrow().get(&slot).is_some_and(|w| w.instance == instance);
        if let Some(orders) = self.orders.get(&slot).filter(|_| is_current) {
            orders.send_if_modified(|order| match order {
                Order::Run { kills } => {
                    *kills += 1;
                    true
                }
                // The worker did not react to the order.
                Order::Drain { .. } | Order::End { .. } => {
                    *order = Order::Kill;
                    true
                }
                Order::Kill => false,
            });
        }
    }

    /// Returns the directory of the files with the output of jobs.
    pub(crate) fn job_logs(&self) -> PathBuf {
        job_logs(&self.shared.logs)
    }

    /// Reaps processes that this process has taken over.
    pub(crate) fn reap(&self) {
        if let Err(error) = self.shared.reaper.look() {
            tracing::warn!(%error, "ended processes cannot be reaped");
        }
    }

    /// Rotates large logs of workers and of the operator, in the background.
    pub(crate) fn rotate_logs(&mut self) {
        if self.rotation.as_ref().is_some_and(|rotation| !rotation.is_finished()) {
            return;
        }
        let names = |workers: &Workers| workers.values().map(|it| it.name.clone()).collect();
        let mut names: Vec<_> = names(&self.shared.workers.borrow());
        names.push(OPERATOR_LOG.to_owned());
        let dir = self.shared.logs.clone();
        self.rotation = Some(spawn_blocking(move || logs::rotate_all(&dir, &names)));
    }

    /// Asks all workers to end, and returns the time at which the last worker is killed if it
    /// has not ended.
    pub(crate) fn ask_to_end(&mut self) -> Instant {
        let until = Instant::now() + self.stop_timeout.saturating_add(END_MARGIN);
        for orders in self.orders.values() {
            orders.send_if_modified(|order| {
                let may_be_asked = *order != Order::Kill;
                if may_be_asked {
                    *order = Order::End { until };
                }
                may_be_asked
            });
        }
        until
    }

    /// Kills all workers with all their processes.
    pub(crate) fn kill_all(&mut self) {
        for orders in self.orders.values() {
            orders.send_replace(Order::Kill);
        }
    }

    /// Waits until no worker is left; all must have been asked to end. This function is cancel safe.
    pub(crate) async fn ended(&mut self) {
        while self.supervisors.join_next().await.is_some() {}
    }

    /// Ends all workers and waits for their ends.
    #[cfg(test)]
    pub(crate) async fn end(mut self) {
        self.ask_to_end();
        self.ended().await;
    }
}

/// The orders and requests to one worker.
struct Asked {
    order: watch::Receiver<Order>,
    requested: mpsc::Receiver<channel::Order>,
}

/// Keeps one worker running until it is asked to leave.
async fn supervise(shared: Arc<Shared>, slot: Slot, mut asked: Asked) {
    let is_leaving = |order: &Order| !matches!(order, Order::Run { .. });
    let mut pause = PAUSE_MIN;
    while !is_leaving(&asked.order.borrow()) {
        let started = Instant::now();
        let end = shared.run_instance(slot, &mut asked).await;
        if is_leaving(&asked.order.borrow()) {
            break;
        }
        shared.edit(slot, |worker| {
            (worker.phase, worker.pid) = (Phase::Away(Instant::now()), None);
            worker.deaths += 1;
            worker.last_death = Some(end);
        });
        if PAUSE_MAX < started.elapsed() {
            pause = PAUSE_MIN;
        }
        tokio::select! {
            () = sleep(pause) => {}
            _ = asked.order.wait_for(is_leaving) => break,
        }
        pause = PAUSE_MAX.min(pause * 4);
    }
    shared.workers.send_modify(|workers| {
        workers.remove(&slot);
    });
}

impl Shared {
    /// Handles an event of a worker's instance.
    fn learn(&self, slot: Slot, name: &str, instance: &str, event: channel::Event) {
        let (mut is_news, mut killed) = (false, None);
        self.reported.hear(instance);
        let mut reported = self.reported.lock();
        match event {
            channel::Event::Hello { version: _ } => {
                let instance = instance.to_owned();
                reported.insert(slot, WorkerState { instance, ..WorkerState::default() });
            }
            event => {
                let its_own =
                    reported.get_mut(&slot).filter(|reported| reported.instance == instance);
                let Some(reported) = its_own else { return };
                if let channel::Event::Warned { job, reason } = &event {
                    is_news = true;
                    self.warn(format!("{job}: {}", channel::printable(reason)));
                }
                if let channel::Event::Killed { job } = &event {
                    is_news = true;
                    killed = Some(Killed { worker: name.to_owned(), job: Some(job.clone()) });
                }
                is_news |= self.reported.live(name, &event);
                let job = event.job().map(str::to_owned);
                let pid = |reported: &WorkerState| reported.jobs.get(job.as_ref()?)?.pid;
                let before = pid(reported);
                is_news |= reported.learn(event);
                let after = pid(reported);
                if before != after {
                    before.inspect(|pid| self.records.ended(*pid));
                    after.inspect(|pid| self.records.began(*pid));
                }
            }
        }
        drop(reported);
        if let Some(killed) = killed {
            self.records.killed(killed);
        }
        if is_news {
            self.news.send_modify(|number| *number += 1);
        }
    }

    /// Keeps a warning for the user. Each worker warns of a program once.
    fn warn(&self, warning: String) {
        let mut warnings = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        if warnings.len() < WARNINGS_MAX {
            warnings.push(warning);
        }
    }

    /// Whether the worker only waits for processes that this user may not end. Its guard sees their
    /// end.
    fn is_held(&self, slot: Slot, instance: &str) -> bool {
        let reported = self.reported.lock();
        let jobs = reported.get(&slot).filter(|it| it.instance == instance).map(|it| &it.jobs);
        jobs.is_some_and(|jobs| !jobs.is_empty() && jobs.values().all(|it| !it.held.is_empty()))
    }

    /// Whether an instance of a worker uses the channel.
    fn speaks(&self, slot: Slot, instance: &str) -> bool {
        self.reported.lock().get(&slot).is_some_and(|reported| reported.instance == instance)
    }

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
