//! The life of a worker: follows its view and runs its jobs until it is told to end.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use swarm_adapters_host::http::{self, Build};
use swarm_adapters_host::metrics::WorkerMetrics;
use swarm_adapters_host::report::Report;
use swarm_adapters_host::view::{BYTES_MAX, parse_view};
use swarm_adapters_host::watch::{Contents, FileWatch};
use swarm_core::{View, Worker, WorkerEffect};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::args::RunArgs;
use crate::jobs::Jobs;
use crate::{Failure, log};

/// How long the jobs may take to stop when the worker is to end.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs a worker until a signal, or the end of standard input, tells it to end.
pub(crate) async fn run(args: RunArgs) -> Result<(), Failure> {
    let name = args.worker_name()?;
    log::init(args.log_format);
    let shutdown = CancellationToken::new();
    end_on_signals(&shutdown)?;
    if args.until_stdin_closes {
        end_with_stdin(shutdown.clone());
    }
    let build = Build::from_env();
    let (metrics, registry) = WorkerMetrics::registered(&build);
    let (reports, report) = watch::channel(Report::default());
    let jobs = Jobs::new(&args, &name)?;
    let listener = http::listen(args.address()).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let router = http::worker_router(build, report, registry);
    let server = tokio::spawn(http::serve(listener, router, shutdown.clone()));
    tracing::info!(worker = name, http = %address, "started");
    let follower = Follower {
        name,
        worker: Worker::default(),
        jobs,
        metrics,
        reports,
        tells: if args.report { Tells::Stdout } else { Tells::Nobody },
        told: None,
        path: args.view.file(),
    };
    let overdue = async {
        shutdown.cancelled().await;
        tokio::time::sleep(END_TIMEOUT).await;
    };
    tokio::select! {
        () = follower.follow(&shutdown) => {}
        () = overdue => {
            let limit = END_TIMEOUT.as_secs();
            return Err(Failure::Failed(format!("the jobs did not stop within {limit} s")));
        }
    }
    server.await.map_err(failed)?.map_err(failed)?;
    tracing::info!("ended");
    Ok(())
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::Failed(error.to_string())
}

/// Cancels `shutdown` when the process is asked to end.
fn end_on_signals(shutdown: &CancellationToken) -> Result<(), Failure> {
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let mut signals = signal(kind).map_err(failed)?;
        let shutdown = shutdown.clone();
        tokio::spawn(async move {
            signals.recv().await;
            shutdown.cancel();
        });
    }
    Ok(())
}

/// Cancels `shutdown` when standard input closes.
///
/// A thread of its own: the runtime would wait for a read that never returns before it ends.
fn end_with_stdin(shutdown: CancellationToken) {
    std::thread::spawn(move || {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        shutdown.cancel();
    });
}

/// Whom a worker tells about what it runs, besides those who ask over HTTP.
enum Tells {
    Nobody,
    Stdout,
}

/// A worker with its jobs.
struct Follower {
    name: String,
    worker: Worker,
    jobs: Jobs,
    metrics: WorkerMetrics,
    reports: watch::Sender<Report>,
    tells: Tells,
    told: Option<Report>,
    path: PathBuf,
}

impl Follower {
    async fn follow(mut self, shutdown: &CancellationToken) {
        // A view is replaced by one renaming, so there is nothing to wait for after an event.
        let mut view = FileWatch::follow(&self.path, Duration::ZERO, BYTES_MAX);
        while let Some(found) = shutdown.run_until_cancelled(view.changed()).await {
            if let Some(view) = self.understood(&found.contents) {
                self.act(&view).await;
            }
            // The first look is told whatever it found: from then on the worker is ready.
            self.tell();
        }
        tracing::info!(jobs = self.worker.running.len(), "stopping all jobs");
        self.jobs.stop(&self.worker.running).await;
        self.jobs.end().await;
        self.metrics.stopped(self.worker.running.len());
        self.worker.running.clear();
        self.tell();
    }

    /// The view in the file, or `None` if the last good one stays.
    fn understood(&self, contents: &Contents) -> Option<View> {
        let path = self.path.display();
        let reason = match contents {
            Contents::Text(text) => match parse_view(text) {
                Ok(view) => return Some(view),
                Err(error) => error.to_string(),
            },
            Contents::Missing => {
                tracing::info!("there is no view at {path}; jobs stay as they are until there is");
                return None;
            }
            Contents::Unreadable(reason) => reason.clone(),
        };
        self.metrics.view_error();
        tracing::warn!("the view at {path} is passed over and the last good one kept: {reason}");
        None
    }

    /// Runs what `view` says: stops first, and waits for them, then starts.
    async fn act(&mut self, view: &View) {
        let (next, effects) = self.worker.step(&self.name, view);
        let (mut stops, mut starts) = (Vec::new(), Vec::new());
        for effect in &effects {
            match effect {
                WorkerEffect::Stop(job) => stops.push(job),
                WorkerEffect::Start(job) => starts.push(job),
            }
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
        self.metrics.acted(view.version, started, stopped, next.running.len());
        self.worker = next;
    }

    /// Tells what runs now, unless that was the last thing told.
    fn tell(&mut self) {
        let report = Report::from(&self.worker);
        if self.told.as_ref() == Some(&report) {
            return;
        }
        self.reports.send_replace(report.clone());
        match self.tells {
            Tells::Nobody => {}
            Tells::Stdout => {
                let json = serde_json::to_string(&report).unwrap_or_default();
                // If nobody reads it any more, standard input closes too, and that is the end.
                let _ = writeln!(io::stdout(), "{json}");
            }
        }
        self.told = Some(report);
    }
}
