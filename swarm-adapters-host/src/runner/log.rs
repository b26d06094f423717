//! A runner that only writes to the log.

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use super::{Job, Outcome, Runner};

/// Only writes lines to the log: that the job started, that it stopped, and at level `debug` a tick
/// every second. For demonstrations; ten thousand such jobs are cheap.
#[derive(Clone, Copy, Debug, Default)]
pub struct Log;

#[async_trait]
impl Runner for Log {
    async fn run(&self, job: &Job, stop: CancellationToken) -> Outcome {
        tracing::info!(job = %job.name, token = job.token.0, "started");
        stop.cancelled().await;
        tracing::info!(job = %job.name, token = job.token.0, "stopped");
        Outcome::Ended
    }

    fn tick(&self, job: &Job) {
        tracing::debug!(job = %job.name, "tick");
    }
}
