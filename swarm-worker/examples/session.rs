//! A program that is its own worker, with a session on Kubernetes. It never fetches from a source
//! while another worker still does. It hands each token to a sink that refuses lower tokens.
//!
//! In a pod, run `session --protocol session`. Bind the role `swarm-session-worker` to the pod's
//! account, and fill in `POD_UID` by the downward API.
//!
//! On your own machine, run it with a kubeconfig and any UUID: `cargo run -p swarm-worker --example
//! session -- --protocol session --pod-uid=$(uuidgen)`.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use clap::Parser;
use swarm_worker::{Job, Outcome, RunArgs, Runner};
use tokio_util::sync::CancellationToken;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    worker: RunArgs,
}

/// A stand-in for a database that stores, for each source, the highest token that wrote to it.
#[derive(Default)]
struct Sink(Mutex<BTreeMap<String, u64>>);

impl Sink {
    fn write(&self, source: &str, token: u64) -> bool {
        let mut highest = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let highest = highest.entry(source.to_owned()).or_default();
        let is_allowed = *highest <= token;
        *highest = token.max(*highest);
        is_allowed
    }
}

#[async_trait::async_trait]
impl Runner for Sink {
    async fn run(&self, job: &Job, stop: CancellationToken) -> Outcome {
        while job.is_permitted() && !stop.is_cancelled() {
            if !self.write(job.name.as_str(), job.token.0) {
                return Outcome::Failed(format!("{} belongs to a later holder", job.name));
            }
            println!("{} under token {}", job.name, job.token.0);
            stop.run_until_cancelled(tokio::time::sleep(Duration::from_secs(1))).await;
        }
        Outcome::Ended
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    swarm_worker::serve(&Cli::parse().worker, Sink::default()).await
}
