//! A runner that only writes to the worker's log.

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use super::{Job, Outcome, Runner};

/// Runs no program. The worker's log has a line when a job starts and one when it stops. At level
/// `debug` it also has one for every second. This runner is for demonstrations; ten thousand such
/// jobs are cheap.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Log;

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
