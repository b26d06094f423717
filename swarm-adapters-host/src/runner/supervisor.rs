//! Owns the running jobs: starts them, stops them, and restarts those that ended by themselves.

mod task;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::metrics::counter::Counter;
use swarm_core::{JobName, Params, Token};
use tokio::sync::mpsc;

use super::{Permit, Runner};
use crate::runlog::RunLog;
use task::{Order, Task};

/// The most events that are returned at once.
const EVENTS_MAX: usize = 10_000;

/// The specification of a job to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSpec {
    /// Its name.
    pub name: JobName,
    /// Its fencing token.
    pub token: Token,
    /// Its parameters.
    pub params: Params,
    /// Whether the job is done once it has succeeded: a run-to-completion job.
    pub run_once: bool,
}

/// What a supervisor reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A job that was asked to stop has ended, and nothing of it runs any more.
    Joined(JobName),
    /// A run-to-completion job has succeeded, and nothing of it runs any more.
    Finished(JobName),
}

/// The state of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobReport {
    /// The fencing token it runs under.
    pub token: Token,
    /// Its phase.
    pub phase: JobPhase,
    /// How often it was restarted under this grant, because it had ended by itself.
    pub restarts: u64,
    /// How it last ended by itself; a sentence for a person.
    pub last_exit: Option<String>,
}

/// The phase of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobPhase {
    /// It runs.
    Running,
    /// It ended by itself and will be restarted after a pause.
    Waiting,
    /// It was asked to stop and has not ended yet.
    Stopping,
}

/// The jobs of one worker. Each job runs in a task of its own. When the supervisor is dropped, all
/// jobs are asked to stop.
#[derive(Debug)]
pub struct Supervisor {
    orders: mpsc::UnboundedSender<Order>,
    events: mpsc::UnboundedReceiver<Event>,
    reports: Reports,
}

/// The states of the jobs, by job.
#[derive(Clone, Debug, Default)]
struct Reports(Arc<Mutex<BTreeMap<JobName, JobReport>>>);

impl Reports {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<JobName, JobReport>> {
        // A thread that panicked while holding the lock cannot have left an incomplete entry.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Supervisor {
    /// A supervisor without jobs. It writes the events of its jobs to `run_log`, unless the runner does
    /// so; `restarts` counts the restarts of jobs. It spawns a task, so it must be called within a
    /// runtime.
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

    /// Starts a job. A job that already runs is left alone; a job that is stopping is started when it
    /// has ended.
    pub fn start(&self, job: JobSpec) {
        self.order(Order::Start(job));
    }

    /// Asks a job to stop; [`Event::Joined`] follows. Jobs stop concurrently. The call has no effect on
    /// a job that does not run or is already stopping.
    pub fn stop(&self, job: &JobName) {
        self.order(Order::Stop(job.clone()));
    }

    /// Sets the time until which jobs may act, in nanoseconds of
    /// [`boottime_ns`](crate::runlog::boottime_ns). There is no limit before the first call.
    pub fn permit_until(&self, boottime_ns: u64) {
        self.order(Order::PermitUntil(boottime_ns));
    }

    /// Waits for the next events, at least one: all jobs that have ended by now are reported at once.
    /// This method is cancel safe.
    pub async fn next_events(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        match self.events.recv_many(&mut events, EVENTS_MAX).await {
            // The task ends only with its runtime.
            0 => std::future::pending().await,
            _ => events,
        }
    }

    /// The current states of the jobs.
    #[must_use]
    pub fn reports(&self) -> BTreeMap<JobName, JobReport> {
        self.reports.lock().clone()
    }

    fn order(&self, order: Order) {
        // The task ends earlier only with its runtime, and then no job runs either.
        let _ = self.orders.send(order);
    }
}
