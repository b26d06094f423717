//! Owns the jobs that run: starts them, stops them, and starts again what ended by itself.

mod task;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::metrics::counter::Counter;
use swarm_core::{JobName, Token};
use tokio::sync::mpsc;

use super::{Permit, Runner};
use crate::runlog::RunLog;
use task::{Order, Task};

/// How many things are told at once.
const EVENTS_MAX: usize = 10_000;

/// What a job is started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSpec {
    /// Its name.
    pub name: JobName,
    /// Its fencing number.
    pub token: Token,
    /// What else it is given.
    pub params: BTreeMap<String, String>,
    /// Whether it is done once it ended well.
    pub run_once: bool,
}

/// What a supervisor tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A job that was told to stop has ended, and nothing of it is left.
    Joined(JobName),
    /// A finite job has ended well, and nothing of it is left.
    Finished(JobName),
}

/// How a job fares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobReport {
    /// The fencing number it runs under.
    pub token: Token,
    /// Where it stands.
    pub phase: JobPhase,
    /// How often it was started again under this grant, because it had ended by itself.
    pub restarts: u64,
    /// How it ended the last time by itself; a sentence for a person.
    pub last_exit: Option<String>,
}

/// Where a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobPhase {
    /// It runs.
    Running,
    /// It ended by itself and is started again after a pause.
    Waiting,
    /// It was told to stop and has not ended yet.
    Stopping,
}

/// The jobs of one worker. Each runs in a task of its own; all of them are told to stop when the
/// supervisor is dropped.
#[derive(Debug)]
pub struct Supervisor {
    orders: mpsc::UnboundedSender<Order>,
    events: mpsc::UnboundedReceiver<Event>,
    reports: Reports,
}

/// How the jobs fare, by job.
#[derive(Clone, Debug, Default)]
struct Reports(Arc<Mutex<BTreeMap<JobName, JobReport>>>);

impl Reports {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<JobName, JobReport>> {
        // Whoever panicked while holding it cannot have left half an entry.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Supervisor {
    /// A supervisor without jobs. What they do is written to `run_log`, unless the runner sees to
    /// that itself; `restarts` counts the jobs that were started again. It works in a task of its
    /// own, so it must be made within a runtime.
    #[must_use]
    pub fn new(runner: Arc<dyn Runner>, run_log: Option<RunLog>, restarts: Counter) -> Self {
        let (orders, inbox) = mpsc::unbounded_channel();
        let (outbox, events) = mpsc::unbounded_channel();
        let reports = Reports::default();
        let permit = Permit::unlimited();
        let task = Task::new(runner, run_log, permit, reports.clone(), outbox, restarts);
        tokio::spawn(task.run(inbox));
        Self { orders, events, reports }
    }

    /// Starts a job. One that runs already goes on as it is; one that is stopping is started when
    /// it has ended.
    pub fn start(&self, job: JobSpec) {
        self.order(Order::Start(job));
    }

    /// Tells a job to stop; [`Event::Joined`] follows. Jobs stop side by side. A job that does not
    /// run, or was told already, is passed over.
    pub fn stop(&self, job: &JobName) {
        self.order(Order::Stop(job.clone()));
    }

    /// Moves the time until which jobs may act, in nanoseconds of
    /// [`boottime_ns`](crate::runlog::boottime_ns); it is unlimited at first.
    pub fn permit_until(&self, boottime_ns: u64) {
        self.order(Order::PermitUntil(boottime_ns));
    }

    /// What happened next, one thing at least: all jobs that have ended by now are told of at once.
    /// Nothing is lost if the wait is abandoned.
    pub async fn next_events(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        match self.events.recv_many(&mut events, EVENTS_MAX).await {
            // Only when the runtime ends.
            0 => std::future::pending().await,
            _ => events,
        }
    }

    /// How the jobs fare at the moment.
    #[must_use]
    pub fn reports(&self) -> BTreeMap<JobName, JobReport> {
        self.reports.lock().clone()
    }

    fn order(&self, order: Order) {
        // The task ends before this only with its runtime, and then nothing runs either.
        let _ = self.orders.send(order);
    }
}
