//! `status`: the state of a pool.

mod several;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use swarm_adapters_host::clock::unix_s;
use swarm_terminal::show::{Answer, Display};
use swarm_terminal::times::time;
use swarm_view::pool::Home;
use swarm_view::status::{FAILING_MAX, Place, Runs, Status};
use swarm_view::words::limit;
use tokio::time::{Instant, sleep};

use super::pool::Pool;
use super::{Failure, PoolArgs, finished, old_program, pool};

/// The time between two requests of a status that waits.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// Arguments of `status`.
#[derive(Clone, Debug, Args)]
pub struct StatusArgs {
    /// The pool
    #[command(flatten)]
    pub pool: PoolArgs,
    /// List all pools, also if only one runs
    #[arg(long, short = 'A', conflicts_with_all = ["pool", "dir", "by_option", "wait"])]
    pub all: bool,
    /// The way to show the answer
    #[command(flatten)]
    pub display: Display,
    /// Wait until the pool is settled and healthy
    #[arg(long, short)]
    pub wait: bool,
    /// The longest time to wait
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "60s", requires = "wait")]
    pub timeout: Duration,
}

/// Prints the state of a running pool. Exit code 3 if no such pool runs, if it is not healthy, or if an
/// edit has just removed many jobs. A pool that moves jobs can be healthy; with `--wait` it must be
/// settled as well, and no edit counts. If several pools run and none is named, all are listed.
///
/// # Errors
///
/// If the pool does not answer.
pub async fn status(args: StatusArgs) -> anyhow::Result<ExitCode> {
    let until = Instant::now() + args.timeout;
    let read = async || answer(&args, until).await;
    finished(args.display.show(read).await)
}

/// Returns the state of a pool, or of all pools. A command that waits gets it once the pool is settled
/// and healthy, or when the time is up.
async fn answer(args: &StatusArgs, until: Instant) -> Result<Answer, Failure> {
    let is_named = args.pool.name().is_some() || args.pool.dir.is_some();
    if !is_named && !args.wait {
        let pools = pool::all_of_user().await?;
        let (running, lost) = (pools.running(), pools.lost());
        if 1 < running.len() || !lost.is_empty() || (args.all && !running.is_empty()) {
            return several::answer(&running, &lost, args.display).await;
        }
    }
    let pool = args.pool.find().await?;
    let (mut document, mut status) = pool.swarm().await?;
    while args.wait && !status.is_settled_and_healthy() && Instant::now() < until {
        sleep(ASK_EVERY).await;
        (document, status) = pool.swarm().await?;
    }
    document["dir"] = pool.dir.to_string_lossy().into();
    let is_good = if args.wait { status.is_settled_and_healthy() } else { status.is_all_well() };
    let runs = run_again(&pool, &status).await?;
    let text = |is_wide| text(&status, &pool.dir, &args.pool, &runs, is_wide);
    let names = || vec![pool.name()];
    let answer = args.display.answer(is_good, text, || document, names)?;
    let late = (args.wait && !is_good).then(|| {
        let (standing, _) = status.standing(unix_s());
        format!("not settled and healthy within {}: {standing}", limit(args.timeout))
    });
    let notes = old_program::notes(&pool, &status).await;
    Ok(answer.with_complaints(late.into_iter().chain(notes).collect()))
}

/// Returns the listed failing jobs that run again.
pub(super) async fn run_again(pool: &Pool, status: &Status) -> Result<Runs, Failure> {
    let mut runs = Runs::new();
    for failing in status.failing.iter().take(FAILING_MAX) {
        let entry = pool.job(&failing.job).await?;
        let entry = entry.filter(|entry| matches!(entry.phase, "running" | "ready"));
        let since = entry.and_then(|entry| entry.since_unix_s);
        runs.extend(since.map(|since| (failing.job.clone(), since)));
    }
    Ok(runs)
}

/// Describes a pool as text. Control characters are escaped.
pub(super) fn text(
    status: &Status,
    dir: &Path,
    named: &PoolArgs,
    runs: &Runs,
    is_wide: bool,
) -> String {
    let (options, words) = (named.options(), named.words());
    let place = Place { home: Home::Machine, dir: Some(dir), options: &options, words: &words };
    status.text(&place, unix_s(), runs, is_wide)
}
