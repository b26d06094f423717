//! A plain worker, which follows its view and runs its jobs until shutdown.

use std::path::PathBuf;
use std::time::Duration;

use swarm_adapters_host::clock;
use swarm_adapters_host::metrics::WorkerMetrics;
use swarm_adapters_host::view::{BYTES_MAX, parse_view};
use swarm_adapters_host::watch::{Contents, FileWatch};
use swarm_core::{OLDER_VIEW_GRACE, View, Worker, WorkerEffect};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::jobs::Jobs;
use crate::report::Report;
use crate::session::until;

/// A plain worker with its jobs.
pub(crate) struct Follower {
    pub(crate) name: String,
    pub(crate) worker: Worker,
    pub(crate) jobs: Jobs,
    pub(crate) metrics: WorkerMetrics,
    pub(crate) reports: watch::Sender<Report>,
    pub(crate) path: PathBuf,
}

impl Follower {
    /// Runs the jobs in the view until `shutdown` is cancelled, and then stops all of them.
    pub(crate) async fn follow(mut self, shutdown: &CancellationToken) {
        // One rename replaces a view, so the view is complete as soon as its event arrives.
        let mut view = FileWatch::follow(&self.path, Duration::ZERO, BYTES_MAX);
        // The last valid view. It is stepped again when its grace has elapsed.
        let mut newest = None;
        let mut changes = self.jobs.supervisor.changes();
        loop {
            let found = tokio::select! {
                () = shutdown.cancelled() => break,
                found = view.changed() => Some(found),
                Ok(()) = changes.changed() => {
                    self.report();
                    continue;
                }
                () = until(self.worker.wakes_at()), if newest.is_some() => None,
            };
            if let Some(found) = found {
                newest = self.understood(&found.contents);
            }
            match &newest {
                Some(view) => self.act(view).await,
                // A view that cannot be read has no version to compare.
                None => self.worker.older_since = None,
            }
            // The first read is reported even if it found no view: afterwards the worker is ready.
            self.report();
        }
        tracing::info!(jobs = self.worker.running.len(), "stopping all jobs");
        self.jobs.stop(&self.worker.running).await;
        self.jobs.end().await;
        self.metrics.stopped(self.worker.running.len());
        self.worker.running.clear();
        self.report();
    }

    /// Parses the view in the file. `None` keeps the last valid view.
    fn understood(&self, contents: &Contents) -> Option<View> {
        let path = self.path.display();
        let reason = match contents {
            Contents::Text(text) => match parse_view(text) {
                Ok(view) => return Some(view),
                Err(error) => error.to_string(),
            },
            Contents::Missing => {
                tracing::info!(
                    "the view {path} does not exist yet; jobs stay as they are until then"
                );
                return None;
            }
            Contents::Unreadable(reason) => reason.clone(),
        };
        self.metrics.view_error();
        tracing::warn!("the view at {path} is ignored and the last valid one kept: {reason}");
        None
    }

    /// Runs the jobs in `view`: first stops jobs and waits until they have ended, then starts
    /// others.
    async fn act(&mut self, view: &View) {
        let (next, effects) = self.worker.step(clock::now(), &self.name, view);
        let (mut stops, mut starts) = (Vec::new(), Vec::new());
        for effect in &effects {
            match effect {
                WorkerEffect::Stop(job) => stops.push(job),
                WorkerEffect::Start(job) => starts.push(job),
                WorkerEffect::ReportOlder { version, publication } => {
                    self.report_older(*version, *publication);
                }
            }
        }
        if next.older_since.is_some() {
            self.worker = next;
            return;
        }
        if effects.is_empty() && !view.workers.contains_key(&self.name) {
            tracing::info!(version = view.version, "the view has no entry for this worker");
        }
        if !effects.is_empty() {
            let (stop, start) = (stops.len(), starts.len());
            tracing::info!(version = view.version, stop, start, "the view changed");
        }
        let (started, stopped) = (starts.len(), stops.len());
        self.jobs.stop(stops).await;
        for job in starts {
            self.jobs.start(job);
        }
        self.metrics.acted(view.version, started, stopped);
        self.worker = next;
    }

    fn report_older(&self, version: u64, publication: u64) {
        self.metrics.view_error();
        tracing::warn!(
            version,
            publication,
            "the view at {} is older than the last one: another writer replaced it, or the ledger \
             was rolled back. The jobs stay as they are for {OLDER_VIEW_GRACE:?} unless the operator \
             writes it again",
            self.path.display()
        );
    }

    /// Publishes a report of the running jobs, unless it equals the last one.
    fn report(&mut self) {
        let Worker { version, running, publication: _, older_since: _ } = &self.worker;
        let report = Report::new(*version, running.clone(), &self.jobs.supervisor.down());
        self.metrics.running(report.running());
        self.reports.send_if_modified(|last| {
            let differs = *last != report;
            if differs {
                *last = report;
            }
            differs
        });
    }
}
