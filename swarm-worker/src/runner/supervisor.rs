//! Owns the running jobs: starts them, stops them, and restarts jobs that ended by themselves.
//!
//! An edit of the runner or of params restarts a few jobs at a time, under the same token, as if
//! their programs had crashed. A failure among them holds the others at their previous version. All
//! at once would end every job of a pool after one typo.

mod failing;
mod stepping;
mod steps;
mod task;
mod ways;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use swarm_adapters_host::channel::Events;
use swarm_adapters_host::runlog::RunLog;
use swarm_core::session::Pace;
use swarm_core::{Failing, JobName, Params, RunnerName, Token};
use tokio::sync::{mpsc, watch};

use super::Permit;
#[cfg(test)]
use super::Runner;
use task::{Order, Outlets, Task};
pub(crate) use ways::{Way, Ways};

/// The maximum number of events in one batch.
const EVENTS_MAX: usize = 10_000;

/// The policy for restarts of jobs that ended by themselves.
///
/// The first pause is 0.1 s. Each later pause is twice as long, up to half of `pause_max`, and
/// jitter adds up to 100 %. A run of 30 s or more resets the count and the pause.
#[derive(Clone, Debug)]
pub(crate) struct Restarts {
    /// The number of restarts in a row; `None` means unlimited. A job that exceeds it keeps its
    /// worker and does not run.
    pub(crate) limit: Option<u32>,
    /// The longest pause.
    pub(crate) pause_max: Duration,
    /// The pause after a success; `None` if a job that always runs fails by ending.
    pub(crate) success_pause: Option<Duration>,
    /// Counts the restarts of all jobs.
    pub(crate) counter: Counter,
}

impl Default for Restarts {
    fn default() -> Self {
        let (pause_max, counter) = (Duration::from_secs(30), Counter::default());
        Self { limit: None, pause_max, success_pause: None, counter }
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
    /// The runner that it names.
    pub(crate) runner: Option<RunnerName>,
    /// Whether it is a run-to-completion job, which is done once it has succeeded.
    pub(crate) run_once: bool,
}

/// An event that a supervisor reports.
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
    /// Whether it runs and is ready. A run without a check is ready after one second.
    pub(crate) is_up: bool,
    /// Whether its run is not one of a previous version.
    pub(crate) is_newest: bool,
    /// The number of restarts under this grant after the job had ended by itself.
    pub(crate) restarts: u64,
    /// The last end of a run by itself; a sentence for a person.
    pub(crate) last_exit: Option<String>,
}

/// The phase of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobPhase {
    /// It waits for its turn to start.
    Queued,
    /// It runs.
    Running,
    /// It ended by itself and begins again after a pause.
    Waiting,
    /// It ended by itself more often than the limit of restarts allows, and does not run.
    Failed,
    /// It was asked to stop and has not ended yet.
    Stopping,
}

/// The jobs of one worker. Each job runs in its own task. Dropping the supervisor asks all jobs to
/// stop.
#[derive(Debug)]
pub(crate) struct Supervisor {
    orders: mpsc::UnboundedSender<Order>,
    events: mpsc::UnboundedReceiver<Event>,
    reports: Reports,
    failing: watch::Receiver<Arc<Failing>>,
    changes: watch::Receiver<()>,
}

/// Restarts jobs of a supervisor on request of a person.
#[derive(Clone, Debug)]
pub(crate) struct Restarter(mpsc::UnboundedSender<Order>);

impl Restarter {
    /// Stops the run of a job, if there is one, and begins another one at once, with a reset count of
    /// restarts. The call has no effect on a job that is stopping or that the worker does not have.
    pub(crate) fn restart(&self, job: JobName) {
        // After the end of the task no job runs.
        let _ = self.0.send(Order::Renew(job));
    }
}

/// The reports about all jobs.
#[derive(Clone, Debug, Default)]
struct Reports(Arc<Mutex<BTreeMap<JobName, JobReport>>>);

impl Reports {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<JobName, JobReport>> {
        // A thread that panicked while holding the lock cannot have left an incomplete entry.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Supervisor {
    /// Creates a supervisor whose events have no reader.
    #[cfg(test)]
    pub(crate) fn new(
        runner: Arc<dyn Runner>,
        run_log: Option<RunLog>,
        restarts: Restarts,
    ) -> Self {
        Self::with_events(Ways::alike(runner, restarts), run_log, Events::default())
    }

