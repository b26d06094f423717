//! Owns the running jobs: starts them, stops them, and restarts those that ended by themselves.

mod failing;
mod task;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use swarm_adapters_host::channel::Events;
use swarm_adapters_host::runlog::RunLog;
use swarm_core::{Failing, JobName, Params, Token};
use tokio::sync::{mpsc, watch};

use super::{Permit, Runner};
use task::{Order, Outlets, Task};

/// The most events that are returned at once.
const EVENTS_MAX: usize = 10_000;

/// How jobs that ended by themselves are restarted.
///
/// The first pause is 0.1 s; each one after it is twice as long, up to half of `pause_max`, and jitter
/// adds up to 100 %. After a run of 30 s or more, count and pauses start over.
#[derive(Clone, Debug)]
pub(crate) struct Restarts {
    /// How often in a row a job is restarted; `None` stands for any number. After that it stays where
    /// it is and does not run.
    pub(crate) limit: Option<u32>,
    /// The longest pause.
    pub(crate) pause_max: Duration,
    /// Counts the restarts of all jobs.
    pub(crate) counter: Counter,
}

impl Default for Restarts {
    fn default() -> Self {
        Self { limit: None, pause_max: Duration::from_secs(30), counter: Counter::default() }
    }
}

/// The specification of a job to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JobSpec {
    /// Its name.
    pub(crate) name: JobName,
    /// Its fencing token.
    pub(crate) token: Token,
    /// Its parameters.
    pub(crate) params: Params,
    /// Whether the job is done once it has succeeded: a run-to-completion job.
    pub(crate) run_once: bool,
}

/// What a supervisor reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A job that was asked to stop has ended, and nothing of it runs any more.
    Joined(JobName),
    /// A run-to-completion job has succeeded, and nothing of it runs any more.
    Finished(JobName),
}

/// The state of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JobReport {
    /// The fencing token it runs under.
    pub(crate) token: Token,
    /// Its phase.
    pub(crate) phase: JobPhase,
    /// Whether it runs and is ready, or has run for a second if nothing checks that.
    pub(crate) is_up: bool,
    /// How often it was restarted under this grant, because it had ended by itself.
    pub(crate) restarts: u64,
    /// How it last ended by itself; a sentence for a person.
    pub(crate) last_exit: Option<String>,
}

/// The phase of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobPhase {
    /// It runs.
    Running,
    /// It ended by itself and will be restarted after a pause.
    Waiting,
    /// It ended by itself more often than it is restarted, and does not run.
    Failed,
    /// It was asked to stop and has not ended yet.
    Stopping,
}

/// The jobs of one worker. Each job runs in a task of its own. When the supervisor is dropped, all
/// jobs are asked to stop.
#[derive(Debug)]
pub(crate) struct Supervisor {
    orders: mpsc::UnboundedSender<Order>,
    events: mpsc::UnboundedReceiver<Event>,
    reports: Reports,
    failing: watch::Receiver<Arc<Failing>>,
    changes: watch::Receiver<()>,
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
    /// The same as [`telling`](Self::telling), without a reader of events.
    #[cfg(test)]
    pub(crate) fn new(
        runner: Arc<dyn Runner>,
        run_log: Option<RunLog>,
        restarts: Restarts,
    ) -> Self {
        Self::telling(runner, run_log, restarts, Events::default())
    }

    /// A supervisor without jobs. It reports the events of its jobs to `told`, and writes them to
    /// `run_log`, unless the runner does so. It spawns a task, so it must be called within a runtime.
    #[must_use]
    pub(crate) fn telling(
        runner: Arc<dyn Runner>,
        run_log: Option<RunLog>,
        restarts: Restarts,
        told: Events,
    ) -> Self {
        let (orders, inbox) = mpsc::unbounded_channel();
        let (outbox, events) = mpsc::unbounded_channel();
        let reports = Reports::default();
        let permit = Permit::unlimited();
        let (failures, failing) = watch::channel(Arc::default());
        let (notify, changes) = watch::channel(());
        let outlets = Outlets { reports: reports.clone(), outbox, told, changed: notify };
        let task = Task::new(runner, run_log, permit, outlets, failures, restarts);
        tokio::spawn(task.run(inbox));
        Self { orders, events, reports, failing, changes }
    }

