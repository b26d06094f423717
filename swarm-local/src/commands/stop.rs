//! `stop`: ends a pool, and returns when all its processes have ended.

use std::io::Write as _;
use std::path::Path;
use std::pin::pin;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use serde_json::json;
use swarm_adapters_host::clock::{millis, unix_s};
use swarm_terminal::output::Output;
use swarm_view::shell;
use swarm_view::status::{Earlier, Ending};
use swarm_view::stop::Stopped;
use swarm_view::words::{self, counted, span};
use tokio::sync::watch;
use tokio::time::{interval_at, sleep};

use super::names::{self, Purpose};
use super::pool::{Found, Pool};
use super::{Failure, PoolArgs, ended, standard_output};
use crate::pool::earlier::{self, Ended};
use crate::pool::ending::{Cause, of_killed};
use crate::print::text;
use crate::processes::{END_MARGIN, Killed, Leftovers, Patience, Peer, recorded};
use crate::settings::fixed::Fixed;
use crate::state_dir::state::StateDir;

/// Default margin beyond the time that jobs and workers have to end.
const MARGIN: Duration = Duration::from_secs(30);

/// Time that an operator has to kill its pool before it is killed itself.
const KILL_MAX: Duration = Duration::from_secs(10);

/// Minimum time to find an ended operator's leftovers.
const LEFT_MIN: Duration = Duration::from_secs(1);

/// Time between two checks whether the pool has ended, and between two messages about the wait.
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
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value_t)]
    pub output: Output,
}

/// Ends a running pool, or the processes that a pool left behind. Exit code 3 if neither exists.
///
/// # Errors
///
/// The pool belongs to another user, or does not end in time.
pub async fn stop(args: StopArgs) -> anyhow::Result<ExitCode> {
    ended(end(&args).await)
}

impl StopArgs {
    /// Returns the reason for kills.
    fn cause(&self) -> Cause {
        if self.now { Cause::Asked } else { Cause::Late }
    }

    /// Returns the time limit for the end of a pool whose jobs have `stop_timeout`.
    fn limit(&self, stop_timeout: Duration) -> Duration {
        let default = || stop_timeout.saturating_add(END_MARGIN).saturating_add(MARGIN);
        self.timeout.map_or_else(default, Into::into)
    }
}

async fn end(args: &StopArgs) -> Result<(), Failure> {
    match args.pool.look().await? {
        Found::Runs(pool) | Found::Mute(pool, _) => end_pool(args, &pool).await,
        Found::Left(pool, earlier) => {
            if args.output == Output::Text {
                text::remark(&pool.left_sentence(&earlier));
            }
            end_left(args, &pool).await
        }
        Found::Lost(pool) => end_left(args, &pool).await,
        Found::Nothing(sentence) => {
            Err(Failure::No(names::or_job(&args.pool, sentence, Purpose::Stop).await))
        }
    }
}

/// Ends a running pool.
async fn end_pool(args: &StopArgs, pool: &Pool) -> Result<(), Failure> {
    let since = Instant::now();
    let dir = pool.dir.display().to_string();
    let cannot = || format!("the pool in {dir} cannot be stopped");
    let (stop_timeout, before) = recorded(&pool.dir).with_context(cannot)?.unwrap_or_default();
    // A signal also reaches a suspended pool; a request does not.
    if let Some(operator) = pool.operator().await? {
        let limit = args.limit(stop_timeout);
        if args.now {
            kill(pool, &operator, limit).await.with_context(cannot)?;
        } else {
            operator.ask_to_end().with_context(cannot)?;
        }
        wait(pool, &operator, limit, args).await?;
    }
    // If the operator was killed meanwhile, it leaves processes behind. If the pool runs again, its
    // new operator has ended them.
    let left = if pool.dir.is_dir() {
        match StateDir::claim_if_free(&pool.dir).with_context(cannot)? {
            Some(_claimed) => leftovers(args, &pool.dir, since, args.limit(stop_timeout)).await?,
            None => Ended::default(),
        }
    } else {
        Ended::default()
    };
    let mut killed = killed_since(&pool.dir, &before);
    killed.extend(left.killed);
    Fixed::expect(&pool.dir, false).with_context(cannot)?;
    report(args, &dir, since.elapsed(), &left.leftovers, &killed)
}

