//! `history` and `diff`: the moves of a pool.

use std::collections::BTreeSet;
use std::process::ExitCode;

use clap::Args;
use jiff::Timestamp;
use serde_json::json;
use swarm_terminal::output;
use swarm_terminal::show::{Answer, Display};
use swarm_view::history::{self, History, JobHistory, OneOrSeveral, Past};
use swarm_view::life::JobLife;
use swarm_view::pool::PoolName;

use super::pool::{self, Pool};
use super::{Failure, NamedPool, finished, names};
use crate::pool::lives;

/// Arguments of `history`.
#[derive(Clone, Debug, Args)]
pub struct HistoryArgs {
    /// Only the moves of this job
    #[arg(value_name = "JOB")]
    pub job: Option<String>,
    /// The pool
    #[command(flatten)]
    pub pool: NamedPool,
    /// Show the histories of all pools that run
    #[arg(long, short = 'A', conflicts_with_all = ["job", "pool", "dir"])]
    pub all: bool,
    /// Only what happened since then: a time such as 2026-11-28T03:10:00Z, or a time span such as 6h
    #[arg(long, value_name = "TIME", value_parser = swarm_terminal::times::since)]
    pub since: Option<Timestamp>,
    /// The number of episodes to show, or of moves of the job [default: 50, and all in JSON]
    #[arg(long, short = 'n', value_name = "N", allow_negative_numbers = true)]
    #[arg(value_parser = history::read_count)]
    pub last: Option<usize>,
    /// The way to show the answer
    #[command(flatten)]
    pub display: Display,
}

/// Arguments of `diff`.
#[derive(Clone, Debug, Args)]
pub struct DiffArgs {
    /// The earlier revision, as `history` shows them
    #[arg(value_name = "REVISION", allow_negative_numbers = true, value_parser = history::read_revision)]
    pub from: u64,
    /// The later revision [default: the present one]
    #[arg(value_name = "REVISION", allow_negative_numbers = true, value_parser = history::read_revision)]
    pub to: Option<u64>,
    /// The pool
    #[command(flatten)]
    pub pool: NamedPool,
    /// The way to show the answer
    #[command(flatten)]
    pub display: Display,
}

/// Prints the moves of a pool. Exit code 3 if no such pool exists, or if it never had such a job.
///
/// # Errors
///
/// If the history cannot be read.
pub async fn history(args: HistoryArgs) -> anyhow::Result<ExitCode> {
    finished(args.display.show(async || answer(&args).await).await)
}

/// Prints the jobs that have another worker than at an earlier revision. Exit code 3 if no such pool
/// exists, or if the history does not reach back so far.
///
/// # Errors
///
/// If the history cannot be read.
pub async fn diff(args: DiffArgs) -> anyhow::Result<ExitCode> {
    finished(args.display.show(async || difference(&args).await).await)
}

async fn answer(args: &HistoryArgs) -> Result<Answer, Failure> {
    let running = if args.all { pool::all_running().await? } else { Vec::new() };
    if !running.is_empty() {
        return every(args, &running);
    }
    let (episodes, note) = args.pool.history().await?;
    let past = Past { episodes: &episodes, now: Timestamp::now(), since: args.since };
    let (rows, items) = history::limits(args.last);
    let columns = output::terminal_columns();
    let Some(job) = &args.job else {
        let text = |_| past.table(rows, columns);
        let jobs = || past.jobs(items).map(str::to_owned).collect::<BTreeSet<_>>();
        let names = || jobs().into_iter().collect();
        let answer = args.display.answer(true, text, || json!(past.document(items)), names)?;
        return Ok(answer.with_complaints(note));
    };
    let table = past.table_of(job, rows, columns);
    let (life, unread) = life_of(args, job, table.is_some()).await?;
    let names = || table.iter().map(|_| job.clone()).collect();
    let from_ms = args.since.and_then(|since| u64::try_from(since.as_millisecond()).ok());
    let life_text = life.as_ref().map(|life| life.text(from_ms, rows)).unwrap_or_default();
    let text = |_| table.clone().unwrap_or_else(|| past.unmoved(job)) + &life_text;
    let document = || json!(JobHistory { life: life.clone(), ..past.document_of(job, items) });
    let answer = args.display.answer(true, text, document, names)?;
    Ok(answer.with_complaints(note.into_iter().chain(unread).collect()))
}

/// Returns the life of a job of a pool that runs, or of one that has ended; `None` if it is not known. The
/// second result is a note about the file with it. A job that has not moved must be known otherwise.
async fn life_of(
    args: &HistoryArgs,
    job: &str,
    has_moved: bool,
) -> Result<(Option<JobLife>, Option<String>), Failure> {
    match args.pool.args().find().await {
        Ok(pool) if has_moved => {
            // A removed job has its moves only.
            Ok((pool.job(job).await?.and_then(|entry| entry.life), None))
        }
        Ok(pool) => {
            let known = names::known(&pool, &[job.to_owned()], "").await?.remove(job);
            Ok((known.and_then(|entry| entry.life), None))
        }
        Err(Failure::No(_)) => {
            let (lives, unread) = match lives::read(&args.pool.past_dir().await?) {
                Ok(lives) => (lives, None),
                Err(reason) => (None, Some(format!("note: the counts were not read: {reason}"))),
            };
            let lives = lives.filter(|lives| has_moved || lives.of(job).is_some());
            if !has_moved && lives.is_none() {
                let job = job.escape_default();
                let sentence =
                    format!("the pool has ended, and no job `{job}` moved in its history");
                return Err(Failure::No(sentence));
            }
            Ok((lives.map(|lives| JobLife::of(&lives, job)), unread))
        }
        Err(failure) => Err(failure),
    }
}

/// Returns the histories of several pools.
fn every(args: &HistoryArgs, pools: &[Pool]) -> Result<Answer, Failure> {
    let read = |pool: &Pool| (pool.shown(), crate::pool::history::read(&pool.dir));
    let found: Vec<_> = pools.iter().map(read).collect();
    let (rows, items) = history::limits(args.last);
    let columns = output::terminal_columns();
    let of = |episodes| Past { episodes, now: Timestamp::now(), since: args.since };
    let text = |_| {
        let shown = found
            .iter()
            .map(|(name, (episodes, _))| format!("{name}\n{}", of(episodes).table(rows, columns)));
        shown.collect()
    };
    let document = || {
        let all = found.iter().map(|(name, (episodes, _))| {
            let pool = Some(PoolName::Machine { pool: name.clone() });
            History { pool, ..of(episodes).document(items) }
        });
        json!(OneOrSeveral::Pools { pools: all.collect() })
    };
    let names = || {
        let jobs = found.iter().flat_map(|(_, (episodes, _))| of(episodes).jobs(items));
        jobs.collect::<BTreeSet<_>>().into_iter().map(str::to_owned).collect()
    };
    let notes = found.iter().filter_map(|(name, (_, unread))| {
        unread.as_ref().map(|sentence| format!("note: {name}: {sentence}"))
    });
    let answer = args.display.answer(true, text, document, names)?;
    Ok(answer.with_complaints(notes.collect()))
}

async fn difference(args: &DiffArgs) -> Result<Answer, Failure> {
    history::in_order(args.from, args.to).map_err(Failure::Usage)?;
    let (episodes, note) = args.pool.history().await?;
    let past = Past { episodes: &episodes, now: Timestamp::now(), since: None };
    let it = past.diff(args.from, args.to).map_err(Failure::No)?;
    let answer = args.display.answer(true, |_| it.text(), || json!(it), || it.jobs())?;
    Ok(answer.with_complaints(note))
}
