//! `restart`, `suspend`, `resume` and `retry`: act on jobs of a running pool.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::super::by_hand::Action;
use super::{Failure, PoolArgs, ended, standard_output};
use crate::output::{NO, Output, complain};

/// Arguments of an action on jobs.
#[derive(Clone, Debug, Args)]
pub struct ActionArgs {
    /// The jobs
    #[arg(value_name = "JOB", required = true)]
    pub jobs: Vec<String>,
    /// The name of the pool's Swarm [default: the only pool that runs in a default directory]
    #[arg(long, value_name = "POOL")]
    pub pool: Option<String>,
    /// The pool's directory, if `local` was given one
    #[arg(long, value_name = "DIR", conflicts_with = "pool")]
    pub dir: Option<PathBuf>,
}

/// Restarts jobs: each run is stopped, and another one begins at once.
///
/// # Errors
///
/// If the pool does not answer.
pub async fn restart(args: ActionArgs) -> anyhow::Result<ExitCode> {
    act(Action::Restart, args).await
}

/// Begins jobs again that are not restarted any more.
///
/// # Errors
///
/// If the pool does not answer.
pub async fn retry(args: ActionArgs) -> anyhow::Result<ExitCode> {
    act(Action::Retry, args).await
}

/// Suspends jobs until they are resumed, also over a restart of the pool.
///
/// # Errors
///
/// If the pool does not answer.
pub async fn suspend(args: ActionArgs) -> anyhow::Result<ExitCode> {
    act(Action::Suspend, args).await
}

/// Resumes suspended jobs.
///
/// # Errors
///
/// If the pool does not answer.
pub async fn resume(args: ActionArgs) -> anyhow::Result<ExitCode> {
    act(Action::Resume, args).await
}

async fn act(action: Action, args: ActionArgs) -> anyhow::Result<ExitCode> {
    match on_each(action, args).await {
        Ok(true) => Ok(ExitCode::SUCCESS),
        Ok(false) => Ok(ExitCode::from(NO)),
        Err(failure) => ended(Err(failure)),
    }
}

/// Acts on each job, and returns whether each action had an effect. A job without an effect does not
/// keep the others from theirs.
async fn on_each(action: Action, args: ActionArgs) -> Result<bool, Failure> {
    let ActionArgs { jobs, pool, dir } = args;
    let pool = PoolArgs { pool, dir }.find().await?;
    let mut output = standard_output(Output::Text);
    let mut had_effect = true;
    for job in &jobs {
        match pool.act(action, job).await? {
            Ok(effect) => writeln!(output, "{effect}")?,
            Err(reason) => {
                output.flush()?;
                complain(&reason);
                had_effect = false;
            }
        }
    }
    output.flush()?;
    Ok(had_effect)
}
