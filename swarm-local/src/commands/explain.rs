//! `explain`: the holder of a job, the reason for it, and the thing that the job waits for.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use serde_json::json;
use swarm_adapters_host::clock::unix_s;
use swarm_adapters_host::shell;
use swarm_core::history::Episode;

use super::super::web::JobEntry;
use super::{Failure, NamedPool, ended, names};
use crate::history;
use crate::output::{self, Output, add_field, complain};
use crate::past::Past;
use crate::text::{age, counted};

/// Arguments of `explain`.
#[derive(Clone, Debug, Args)]
pub struct ExplainArgs {
    /// The job
    #[arg(value_name = "JOB")]
    pub job: String,
    /// The pool
    #[command(flatten)]
    pub pool: NamedPool,
    /// The output format
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value_t)]
    pub output: Output,
}

/// Explains a job of a running pool. Exit code 3 if no such pool runs, or if it lacks the job.
///
/// # Errors
///
/// If the pool does not answer.
pub async fn explain(args: ExplainArgs) -> anyhow::Result<ExitCode> {
    ended(print(&args).await)
}

async fn print(args: &ExplainArgs) -> Result<(), Failure> {
    let pool = args.pool.args().find().await?;
    let known = names::known(&pool, std::slice::from_ref(&args.job), "").await;
    let (episodes, unread) = history::read(&pool.dir);
    if let Some(sentence) = &unread {
        complain(&format!("note: {sentence}"));
    }
    let mut known = known.map_err(|failure| {
        let past = Past { episodes: &episodes, now: Timestamp::now(), since: None };
        match past.removed(&args.job) {
            Some(removed) => {
                let job = args.job.escape_default();
                Failure::No(format!("the pool has no job `{job}` any more; {removed}"))
            }
            None => failure,
        }
    })?;
    let Some(entry) = known.remove(&args.job) else { return Ok(()) };
    match args.output {
        Output::Text => {
            // Without any episode, the reason is the answer.
            let came = unread.filter(|_| episodes.is_empty());
            output::print(&text(&entry, &pool.name(), &episodes, came.as_deref()))?;
        }
        Output::Json => {
            let past = Past { episodes: &episodes, now: Timestamp::now(), since: None };
            let (since, came) = past.came(&entry.name);
            let document = json!({
                "job": entry.name,
                "title": entry.title,
                "pool": pool.name(),
                "worker": entry.worker,
                "slot": entry.slot,
                "token": entry.token,
                "phase": entry.phase,
                "pid": entry.pid,
                "workerSilentSinceUnixS": entry.worker_silent_since_unix_s,
                "since": since,
                "came": came,
                "movesTo": entry.moves_to,
                "movesFor": entry.moves_for,
                "why": entry.unassigned_message,
            });
            output::print_json(&format!("{document:#}\n"))?;
        }
    }
    Ok(())
}

fn text(
    entry: &JobEntry<String>,
    pool: &str,
    episodes: &[Episode],
    unread: Option<&str>,
) -> String {
    let past = Past { episodes, now: Timestamp::now(), since: None };
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
    if 0 < entry.restarts && entry.failing.is_none() {
        let last = entry.last_exit.as_ref().map(|last| format!(", last {last}"));
        line("Restarts:", &format!("{}{}", entry.restarts, last.unwrap_or_default()));
    }
    if let Some(failing) = &entry.failing {
        let last = failing.last_line.as_ref().map(|line| format!(": {line:?}")).unwrap_or_default();
        let restarts = counted(usize::try_from(failing.restarts).unwrap_or(usize::MAX), "restart");
        line("Failing:", &format!("{restarts}, {}{last}", failing.last_exit));
    }
    if let (Some(_), Some(worker)) = (&entry.moves_for, &entry.worker) {
        line("Waits for:", &format!("the end of its run on {worker}"));
    }
    let came = || past.last_move(&entry.name, entry.worker.as_deref());
    line("Came:", &unread.map_or_else(came, |why| format!("not known: {why}")));
    match (&entry.unassigned_message, &entry.worker) {
        (Some(why), _) => line("Why:", why),
        (None, Some(_)) if entry.moves_for.is_some() => line("Why:", &entry.leaving()),
        (None, Some(_)) => line("Why:", "nothing moves it: it is on a worker of the pool"),
        (None, None) => line("Why:", "the next decision gives it a worker"),
    }
    line("Next:", &format!("swarm logs {}", shell::word(&entry.name)));
    text
}
