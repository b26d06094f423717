//! `status`: the state of a pool.

mod several;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::Value;
use swarm_view::age::age;
use swarm_view::printable::{Form, printable};
use swarm_view::shell;
use swarm_view::table::{self, columns_of, padded, title, width_of};
use swarm_view::words::{counted, limit};
use tokio::time::{Instant, sleep};

use super::super::snapshot::{Snapshot, WorkerRow};
use super::pool::Pool;
use super::{Failure, PoolArgs, finished, pool};
use crate::show::{Answer, Display};

/// The time between two requests of a status that waits.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// Maximum number of named jobs that are suspended by hand.
const BY_HAND_MAX: usize = 10;

/// Width of the state of a worker.
const STATE_COLUMNS: usize = 8;

/// Maximum number of failing jobs in the list.
const FAILING_MAX: usize = 10;

/// Maximum number of moves in the list.
const MOVING_MAX: usize = 10;

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
    #[arg(long, value_name = "TIME", value_parser = super::super::time, default_value = "60s", requires = "wait")]
    pub timeout: Duration,
}

/// Prints the state of a running pool. Exit code 3 if no such pool runs, or if it is not healthy. A
/// pool that moves jobs can be healthy; with `--wait` it must be settled as well. If several pools run
/// and none is named, all are listed.
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
        let running = pool::all_running().await?;
        if 1 < running.len() || (args.all && !running.is_empty()) {
            return several::answer(&running, args.display).await;
        }
    }
    let pool = args.pool.find().await?;
    let (mut document, mut snapshot) = pool.swarm().await?;
    while args.wait && !snapshot.is_settled_and_healthy() && Instant::now() < until {
        sleep(ASK_EVERY).await;
        (document, snapshot) = pool.swarm().await?;
    }
    document["dir"] = pool.dir.to_string_lossy().into();
    let is_good = if args.wait { snapshot.is_settled_and_healthy() } else { snapshot.is_healthy() };
    let runs = run_again(&pool, &snapshot).await?;
    let moving = document["moving"].clone();
    let text = |is_wide| {
        let mut text = text(&snapshot, &pool.dir, &args.pool, &runs, is_wide);
        add_moving(&mut text, &moving, &args.pool);
        text
    };
    let names = || vec![pool.name()];
    let answer = args.display.answer(is_good, text, || document, names)?;
    let late = (args.wait && !is_good).then(|| {
        let (standing, _) = snapshot.standing();
        format!("not settled and healthy within {}: {standing}", limit(args.timeout))
    });
    Ok(answer.with_complaints(late.into_iter().collect()))
}

/// The starts of the present runs of failing jobs, in seconds of Unix time.
pub(super) type Runs = BTreeMap<String, u64>;

/// Returns the listed failing jobs that run again.
pub(super) async fn run_again(pool: &Pool, snapshot: &Snapshot) -> Result<Runs, Failure> {
    let mut runs = Runs::new();
    for failing in snapshot.failing.iter().take(FAILING_MAX) {
        let entry = pool.job(&failing.job).await?;
        let entry = entry.filter(|entry| matches!(entry.phase, "running" | "ready"));
        let since = entry.and_then(|entry| entry.since_unix_s);
        runs.extend(since.map(|since| (failing.job.clone(), since)));
    }
    Ok(runs)
}

