//! The task behind a supervisor.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use swarm_adapters_host::channel::{Event as JobEvent, Events};
use swarm_adapters_host::clock::unix_s;
use swarm_adapters_host::runlog::{RunEvent, RunLog};
use swarm_adapters_host::timer::until;
use swarm_core::session::Pace;
use swarm_core::{Failing, FailingState, JobName, Params};
use tokio::sync::{mpsc, watch};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

use super::failing::Failures;
use super::steps::{StepEvent, Steps};
use super::{Event, JobPhase, JobReport, JobSpec, Reports, Restarts, Ways};
use crate::runner::{Job, Outcome, Permit, Readiness, RunLogKeeper, Runner};

/// The interval of the checks of running jobs, and of the line of the run log that they run. One
/// timer serves all jobs.
const TICK: Duration = Duration::from_secs(1);
/// The minimum pause before a job that ended by itself is restarted.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// The pause before a job begins again that something other than its worker stopped. A shutdown
/// ends the worker in the meantime.
const HELD: Duration = Duration::from_secs(10);
/// The length of a run that resets the count of restarts and the pause.
pub(super) const RAN_WELL: Duration = Duration::from_secs(30);
/// The time after which a run without a check counts as ready.
const UNCHECKED_UP: Duration = Duration::from_secs(1);
/// The interval at which starting jobs are examined while another job waits for them to be up.
const LOOK: Duration = Duration::from_millis(50);

/// A request to the supervisor's task.
pub(super) enum Order {
    Edit(Pace),
    Start(JobSpec),
    Update(JobSpec),
    RunBy(Ways),
    Renew(JobName),
    Stop(JobName),
    PermitUntil(u64),
}

/// The receivers of a task's reports.
pub(super) struct Outlets {
    pub(super) reports: Reports,
    pub(super) outbox: mpsc::UnboundedSender<Event>,
    pub(super) sink: Events,
    /// Notified when jobs have come up, have ended by themselves or have begun again.
    pub(super) changed: watch::Sender<()>,
}

pub(super) struct Task {
    /// The ways to run jobs that begin now.
    pub(super) ways: Ways,
    /// The earlier runners of jobs that have not ended yet.
    pub(super) former: Vec<Arc<dyn Runner>>,
    run_log: Option<RunLog>,
    pub(super) permit: Permit,
    pub(super) outlets: Outlets,
    failures: Failures,
    pub(super) pace: Pace,
    pub(super) jobs: BTreeMap<JobName, Entry>,
    pub(super) steps: Steps,
    /// The time of the last examination of starting jobs.
    pub(super) looked_at: Instant,
    runs: JoinSet<Outcome>,
    names: HashMap<Id, JobName>,
    /// The time at which each waiting job is restarted.
    pub(super) due: BTreeSet<(Instant, JobName)>,
    /// Whether a job has ended by itself or begun again since the last tick.
    pub(super) has_changed: bool,
}

pub(super) struct Entry {
    pub(super) job: Job,
    /// The runner and the params of this run. The job has the params of the next one, and names its
    /// runner.
    pub(super) runner: Arc<dyn Runner>,
    pub(super) began_with: Params,
    run_once: bool,
    pub(super) pauses: ExponentialBackoff,
    /// The number of restarts in a row.
    pub(super) in_a_row: u32,
    pub(super) state: State,
}

pub(super) enum State {
    /// It waits for its turn to start.
    Queued,
    Running(Instant),
    Waiting(Instant),
    /// Its run was no failure, and another one begins at this time: it succeeded, or something other
    /// than the worker stopped it.
    Held(Instant),
    /// It is no longer restarted.
    Failed,
    /// It was asked to end, and begins again once it has ended.
    Renewing,
    /// It was asked to end. Then the job in it is started, if there is one.
    Stopping(Option<JobSpec>),
}

impl Task {
    pub(super) fn new(
        ways: Ways,
        run_log: Option<RunLog>,
        permit: Permit,
        outlets: Outlets,
        failures: watch::Sender<Arc<Failing>>,
    ) -> Self {
        Self {
            ways,
            former: Vec::new(),
            run_log,
            permit,
            outlets,
            failures: Failures::new(failures),
            pace: Pace::default(),
            jobs: BTreeMap::new(),
            steps: Steps::default(),
            looked_at: Instant::now(),
            runs: JoinSet::new(),
            names: HashMap::new(),
            due: BTreeSet::new(),
            has_changed: false,
        }
    }

