//! `jobs`: the jobs of a Swarm with their phases.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use jiff::Timestamp;
use serde_json::{Value, json};
use swarm_adapters_host::printable::{Form, printable};
use swarm_core::JobPhase;
use swarm_core::verdict::number;
use swarm_local::output::{columns, whole_table};
use swarm_local::show::{Answer, Display};

use super::pool::{JobState, LivePool, Reach};
use super::status::why_unassigned;
use super::{Failure, Scope, age_since, nearest, one, run};
use crate::kubectl::proxy::Proxy;

/// The phases, the most usual first.
const PHASES: [JobPhase; 9] = [
    JobPhase::Running,
    JobPhase::Published,
    JobPhase::Stopping,
    JobPhase::Failing,
    JobPhase::Waiting,
    JobPhase::Quarantined,
    JobPhase::Unassigned,
    JobPhase::Suspended,
    JobPhase::Done,
];

/// Arguments of `kubectl swarm jobs`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl swarm jobs cameras                     all jobs
  kubectl swarm jobs cameras --worker ingest-1   the jobs of a worker
  kubectl swarm jobs cameras --failing           jobs that fail, with their last exits
  kubectl swarm jobs cameras --unassigned        jobs that no worker runs")]
pub(crate) struct JobsArgs {
    /// The name of the Swarm [default: the only one of the namespace]
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Only jobs of this worker
    #[arg(long, short, value_name = "WORKER")]
    worker: Option<String>,
    /// Only jobs with this text in their names or titles
    #[arg(long, short, value_name = "TEXT")]
    job: Option<String>,
    /// Only jobs that no worker runs
    #[arg(long, short)]
    unassigned: bool,
    /// Only failing jobs; a worker reports at most its worst three
    #[arg(long, short)]
    failing: bool,
    #[command(flatten)]
    display: Display,
    #[command(flatten)]
    pub(crate) scope: Scope,
}

/// The moment since which its worker has each job, in milliseconds of Unix time.
type Held<'a> = BTreeMap<&'a str, u64>;

/// Prints the jobs of a Swarm. Exit code 3 if the Swarm or the worker does not exist.
pub(crate) fn jobs(args: &JobsArgs) -> ExitCode {
    run(&args.scope.cluster, async |proxy| {
        let namespace = args.scope.namespace()?;
        args.display.show(async || answer(args, proxy, &namespace).await).await
    })
}

async fn answer(args: &JobsArgs, proxy: &Proxy, namespace: &str) -> Result<Answer, Failure> {
    let pool = one(proxy, namespace, args.name.as_deref(), Reach::All).await?;
    if let Some(worker) = &args.worker {
        let names = || pool.all_workers().map(|it| it.name.as_str());
        if !names().any(|name| name == worker) {
            let (swarm, hint) = (&pool.swarm.metadata.name, nearest(worker, names()));
            return Err(Failure::No(format!("Swarm `{swarm}` has no worker `{worker}`{hint}")));
        }
    }
    let inline = pool.swarm.inline_jobs();
    let title = |state: &JobState<'_>| {
        let job = inline.get(state.name.as_str());
        job.and_then(|job| job["title"].as_str()).unwrap_or_default()
    };
    let titled = pool.jobs().map(|state| (title(&state), state));
    let shown: Vec<_> = titled.filter(|(title, state)| args.shows(state, title)).collect();
    let held = pool.past().held_since();
    let document = || {
        let all: Vec<_> =
            shown.iter().map(|(title, state)| document(&held, title, state)).collect();
        json!({ "jobs": all })
    };
    let names = || shown.iter().map(|(_, state)| state.name.to_string()).collect();
    let text = |is_wide| {
        let mut text = table(pool.now, &held, &shown, is_wide);
        let unnamed = pool.unnamed_failing();
        if 0 < unnamed && !args.unassigned && args.worker.is_none() {
            let them = number(unnamed, "job that fails is", "jobs that fail are");
            let _ = writeln!(
                text,
                "… and {unnamed} more {them} not named; a worker names its worst three"
            );
        }
        if let (true, Some(message)) = (args.unassigned, why_unassigned(&pool.swarm).1) {
            let _ = writeln!(text, "{}", printable(message, Form::Line));
        }
        text
    };
    Ok(args.display.answer(true, text, document, names)?)
}

