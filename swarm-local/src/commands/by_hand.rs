//! `restart`, `suspend`, `resume` and `retry`: act on jobs of a running pool.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use swarm_terminal::hands::Answer;
use swarm_terminal::output::{NO, Output, complain};
use swarm_view::action::Action;
use swarm_view::age::age;
use swarm_view::jobs::JobEntry;
use swarm_view::workers::WorkerRow;
use tokio::time::{Instant, sleep};

use super::names;
use super::pool::Pool;
use super::{Failure, NamedPool, ended, standard_output};

/// Maximum time for the workers to act, and the time between two questions whether they have.
const ACTED_MAX: Duration = Duration::from_secs(3);
const ASK_EVERY: Duration = Duration::from_millis(20);

/// Arguments that name jobs of a pool.
#[derive(Clone, Debug, Args)]
pub struct JobsArgs {
    /// The jobs
    #[arg(value_name = "JOB", required = true)]
    pub jobs: Vec<String>,
    /// The pool
    #[command(flatten)]
    pub pool: NamedPool,
}

/// Restarts jobs: each run is stopped, and another one begins at once. Exit code 3 if a worker does
/// not answer.
///
/// # Errors
///
/// If the pool does not answer.
pub async fn restart(args: JobsArgs) -> anyhow::Result<ExitCode> {
    act(Action::Restart, args).await
}

/// Begins jobs again that are not restarted any more.
///
/// # Errors
///
/// If the pool does not answer.
pub async fn retry(args: JobsArgs) -> anyhow::Result<ExitCode> {
    act(Action::Retry, args).await
}

/// Suspends jobs until they are resumed, also over a restart of the pool. Exit code 3 if a worker
/// does not answer.
///
/// # Errors
///
/// If the pool does not answer.
pub async fn suspend(args: JobsArgs) -> anyhow::Result<ExitCode> {
    act(Action::Suspend, args).await
}

/// Resumes suspended jobs.
///
/// # Errors
///
/// If the pool does not answer.
pub async fn resume(args: JobsArgs) -> anyhow::Result<ExitCode> {
    act(Action::Resume, args).await
}

async fn act(action: Action, args: JobsArgs) -> anyhow::Result<ExitCode> {
    match on_each(action, args).await {
        Ok(true) => Ok(ExitCode::SUCCESS),
        Ok(false) => Ok(ExitCode::from(NO)),
        Err(failure) => ended(Err(failure)),
    }
}

