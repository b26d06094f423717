//! A worker that takes part in the handover protocol. It drives the core's session machine with
//! real clocks, stores and jobs.
//!
//! The state machine decides, and this module executes. It never blocks on a store, so a slow disk
//! or API server cannot delay the stop of jobs. A watchdog thread ends the process if the lease
//! expires while jobs still run. It only needs the clock.

mod ask;

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use swarm_adapters_host::awaited::{Awaited, NAMED_MAX};
use swarm_adapters_host::channel::{Events, OwnLives};
use swarm_adapters_host::clock;
use swarm_adapters_host::metrics::WorkerMetrics;
use swarm_adapters_host::runlog::as_boottime_ns;
use swarm_core::handover::{LeaseTerms, Moment, Patience, SessionId};
use swarm_core::ports::{SessionStore, SessionViews, ViewUpdate};
use swarm_core::session::{Granted, JobOutput, Session, SessionEffect, SessionEvent, WorkerView};
use swarm_core::{Failing, JobName, Token};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::ask::Answer;
use crate::Failure;
use crate::jobs::Jobs;
use crate::marker::Marker;
use crate::report::Report;
use crate::runner::{Event as JobEvent, JobSpec};
use crate::watchdog::Watchdog;

/// Requests to end a worker.
#[derive(Clone, Debug)]
pub(crate) struct Shutdown {
    /// Asks for a drain: the jobs are moved away first, within the drain timeout.
    pub(crate) drain: CancellationToken,
    /// The drain timeout, if the operator sets it.
    pub(crate) within: Arc<OnceLock<Duration>>,
    /// Asks for a stop of all jobs at once.
    pub(crate) end: CancellationToken,
}

impl Shutdown {
    /// Creates a shutdown that was not requested yet.
    pub(crate) fn not_requested() -> Self {
        let (drain, end) = (CancellationToken::new(), CancellationToken::new());
        Self { drain, within: Arc::default(), end }
    }

    /// Returns whether the worker was asked to end, in either way.
    #[cfg(feature = "kubernetes")]
    pub(crate) fn is_requested(&self) -> bool {
        self.drain.is_cancelled() || self.end.is_cancelled()
    }

    /// Waits for either request.
    pub(crate) async fn requested(&self) {
        tokio::select! {
            () = self.drain.cancelled() => {}
            () = self.end.cancelled() => {}
        }
    }
}

/// The signal of a process that continues after it was stopped.
const CONT: i32 = rustix::process::Signal::CONT.as_raw();

/// The largest number of jobs in a report about lives.
const LIVES_MAX: usize = 200;
/// The largest size of that report, in bytes: 24 KiB. A reader takes 32 KiB.
const LIVES_BYTES_MAX: usize = 24 << 10;

/// The minimum time from one tick to the next.
const TICK_MIN: Duration = Duration::from_millis(10);

/// The state that all sessions of a process share: its reports, and the watchdog.
pub(crate) struct Shared {
    pub(crate) metrics: WorkerMetrics,
    pub(crate) reports: watch::Sender<Report>,
    /// Whether the worker can be granted jobs.
    pub(crate) ready: watch::Sender<bool>,
    /// The jobs that are not up yet, if there is a receiver.
    pub(crate) awaited: watch::Sender<Awaited>,
    pub(crate) watchdog: Watchdog,
    /// The sink of the events for an operator on this machine.
    pub(crate) events: Events,
    /// The lives of the jobs, without such an operator.
    pub(crate) lives: OwnLives,
}

/// The parts that one session of a worker needs.
pub(crate) struct SessionSetup<'a> {
    pub(crate) id: SessionId,
    pub(crate) terms: LeaseTerms,
    /// The time within which all jobs of a draining session end.
    pub(crate) drain_timeout: Duration,
    pub(crate) store: Arc<dyn SessionStore>,
    pub(crate) views: Box<dyn SessionViews>,
    pub(crate) jobs: Jobs,
    pub(crate) marker: Option<&'a mut Marker>,
    pub(crate) shared: &'a Shared,
}

/// The end of a session. None of its jobs runs any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It was closed.
    Closed,
    /// Its lease was revoked or deleted while no job ran.
    Lost,
}