/// Ends the processes that an ended operator left behind.
async fn end_left(args: &StopArgs, pool: &Pool) -> Result<(), Failure> {
    let since = Instant::now();
    let dir = pool.dir.display().to_string();
    let cannot = || format!("what the pool in {dir} has left cannot be ended");
    let stop_timeout = recorded(&pool.dir).with_context(cannot)?.unwrap_or_default().0;
    let limit = args.limit(stop_timeout);
    let _claimed = loop {
        // An operator that starts meanwhile ends the leftovers first.
        if pool.operator().await?.is_some() {
            return Box::pin(end_pool(args, pool)).await;
        }
        match StateDir::claim_if_free(&pool.dir).with_context(cannot)? {
            Some(claimed) => break claimed,
            // Another `stop` ends them, or an operator is about to.
            None if since.elapsed() < limit => sleep(LOOK).await,
            None => return Err(still_left(&pool.dir, limit, None)),
        }
    };
    let left = leftovers(args, &pool.dir, since, limit).await?;
    Fixed::expect(&pool.dir, false).with_context(cannot)?;
    report(args, &dir, since.elapsed(), &left.leftovers, &left.killed)
}

/// Ends the leftovers in `dir` within `limit` after `since`, and prints the progress.
async fn leftovers(
    args: &StopArgs,
    dir: &Path,
    since: Instant,
    limit: Duration,
) -> Result<Ended, Failure> {
    let patience = if args.now { Patience::None } else { Patience::AsRecorded };
    let (progress, left) = watch::channel(None);
    let now = || left.borrow().as_ref().map(Earlier::from);
    let cannot = || format!("what the pool in {} has left cannot be ended", dir.display());
    let mut ended = pin!(earlier::end(dir, patience, &progress));
    let mut is_over = pin!(sleep(limit.saturating_sub(since.elapsed()).max(LEFT_MIN)));
    let mut said = String::new();
    let mut looks = interval_at(tokio::time::Instant::now() + LOOK, LOOK);
    let mut say_every = interval_at(tokio::time::Instant::now() + SAY_EVERY, SAY_EVERY);
    loop {
        tokio::select! {
            biased;
            ended = &mut ended => return Ok(ended.with_context(cannot)?),
            () = &mut is_over => return Err(still_left(dir, limit, now().as_ref())),
            _ = looks.tick() => {
                if let Some(held) = now().and_then(|earlier| earlier.held) {
                    return Err(cannot_end(dir, &held, "the next start waits for that"));
                }
            }
            _ = say_every.tick(), if args.output == Output::Text => {
                let sentence = now().map(|earlier| earlier.sentence(unix_s()));
                if let Some(sentence) = sentence.filter(|it| *it != said) {
                    text::remark(&sentence);
                    said = sentence;
                }
            }
        }
    }
}

fn still_left(dir: &Path, limit: Duration, left: Option<&Earlier>) -> Failure {
    let (dir, quoted, limit) = (dir.display(), shell::file(dir), words::limit(limit));
    let left = left.map(|left| format!("; {}", left.sentence(unix_s()))).unwrap_or_default();
    Failure::Failed(anyhow::anyhow!(
        "what an earlier run left in {dir} has not ended within {limit}{left}; to kill what is \
         left, write `swarm stop --now --dir {quoted}`"
    ))
}

/// Requests an operator to kill its pool. An operator that does not react is killed, and its
/// leftovers are ended next. One that answers waits for processes that it cannot end, and alone can
/// see their end.
async fn kill(pool: &Pool, operator: &Peer, limit: Duration) -> std::io::Result<()> {
    operator.ask_to_kill()?;
    let began = Instant::now();
    loop {
        let rest = limit.min(KILL_MAX).saturating_sub(began.elapsed());
        if operator.ends_within(rest.min(SAY_EVERY)).await {
            return Ok(());
        }
        let ending = pool.state().await.and_then(|state| state.ending);
        if ending.as_ref().is_some_and(|ending| !ending.held.is_empty()) {
            return Ok(());
        }
        if rest.is_zero() {
            return operator.kill();
        }
    }
}