/// Acts on each job, and returns whether each action had an effect. Nothing is done if the pool does
/// not have one of the jobs. A job without an effect does not keep the others from theirs.
async fn on_each(action: Action, args: JobsArgs) -> Result<bool, Failure> {
    let JobsArgs { jobs, pool } = args;
    let pool = pool.args().find().await?;
    let before = names::known(&pool, &jobs, "; nothing was done").await?;
    let mut output = standard_output(Output::Text);
    let mut had_effect = true;
    let asked = Instant::now();
    let mut acted_on = Vec::new();
    for job in &jobs {
        match pool.act(action, job).await? {
            Ok(effect) => acted_on.push((job, effect)),
            Err(reason) => {
                complain(&reason);
                had_effect = false;
            }
        }
    }
    for (job, effect) in acted_on {
        let before = before.get(job);
        let done = match action {
            Action::Resume => Ok(effect),
            Action::Restart | Action::Retry | Action::Suspend => {
                until_acted(&pool, action, job, before, asked).await?
            }
        };
        match done {
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

/// Waits a while until the worker has acted on a job, so that the next question has the new state.
/// Returns a sentence about the effect, or about a worker that has not answered since `asked`.
async fn until_acted(
    pool: &Pool,
    action: Action,
    job: &str,
    before: Option<&JobEntry<String>>,
    asked: Instant,
) -> Result<Answer, Failure> {
    let until = asked + ACTED_MAX;
    let is_done = loop {
        let is_done = has_acted(action, before, pool.job(job).await?.as_ref());
        if is_done || until <= Instant::now() {
            break is_done;
        }
        sleep(ASK_EVERY).await;
    };
    let worker = before.and_then(|before| before.worker.as_deref());
    let on = worker.map(|worker| format!(" on {worker}")).unwrap_or_default();
    if is_done {
        let on = if action == Action::Suspend { "" } else { &on };
        return Ok(Ok(format!("{} {job}{on}", action.done())));
    }
    let (_, status) = pool.swarm().await?;
    let is_its_own = |row: &&WorkerRow| worker.is_none_or(|worker| row.name == worker);
    let mut its_own = status.workers.iter().filter(is_its_own);
    if let Some(sentence) = its_own.find_map(|row| unanswered(row, asked.elapsed())) {
        return Ok(Err(format!("{sentence}; {}", pending(action, job))));
    }
    let worker = worker.unwrap_or("the workers");
    Ok(Ok(format!("asked {worker} to {} {job}: its run has not ended yet", action.as_str())))
}

/// Whether the worker of a job has acted on it. A new run has a process, or is over. A job that no
/// worker holds has no run.
fn has_acted(
    action: Action,
    before: Option<&JobEntry<String>>,
    now: Option<&JobEntry<String>>,
) -> bool {
    let Some(now) = now else { return true };
    if action == Action::Suspend {
        return !matches!(now.state, "granted" | "releasing" | "everywhere");
    }
    let run = |entry: &JobEntry<String>| (entry.phase, entry.pid, entry.since_unix_s);
    let is_old = before.is_some_and(|before| before.pid.is_some() && before.pid == now.pid);
    let begins = now.pid.is_none() && now.phase == "starting";
    before.map(run) != Some(run(now)) && !is_old && !begins
}

/// Returns a sentence about a worker that has given no sign for longer than a time.
fn unanswered(row: &WorkerRow, since: Duration) -> Option<String> {
    let heard = Duration::from_millis(row.last_heard_ms?);
    (since < heard).then(|| format!("{} has not answered for {}", row.name, age(heard)))
}

/// Returns a clause about an action that takes effect later.
fn pending(action: Action, job: &str) -> String {
    let what = if action == Action::Suspend { "suspension" } else { "restart" };
    format!("the {what} of `{job}` is pending until it does, or is replaced")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a job in the API's format.
    fn entry(phase: &str, pid: Option<i32>, state: &str) -> JobEntry<String> {
        let entry = serde_json::json!({
            "job": "a", "state": state, "slot": 0, "worker": "w-0", "token": 1,
            "phase": phase, "pid": pid, "unassigned": null, "failing": null,
        });
        serde_json::from_value(entry).unwrap()
    }

    #[test]
    fn a_restart_is_done_once_another_run_has_begun() {
        let before = entry("running", Some(7), "granted");
        let is_done = |phase, pid| {
            has_acted(Action::Restart, Some(&before), Some(&entry(phase, pid, "granted")))
        };
        assert!(!is_done("running", Some(7)), "the worker has not answered");
        assert!(!is_done("restarting", Some(7)), "the old run has not ended");
        assert!(!is_done("starting", None), "it waits for its turn");
        assert!(is_done("running", Some(8)) && is_done("failed", None));
        assert!(has_acted(Action::Restart, Some(&before), None), "it was removed meanwhile");
    }

    #[test]
    fn a_suspension_is_done_once_the_worker_has_confirmed_the_end() {
        let is_done =
            |phase, pid, state| has_acted(Action::Suspend, None, Some(&entry(phase, pid, state)));
        assert!(!is_done("running", Some(7), "granted"), "no turn was taken yet");
        assert!(!is_done("stopping", Some(7), "releasing"));
        assert!(is_done("suspended", None, "free") && is_done("done", None, "done"));
    }

    #[test]
    fn only_a_worker_without_a_sign_since_the_request_has_not_answered() {
        let row = |last_heard_ms| WorkerRow {
            name: "w-0".to_owned(),
            last_heard_ms,
            ..WorkerRow::default()
        };
        let asked = Duration::from_secs(3);
        let expected = Some("w-0 has not answered for 12 s".to_owned());
        assert_eq!(unanswered(&row(Some(12_000)), asked), expected);
        assert_eq!(unanswered(&row(Some(2_900)), asked), None);
        assert_eq!(unanswered(&row(None), asked), None, "an earlier version does not say it");
    }
}
