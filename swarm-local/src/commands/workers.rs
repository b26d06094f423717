//! `workers`: the workers of a pool.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use swarm_adapters_host::clock::unix_s;
use swarm_terminal::show::{Answer, Display};
use swarm_view::pool::{Home, PoolName};
use swarm_view::workers::{WorkerLine, Workers};

use super::{Failure, PoolArgs, finished, pool};

/// Arguments of `workers`.
#[derive(Clone, Debug, Args)]
pub struct WorkersArgs {
    /// The pool
    #[command(flatten)]
    pub pool: PoolArgs,
    /// List the workers of all pools
    #[arg(long, short = 'A', conflicts_with_all = ["pool", "dir", "by_option"])]
    pub all: bool,
    /// The way to show the answer
    #[command(flatten)]
    pub display: Display,
}

/// Prints the workers of a running pool. Exit code 3 if no such pool runs.
///
/// # Errors
///
/// If the pool does not answer.
pub async fn workers(args: WorkersArgs) -> anyhow::Result<ExitCode> {
    finished(args.display.show(async || answer(&args).await).await)
}

async fn answer(args: &WorkersArgs) -> Result<Answer, Failure> {
    let (mut workers, mut documents) = (Vec::new(), Vec::new());
    for pool in pool::every_or(args.all, &args.pool).await? {
        let (mut document, status) = pool.swarm().await?;
        let name = if args.all { pool.shown() } else { pool.name() };
        for document in document["workers"].as_array_mut().into_iter().flatten() {
            document["pool"] = name.clone().into();
            documents.push(document.take());
        }
        let line = |worker| WorkerLine { worker, pool: PoolName::Machine { pool: name.clone() } };
        workers.extend(status.workers.into_iter().map(line));
    }
    let workers = Workers { workers };
    let text = |is_wide| workers.text(Home::Machine, unix_s(), args.all, is_wide);
    let names = || workers.workers.iter().map(|it| it.worker.name.clone()).collect();
    Ok(args.display.answer(true, text, || json!({ "workers": documents }), names)?)
}
