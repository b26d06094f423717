//! `stop`: ends a pool, and returns when no process of it is left.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use swarm_adapters_host::processes::{Leftovers, Peer, end_leftovers};

use super::super::state::StateDir;
use super::super::text::{counted, span};
use super::{Failure, Output, PoolArgs, ended, standard_output};

/// How long a pool may take to end: its workers have five seconds, and are killed then.
const END_MAX: Duration = Duration::from_mins(1);

/// Arguments of `stop`.
#[derive(Clone, Debug, Args)]
pub struct StopArgs {
    /// The pool
    #[command(flatten)]
    pub pool: PoolArgs,
    /// The output format
    #[arg(long, short, value_enum, default_value_t)]
    pub output: Output,
}

/// Ends a pool that runs. Exit code 3 if none does.
///
/// # Errors
///
/// If it is another user's, or does not end.
pub async fn stop(args: StopArgs) -> anyhow::Result<ExitCode> {
    ended(end(&args).await)
}

async fn end(args: &StopArgs) -> Result<(), Failure> {
    let since = Instant::now();
    let pool = args.pool.find().await?;
    let dir = pool.dir.display().to_string();
    let cannot = || format!("the pool in {dir} cannot be stopped");
    // A signal, and not a request: it also reaches a pool that is suspended.
    if let Some(operator) = Peer::of(&pool.connect().await?).with_context(cannot)? {
        operator.ask_to_end().with_context(cannot)?;
        if !operator.ends_within(END_MAX).await {
            return Err(Failure::Failed(anyhow::anyhow!("the pool in {dir} is still ending")));
        }
    }
    let killed = left(&pool.dir).await.with_context(cannot)?;
    let took = since.elapsed();
    let mut output = standard_output(args.output);
    match args.output {
        Output::Text => {
            let killed = match killed {
                0 => String::new(),
                some => format!("{} killed, ", counted(some, "leftover")),
            };
            writeln!(output, "stopped {dir} in {}: {killed}no process is left", span(took))?;
        }
        Output::Json => {
            let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
            let answer = serde_json::json!({"dir": dir, "tookMs": ms, "killed": killed});
            writeln!(output, "{answer:#}")?;
        }
    }
    Ok(output.flush()?)
}

/// Ends what a pool left behind that was killed at the same time, and returns how much that was.
async fn left(dir: &std::path::Path) -> anyhow::Result<usize> {
    // If it runs again already, that has been done.
    let Ok(_claimed) = StateDir::claim(dir) else { return Ok(0) };
    let Leftovers { workers, others } = end_leftovers(dir).await?;
    Ok(workers + others)
}
