//! `explain`: the holder of a job, the reason for it, and the thing that the job waits for.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use swarm_adapters_host::clock::unix_s;
use swarm_terminal::show::{Answer, Display};
use swarm_view::age::age;
use swarm_view::explain::{Explanation, Notes};
use swarm_view::history::Past;
use swarm_view::jobs::JobEntry;
use swarm_view::pool::PoolName;
use swarm_view::shell;

use super::{Failure, NamedPool, finished, names};
use crate::pool::history;

/// Maximum time from the grant of a job to its first run. A later run is another one.
const START_WITHIN: Duration = Duration::from_secs(2);

/// Arguments of `explain`.
#[derive(Clone, Debug, Args)]
pub struct ExplainArgs {
    /// The job
    #[arg(value_name = "JOB")]
    pub job: String,
    /// The pool
    #[command(flatten)]
    pub pool: NamedPool,
    /// The way to show the answer
    #[command(flatten)]
    pub display: Display,
}

/// Explains a job of a running pool. Exit code 3 if no such pool runs, or if it lacks the job.
///
/// # Errors
///
/// If the pool does not answer.
pub async fn explain(args: ExplainArgs) -> anyhow::Result<ExitCode> {
    finished(args.display.show(async || answer(&args).await).await)
}

async fn answer(args: &ExplainArgs) -> Result<Answer, Failure> {
    let pool = args.pool.args().find().await?;
    let known = names::known(&pool, std::slice::from_ref(&args.job), "").await;
    let (episodes, unread) = history::read(&pool.dir);
    let past = Past { episodes: &episodes, now: Timestamp::now(), since: None };
    let mut known = known.map_err(|failure| match past.removed(&args.job) {
        Some(removed) => {
            let job = args.job.escape_default();
            Failure::No(format!("the pool has no job `{job}` any more; {removed}"))
        }
        None => failure,
    })?;
    let note = unread.as_ref().map(|sentence| format!("note: {sentence}"));
    let entry = known.remove(&args.job).ok_or_else(|| anyhow::anyhow!("the job was not read"))?;
    let named = PoolName::Machine { pool: pool.name() };
    let explanation = Explanation::of(&entry, named, &past);
    let unread_too = unread.iter().cloned().collect();
    let explanation = Explanation { unread: unread_too, ..explanation };
    // Without any episode, the reason is the answer.
    let unread = unread.filter(|_| episodes.is_empty());
    let text = |_| explanation.text(&past, &notes(&entry, &past, unread.as_deref(), &args.pool));
    let document = || serde_json::to_value(&explanation).unwrap_or_default();
    let worker = || entry.worker.iter().cloned().collect();
    let answer = args.display.answer(true, text, document, worker)?;
    Ok(answer.with_complaints(note.into_iter().collect()))
}

/// Returns a sentence about a run that began after the worker got the job, though none ended by itself.
fn restarted(entry: &JobEntry<String>, past: &Past<'_>) -> Option<String> {
    let began = entry.since_unix_s?;
    let granted_ms = past.granted_to(&entry.name, entry.worker.as_deref()?)?;
    let is_later = granted_ms / 1_000 + START_WITHIN.as_secs() < began;
    (entry.restarts.is_none_or(|count| count == 0) && is_later).then(|| {
        let since = age(Duration::from_secs(unix_s().saturating_sub(began)));
        format!("{since} ago, after an edit of it or by hand; no run has ended by itself")
    })
}

/// Returns the facts that only the text has. `unread` is the reason of a missing history.
fn notes(
    entry: &JobEntry<String>,
    past: &Past<'_>,
    unread: Option<&str>,
    pool: &NamedPool,
) -> Notes {
    let since = |at: u64| age(Duration::from_secs(unix_s().saturating_sub(at)));
    let pid = entry.pid.map(|pid| format!(", PID {pid}")).unwrap_or_default();
    let up = entry.since_unix_s.map(|at| format!(", process up for {}", since(at)));
    let silent = entry.unanswered(unix_s()).map(|sentence| format!("; {sentence}"));
    let restarts = entry.restarts.filter(|count| 0 < *count && entry.failing.is_none());
    let restarts = restarts.map(|restarts| {
        let last = entry.last_exit.as_ref().map(|last| format!(", last {last}"));
        format!("{restarts}{}", last.unwrap_or_default())
    });
    let (options, job) = (pool.args().options(), shell::operand(&entry.name));
    Notes {
        of_phase: format!("{pid}{}{}", up.unwrap_or_default(), silent.unwrap_or_default()),
        restarts,
        restarted: restarted(entry, past),
        history: unread.map(|why| format!("not known: {why}")),
        next: Some(format!("swarm logs{options} {job}")),
        ..Notes::default()
    }
}
