//! A worker that takes part in the handover protocol: drives the core's session machine with real
//! clocks, files and jobs.
//!
//! The machine decides; this carries out. A write of the lease is not waited for, so that a slow
//! disk cannot keep jobs from being stopped in time; and a thread that needs nothing but the clock
//! ends the process if the lease runs out while jobs still run.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::path::PathBuf;
use std::time::Duration;

use swarm_adapters_host::clock;
use swarm_adapters_host::leases::{LeaseWriteError, Leases};
use swarm_adapters_host::ledger::FileLedgerStore;
use swarm_adapters_host::metrics::WorkerMetrics;
use swarm_adapters_host::report::Report;
use swarm_adapters_host::runlog::as_boottime_ns;
use swarm_adapters_host::runner::{Event as JobEvent, JobSpec};
use swarm_adapters_host::worker_view::{Granted, Told, WorkerViewWatch};
use swarm_core::handover::{LeaseTerms, LeaseVersion, LeaseWrite, SessionId};
use swarm_core::ports::{LedgerStore as _, Seen, StoreError};
use swarm_core::session::{Session, SessionEffect, SessionEvent};
use swarm_core::{JobName, Ledger};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

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

/// The signal that says that the process goes on after it was stopped.
const CONT: i32 = rustix::process::Signal::CONT.as_raw();

/// How long a draining worker keeps its jobs running while they are moved away.
const DRAIN_PATIENCE: Duration = Duration::from_mins(1);

/// A session on this machine.
pub(crate) struct Life {
    pub(crate) id: SessionId,
    pub(crate) dir: PathBuf,
    pub(crate) terms: LeaseTerms,
    pub(crate) jobs: Jobs,
    pub(crate) metrics: WorkerMetrics,
    pub(crate) reports: watch::Sender<Report>,
}

impl Life {
    /// Lives one session to its end.
    ///
    /// # Errors
    ///
    /// If the directory of the pool cannot be used, or the session lost its lease with jobs
    /// running: then the process is to end at once, and with it every job.
    pub(crate) async fn run(self, endings: &Endings) -> Result<(), Failure> {
        let failed = |error: std::io::Error| Failure::Failed(error.to_string());
        let leases = Leases::open(&self.dir).map_err(failed)?;
        let views = WorkerViewWatch::follow(&self.dir, &self.id).map_err(failed)?;
        let (session, effects) = Session::open(self.id.clone(), self.terms, clock::now());
        let driver = Driver {
            session,
            terms: self.terms,
            leases,
            dir: self.dir,
            views,
            details: BTreeMap::new(),
            jobs: self.jobs,
            metrics: self.metrics,
            reports: self.reports,
            watchdog: Watchdog::start().map_err(failed)?,
            writing: None,
            revision: 0,
            written: 0,
            started: 0,
            stopped: 0,
        };
        driver.drive(effects, endings).await
    }
}

struct Driver {
    session: Session,
    terms: LeaseTerms,
    leases: Leases,
    dir: PathBuf,
    views: WorkerViewWatch,
    /// What is known of the jobs of the newest view besides their tokens.
    details: BTreeMap<JobName, Granted>,
    jobs: Jobs,
    metrics: WorkerMetrics,
    reports: watch::Sender<Report>,
    watchdog: Watchdog,
    writing: Option<Writing>,
    /// The revision of the newest view.
    revision: u64,
    /// The number of the latest write.
    written: u64,
    /// Jobs that were started and stopped since the metrics were told.
    started: usize,
    stopped: usize,
}

/// A write of the lease that is under way.
struct Writing {
    number: u64,
    done: JoinHandle<Result<LeaseVersion, LeaseWriteError>>,
    /// How long its answer is waited for.
    patience: std::pin::Pin<Box<tokio::time::Sleep>>,
}

impl Driver {
    async fn drive(
        mut self,
        effects: Vec<SessionEffect>,
        endings: &Endings,
    ) -> Result<(), Failure> {
        let mut resumed = signal(SignalKind::from_raw(CONT)).map_err(|e| failed(&e))?;
        let (mut drains, mut ends) = (false, false);
        let mut todo = VecDeque::from(effects);
        loop {
            while let Some(effect) = todo.pop_front() {
                if let Some(event) = self.carry_out(effect).await? {
                    todo.extend(self.session.step(clock::now(), event));
                }
            }
            self.tell();
            if self.session.is_over() {
                self.jobs.end().await;
                tracing::info!(session = %self.session.id(), "closed");
                return Ok(());
            }
            let wakes_at = self.session.wakes_at();
            let event = tokio::select! {
                // In this order: what takes away comes before what gives.
                biased;
                _ = resumed.recv() => SessionEvent::Resumed,
                () = endings.end.cancelled(), if !ends => {
                    (drains, ends) = (true, true);
                    SessionEvent::Terminate { grace: self.terms.stop_timeout }
                }
                () = endings.drain.cancelled(), if !drains => {
                    drains = true;
                    tracing::info!("draining");
                    SessionEvent::Terminate { grace: DRAIN_PATIENCE }
                }
                event = answered(&mut self.writing) => {
                    self.writing = None;
                    event
                }
                event = self.jobs.supervisor.next_event() => match event {
                    JobEvent::Joined(job) => SessionEvent::Joined(job),
                    JobEvent::Finished(job) => SessionEvent::Finished(job),
                },
                told = self.views.changed() => {
                    let view = match told {
                        Told::View(view) => view,
                        Told::Unreadable(sentence) => {
                            tracing::warn!("{sentence}; the last good one is kept");
                            self.metrics.view_error();
                            continue;
                        }
                    };
                    self.revision = self.revision.max(view.revision);
                    tracing::info!(revision = view.revision, jobs = view.jobs.len(), "view");
                    self.details.clone_from(&view.jobs);
                    SessionEvent::View((&*view).into())
                }
                () = until(wakes_at) => SessionEvent::Tick,
            };
            todo.extend(self.session.step(clock::now(), event));
        }
    }

