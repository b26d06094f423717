//! `restart`, `suspend`, `resume` and `retry`: act on jobs of a running pool.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tokio::time::{Instant, sleep};

use super::super::by_hand::Action;
use super::super::web::JobEntry;
use super::names::{self, Known};
use super::pool::Pool;
use super::{Failure, NamedPool, ended, standard_output};
use crate::output::{NO, Output, complain};

/// Maximum time for the workers to take orders, and the time between two questions whether they have.
const TAKEN_MAX: Duration = Duration::from_secs(2);
const ASK_EVERY: Duration = Duration::from_millis(20);

/// Arguments that name jobs of a pool.
#[derive(Clone, Debug, Args)]
pub struct JobsArgs {
    /// The jobs
    #[arg(value_name = "JOB", required = true)]
    pub jobs: Vec<String>,
    /// The pool
    #[command(flatten)]
    pub pool: NamedPool,
}

/// Restarts jobs: each run is stopped, and another one begins at once.
///
/// # Errors
///
/// If the pool does not answer.
pub async fn restart(args: JobsArgs) -> anyhow::Result<ExitCode> {
    act(Action::Restart, args).await
}

/// Begins jobs again that are not restarted any more.
///
/// # Errors
///
/// If the pool does not answer.
pub async fn retry(args: JobsArgs) -> anyhow::Result<ExitCode> {
    act(Action::Retry, args).await
}

/// Suspends jobs until they are resumed, also over a restart of the pool.
///
/// # Errors
///
/// If the pool does not answer.
pub async fn suspend(args: JobsArgs) -> anyhow::Result<ExitCode> {
    act(Action::Suspend, args).await
}

/// Resumes suspended jobs.
///
/// # Errors
///
/// If the pool does not answer.
pub async fn resume(args: JobsArgs) -> anyhow::Result<ExitCode> {
    act(Action::Resume, args).await
}

async fn act(action: Action, args: JobsArgs) -> anyhow::Result<ExitCode> {
    match on_each(action, args).await {
        Ok(true) => Ok(ExitCode::SUCCESS),
        Ok(false) => Ok(ExitCode::from(NO)),
        Err(failure) => ended(Err(failure)),
    }
}

/// Acts on each job, and returns whether each action had an effect. Nothing is done if the pool does
/// not have one of the jobs. A job without an effect does not keep the others from theirs.
async fn on_each(action: Action, args: JobsArgs) -> Result<bool, Failure> {
    let JobsArgs { jobs, pool } = args;
    let pool = pool.args().find().await?;
    let before = names::known(&pool, &jobs, "; nothing was done").await?;
    let mut acted_on = Vec::new();
    let mut output = standard_output(Output::Text);
    let mut had_effect = true;
    for job in &jobs {
        match pool.act(action, job).await? {
            Ok(effect) => {
                writeln!(output, "{effect}")?;
                acted_on.push(job);
            }
            Err(reason) => {
                output.flush()?;
                complain(&reason);
                had_effect = false;
            }
        }
    }
    output.flush()?;
    match action {
        Action::Restart | Action::Retry => until_taken(&pool, &acted_on, &before).await?,
        Action::Suspend | Action::Resume => {}
    }
    Ok(had_effect)
}

/// Waits a while until the workers have taken the orders, so that the next question has the new
/// state. A job that takes long to stop still runs then.
async fn until_taken(pool: &Pool, jobs: &[&String], before: &Known) -> Result<(), Failure> {
    let until = Instant::now() + TAKEN_MAX;
    let run = |entry: &JobEntry<String>| (entry.phase, entry.pid, entry.since_unix_s);
    for job in jobs {
        let before = before.get(*job).map(run);
        let is_taken = |now: Option<&JobEntry<String>>| {
            let begins = |it: &JobEntry<String>| it.pid.is_none() && it.phase == "starting";
            now.map(run) != before && !now.is_some_and(begins)
        };
        while !is_taken(pool.job(job).await?.as_ref()) && Instant::now() < until {
            sleep(ASK_EVERY).await;
        }
    }
    Ok(())
}
