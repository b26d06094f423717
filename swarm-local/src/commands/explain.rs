//! `explain`: the holder of a job, the reason for it, and the thing that the job waits for.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use serde_json::{Value, json};
use swarm_adapters_host::clock::unix_s;
use swarm_view::age::age;
use swarm_view::history::Past;
use swarm_view::shell;
use swarm_view::table::{EVERY_WORKER, EVERYWHERE, add_field};
use swarm_view::words::counted;

use super::super::web::JobEntry;
use super::{Failure, NamedPool, finished, names};
use crate::history;
use crate::show::{Answer, Display};

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
    // Without any episode, the reason is the answer.
    let unread = unread.filter(|_| episodes.is_empty());
    let text = |_| {
        let text = text(&entry, &pool.name(), &past, unread.as_deref());
        let (mut text, options) = (text, args.pool.args().options());
        let next = format!("swarm logs{options} {}", shell::operand(&entry.name));
        add_field(&mut text, "Next:", &next);
        text
    };
    let document = || document(&entry, &pool.name(), &past);
    let worker = || entry.worker.iter().cloned().collect();
    let answer = args.display.answer(true, text, document, worker)?;
    Ok(answer.with_complaints(note.into_iter().collect()))
}

fn document(entry: &JobEntry<String>, pool: &str, past: &Past<'_>) -> Value {
    let (since, came) = past.came(&entry.name, entry.worker.as_deref());
    json!({
        "job": entry.name,
        "title": entry.title,
        "pool": pool,
        "worker": entry.worker,
        "slot": entry.slot,
        "token": entry.token,
        "phase": entry.phase,
        "pid": entry.pid,
        "failing": failing(entry),
        "workerSilentSinceUnixS": entry.worker_silent_since_unix_s,
        "since": since,
        "came": came,
        "edited": past.edited(&entry.name),
        "movesTo": entry.moves_to,
        "movesFor": entry.moves_for,
        "waitsFor": entry.waits_for,
        "why": why(entry),
    })
}

/// Describes the failures of a job, if it fails.
fn failing(entry: &JobEntry<String>) -> Option<String> {
    let failing = entry.failing.as_ref()?;
    let last = failing.last_line.as_ref().map(|line| format!(": {line:?}")).unwrap_or_default();
    let restarts = counted(usize::try_from(failing.restarts).unwrap_or(usize::MAX), "restart");
    let course = match entry.phase {
        "failed" => {
            format!("; not restarted any more; swarm retry {}", shell::operand(&entry.name))
        }
        _ => String::new(),
    };
    Some(format!("{restarts}, {}{last}{course}", failing.last_exit))
}

/// Explains why a job is where it is.
fn why(entry: &JobEntry<String>) -> String {
    if entry.is_everywhere() {
        return EVERYWHERE.to_owned();
    }
    match (&entry.unassigned_message, &entry.worker) {
        (Some(why), _) => why.clone(),
        (None, Some(_)) if entry.moves_for.is_some() => entry.leaving(),
        (None, Some(_)) => "nothing moves it: it is on a worker of the pool".to_owned(),
        (None, None) => "the next decision gives it a worker".to_owned(),
    }
}

/// Returns a sentence about a run that began after the worker got the job, though none ended by itself.
fn restarted(entry: &JobEntry<String>, past: &Past<'_>) -> Option<String> {
    let began = entry.since_unix_s?;
    let granted_ms = past.granted_to(&entry.name, entry.worker.as_deref()?)?;
    let is_later = granted_ms / 1_000 + START_WITHIN.as_secs() < began;
    (entry.restarts == 0 && is_later).then(|| {
        let since = age(Duration::from_secs(unix_s().saturating_sub(began)));
        format!("{since} ago, after an edit of it or by hand; no run has ended by itself")
    })
}

fn text(entry: &JobEntry<String>, pool: &str, past: &Past<'_>, unread: Option<&str>) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| add_field(&mut text, name, value);
    let title = entry.title.as_ref().map(|title| format!(" ({title})")).unwrap_or_default();
    line("Job:", &format!("{}{title}", entry.name));
    line("Pool:", pool);
    let since = |unix_s_: u64| age(Duration::from_secs(unix_s().saturating_sub(unix_s_)));
    let up = entry.since_unix_s.map(|at| format!(", process up for {}", since(at)));
    let pid = entry.pid.map(|pid| format!(", PID {pid}")).unwrap_or_default();
    let silent = entry.unanswered().map(|sentence| format!("; {sentence}")).unwrap_or_default();
    line("Phase:", &format!("{}{pid}{}{silent}", entry.phase, up.unwrap_or_default()));
    if let Some(worker) = &entry.worker {
        let slot = entry.slot.map(|slot| format!(", slot {slot}")).unwrap_or_default();
        line("Worker:", &format!("{worker}{slot}, token {}", entry.token));
    }
    if entry.is_everywhere() {
        line("Worker:", &format!("{EVERY_WORKER}, token {}", entry.token));
    }
    if 0 < entry.restarts && entry.failing.is_none() {
        let last = entry.last_exit.as_ref().map(|last| format!(", last {last}"));
        line("Restarts:", &format!("{}{}", entry.restarts, last.unwrap_or_default()));
    }
    if let Some(sentence) = failing(entry) {
        line("Failing:", &sentence);
    }
    if let Some(sentence) = restarted(entry, past) {
        line("Restarted:", &sentence);
    }
    if let Some(sentence) = past.last_edit(&entry.name) {
        line("Edited:", &sentence);
    }
    for wait in &entry.waits_for {
        line("Waits for:", &wait.sentence());
    }
    if !entry.is_everywhere() {
        let came = || past.last_move(&entry.name, entry.worker.as_deref());
        line("Came:", &unread.map_or_else(came, |why| format!("not known: {why}")));
    }
    line("Why:", &why(entry));
    text
}