impl JobsArgs {
    fn shows(&self, state: &JobState<'_>, title: &str) -> bool {
        let Self { name: _, worker, job, unassigned, failing, display: _, scope: _ } = self;
        let has = |text: &String| state.name.as_str().contains(text) || title.contains(text);
        worker.as_deref().is_none_or(|worker| state.worker == Some(worker))
            && job.as_ref().is_none_or(has)
            && (!unassigned || state.phase == JobPhase::Unassigned)
            && (!failing || state.failing.is_some())
    }
}

fn table(now: Timestamp, held: &Held<'_>, shown: &[(&str, JobState<'_>)], is_wide: bool) -> String {
    let mut heads = vec![columns::JOB, columns::TITLE, columns::WORKER, columns::PHASE];
    heads.extend(["RESTARTS", "SINCE", "LAST EXIT"]);
    heads.extend(if is_wide { &["SLOT", "TOKEN", "LAST OUTPUT"][..] } else { &[] });
    let mut rows = vec![heads.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    rows.extend(shown.iter().map(|(title, state)| {
        let failing = state.failing;
        let known = |text: Option<String>| text.unwrap_or_default();
        let mut row = vec![
            state.name.to_string(),
            (*title).to_owned(),
            state.worker.unwrap_or("-").to_owned(),
            state.phase.as_str().to_owned(),
            known(failing.map(|it| it.restarts.to_string())),
            known(since(held, state).map(|since| age_since(now, since))),
            known(failing.map(|it| it.last_exit.clone())),
        ];
        if is_wide {
            row.extend([
                known(state.slot.map(|slot| slot.to_string())),
                state.token.to_string(),
                known(failing.and_then(|it| it.last_output.last().cloned())),
            ]);
        }
        row
    }));
    whole_table(rows)
}

/// Returns the moment since which a job fails, or since which its worker has it, as far as the history
/// goes back; in seconds of Unix time.
fn since(held: &Held<'_>, state: &JobState<'_>) -> Option<u64> {
    let failing = state.failing.map(|it| it.since_unix_s);
    failing.or_else(|| Some(held.get(state.name.as_str())? / 1_000))
}

fn document(held: &Held<'_>, title: &str, state: &JobState<'_>) -> Value {
    json!({
        "job": state.name.as_str(),
        "title": (!title.is_empty()).then_some(title),
        "worker": state.worker,
        "slot": state.slot.map(|slot| slot.0),
        "phase": state.phase.as_str(),
        "token": state.token,
        "sinceUnixS": since(held, state),
        "restarts": state.failing.map(|it| it.restarts),
        "lastExit": state.failing.map(|it| it.last_exit.as_str()),
        "lastOutput": state.failing.map(|it| &it.last_output),
    })
}

/// Returns the place of a phase in [`PHASES`].
fn place_of(wanted: JobPhase) -> usize {
    PHASES.iter().position(|phase| *phase == wanted).unwrap_or_default()
}

/// Returns the number of jobs in each phase that has some, the most usual phases first.
pub(super) fn by_phase(pool: &LivePool) -> Vec<(JobPhase, usize)> {
    let mut counts = PHASES.map(|phase| (phase, 0));
    for state in pool.jobs() {
        counts[place_of(state.phase)].1 += 1;
    }
    // A worker names only its worst failing jobs, so others of them look as if they ran.
    let (running, failing) = (place_of(JobPhase::Running), place_of(JobPhase::Failing));
    let unnamed = pool.unnamed_failing().min(counts[running].1);
    counts[running].1 -= unnamed;
    counts[failing].1 += unnamed;
    counts.into_iter().filter(|(_, count)| 0 < *count).collect()
}
