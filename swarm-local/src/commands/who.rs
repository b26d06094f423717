//! `who`: the worker that holds a job.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use swarm_adapters_host::clock::unix_s;
use swarm_terminal::show::{Answer, Display};
use swarm_view::jobs::{JobLine, Jobs};
use swarm_view::pool::{Home, PoolName};

use super::by_hand::JobsArgs;
use super::{Failure, finished, names};

/// Arguments of `who`.
#[derive(Clone, Debug, Args)]
pub struct WhoArgs {
    /// The jobs and their pool
    #[command(flatten)]
    pub jobs: JobsArgs,
    /// The way to show the answer
    #[command(flatten)]
    pub display: Display,
}

/// Prints the workers that hold jobs. Exit code 3 if no such pool runs, or if it lacks one of the jobs.
///
/// # Errors
///
/// If the pool does not answer.
pub async fn who(args: WhoArgs) -> anyhow::Result<ExitCode> {
    finished(args.display.show(async || answer(&args).await).await)
}

async fn answer(args: &WhoArgs) -> Result<Answer, Failure> {
    let JobsArgs { jobs, pool } = &args.jobs;
    let pool = pool.args().find().await?;
    let known = names::known(&pool, jobs, "").await?;
    let line = |job| {
        let entry = known.get(job)?.clone();
        Some(JobLine { entry, pool: PoolName::Machine { pool: pool.name() } })
    };
    let found = Jobs { jobs: jobs.iter().filter_map(line).collect() };
    let entries = || found.jobs.iter().map(|line| &line.entry);
    let text = |_| found.holders(Home::Machine, false, unix_s());
    let document = || json!({ "jobs": entries().collect::<Vec<_>>() });
    let workers = || entries().filter_map(|entry| entry.worker.clone()).collect();
    Ok(args.display.answer(true, text, document, workers)?)
}