    /// Carries out an effect; what it leads to at once is an event.
    async fn carry_out(&mut self, effect: SessionEffect) -> Result<Option<SessionEvent>, Failure> {
        match effect {
            SessionEffect::Start { job, token } => {
                let details = self.details.get(&job);
                let (run_once, params) = details
                    .map(|granted| (granted.run_once, granted.params.clone()))
                    .unwrap_or_default();
                self.jobs.supervisor.start(JobSpec { name: job, token, params, run_once });
                self.started += 1;
                Ok(None)
            }
            SessionEffect::Stop(job) => {
                self.jobs.supervisor.stop(&job);
                self.stopped += 1;
                Ok(None)
            }
            SessionEffect::Write(write) => {
                self.write(write);
                Ok(None)
            }
            SessionEffect::ReadLease => {
                let (leases, id) = (self.leases.clone(), self.session.id().clone());
                let read = tokio::task::spawn_blocking(move || leases.read(&id)).await;
                match read.map_err(|error| failed(&error))? {
                    Ok(lease) => Ok(Some(SessionEvent::LeaseRead(lease))),
                    Err(error) => {
                        tracing::warn!(%error, "the lease cannot be read; trying again");
                        Ok(Some(SessionEvent::Lost { number: self.written }))
                    }
                }
            }
            SessionEffect::ReadLedger => match self.read_ledger().await {
                Ok(Some((ledger, _))) => Ok(Some(SessionEvent::LedgerRead {
                    incarnation: ledger.cells.incarnation,
                    revision: ledger.cells.revision,
                })),
                Ok(None) => Ok(None),
                Err(error) => {
                    tracing::warn!(%error, "the ledger cannot be read");
                    Ok(None)
                }
            },
            SessionEffect::ReportRollback { seen } => {
                tracing::error!(
                    seen,
                    "the ledger is older than what it told before; starting over"
                );
                Ok(None)
            }
            SessionEffect::Abort => {
                let sentence = "the session lost its lease; every job ends with the process";
                Err(Failure::Failed(sentence.to_owned()))
            }
            SessionEffect::Over => Ok(None),
        }
    }

    /// The ledger as it stands in the store, not in anybody's memory.
    async fn read_ledger(&self) -> Result<Option<(Ledger, Seen)>, StoreError> {
        let unavailable = |source: std::io::Error| StoreError::Unavailable {
            what: "the ledger".to_owned(),
            source: source.into(),
        };
        FileLedgerStore::open(&self.dir).map_err(unavailable)?.load().await
    }

    /// Begins to write the lease; the answer comes as an event.
    fn write(&mut self, write: LeaseWrite) {
        let (leases, id, number) = (self.leases.clone(), self.session.id().clone(), write.number);
        self.written = number;
        let done = tokio::task::spawn_blocking(move || leases.write(&id, &write));
        let patience = Box::pin(tokio::time::sleep(self.terms.renew / 2));
        self.writing = Some(Writing { number, done, patience });
    }

    /// Tells everybody around what the session may do now.
    fn tell(&mut self) {
        let running = self.session.running().map(|(job, _)| job.clone()).collect();
        let report = Report { version: self.revision, jobs: running };
        let deadline = self.session.deadline();
        self.jobs.supervisor.permit_until(as_boottime_ns(deadline));
        self.watchdog.set((!report.jobs.is_empty()).then_some(deadline));
        let (started, stopped) = (mem::take(&mut self.started), mem::take(&mut self.stopped));
        self.metrics.acted(self.revision, started, stopped, report.jobs.len());
        self.reports.send_if_modified(|told| {
            let differs = *told != report;
            if differs {
                *told = report;
            }
            differs
        });
    }
}

/// The answer to the write that is under way; never if there is none.
async fn answered(writing: &mut Option<Writing>) -> SessionEvent {
    let Some(Writing { number, done, patience }) = writing else {
        return std::future::pending().await;
    };
    let number = *number;
    tokio::select! {
        written = done => match written {
            Ok(Ok(version)) => SessionEvent::Written { number, version },
            Ok(Err(LeaseWriteError::Conflict)) => SessionEvent::Conflict { number },
            Ok(Err(LeaseWriteError::Failed(error))) => {
                tracing::warn!(%error, "the lease cannot be written; trying again");
                SessionEvent::Lost { number }
            }
            Err(error) => {
                tracing::warn!(%error, "the lease was not written; trying again");
                SessionEvent::Lost { number }
            }
        },
        () = patience => SessionEvent::Lost { number },
    }
}

async fn until(moment: Option<swarm_core::handover::Moment>) {
    match moment {
        Some(moment) => clock::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

fn failed(error: &dyn std::fmt::Display) -> Failure {
    Failure::Failed(error.to_string())
}
