//! `who`: the worker that holds a job.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use swarm_view::jobs::JobEntry;
use swarm_view::table::{columns, whole_table};

use super::by_hand::JobsArgs;
use super::ps::phase;
use super::{Failure, finished, names};
use crate::show::{Answer, Display};

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
    let found: Vec<_> = jobs.iter().filter_map(|job| known.get(job)).collect();
    let text = |is_wide| table(&found, is_wide);
    let document = || json!({ "jobs": found });
    let workers = || found.iter().filter_map(|entry| entry.worker.clone()).collect();
    Ok(args.display.answer(true, text, document, workers)?)
}

fn table(found: &[&JobEntry<String>], is_wide: bool) -> String {
    let mut heads = vec![columns::JOB, columns::WORKER, columns::PHASE, "PID", "TOKEN"];
    heads.extend(is_wide.then_some("SLOT"));
    let mut rows = vec![heads.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    rows.extend(found.iter().map(|entry| {
        let known = |number: Option<String>| number.unwrap_or_default();
        let mut row = vec![
            entry.name.clone(),
            entry.shown_worker().to_owned(),
            phase(entry),
            known(entry.pid.map(|pid| pid.to_string())),
            entry.token.to_string(),
        ];
        row.extend(is_wide.then(|| known(entry.slot.map(|slot| slot.to_string()))));
        row
    }));
    whole_table(rows)
}
