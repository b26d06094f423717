//! `workers`: the workers of a pool.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::super::snapshot::WorkerRow;
use super::{Failure, PoolArgs, ended, silent_for};
use crate::output::{self, Output, columns, row, whole_table};

/// Arguments of `workers`.
#[derive(Clone, Debug, Args)]
pub struct WorkersArgs {
    /// The pool
    #[command(flatten)]
    pub pool: PoolArgs,
    /// The output format
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value_t)]
    pub output: Output,
}

/// Prints the workers of a running pool. Exit code 3 if no such pool runs.
///
/// # Errors
///
/// If the pool does not answer.
pub async fn workers(args: WorkersArgs) -> anyhow::Result<ExitCode> {
    ended(print(&args).await)
}

async fn print(args: &WorkersArgs) -> Result<(), Failure> {
    let (mut document, snapshot) = args.pool.find().await?.swarm().await?;
    match args.output {
        Output::Text => {
            let heads = [columns::WORKER, columns::STATE, "JOBS", "STOPPING", "FAILING", "INFO"];
            let rows = snapshot.workers.iter().map(line);
            let rows = std::iter::once(row(heads)).chain(rows).collect();
            output::print(&whole_table(rows))?;
        }
        Output::Json => {
            let workers = document["workers"].take();
            output::print_json(&format!("{:#}\n", json!({ "workers": workers })))?;
        }
    }
    Ok(())
}

fn line(worker: &WorkerRow) -> Vec<String> {
    let some = |count: usize| if count == 0 { String::new() } else { count.to_string() };
    let WorkerRow { name, state, jobs, releasing, failing, .. } = worker;
    let remarks = worker.remarks(silent_for(worker));
    row([name, state, &jobs.to_string(), &some(*releasing), &some(*failing), &remarks])
}