    /// Creates a supervisor without jobs. It runs them in these `ways`, sends their events to `sink`,
    /// and writes them to `run_log` unless the runner does so. It spawns a task, so it must be called
    /// within a runtime.
    #[must_use]
    pub(crate) fn with_events(ways: Ways, run_log: Option<RunLog>, sink: Events) -> Self {
        let (orders, inbox) = mpsc::unbounded_channel();
        let (outbox, events) = mpsc::unbounded_channel();
        let reports = Reports::default();
        let permit = Permit::unlimited();
        let (failures, failing) = watch::channel(Arc::default());
        let (notify, changes) = watch::channel(());
        let outlets = Outlets { reports: reports.clone(), outbox, sink, changed: notify };
        let task = Task::new(ways, run_log, permit, outlets, failures);
        tokio::spawn(task.run(inbox));
        Self { orders, events, reports, failing, changes }
    }

    /// Begins an edit, to which the next updates and the next ways to run jobs belong. At most as many
    /// jobs restart and start at a time as `pace` says.
    pub(crate) fn edit(&self, pace: Pace) {
        self.order(Order::Edit(pace));
    }

    /// Starts a job. The call does not affect a running job. A job that is stopping is started when
    /// it has ended.
    pub(crate) fn start(&self, job: JobSpec) {
        self.order(Order::Start(job));
    }

    /// Updates the runner's name and the parameters of a job under the same token. If they differ, a
    /// running job is stopped at its turn, and begins again at once. No event follows, since the job
    /// stays with this worker. The call has no effect on a job that does not run, is stopping or has
    /// another token.
    pub(crate) fn update(&self, job: JobSpec) {
        self.order(Order::Update(job));
    }

    /// Replaces the ways to run jobs. Running jobs whose runner is another one restart in turn, as
    /// with [`update`](Self::update). Jobs that the very same runner runs continue. If only the
    /// policy for restarts differs, a failed job begins again if the new policy allows it.
    pub(crate) fn run_by(&self, ways: Ways) {
        self.order(Order::RunBy(ways));
    }

    /// Returns a handle that restarts jobs.
    pub(crate) fn restarter(&self) -> Restarter {
        Restarter(self.orders.clone())
    }

    /// Asks a job to stop; [`Event::Joined`] follows. Jobs stop concurrently. The call has no effect on
    /// a job that does not run or is already stopping.
    pub(crate) fn stop(&self, job: &JobName) {
        self.order(Order::Stop(job.clone()));
    }

    /// Sets the time until which jobs may act, in nanoseconds of
    /// [`boottime_ns`](swarm_adapters_host::runlog::boottime_ns). Before the first call the time is
    /// unlimited.
    pub(crate) fn permit_until(&self, boottime_ns: u64) {
        self.order(Order::PermitUntil(boottime_ns));
    }

    /// Waits for the next events, at least one. All jobs that have ended so far are reported at
    /// once. This method is cancel safe.
    pub(crate) async fn next_events(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        match self.events.recv_many(&mut events, EVENTS_MAX).await {
            // The task ends only with its runtime.
            0 => std::future::pending().await,
            _ => events,
        }
    }

    /// Returns the current states of the jobs.
    #[cfg(test)]
    pub(crate) fn reports(&self) -> BTreeMap<JobName, JobReport> {
        self.reports.lock().clone()
    }

    /// Returns a receiver that is notified at most once a second: jobs came up, ended by themselves
    /// or began again.
    #[must_use]
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changes.clone()
    }

    /// Returns the jobs that do not run: they wait for their turn to start, or ended by themselves
    /// and wait for their next run, or are no longer restarted. O(jobs).
    #[must_use]
    pub(crate) fn down(&self) -> BTreeSet<JobName> {
        let is_down = |phase| match phase {
            JobPhase::Queued | JobPhase::Waiting | JobPhase::Failed => true,
            JobPhase::Running | JobPhase::Stopping => false,
        };
        let reports = self.reports.lock();
        let down = reports.iter().filter(|(_, report)| is_down(report.phase));
        down.map(|(job, _)| job.clone()).collect()
    }

    /// Returns the jobs that are not up under these tokens, or still run a previous version. See
    /// [`JobReport::is_up`]. O(jobs · log jobs).
    pub(crate) fn not_up<'a>(
        &self,
        jobs: impl IntoIterator<Item = (&'a JobName, Token)>,
    ) -> Vec<&'a JobName> {
        let reports = self.reports.lock();
        let is_up = |job: &JobName, token: Token| {
            let is_up = |it: &JobReport| it.is_up && it.is_newest && it.token == token;
            reports.get(job).is_some_and(is_up)
        };
        let not_up = jobs.into_iter().filter(|(job, token)| !is_up(job, *token));
        not_up.map(|(job, _)| job).collect()
    }

    /// Returns a receiver of the failing jobs, the worst hundred with details. A change is reported
    /// at once. Further changes are gathered: for 50 ms, and longer if many jobs fail.
    #[must_use]
    pub(crate) fn failing(&self) -> watch::Receiver<Arc<Failing>> {
        self.failing.clone()
    }

    fn order(&self, order: Order) {
        // The task ends earlier only with its runtime, and then no job runs either.
        let _ = self.orders.send(order);
    }
}