/// Describes a pool. Control characters are escaped.
pub(super) fn text(
    snapshot: &Snapshot,
    dir: &Path,
    named: &PoolArgs,
    runs: &Runs,
    is_wide: bool,
) -> String {
    let (standing, _) = snapshot.standing();
    let counts = snapshot.counts(&snapshot.unassigned_by_reason());
    let (name, revision, dir) = (&snapshot.name, snapshot.revision, dir.display());
    let line = |text: &str| printable(text, Form::Line).into_owned();
    let head = format!("{}: {}\n", title(&line(name)), table::states(&line(&standing)));
    let mut text = String::new();
    if snapshot.earlier.is_none() {
        let _ = writeln!(text, "{counts}, revision {revision}");
    }
    for problem in snapshot.problems() {
        let _ = writeln!(text, "✗ {problem}");
    }
    if let Some(excerpt) = snapshot.invalid_file.as_ref().and_then(|file| file.excerpt.as_ref()) {
        let _ = writeln!(text, "{excerpt}");
    }
    if let Some(sentence) = by_hand(&snapshot.by_hand, named) {
        let _ = writeln!(text, "{sentence}");
    }
    if is_wide && !snapshot.guarantee.is_empty() {
        let _ = writeln!(text, "guarantee: {}", snapshot.guarantee);
    }
    let _ = writeln!(text, "state: {dir}\nlogs:  {dir}/logs");
    text = format!("{head}{}", printable(&text, Form::Lines));
    let width = width_of(snapshot.workers.iter().map(|worker| columns_of(&line(&worker.name))));
    for worker in &snapshot.workers {
        let WorkerRow { name, jobs, .. } = worker;
        let state = worker.shown_state();
        let remarks = worker.remarks(worker.silent_for());
        let gap = if remarks.is_empty() { "" } else { ", " };
        let jobs = counted(*jobs, "job");
        let state = table::state(&line(state), STATE_COLUMNS);
        let (name, remarks) = (padded(&line(name), width), line(&remarks));
        let pid = worker.pid.filter(|_| is_wide).map(|pid| format!("PID {pid}, "));
        let pid = pid.unwrap_or_default();
        let _ = writeln!(text, "  {name}  {state}  {pid}{jobs}{gap}{remarks}");
    }
    let mut failing = String::new();
    add_failing(&mut failing, snapshot, named, runs);
    text.push_str(&printable(&failing, Form::Lines));
    text
}

/// Adds the jobs that their workers stop, with the next worker and the bound of each.
fn add_moving(text: &mut String, moving: &Value, named: &PoolArgs) {
    let moving = moving.as_array().map(Vec::as_slice).unwrap_or_default();
    for it in moving.iter().take(MOVING_MAX) {
        let word = |field: &str| it[field].as_str().unwrap_or_default().to_owned();
        let time = |field: &str| it[field].as_u64().map(Duration::from_millis).map(age);
        let (job, from, to, reason) = (word("job"), word("from"), word("to"), word("reason"));
        let to = if to.is_empty() { String::new() } else { format!(" to {to}") };
        let reason = if reason.is_empty() { String::new() } else { format!(" for {reason}") };
        let since = time("ageMs").map(|time| format!(", for {time}")).unwrap_or_default();
        let most = time("atMostMs").map(|time| format!(", at most {time} more"));
        let line =
            format!("→ {job} stops on {from}{to}{reason}{since}{}", most.unwrap_or_default());
        let _ = writeln!(text, "{}", printable(&line, Form::Line));
    }
    if let Some(more) = moving.len().checked_sub(MOVING_MAX).filter(|more| 0 < *more) {
        let _ = writeln!(text, "… and {more} more; `-o json` has them");
    }
    if let Some(job) = moving.first().and_then(|it| it["job"].as_str()) {
        let _ = writeln!(text, "why: swarm explain{} {}", named.options(), shell::operand(job));
    }
}

/// Adds the failing jobs, and the command that shows their output.
fn add_failing(text: &mut String, snapshot: &Snapshot, named: &PoolArgs, runs: &Runs) {
    for failing in snapshot.failing.iter().take(FAILING_MAX) {
        let title = failing.title.as_ref().map(|title| format!(" ({title})")).unwrap_or_default();
        let sentence = failing.sentence(runs.get(&failing.job).copied(), true);
        let _ = writeln!(text, "✗ {}{title}: {sentence}{}", failing.job, failing.last_line());
    }
    if FAILING_MAX < snapshot.jobs.failing {
        let rest = counted(snapshot.jobs.failing - FAILING_MAX, "more job");
        let _ = writeln!(text, "… and {rest}; list them with `ps --failing`");
    }
    let pool = named.words();
    let _ = match snapshot.failing.as_slice() {
        [] => Ok(()),
        [one] => writeln!(text, "its output: swarm logs {}{pool}", shell::word(&one.job)),
        _ => writeln!(text, "the output of one: swarm logs JOB{pool}"),
    };
}

/// Returns the jobs that are suspended by hand, and the command that resumes them in the pool that
/// the user `named`.
fn by_hand(jobs: &[String], named: &PoolArgs) -> Option<String> {
    let mut undo = String::from("swarm resume");
    for job in jobs.iter().take(BY_HAND_MAX) {
        let _ = write!(undo, " {}", shell::word(job));
    }
    undo.push_str(&named.options());
    let rest = match jobs.len().saturating_sub(BY_HAND_MAX) {
        0 => String::new(),
        rest => format!(", {rest} of them not named here"),
    };
    let count = counted(jobs.len(), "job");
    (!jobs.is_empty()).then(|| format!("{count} suspended by hand{rest}; undo: {undo}"))
}
