//! `stop`: ends a pool, and returns when no process of it is left.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use swarm_adapters_host::clock::unix_s;
use swarm_adapters_host::processes::{
    END_MARGIN, Killed, Leftovers, Patience, Peer, end_leftovers, recorded,
};

use super::super::ending::{Ending, of_killed};
use super::super::state::StateDir;
use super::super::text::{self, counted, span};
use super::pool::Pool;
use super::{Failure, Output, PoolArgs, ended, standard_output};

/// Time that a pool is waited for beyond the time of its jobs and workers, unless `--timeout` says
/// it.
const MARGIN: Duration = Duration::from_secs(30);

/// Time that an operator may take to kill its pool before it is killed itself.
const KILL_MAX: Duration = Duration::from_secs(10);

/// Time between two looks whether the pool has ended, and between two remarks about the wait.
const LOOK: Duration = Duration::from_millis(200);
const SAY_EVERY: Duration = Duration::from_secs(2);

/// Arguments of `stop`.
#[derive(Clone, Debug, Args)]
pub struct StopArgs {
    /// The pool
    #[command(flatten)]
    pub pool: PoolArgs,
    /// Time to wait for the end, for example 30s; the pool goes on ending, and the exit code is 1
    /// [default: `handover.stopTimeout` of the pool, and a margin]
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<swarm_spec::Duration>,
    /// Kill the jobs at once, without the time that `handover.stopTimeout` gives them
    #[arg(long)]
    pub now: bool,
    /// The output format
    #[arg(long, short, value_enum, default_value_t)]
    pub output: Output,
}

/// Ends a pool that runs. Exit code 3 if none does.
///
/// # Errors
///
/// If it is another user's, or does not end in time.
pub async fn stop(args: StopArgs) -> anyhow::Result<ExitCode> {
    ended(end(&args).await)
}

async fn end(args: &StopArgs) -> Result<(), Failure> {
    let since = Instant::now();
    let pool = args.pool.find().await?;
    let dir = pool.dir.display().to_string();
    let cannot = || format!("the pool in {dir} cannot be stopped");
    let (stop_timeout, before) = recorded(&pool.dir).with_context(cannot)?.unwrap_or_default();
    // A signal, and not a request: it also reaches a pool that is suspended.
    if let Some(operator) = Peer::of(&pool.connect().await?).with_context(cannot)? {
        let limit = match args.timeout {
            Some(timeout) => timeout.into(),
            None => stop_timeout.saturating_add(END_MARGIN).saturating_add(MARGIN),
        };
        if args.now {
            kill(&operator, limit).await.with_context(cannot)?;
        } else {
            operator.ask_to_end().with_context(cannot)?;
        }
        wait(&pool, &operator, limit, args.output).await?;
    }
    let patience = if args.now { Patience::None } else { Patience::AsRecorded };
    let left = left(&pool.dir, patience).await.with_context(cannot)?;
    let killed = killed_since(&pool.dir, &before);
    report(args.output, &dir, since.elapsed(), &left, &killed)
}

/// Has an operator kill its pool. An operator that does not react is killed; its leftovers are
/// ended next.
async fn kill(operator: &Peer, limit: Duration) -> std::io::Result<()> {
    operator.ask_to_kill()?;
    if !operator.ends_within(limit.min(KILL_MAX)).await {
        operator.kill()?;
    }
    Ok(())
}

/// Waits until the operator has ended, and says meanwhile what it waits for.
async fn wait(
    pool: &Pool,
    operator: &Peer,
    limit: Duration,
    output: Output,
) -> Result<(), Failure> {
    let began = Instant::now();
    let (mut say_at, mut said) = (began + LOOK, String::new());
    loop {
        let rest = limit.saturating_sub(began.elapsed());
        if operator.ends_within(rest.min(LOOK)).await {
            return Ok(());
        }
        let is_over = limit <= began.elapsed();
        if !is_over && Instant::now() < say_at {
            continue;
        }
        say_at = Instant::now() + SAY_EVERY;
        let ending = pool.ending().await;
        let sentence = ending.as_ref().map(|ending| ending.sentence(unix_s()));
        if is_over {
            return Err(still_ending(&pool.dir, limit, ending.as_ref()));
        }
        if let Some(sentence) = sentence.filter(|it| *it != said && output == Output::Text) {
            text::remark(&sentence);
            said = sentence;
        }
    }
}

fn still_ending(dir: &Path, limit: Duration, ending: Option<&Ending>) -> Failure {
    let dir = dir.display();
    let what = ending.map(|ending| {
        let names = ending.waits_for.join(", ");
        let names = if names.is_empty() { names } else { format!(": {names}") };
        format!("; {}{names}", ending.sentence(unix_s()))
    });
    let what = what.unwrap_or_default();
    Failure::Failed(anyhow::anyhow!(
        "the pool in {dir} has not ended within {limit:?}, and goes on ending{what}; to kill what is \
         left, write `swarm-operator stop --now --dir {dir}`"
    ))
}

/// The jobs and workers that the pool has killed since those of `before`.
fn killed_since(dir: &Path, before: &[Killed]) -> Vec<String> {
    let all = recorded(dir).ok().flatten().map(|(_, killed)| killed).unwrap_or_default();
    all.iter().skip(before.len()).map(ToString::to_string).collect()
}

fn report(
    output: Output,
    dir: &str,
    took: Duration,
    left: &Leftovers,
    killed: &[String],
) -> Result<(), Failure> {
    let mut to = standard_output(output);
    let leftovers = left.workers + left.others;
    match output {
        Output::Text => {
            let mut parts = Vec::new();
            if !killed.is_empty() {
                parts.push(of_killed(killed));
            }
            if 0 < leftovers {
                parts.push(format!("{} ended", counted(leftovers, "leftover")));
            }
            parts.push("no process is left".to_owned());
            writeln!(to, "stopped {dir} in {}: {}", span(took), parts.join("; "))?;
        }
        Output::Json => {
            let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
            let answer = serde_json::json!({
                "dir": dir, "tookMs": ms, "killed": leftovers, "killedJobs": killed,
            });
            writeln!(to, "{answer:#}")?;
        }
    }
    Ok(to.flush()?)
}

/// Ends what a pool left behind that was killed at the same time, and returns how much that was.
async fn left(dir: &Path, patience: Patience) -> anyhow::Result<Leftovers> {
    // If it runs again already, that has been done.
    let Ok(_claimed) = StateDir::claim(dir) else { return Ok(Leftovers::default()) };
    Ok(end_leftovers(dir, patience).await?)
}
