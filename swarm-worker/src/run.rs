//! The life of a worker, from its command line to its end.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use swarm_adapters_host::http::{self, Build};
use swarm_adapters_host::metrics::{WorkerMetrics, register_build};
use swarm_adapters_host::random;
use swarm_adapters_host::report::Report;
use swarm_adapters_host::runner::Runner;
use swarm_core::Worker;
use swarm_core::handover::{LeaseTerms, SessionId};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::args::RunArgs;
use crate::follow::Follower;
use crate::jobs::Jobs;
use crate::session::{Endings, Life};
use crate::{Failure, log};

/// How long the jobs of a plain worker may take to stop when the worker is to end.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs a worker until a signal, or the end of standard input, tells it to end. Its jobs are run
/// by `runner`, or as `args` say.
pub(crate) async fn run(args: &RunArgs, runner: Option<Arc<dyn Runner>>) -> Result<(), Failure> {
    let name = args.worker_name()?;
    log::init(args.log_format);
    let endings = Endings { drain: CancellationToken::new(), end: CancellationToken::new() };
    drain_on_signals(&endings.drain)?;
    if args.until_stdin_closes {
        end_with_stdin(endings.end.clone());
    }
    let life = args.session.life.clone();
    let life = life.unwrap_or_else(|| format!("{name}.{}", std::process::id()));
    let nonce = random::number().map_err(failed)?;
    let session = SessionId::new(&life, nonce);
    let build = Build::from_env();
    let mut registry = Registry::default();
    register_build(&mut registry, &build);
    let metrics = WorkerMetrics::registered(&mut registry);
    let (reports, report) = watch::channel(Report::default());
    let restarts = metrics.job_restarts();
    let jobs = Jobs::new(args, runner, &name, &session.to_string(), &mut registry, restarts)?;
    let listener = http::listen(args.address()).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let router = http::worker_router(build, report, Arc::new(registry));
    let done = CancellationToken::new();
    let server = tokio::spawn(http::serve(listener, router, done.clone()));
    tracing::info!(worker = name, http = %address, "started");
    if let Some(dir) = args.session.session_dir.clone() {
        let terms = LeaseTerms {
            duration: args.session.lease,
            renew: args.session.renew,
            stop_timeout: args.runner.stop_timeout,
            ..LeaseTerms::default()
        };
        terms.check().map_err(|error| Failure::Usage(error.to_string()))?;
        let life = Life { id: session, dir, terms, jobs, metrics, reports };
        life.run(&endings).await?;
    } else {
        let (worker, path) = (Worker::default(), args.view.file());
        let follower = Follower { name, worker, jobs, metrics, reports, path };
        follow(follower, &endings).await?;
    }
    done.cancel();
    server.await.map_err(failed)?.map_err(failed)?;
    tracing::info!("ended");
    Ok(())
}

/// A plain worker has nobody to hand its jobs to: however it is told to end, it stops them.
async fn follow(follower: Follower, endings: &Endings) -> Result<(), Failure> {
    let told = CancellationToken::new();
    let overdue = async {
        tokio::select! {
            () = endings.drain.cancelled() => {}
            () = endings.end.cancelled() => {}
        }
        told.cancel();
        tokio::time::sleep(END_TIMEOUT).await;
    };
    tokio::select! {
        () = follower.follow(&told) => Ok(()),
        () = overdue => {
            let limit = END_TIMEOUT.as_secs();
            Err(Failure::Failed(format!("the jobs did not stop within {limit} s")))
        }
    }
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::Failed(error.to_string())
}

/// Cancels `drain` when the process is asked to end.
fn drain_on_signals(drain: &CancellationToken) -> Result<(), Failure> {
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let mut signals = signal(kind).map_err(failed)?;
        let drain = drain.clone();
        tokio::spawn(async move {
            signals.recv().await;
            drain.cancel();
        });
    }
    Ok(())
}

/// Cancels `end` when standard input closes.
///
/// A thread of its own: the runtime would wait for a read that never returns before it ends.
fn end_with_stdin(end: CancellationToken) {
    std::thread::spawn(move || {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        end.cancel();
    });
}
