//! The HTTP server of `local`: health, metrics, and the state of the pool as JSON.

use std::sync::Arc;

use prometheus_client::registry::Registry;
use serde::Serialize;
use swarm_adapters_host::http::{self, Build, Document};
use swarm_adapters_host::metrics::{PoolMetrics, register_build};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use super::moves::Moves;
use super::snapshot::{JobRow, Snapshot};

/// All states of workers, so that each has a count, even if it is zero.
const WORKER_STATES: [&str; 4] = ["ready", "starting", "leaving", "away"];

/// Answers requests until `shutdown` is cancelled.
pub(super) async fn serve(
    listener: TcpListener,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    metrics: PoolMetrics,
    shutdown: CancellationToken,
) -> std::io::Result<()> {
    let mut registry = Registry::default();
    register_build(&mut registry, &Build::from_env());
    metrics.register(&mut registry);
    let (ready, is_ready) = watch::channel(false);
    let (pool, jobs) = (watch::Sender::default(), watch::Sender::default());
    let endpoints = http::operator_router(is_ready, || Ok(()), Arc::new(registry))
        .with_document("/api/v1/swarm", "the state of the pool, as JSON", pool.subscribe())
        .with_document("/api/v1/jobs", "the worker of every job, as JSON", jobs.subscribe());
    let documents = Documents { metrics, moves: Moves::default(), ready, pool, jobs };
    tokio::select! {
        served = http::serve(listener, endpoints, shutdown) => served,
        () = documents.follow(snapshots) => Ok(()),
    }
}

/// Prepares the documents once for each change, so that a request costs next to nothing.
struct Documents {
    metrics: PoolMetrics,
    moves: Moves,
    ready: watch::Sender<bool>,
    pool: watch::Sender<Document>,
    jobs: watch::Sender<Document>,
}

/// The answer of `/api/v1/jobs`.
#[derive(Serialize)]
struct Jobs<'a> {
    revision: u64,
    jobs: &'a [JobRow],
}

impl Documents {
    /// Changes that arrive while one is being prepared are combined.
    async fn follow(mut self, mut snapshots: watch::Receiver<Arc<Snapshot>>) {
        while snapshots.changed().await.is_ok() {
            let snapshot = Arc::clone(&snapshots.borrow_and_update());
            // A large pool takes a while, which must not delay other tasks.
            let Ok(documents) = spawn_blocking(move || self.prepared(&snapshot)).await else {
                return;
            };
            self = documents;
        }
        // Requests are answered while the workers end.
        std::future::pending::<()>().await;
    }

    fn prepared(mut self, snapshot: &Snapshot) -> Self {
        self.metrics.moved(self.moves.seen(snapshot).len());
        let workers = WORKER_STATES.map(|state| {
            (state, snapshot.workers.iter().filter(|worker| worker.state == state).count())
        });
        self.metrics.observe_pool(&snapshot.jobs.by_state(), &workers, snapshot.settled);
        let jobs = Jobs { revision: snapshot.revision, jobs: &snapshot.holders };
        self.jobs.send_replace(Document::of(&jobs));
        self.pool.send_replace(Document::of(snapshot));
        self.ready.send_replace(true);
        self
    }
}
