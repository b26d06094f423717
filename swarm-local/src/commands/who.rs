//! `who`: the worker that holds a job.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::super::web::JobEntry;
use super::by_hand::JobsArgs;
use super::ps::phase;
use super::{Failure, ended, names};
use crate::output::{self, Output, columns, row, whole_table};

/// Arguments of `who`.
#[derive(Clone, Debug, Args)]
pub struct WhoArgs {
    /// The jobs and their pool
    #[command(flatten)]
    pub jobs: JobsArgs,
    /// The output format
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value_t)]
    pub output: Output,
}

/// Prints the workers that hold jobs. Exit code 3 if no such pool runs, or if it lacks one of the jobs.
///
/// # Errors
///
/// If the pool does not answer.
pub async fn who(args: WhoArgs) -> anyhow::Result<ExitCode> {
    ended(print(args).await)
}

async fn print(args: WhoArgs) -> Result<(), Failure> {
    let WhoArgs { jobs: JobsArgs { jobs, pool }, output: format } = args;
    let pool = pool.args().find().await?;
    let known = names::known(&pool, &jobs, "").await?;
    let found: Vec<_> = jobs.iter().filter_map(|job| known.get(job)).collect();
    match format {
        Output::Text => {
            let head = row([columns::JOB, columns::WORKER, columns::PHASE, "PID", "TOKEN"]);
            let rows = std::iter::once(head).chain(found.into_iter().map(line)).collect();
            output::print(&whole_table(rows))?;
        }
        Output::Json => output::print_json(&format!("{:#}\n", json!({ "jobs": found })))?,
    }
    Ok(())
}

fn line(entry: &JobEntry<String>) -> Vec<String> {
    let worker = entry.worker.as_deref().unwrap_or("-");
    let pid = entry.pid.map(|pid| pid.to_string()).unwrap_or_default();
    row([&entry.name, worker, &phase(entry), &pid, &entry.token.to_string()])
}