impl SessionSetup<'_> {
    /// Runs one session to its end.
    ///
    /// # Errors
    ///
    /// If the session lost its lease while jobs ran. The process must then end at once, which also
    /// ends every job.
    pub(crate) async fn run(self, shutdown: &Shutdown) -> Result<Ended, Failure> {
        let (session, effects) = Session::open(self.id.clone(), self.terms, clock::now());
        self.shared.lives.begin();
        let mut driver = Driver {
            session,
            patience: Patience::new(&self.terms),
            setup: self,
            details: BTreeMap::new(),
            output: JobOutput::default(),
            asked: JoinSet::new(),
            problem: None,
            is_cut_off: false,
            abandons: false,
            lives: 0,
            is_recorded: false,
            revision: 0,
            written: 0,
            started: 0,
            stopped: 0,
        };
        let ended = driver.drive(effects, shutdown).await;
        // The process did not crash, so no job is to blame.
        if let Some(marker) = driver.setup.marker.as_mut()
            && let Err(error) = marker.clear()
        {
            tracing::warn!(%error, "the next start may blame a job without reason");
        }
        ended
    }
}

struct Driver<'a> {
    session: Session,
    setup: SessionSetup<'a>,
    /// The jobs of the newest view, with their tokens and details.
    details: BTreeMap<JobName, Granted>,
    /// Whether the newest view allows the output of jobs to leave this process.
    output: JobOutput,
    /// The requests to the store without an answer yet.
    asked: JoinSet<Answer>,
    /// The store's last problem. A repeated problem is logged once.
    problem: Option<String>,
    /// The time that the store is given for an answer.
    patience: Patience,
    /// Whether the last write failed to get an answer.
    is_cut_off: bool,
    /// Whether jobs ran when the session lost its lease.
    abandons: bool,
    /// The number of the last reported change in the lives of the jobs.
    lives: u64,
    /// Whether the session is recorded for the next process.
    is_recorded: bool,
    /// The revision of the newest view.
    revision: u64,
    /// The number of the latest write.
    written: u64,
    /// The number of jobs started since the metrics were updated, and the number stopped.
    started: usize,
    stopped: usize,
}

