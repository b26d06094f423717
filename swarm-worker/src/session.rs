//! A worker that takes part in the handover protocol: drives the core's session machine with real
//! clocks, stores and jobs.
//!
//! The machine decides; this carries out. No answer of a store is waited for, so that a slow disk
//! or API server cannot keep jobs from being stopped in time; and a thread that needs nothing but
//! the clock ends the process if the lease runs out while jobs still run.

mod ask;

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use swarm_adapters_host::clock;
use swarm_adapters_host::marker::Marker;
use swarm_adapters_host::metrics::WorkerMetrics;
use swarm_adapters_host::report::Report;
use swarm_adapters_host::runlog::as_boottime_ns;
use swarm_adapters_host::runner::{Event as JobEvent, JobSpec};
use swarm_core::JobName;
use swarm_core::handover::{LeaseTerms, Moment, SessionId};
use swarm_core::ports::{SessionStore, SessionViews, ViewUpdate};
use swarm_core::session::{Granted, Session, SessionEffect, SessionEvent, WorkerView};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::ask::Answer;
use crate::Failure;
use crate::jobs::Jobs;
use crate::watchdog::Watchdog;

/// What tells a worker to end.
#[derive(Clone, Debug)]
pub(crate) struct Endings {
    /// Its jobs are to be moved away first, for as long as the patience lasts.
    pub(crate) drain: CancellationToken,
    /// Its jobs are to stop at once.
    pub(crate) end: CancellationToken,
}

impl Endings {
    /// Whether the worker was told to end, one way or the other.
    pub(crate) fn are_told(&self) -> bool {
        self.drain.is_cancelled() || self.end.is_cancelled()
    }

    /// Waits until it is.
    pub(crate) async fn told(&self) {
        tokio::select! {
            () = self.drain.cancelled() => {}
            () = self.end.cancelled() => {}
        }
    }
}

/// The signal that says that the process goes on after it was stopped.
const CONT: i32 = rustix::process::Signal::CONT.as_raw();

/// The least time from one tick to the next.
const BREATH: Duration = Duration::from_millis(10);

/// What one life after another of a process tells, and what ends it in time.
pub(crate) struct Shared {
    pub(crate) metrics: WorkerMetrics,
    pub(crate) reports: watch::Sender<Report>,
    /// Whether the worker can be given jobs.
    pub(crate) ready: watch::Sender<bool>,
    pub(crate) watchdog: Watchdog,
}

/// One session of a worker.
pub(crate) struct Life<'a> {
    pub(crate) id: SessionId,
    pub(crate) terms: LeaseTerms,
    /// How long it keeps its jobs at most, once it drains, before all of them have ended.
    pub(crate) patience: Duration,
    pub(crate) store: Arc<dyn SessionStore>,
    pub(crate) views: Box<dyn SessionViews>,
    pub(crate) jobs: Jobs,
    pub(crate) marker: Option<&'a mut Marker>,
    pub(crate) shared: &'a Shared,
}

/// How a session ended. Nothing of it runs any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It was closed.
    Closed,
    /// Its lease was taken away, or is gone, while no job ran.
    Lost,
}

impl Life<'_> {
    /// Lives one session to its end.
    ///
    /// # Errors
    ///
    /// If the session lost its lease with jobs running: then the process is to end at once, and
    /// with it every job.
    pub(crate) async fn run(self, endings: &Endings) -> Result<Ended, Failure> {
        let (session, effects) = Session::open(self.id.clone(), self.terms, clock::now());
        let mut driver = Driver {
            session,
            life: self,
            details: BTreeMap::new(),
            asked: JoinSet::new(),
            complaint: None,
            is_cut_off: false,
            abandons: false,
            is_noted: false,
            revision: 0,
            written: 0,
            started: 0,
            stopped: 0,
        };
        let ended = driver.drive(effects, endings).await;
        // However it ends, it is no job's fault.
        if let Some(marker) = driver.life.marker.as_mut()
            && let Err(error) = marker.clear()
        {
            tracing::warn!(%error, "the next start may blame a job without reason");
        }
        ended
    }
}