/// Waits for the operator's end, and prints the progress.
async fn wait(
    pool: &Pool,
    operator: &Peer,
    limit: Duration,
    args: &StopArgs,
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
        let state = pool.state().await.unwrap_or_default();
        let (ending, earlier) = (state.ending, state.earlier);
        let is_due = |ending: &&Ending| args.now || ending.until_unix_s <= unix_s();
        let held = ending.as_ref().filter(is_due).map(|ending| &ending.held);
        if let Some(held) = held.filter(|held| !held.is_empty()) {
            return Err(cannot_end(&pool.dir, &held.join("; "), "the pool ends after that"));
        }
        let sentence = ending.as_ref().map(|ending| ending.sentence(unix_s()));
        let sentence = sentence.or_else(|| Some(earlier.as_ref()?.sentence(unix_s())));
        if is_over {
            return Err(still_ending(&pool.dir, limit, ending.as_ref()));
        }
        if let Some(sentence) = sentence.filter(|it| *it != said && args.output == Output::Text) {
            text::remark(&sentence);
            said = sentence;
        }
    }
}

/// Describes a pool that waits for processes which neither it nor `--now` can end.
fn cannot_end(dir: &Path, held: &str, then: &str) -> Failure {
    let dir = dir.display();
    Failure::Failed(anyhow::anyhow!("the pool in {dir} has not ended: {held}; {then}"))
}

fn still_ending(dir: &Path, limit: Duration, ending: Option<&Ending>) -> Failure {
    let (dir, quoted, limit) = (dir.display(), shell::file(dir), words::limit(limit));
    let what = ending.map(|ending| {
        let names = ending.waits_for.join(", ");
        let names = if names.is_empty() { names } else { format!(": {names}") };
        format!("; {}{names}", ending.sentence(unix_s()))
    });
    let what = what.unwrap_or_default();
    Failure::Failed(anyhow::anyhow!(
        "the pool in {dir} has not ended within {limit}, and goes on ending{what}; to kill what is \
         left, write `swarm stop --now --dir {quoted}`"
    ))
}

/// Returns the jobs and workers that the pool killed after the `before` ones.
fn killed_since(dir: &Path, before: &[Killed]) -> Vec<String> {
    let all = recorded(dir).ok().flatten().map(|(_, killed)| killed).unwrap_or_default();
    all.iter().skip(before.len()).map(ToString::to_string).collect()
}

fn report(
    args: &StopArgs,
    dir: &str,
    took: Duration,
    left: &Leftovers,
    killed: &[String],
) -> Result<(), Failure> {
    let mut to = standard_output(args.output);
    let leftovers = left.workers + left.others;
    match args.output {
        Output::Text => {
            let mut parts = Vec::new();
            if !killed.is_empty() {
                parts.push(of_killed(killed, args.cause()));
            }
            if 0 < leftovers {
                parts.push(format!("{} ended", counted(leftovers, "leftover")));
            }
            parts.push("no process is left".to_owned());
            writeln!(to, "stopped {dir} in {}: {}", span(took), parts.join("; "))?;
        }
        Output::Json => {
            let stopped = Stopped {
                dir: dir.to_owned(),
                took_ms: millis(took),
                killed: leftovers,
                killed_jobs: killed.to_owned(),
            };
            writeln!(to, "{:#}", json!(stopped))?;
        }
    }
    Ok(to.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_to_write_next_is_safe_to_paste() {
        let dir = Path::new("/a b/$(id)");
        for failure in [still_left(dir, MARGIN, None), still_ending(dir, MARGIN, None)] {
            let Failure::Failed(error) = failure else { panic!("{failure:?}") };
            let sentence = error.to_string();
            assert!(sentence.ends_with("`swarm stop --now --dir '/a b/$(id)'`"), "{sentence}");
        }
    }
}