impl Driver<'_> {
    async fn drive(
        &mut self,
        effects: Vec<SessionEffect>,
        shutdown: &Shutdown,
    ) -> Result<Ended, Failure> {
        let mut resumed = signal(SignalKind::from_raw(CONT)).map_err(|e| failed(&e))?;
        let mut failing = self.setup.jobs.supervisor.failing();
        let mut changes = self.setup.jobs.supervisor.changes();
        let (mut drains, mut ends) = (false, false);
        let mut todo = VecDeque::from(effects);
        let mut ended = Ended::Closed;
        loop {
            if todo.iter().any(|effect| matches!(effect, SessionEffect::Start { .. })) {
                self.mark();
            }
            while let Some(effect) = todo.pop_front() {
                if effect == SessionEffect::Abort {
                    ended = Ended::Lost;
                }
                self.carry_out(effect)?;
            }
            self.report();
            if self.session.is_over() {
                self.setup.jobs.end().await;
                tracing::info!(session = %self.session.id(), ?ended, "the session is over");
                return Ok(ended);
            }
            // A session without a lease was never granted a job, and its store does not answer at
            // present.
            if drains && self.is_cut_off && self.session.deadline() == Moment::default() {
                tracing::info!(session = %self.session.id(), "ended before it had a lease");
                return Ok(Ended::Lost);
            }
            let wakes_at = self.session.wakes_at();
            let events = tokio::select! {
                // The order matters: events that revoke jobs come before events that grant them.
                biased;
                _ = resumed.recv() => vec![SessionEvent::Resumed],
                () = shutdown.end.cancelled(), if !ends => {
                    (drains, ends) = (true, true);
                    vec![SessionEvent::Terminate { grace: self.setup.terms.stop_timeout }]
                }
                () = shutdown.drain.cancelled(), if !drains => {
                    drains = true;
                    tracing::info!("draining");
                    let grace = shutdown.within.get().copied();
                    let grace = grace.unwrap_or(self.setup.drain_timeout);
                    vec![SessionEvent::Terminate { grace }]
                }
                Some(answer) = self.asked.join_next() => {
                    let answer = answer.unwrap_or_else(|error| Answer::lost(self.written, &error));
                    self.on_answer(answer).into_iter().collect()
                }
                ended = self.setup.jobs.supervisor.next_events() => {
                    ended.into_iter().map(session_event).collect()
                }
                Ok(()) = failing.changed() => {
                    let failing = Arc::clone(&failing.borrow_and_update());
                    self.setup.shared.metrics.failing(failing.count);
                    self.report_failing(failing);
                    Vec::new()
                }
                Ok(()) = changes.changed() => Vec::new(),
                update = self.setup.views.changed() => self.on_view(update).into_iter().collect(),
                () = until(wakes_at) => vec![SessionEvent::Tick],
            };
            self.abandons = self.session.running().next().is_some();
            todo.extend(self.session.step_all(clock::now(), events));
        }
    }

    /// Returns the event that follows from an answer of the store.
    fn on_answer(&mut self, answer: Answer) -> Option<SessionEvent> {
        let Answer { event, problem } = answer;
        match &event {
            Some(SessionEvent::Lost { .. }) => {
                self.is_cut_off = true;
                self.patience.learn(false);
            }
            Some(SessionEvent::Written { .. }) => {
                self.patience.learn(true);
                if mem::take(&mut self.is_cut_off) {
                    tracing::info!("the lease can be written again");
                    self.setup.views.reconnect();
                }
            }
            _ => (),
        }
        if let Some(problem) = &problem
            && self.problem.as_ref() != Some(problem)
        {
            tracing::warn!("{problem}; retrying");
        }
        self.problem = problem;
        event
    }

    fn on_view(&mut self, update: ViewUpdate) -> Option<SessionEvent> {
        let view = match update {
            ViewUpdate::View(view) => view,
            ViewUpdate::Unreadable(sentence) => {
                tracing::warn!("{sentence}; the last valid one is kept");
                self.setup.shared.metrics.view_error();
                return None;
            }
        };
        let WorkerView { revision, jobs, output, pace, .. } = &*view;
        if *revision < self.revision {
            tracing::info!(revision, newest = self.revision, "an older view is ignored");
        } else {
            tracing::info!(revision, jobs = jobs.len(), "view");
            self.revision = *revision;
            if mem::replace(&mut self.output, *output) != *output {
                let failing = self.setup.jobs.supervisor.failing();
                let failing = Arc::clone(&failing.borrow());
                self.report_failing(failing);
            }
            self.setup.jobs.supervisor.edit(*pace);
            self.setup.jobs.run_as_said(&view);
            let before = mem::replace(&mut self.details, jobs.clone());
            self.update_changed(&before);
        }
        Some(SessionEvent::View((&*view).into()))
    }

    /// Reports the failing jobs: to an operator on this machine, and with the next write of the
    /// lease.
    fn report_failing(&self, failing: Arc<Failing>) {
        let reported = match self.output {
            JobOutput::Shown => failing,
            JobOutput::Hidden => Arc::new(Arc::unwrap_or_clone(failing).without_output()),
        };
        self.setup.shared.events.failing(Arc::clone(&reported));
        self.setup.store.report_failing(reported);
    }

    /// Restarts running jobs whose runner's name or params differ from `before`.
    fn update_changed(&self, before: &BTreeMap<JobName, Granted>) {
        for (job, token) in self.session.running() {
            let Some(granted) = self.details.get(job).filter(|it| it.token == token) else {
                continue;
            };
            if before.get(job) == Some(granted) {
                continue;
            }
            self.setup.jobs.supervisor.update(job_spec(job.clone(), granted.clone()));
        }
    }

    fn carry_out(&mut self, effect: SessionEffect) -> Result<(), Failure> {
        let limit = self.patience.limit();
        let store = Arc::clone(&self.setup.store);
        match effect {
            SessionEffect::Start { job, token } => {
                let granted = self.details.get(&job).cloned().unwrap_or(token.into());
                let spec = JobSpec { token, ..job_spec(job, granted) };
                self.setup.jobs.supervisor.start(spec);
                self.started += 1;
            }
            SessionEffect::Stop(job) => {
                self.setup.jobs.supervisor.stop(&job);
                self.stopped += 1;
            }
            SessionEffect::Write(write) => {
                self.written = write.number;
                self.asked.spawn(ask::write(store, write, limit));
            }
            SessionEffect::ReadLease => {
                self.asked.spawn(ask::read_lease(store, self.written, limit));
            }
            SessionEffect::ReadLedger { number } => {
                self.asked.spawn(ask::read_ledger(store, number, limit));
            }
            SessionEffect::ReportRollback { seen } => {
                tracing::error!(
                    seen,
                    "the ledger is older than a revision seen before; opening another session"
                );
            }
            SessionEffect::Abort if self.abandons => {
                let sentence = "the session lost its lease; every job ends with the process";
                return Err(Failure::Failed(sentence.to_owned()));
            }
            SessionEffect::Abort | SessionEffect::Over => (),
        }
        Ok(())
    }

    /// Records the session for the process that succeeds this one.
    fn record_session(&mut self) {
        if mem::replace(&mut self.is_recorded, true) {
            return;
        }
        let Some(marker) = &self.setup.marker else { return };
        if let Err(error) = marker.began(self.session.id()) {
            tracing::warn!(%error, "the next process will not know that this session has ended");
        }
    }

    /// Records the running jobs for the next process, in case this one crashes.
    fn mark(&mut self) {
        let Some(marker) = &mut self.setup.marker else { return };
        if let Err(error) = marker.set(self.session.running().map(|(job, _)| job)) {
            tracing::warn!(%error, "the running jobs cannot be recorded");
        }
    }

    /// Returns the granted jobs that are not up yet, without jobs that are done.
    fn awaited(&self) -> Awaited {
        let running = self.session.running();
        let is_mine = |(job, token): &(&JobName, Token)| {
            self.details.get(*job).is_some_and(|granted| granted.token == *token)
        };
        let not_up = self.setup.jobs.supervisor.not_up(running.filter(is_mine));
        let first = not_up.iter().take(NAMED_MAX).map(|job| JobName::clone(job)).collect();
        Awaited { revision: self.revision, count: not_up.len(), first }
    }

    /// Publishes the state of the session to the supervisor, the watchdog, the metrics and the
    /// reports.
    fn report(&mut self) {
        self.mark();
        let Shared { metrics, reports, ready, awaited, watchdog, lives, events: _ } =
            self.setup.shared;
        if 0 < awaited.receiver_count() {
            let now = self.awaited();
            awaited.send_if_modified(|last| {
                let differs = *last != now;
                *last = now;
                differs
            });
        }
        if let Some(lives) = lives.news_since(&mut self.lives, LIVES_MAX, LIVES_BYTES_MAX) {
            self.setup.store.report_lives(lives);
        }
        let running = self.session.running().map(|(job, _)| job.clone()).collect();
        let report = Report::new(self.revision, running, &self.setup.jobs.supervisor.down());
        let deadline = self.session.deadline();
        self.setup.jobs.supervisor.permit_until(as_boottime_ns(deadline));
        watchdog.set((!report.jobs.is_empty()).then_some(deadline));
        let (started, stopped) = (mem::take(&mut self.started), mem::take(&mut self.stopped));
        metrics.acted(self.revision, started, stopped);
        metrics.running(report.running());
        if deadline != Moment::default() {
            self.record_session();
            ready.send_if_modified(|was| !mem::replace(was, true));
        }
        reports.send_if_modified(|last| {
            let differs = *last != report;
            if differs {
                *last = report;
            }
            differs
        });
    }
}

fn job_spec(name: JobName, granted: Granted) -> JobSpec {
    let Granted { token, run_once, runner, params } = granted;
    JobSpec { name, token, params, runner, run_once }
}

fn session_event(event: JobEvent) -> SessionEvent {
    match event {
        JobEvent::Joined(job) => SessionEvent::Joined(job),
        JobEvent::Finished(job) => SessionEvent::Finished(job),
    }
}

/// Waits until `moment`, and for [`TICK_MIN`] at least. While jobs are stopping, `moment` remains
/// the past time at which they had to be stopped, and they need the remaining time.
pub(crate) async fn until(moment: Option<Moment>) {
    match moment {
        Some(moment) => {
            tokio::time::sleep(TICK_MIN).await;
            clock::sleep_until(moment).await;
        }
        None => std::future::pending().await,
    }
}

fn failed(error: &dyn std::fmt::Display) -> Failure {
    Failure::Failed(error.to_string())
}