    pub(super) async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<Order>) {
        let mut ticks = interval_at(Instant::now() + TICK, TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut is_open = true;
        while is_open || !self.runs.is_empty() {
            let due_at = self.due.first().map(|(at, _)| *at);
            let report_at = self.failures.report_at();
            let look_at = self.steps.is_awaiting().then(|| self.looked_at + LOOK);
            tokio::select! {
                order = inbox.recv(), if is_open => match order {
                    Some(Order::Edit(pace)) => self.edit_begins(pace),
                    Some(Order::Start(spec)) => self.start(spec),
                    Some(Order::Update(spec)) => self.update(spec),
                    Some(Order::RunBy(ways)) => self.run_by(ways),
                    Some(Order::Renew(job)) => self.renew_by_hand(&job),
                    Some(Order::Stop(job)) => self.stop(&job),
                    Some(Order::PermitUntil(at)) => self.permit_until(at),
                    None => {
                        is_open = false;
                        let jobs: Vec<_> = self.jobs.keys().cloned().collect();
                        for job in &jobs {
                            self.stop(job);
                        }
                    }
                },
                Some(ended) = self.runs.join_next_with_id(), if !self.runs.is_empty() => {
                    self.ended(ended);
                }
                _ = ticks.tick(), if self.has_changed || !self.runs.is_empty() => self.tick(),
                () = until(report_at) => self.failures.report(),
                () = until(look_at) => self.look(),
                () = until(due_at) => self.start_due(),
            }
        }
    }

    fn start(&mut self, spec: JobSpec) {
        if let Some(entry) = self.jobs.get_mut(&spec.name) {
            if let State::Stopping(next) = &mut entry.state {
                *next = Some(spec);
            }
            return;
        }
        let JobSpec { name, token, params, runner: by, run_once } = spec;
        let stop = CancellationToken::new();
        let (permit, output, readiness) = (self.permit.clone(), Arc::default(), Arc::default());
        let way = self.ways.of(by.as_ref());
        let (runner, pauses) = (Arc::clone(&way.runner), pauses(&way.restarts));
        let left = Arc::default();
        let job = Job { name, token, params, runner: by, permit, stop, output, left, readiness };
        let (phase, is_up, is_newest) = (JobPhase::Queued, false, true);
        let report = JobReport { token, phase, is_up, is_newest, restarts: 0, last_exit: None };
        self.outlets.reports.lock().insert(job.name.clone(), report);
        let (began_with, in_a_row, state) = (job.params.clone(), 0, State::Queued);
        self.due(Entry { job, runner, began_with, run_once, pauses, in_a_row, state });
    }

    fn update(&mut self, spec: JobSpec) {
        let JobSpec { name, token, params, runner, run_once } = spec;
        let Some(entry) = self.jobs.get_mut(&name).filter(|it| it.job.token == token) else {
            return;
        };
        if matches!(entry.state, State::Stopping(_)) {
            return;
        }
        entry.run_once = run_once;
        if entry.job.params != params || entry.job.runner != runner {
            (entry.job.params, entry.job.runner) = (params, runner);
            self.revise(&name);
        }
    }

    /// Ends the run of a job, if there is one, and begins another one with a reset count and pause.
    pub(super) fn renew(&mut self, name: &JobName) {
        let Some(entry) = self.jobs.get_mut(name) else { return };
        match entry.state {
            State::Running(_) => {
                entry.job.stop.cancel();
                entry.state = State::Renewing;
                self.outlets.sink.emit(JobEvent::Renewing { job: name.to_string() });
            }
            State::Waiting(at) | State::Held(at) => {
                self.due.remove(&(at, name.clone()));
                self.begin_again(name);
            }
            State::Failed => self.begin_again(name),
            State::Queued | State::Renewing | State::Stopping(_) => {}
        }
    }

    pub(super) fn begin_again(&mut self, name: &JobName) {
        let Some(mut entry) = self.jobs.remove(name) else { return };
        entry.job.stop = CancellationToken::new();
        (entry.pauses, entry.in_a_row) = (self.pauses(&entry), 0);
        self.due(entry);
    }

    /// Sets the time until which jobs may act, for all runners with jobs that have not ended.
    fn permit_until(&mut self, boottime_ns: u64) {
        self.permit.set(boottime_ns);
        let jobs = &self.jobs;
        let runs_any = |it: &Arc<_>| jobs.values().any(|entry| Arc::ptr_eq(&entry.runner, it));
        let ways = &self.ways;
        let is_current = |it: &Arc<_>| ways.runners().any(|runner| Arc::ptr_eq(runner, it));
        self.former.retain(|it| runs_any(it) && !is_current(it));
        for runner in self.former.iter().chain(self.ways.runners()) {
            runner.permit_until(boottime_ns);
        }
    }

    /// Starts a run of a job that does not run, at once or at its turn.
    fn due(&mut self, mut entry: Entry) {
        entry.state = State::Queued;
        let name = entry.job.name.clone();
        self.edit(&name, |report| (report.phase, report.is_up) = (JobPhase::Queued, false));
        self.has_changed = true;
        self.jobs.insert(name.clone(), entry);
        self.step(StepEvent::Due(name.clone()));
        let is_queued = |entry: &Entry| matches!(entry.state, State::Queued);
        if self.jobs.get(&name).is_some_and(is_queued) {
            let (job, checked) = (name.to_string(), false);
            self.outlets.sink.emit(JobEvent::Starting { job, checked });
        }
    }

    /// Starts a run of a queued job, with the newest runner and params.
    pub(super) fn begin(&mut self, name: &JobName) {
        let Some(mut entry) = self.jobs.remove(name) else { return };
        let runner = Arc::clone(&self.ways.of(entry.job.runner.as_ref()).runner);
        let former = std::mem::replace(&mut entry.runner, runner);
        if !Arc::ptr_eq(&former, &entry.runner) {
            former.forget(name);
        }
        entry.began_with = entry.job.params.clone();
        self.record(&entry, RunEvent::Start);
        // A runner that keeps the run log itself also reports when its jobs have begun.
        if entry.runner.run_log_keeper() == RunLogKeeper::Supervisor {
            let (job, pid, at_unix_s) = (entry.job.name.to_string(), None, Some(unix_s()));
            self.outlets.sink.emit(JobEvent::Started { job, pid, at_unix_s });
        }
        entry.job.set_readiness(Readiness::Unchecked);
        self.edit(name, |report| report.phase = JobPhase::Running);
        self.has_changed = true;
        let (runner, job) = (Arc::clone(&entry.runner), entry.job.clone());
        let run = async move { runner.run(&job, job.stop.clone()).await };
        entry.state = State::Running(Instant::now());
        self.names.insert(self.runs.spawn(run).id(), name.clone());
        self.jobs.insert(name.clone(), entry);
    }

    fn stop(&mut self, name: &JobName) {
        let Some(entry) = self.jobs.get_mut(name) else { return };
        match &mut entry.state {
            State::Running(_) | State::Renewing => {
                entry.job.stop.cancel();
                entry.state = State::Stopping(None);
                self.outlets.sink.emit(JobEvent::Stopping { job: name.to_string() });
                self.edit(name, |report| report.phase = JobPhase::Stopping);
                self.step(StepEvent::Gone(name.clone()));
            }
            State::Waiting(at) | State::Held(at) => {
                self.due.remove(&(*at, name.clone()));
                self.forget(name);
                self.emit(Event::Joined(name.clone()));
            }
            State::Queued | State::Failed => {
                self.forget(name);
                self.emit(Event::Joined(name.clone()));
            }
            State::Stopping(next) => *next = None,
        }
    }

    fn ended(&mut self, ended: Result<(Id, Outcome), JoinError>) {
        let (id, outcome) = match ended {
            Ok(ended) => ended,
            Err(error) => (error.id(), Outcome::Failed(format!("the runner failed: {error}"))),
        };
        let Some(name) = self.names.remove(&id) else { return };
        let Some(mut entry) = self.jobs.remove(&name) else { return };
        self.record(&entry, RunEvent::Stop);
        match entry.state {
            State::Renewing => {
                self.jobs.insert(name.clone(), entry);
                self.begin_again(&name);
            }
            State::Stopping(next) => {
                entry.runner.forget(&name);
                self.forget(&name);
                self.emit(Event::Joined(name));
                if let Some(spec) = next {
                    self.start(spec);
                }
            }
            State::Running(_) if outcome == Outcome::Stopped => self.hold(name, entry),
            State::Running(_) | State::Waiting(_) | State::Held(_) | State::Failed
                if entry.run_once && outcome == Outcome::Ended =>
            {
                tracing::info!(job = %name, "finished");
                self.forget(&name);
                self.emit(Event::Finished(name));
            }
            State::Running(_)
                if outcome == Outcome::Ended && self.success_pause(&entry).is_some() =>
            {
                self.succeeded(&name, entry);
            }
            State::Running(since) | State::Waiting(since) | State::Held(since) => {
                if RAN_WELL <= since.elapsed() {
                    (entry.pauses, entry.in_a_row) = (self.pauses(&entry), 0);
                }
                self.restart(name, entry, outcome);
            }
            State::Queued | State::Failed => {}
        }
    }

    /// Schedules the next run of a job that something other than its worker stopped. The end of the
    /// worker usually comes first.
    fn hold(&mut self, name: JobName, mut entry: Entry) {
        let pause_ms = u64::try_from(HELD.as_millis()).unwrap_or(u64::MAX);
        tracing::info!(
            job = %name, pause_ms,
            "stopped by a signal to all processes; unless the worker ends, it begins again after a pause"
        );
        entry.state = State::Held(Instant::now() + HELD);
        self.rest(&name, entry, false);
        self.step(StepEvent::Held(name));
    }

    /// Schedules the next run of a job whose run succeeded.
    fn succeeded(&mut self, name: &JobName, mut entry: Entry) {
        let pause = self.success_pause(&entry).unwrap_or_default();
        let pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
        tracing::info!(job = %name, pause_ms, "succeeded; it begins again after a pause");
        (entry.pauses, entry.in_a_row) = (self.pauses(&entry), 0);
        self.failures.forget(name);
        self.outlets.sink.emit(JobEvent::Succeeded { job: name.to_string() });
        entry.state = State::Held(Instant::now() + pause);
        // It has done its work, so nothing waits for it.
        self.rest(name, entry, true);
        for event in [StepEvent::Up, StepEvent::RanWell, StepEvent::Held] {
            self.step(event(name.clone()));
        }
    }

    /// Keeps a job that is held until its next run.
    fn rest(&mut self, name: &JobName, entry: Entry, is_up: bool) {
        self.has_changed = true;
        if let State::Held(at) = entry.state {
            self.due.insert((at, name.clone()));
        }
        self.edit(name, |report| (report.phase, report.is_up) = (JobPhase::Waiting, is_up));
        self.jobs.insert(name.clone(), entry);
    }

    /// Returns the pause of a job after a success; `None` if that counts as a failure.
    fn success_pause(&self, entry: &Entry) -> Option<Duration> {
        self.ways.of(entry.job.runner.as_ref()).restarts.success_pause
    }

    /// Schedules the next run of a job that ended by itself, unless it reached the limit of
    /// restarts.
    fn restart(&mut self, name: JobName, mut entry: Entry, outcome: Outcome) {
        self.has_changed = true;
        let exit = match outcome {
            Outcome::Ended | Outcome::Stopped => ended(entry.job.left()),
            Outcome::Failed(sentence) => sentence,
        };
        let Restarts { limit, pause_max, .. } = self.ways.of(entry.job.runner.as_ref()).restarts;
        let phase = if limit.is_some_and(|limit| limit <= entry.in_a_row) {
            let restarts = entry.in_a_row;
            tracing::error!(job = %name, restarts, "{exit}; it is not restarted any more");
            entry.state = State::Failed;
            JobPhase::Failed
        } else {
            entry.in_a_row += 1;
            let pause = entry.pauses.next().unwrap_or(pause_max);
            let (restart, pause_ms) = (entry.in_a_row, pause.as_millis());
            let pause_ms = u64::try_from(pause_ms).unwrap_or(u64::MAX);
            tracing::warn!(
                job = %name, restart, limit, pause_ms, "{exit}; restarting it after a pause"
            );
            let at = Instant::now() + pause;
            entry.state = State::Waiting(at);
            self.due.insert((at, name.clone()));
            JobPhase::Waiting
        };
        let state = match phase {
            JobPhase::Failed => FailingState::Failed,
            JobPhase::Queued | JobPhase::Running | JobPhase::Waiting | JobPhase::Stopping => {
                FailingState::Restarting
            }
        };
        let (job, said) = (name.to_string(), exit.clone());
        self.outlets.sink.emit(match state {
            FailingState::Failed => JobEvent::Failed { job, exit: said },
            FailingState::Restarting => JobEvent::Restarting { job, exit: said },
        });
        let restarts = u64::from(entry.in_a_row);
        self.failures.ended(&name, state, restarts, exit.clone(), entry.job.take_output());
        self.edit(&name, |report| {
            report.phase = phase;
            report.is_up = false;
            report.last_exit = Some(exit);
        });
        self.jobs.insert(name.clone(), entry);
        self.step(StepEvent::Failed(name));
    }

    fn pauses(&self, entry: &Entry) -> ExponentialBackoff {
        pauses(&self.ways.of(entry.job.runner.as_ref()).restarts)
    }

    fn start_due(&mut self) {
        let now = Instant::now();
        while self.due.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, name)) = self.due.pop_first() else { return };
            let Some(entry) = self.jobs.remove(&name) else { continue };
            let is_restart = !matches!(entry.state, State::Held(_));
            self.edit(&name, |report| report.restarts += u64::from(is_restart));
            let restarts = &self.ways.of(entry.job.runner.as_ref()).restarts;
            restarts.counter.inc_by(u64::from(is_restart));
            self.due(entry);
        }
    }

    fn tick(&mut self) {
        self.failures.recover(|job| {
            let state = self.jobs.get(job).map(|entry| &entry.state);
            matches!(state, Some(State::Running(since)) if RAN_WELL <= since.elapsed())
        });
        self.raise();
        for entry in self.jobs.values() {
            match entry.state {
                State::Running(_) | State::Renewing | State::Stopping(_) => {
                    entry.runner.tick(&entry.job);
                }
                State::Queued | State::Waiting(_) | State::Held(_) | State::Failed => {}
            }
        }
        self.look();
        // Jobs whose runner keeps the run log are not in this writer.
        warn_of(self.run_log.as_ref().map(RunLog::alive));
    }

    /// Finds jobs that have come up or stalled, and reports that jobs have changed.
    fn raise(&mut self) {
        let mut reports = self.outlets.reports.lock();
        let mut has_changed = std::mem::take(&mut self.has_changed);
        for (name, entry) in &self.jobs {
            let State::Running(since) = entry.state else { continue };
            let readiness = entry.job.readiness();
            let is_up = is_up(readiness, since);
            let is_stalled = readiness == Readiness::Stalled;
            let changes = |it: &&mut JobReport| if it.is_up { is_stalled } else { is_up };
            if let Some(report) = reports.get_mut(name).filter(changes) {
                report.is_up = is_up;
                has_changed = true;
            }
        }
        drop(reports);
        if has_changed {
            self.outlets.changed.send_replace(());
        }
    }

    /// Writes to the run log, unless the job's runner does so.
    fn record(&self, entry: &Entry, event: RunEvent) {
        if entry.runner.run_log_keeper() == RunLogKeeper::Runner {
            return;
        }
        let job = &entry.job;
        warn_of(self.run_log.as_ref().map(|log| log.write(&job.name, job.token, event)));
    }

    pub(super) fn edit(&self, job: &JobName, edit: impl FnOnce(&mut JobReport)) {
        self.outlets.reports.lock().get_mut(job).map(edit);
    }

    fn forget(&mut self, job: &JobName) {
        if let Some(entry) = self.jobs.remove(job) {
            entry.runner.forget(job);
        }
        self.failures.forget(job);
        self.outlets.reports.lock().remove(job);
        self.step(StepEvent::Gone(job.clone()));
    }

    fn emit(&self, event: Event) {
        let (Event::Joined(job) | Event::Finished(job)) = &event;
        self.outlets.sink.emit(JobEvent::Ended { job: job.to_string() });
        // The receiver is closed if the supervisor was dropped.
        let _ = self.outlets.outbox.send(event);
    }
}

/// Whether a run that began at `since` counts as up.
pub(super) fn is_up(readiness: Readiness, since: Instant) -> bool {
    match readiness {
        Readiness::Unchecked => UNCHECKED_UP <= since.elapsed(),
        Readiness::Awaited | Readiness::Stalled => false,
        Readiness::Ready => true,
    }
}

/// Warns of a run log that cannot be written.
fn warn_of(written: Option<io::Result<()>>) {
    if let Some(Err(error)) = written {
        tracing::warn!(%error, "the run log cannot be written; jobs continue without it");
    }
}

pub(super) fn pauses(restarts: &Restarts) -> ExponentialBackoff {
    let max = restarts.pause_max / 2;
    ExponentialBuilder::default()
        .with_min_delay(PAUSE_MIN.min(max))
        .with_max_delay(max)
        .without_max_times()
        .with_jitter()
        .build()
}
/// Describes the end of a run without a failure that left this many processes.
fn ended(left: usize) -> String {
    let left = match left {
        0 => return "ended by itself".to_owned(),
        1 => "1 process, which was killed".to_owned(),
        left => format!("{left} processes, which were killed"),
    };
    format!("ended by itself and left {left}: run it in the foreground")
}