    /// Starts a job. A job that already runs is left alone; a job that is stopping is started when it
    /// has ended.
    pub(crate) fn start(&self, job: JobSpec) {
        self.order(Order::Start(job));
    }

    /// Tells a job that runs how it is to run now, by its token: if its parameters differ, it is stopped
    /// and begins again at once. No event follows, since the job was never given up. The call has no
    /// effect on a job that does not run, is stopping or has another token.
    pub(crate) fn update(&self, job: JobSpec) {
        self.order(Order::Update(job));
    }

    /// Sets what runs the jobs from now on. Every job is stopped, and begins again at once, as with
    /// [`update`](Self::update).
    pub(crate) fn run_by(&self, runner: Arc<dyn Runner>, restarts: Restarts) {
        self.order(Order::RunBy(runner, restarts));
    }

    /// Sets how jobs that end by themselves are restarted from now on. No job that runs is touched.
    /// A job that was given up begins again if it may be restarted now.
    pub(crate) fn restart_by(&self, restarts: Restarts) {
        self.order(Order::RestartBy(restarts));
    }

    /// Asks a job to stop; [`Event::Joined`] follows. Jobs stop concurrently. The call has no effect on
    /// a job that does not run or is already stopping.
    pub(crate) fn stop(&self, job: &JobName) {
        self.order(Order::Stop(job.clone()));
    }

    /// Sets the time until which jobs may act, in nanoseconds of
    /// [`boottime_ns`](swarm_adapters_host::runlog::boottime_ns). There is no limit before the first call.
    pub(crate) fn permit_until(&self, boottime_ns: u64) {
        self.order(Order::PermitUntil(boottime_ns));
    }

    /// Waits for the next events, at least one: all jobs that have ended by now are reported at once.
    /// This method is cancel safe.
    pub(crate) async fn next_events(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        match self.events.recv_many(&mut events, EVENTS_MAX).await {
            // The task ends only with its runtime.
            0 => std::future::pending().await,
            _ => events,
        }
    }

    /// The current states of the jobs.
    #[cfg(test)]
    pub(crate) fn reports(&self) -> BTreeMap<JobName, JobReport> {
        self.reports.lock().clone()
    }

    /// Changes when jobs have come up, have ended by themselves or have begun again, at most once a second.
    #[must_use]
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changes.clone()
    }

    /// The jobs that ended by themselves and do not run: they wait for their next run, or are not restarted
    /// any more. O(jobs).
    #[must_use]
    pub(crate) fn down(&self) -> BTreeSet<JobName> {
        let is_down = |phase| match phase {
            JobPhase::Waiting | JobPhase::Failed => true,
            JobPhase::Running | JobPhase::Stopping => false,
        };
        let reports = self.reports.lock();
        let down = reports.iter().filter(|(_, report)| is_down(report.phase));
        down.map(|(job, _)| job.clone()).collect()
    }

    /// Finds the jobs that are not up under these tokens. See [`JobReport::is_up`]. O(jobs ·
    /// log jobs).
    pub(crate) fn not_up<'a>(
        &self,
        jobs: impl IntoIterator<Item = (&'a JobName, Token)>,
    ) -> Vec<&'a JobName> {
        let reports = self.reports.lock();
        let is_up = |job: &JobName, token: Token| {
            reports.get(job).is_some_and(|report| report.is_up && report.token == token)
        };
        let not_up = jobs.into_iter().filter(|(job, token)| !is_up(job, *token));
        not_up.map(|(job, _)| job).collect()
    }

    /// The jobs that fail, the worst hundred one by one. A change is reported at once. Further
    /// changes are gathered: for 50 ms, and longer if many jobs fail.
    #[must_use]
    pub(crate) fn failing(&self) -> watch::Receiver<Arc<Failing>> {
        self.failing.clone()
    }

    fn order(&self, order: Order) {
        // The task ends earlier only with its runtime, and then no job runs either.
        let _ = self.orders.send(order);
    }
}
