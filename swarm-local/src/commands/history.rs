//! `history` and `diff`: the moves of a pool.

use std::process::ExitCode;

use clap::Args;
use jiff::Timestamp;

use super::{Failure, NamedPool, ended, names};
use crate::output::{self, Output};
use crate::past::{self, Past};

/// Arguments of `history`.
#[derive(Clone, Debug, Args)]
pub struct HistoryArgs {
    /// Only the moves of this job
    #[arg(value_name = "JOB")]
    pub job: Option<String>,
    /// The pool
    #[command(flatten)]
    pub pool: NamedPool,
    /// Only what happened since then: a time such as 2026-11-28T03:10:00Z, or a time span such as 6h
    #[arg(long, value_name = "TIME", value_parser = crate::since)]
    pub since: Option<Timestamp>,
    /// The number of episodes to show, or of moves of the job [default: 50, and all in JSON]
    #[arg(long, short = 'n', value_name = "N", allow_negative_numbers = true)]
    #[arg(value_parser = past::read_count)]
    pub last: Option<usize>,
    /// The output format
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value_t)]
    pub output: Output,
}

/// Arguments of `diff`.
#[derive(Clone, Debug, Args)]
pub struct DiffArgs {
    /// The earlier revision, as `history` shows them
    #[arg(value_name = "REVISION", allow_negative_numbers = true, value_parser = past::read_revision)]
    pub from: u64,
    /// The later revision [default: the present one]
    #[arg(value_name = "REVISION", allow_negative_numbers = true, value_parser = past::read_revision)]
    pub to: Option<u64>,
    /// The pool
    #[command(flatten)]
    pub pool: NamedPool,
    /// The output format
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value_t)]
    pub output: Output,
}

/// Prints the moves of a pool. Exit code 3 if no such pool exists, or if it never had such a job.
///
/// # Errors
///
/// If the history cannot be read.
pub async fn history(args: HistoryArgs) -> anyhow::Result<ExitCode> {
    ended(print(&args).await)
}

/// Prints the jobs that have another worker than at an earlier revision. Exit code 3 if no such pool
/// exists, or if the history does not reach back so far.
///
/// # Errors
///
/// If the history cannot be read.
pub async fn diff(args: DiffArgs) -> anyhow::Result<ExitCode> {
    ended(print_diff(&args).await)
}

async fn print(args: &HistoryArgs) -> Result<(), Failure> {
    let episodes = args.pool.history().await?;
    let past = Past { episodes: &episodes, now: Timestamp::now(), since: args.since };
    let (rows, items) = past::limits(args.last);
    let columns = output::terminal_columns();
    let Some(job) = &args.job else {
        match args.output {
            Output::Text => output::print(&past.table(rows, columns))?,
            Output::Json => output::print_json(&format!("{:#}\n", past.document(items)))?,
        }
        return Ok(());
    };
    let table = past.table_of(job, rows, columns);
    if table.is_none() {
        match args.pool.args().find().await {
            Ok(pool) => drop(names::known(&pool, std::slice::from_ref(job), "").await?),
            Err(Failure::No(_)) => {
                let job = job.escape_default();
                let sentence =
                    format!("the pool has ended, and no job `{job}` moved in its history");
                return Err(Failure::No(sentence));
            }
            Err(failure) => return Err(failure),
        }
    }
    match args.output {
        Output::Text => {
            output::print(&table.unwrap_or_else(|| past.unmoved(job)))?;
        }
        Output::Json => output::print_json(&format!("{:#}\n", past.document_of(job, items)))?,
    }
    Ok(())
}

async fn print_diff(args: &DiffArgs) -> Result<(), Failure> {
    past::in_order(args.from, args.to).map_err(Failure::Usage)?;
    let episodes = args.pool.history().await?;
    let past = Past { episodes: &episodes, now: Timestamp::now(), since: None };
    let difference = past.diff(args.from, args.to).map_err(Failure::No)?;
    match args.output {
        Output::Text => output::print(&difference.text())?,
        Output::Json => output::print_json(&format!("{:#}\n", difference.document()))?,
    }
    Ok(())
}