struct Driver<'a> {
    session: Session,
    life: Life<'a>,
    /// What is known of the jobs of the newest view besides their tokens.
    details: BTreeMap<JobName, Granted>,
    /// What the store was asked and has not answered.
    asked: JoinSet<Answer>,
    /// What the store said last, so that it is not said again and again.
    complaint: Option<String>,
    /// Whether the last write got no answer.
    is_cut_off: bool,
    /// Whether jobs ran when the session lost its lease.
    abandons: bool,
    /// Whether it is noted which session this is.
    is_noted: bool,
    /// The revision of the newest view.
    revision: u64,
    /// The number of the latest write.
    written: u64,
    /// Jobs that were started and stopped since the metrics were told.
    started: usize,
    stopped: usize,
}

impl Driver<'_> {
    async fn drive(
        &mut self,
        effects: Vec<SessionEffect>,
        endings: &Endings,
    ) -> Result<Ended, Failure> {
        let mut resumed = signal(SignalKind::from_raw(CONT)).map_err(|e| failed(&e))?;
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
            self.tell();
            if self.session.is_over() {
                self.life.jobs.end().await;
                tracing::info!(session = %self.session.id(), ?ended, "the session is over");
                return Ok(ended);
            }
            // One that never had a lease was never given anything, and its store says nothing now.
            if drains && self.is_cut_off && self.session.deadline() == Moment::default() {
                tracing::info!(session = %self.session.id(), "ended before it had a lease");
                return Ok(Ended::Lost);
            }
            let wakes_at = self.session.wakes_at();
            let events = tokio::select! {
                // In this order: what takes away comes before what gives.
                biased;
                _ = resumed.recv() => vec![SessionEvent::Resumed],
                () = endings.end.cancelled(), if !ends => {
                    (drains, ends) = (true, true);
                    vec![SessionEvent::Terminate { grace: self.life.terms.stop_timeout }]
                }
                () = endings.drain.cancelled(), if !drains => {
                    drains = true;
                    tracing::info!("draining");
                    vec![SessionEvent::Terminate { grace: self.life.patience }]
                }
                Some(answer) = self.asked.join_next() => {
                    let answer = answer.unwrap_or_else(|error| Answer::lost(self.written, &error));
                    self.heard(answer).into_iter().collect()
                }
                ended = self.life.jobs.supervisor.next_events() => {
                    ended.into_iter().map(as_told).collect()
                }
                told = self.life.views.changed() => self.seen(told).into_iter().collect(),
                () = until(wakes_at) => vec![SessionEvent::Tick],
            };
            self.abandons = self.session.running().next().is_some();
            todo.extend(self.session.step_all(clock::now(), events));
        }
    }

    /// What an answer of the store means for the session.
    fn heard(&mut self, answer: Answer) -> Option<SessionEvent> {
        let Answer { event, complaint } = answer;
        match &event {
            Some(SessionEvent::Lost { .. }) => self.is_cut_off = true,
            Some(SessionEvent::Written { .. }) if mem::take(&mut self.is_cut_off) => {
                tracing::info!("the lease can be written again");
                self.life.views.reconnect();
            }
            _ => (),
        }
        if let Some(complaint) = &complaint
            && self.complaint.as_ref() != Some(complaint)
        {
            tracing::warn!("{complaint}; trying again");
        }
        self.complaint = complaint;
        event
    }

    fn seen(&mut self, told: ViewUpdate) -> Option<SessionEvent> {
        let view = match told {
            ViewUpdate::View(view) => view,
            ViewUpdate::Unreadable(sentence) => {
                tracing::warn!("{sentence}; the last good one is kept");
                self.life.shared.metrics.view_error();
                return None;
            }
        };
        let WorkerView { revision, jobs, .. } = &*view;
        if *revision < self.revision {
            tracing::info!(revision, newest = self.revision, "an older view is passed over");
        } else {
            tracing::info!(revision, jobs = jobs.len(), "view");
            self.revision = *revision;
            self.details.clone_from(jobs);
        }
        Some(SessionEvent::View((&*view).into()))
    }

    fn carry_out(&mut self, effect: SessionEffect) -> Result<(), Failure> {
        let patience = self.life.terms.renew / 2;
        let store = Arc::clone(&self.life.store);
        match effect {
            SessionEffect::Start { job, token } => {
                let details = self.details.get(&job);
                let (run_once, params) = details
                    .map(|granted| (granted.run_once, granted.params.clone()))
                    .unwrap_or_default();
                self.life.jobs.supervisor.start(JobSpec { name: job, token, params, run_once });
                self.started += 1;
            }
            SessionEffect::Stop(job) => {
                self.life.jobs.supervisor.stop(&job);
                self.stopped += 1;
            }
            SessionEffect::Write(write) => {
                self.written = write.number;
                self.asked.spawn(ask::write(store, write, patience));
            }
            SessionEffect::ReadLease => {
                self.asked.spawn(ask::read_lease(store, self.written, patience));
            }
            SessionEffect::ReadLedger => {
                self.asked.spawn(ask::read_ledger(store, patience));
            }
            SessionEffect::ReportRollback { seen } => {
                tracing::error!(
                    seen,
                    "the ledger is older than what it told before; starting over"
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

    /// Notes which session this is, for the next process in its place.
    fn note_session(&mut self) {
        if mem::replace(&mut self.is_noted, true) {
            return;
        }
        let Some(marker) = &self.life.marker else { return };
        if let Err(error) = marker.began(self.session.id()) {
            tracing::warn!(%error, "the next process will not know that this session has ended");
        }
    }

    /// Notes which jobs run, for the next process if this one crashes.
    fn mark(&mut self) {
        let Some(marker) = &mut self.life.marker else { return };
        if let Err(error) = marker.set(self.session.running().map(|(job, _)| job)) {
            tracing::warn!(%error, "it cannot be noted which jobs run");
        }
    }

    /// Tells everybody around what the session may do now.
    fn tell(&mut self) {
        self.mark();
        let Shared { metrics, reports, ready, watchdog } = self.life.shared;
        let running = self.session.running().map(|(job, _)| job.clone()).collect();
        let report = Report { version: self.revision, jobs: running };
        let deadline = self.session.deadline();
        self.life.jobs.supervisor.permit_until(as_boottime_ns(deadline));
        watchdog.set((!report.jobs.is_empty()).then_some(deadline));
        let (started, stopped) = (mem::take(&mut self.started), mem::take(&mut self.stopped));
        metrics.acted(self.revision, started, stopped, report.jobs.len());
        if deadline != Moment::default() {
            self.note_session();
            ready.send_if_modified(|was| !mem::replace(was, true));
        }
        reports.send_if_modified(|told| {
            let differs = *told != report;
            if differs {
                *told = report;
            }
            differs
        });
    }
}

fn as_told(event: JobEvent) -> SessionEvent {
    match event {
        JobEvent::Joined(job) => SessionEvent::Joined(job),
        JobEvent::Finished(job) => SessionEvent::Finished(job),
    }
}

/// Waits until `moment`, and for a breath at least: while jobs are stopping, the moment that they
/// were to be stopped at stays the next one, and they need the time that is left.
pub(crate) async fn until(moment: Option<Moment>) {
    match moment {
        Some(moment) => {
            tokio::time::sleep(BREATH).await;
            clock::sleep_until(moment).await;
        }
        None => std::future::pending().await,
    }
}

fn failed(error: &dyn std::fmt::Display) -> Failure {
    Failure::Failed(error.to_string())
}
