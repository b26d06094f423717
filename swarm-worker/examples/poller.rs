//! A program that is its own worker: `cargo run -p swarm-worker --example poller -- --config-path DIR`.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use clap::Parser;
use swarm_worker::{Job, Outcome, RunArgs, Runner};
use tokio_util::sync::CancellationToken;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    worker: RunArgs,
}

struct Poller;

#[async_trait::async_trait]
impl Runner for Poller {
    async fn run(&self, job: &Job, stop: CancellationToken) -> Outcome {
        while job.is_permitted() && !stop.is_cancelled() {
            println!("fetch {} under token {}", job.name, job.token.0);
            stop.run_until_cancelled(tokio::time::sleep(Duration::from_secs(1))).await;
        }
        Outcome::Ended
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    swarm_worker::serve(&Cli::parse().worker, Poller).await
}
