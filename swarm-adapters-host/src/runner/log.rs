//! A runner that only tells.

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use super::{Job, Outcome, Runner};

/// Does nothing for a job but to write lines into the log: started, stopped, and at level `debug`
/// a tick every second. For demonstrations; it is cheap by the ten thousand.
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
