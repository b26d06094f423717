//! `explain`: the holder of a job, the reason for it, and the thing that the job waits for.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use swarm_core::{JobName, JobPhase, Timing};
use swarm_local::show::{Answer, Display};
use swarm_view::explain::{EVERYWHERE, Explanation, NEXT_DECISION, Notes, STAYS};
use swarm_view::history::Past;
use swarm_view::jobs::JobEntry;
use swarm_view::shell;
use swarm_view::waits::{KILLED_THEN, MOVED_THEN, Wait};

use super::entries::Entries;
use super::history;
use super::objects::SwarmObject;
use super::plan::{self, LiveSwarm};
use super::pool::{JobState, LivePool, LiveWorker};
use super::{Failure, NOT_VISIBLE, Scope, age_of, has_no_job, run, with_jobs};
use crate::kubectl::proxy::Proxy;
use crate::plan::answer;

/// Arguments of `kubectl swarm explain`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl swarm explain cam-044 -n media
  kubectl swarm explain cam-044 --swarm cameras -o json")]
pub(crate) struct ExplainArgs {
    /// The name of the job
    #[arg(value_name = "JOB")]
    job: String,
    /// The Swarm of the job [default: the Swarms of the namespace that have it]
    #[arg(long, value_name = "NAME")]
    pub(crate) swarm: Option<String>,
    #[command(flatten)]
    display: Display,
    #[command(flatten)]
    pub(crate) scope: Scope,
}

/// Explains a job. Exit code 3 if no Swarm has it.
pub(crate) fn explain(args: &ExplainArgs) -> ExitCode {
    run(&args.scope.cluster, async |proxy| {
        let job = args.job.parse::<JobName>().map_err(|error| error.to_string())?;
        let namespace = args.scope.namespace()?;
        args.display.show(async || answer(args, proxy, &namespace, &job).await).await
    })
}

async fn answer(
    args: &ExplainArgs,
    proxy: &Proxy,
    namespace: &str,
    job: &JobName,
) -> Result<Answer, Failure> {
    let parts =
        with_jobs(proxy, namespace, args.swarm.as_deref(), std::slice::from_ref(job)).await?;
    let mut found = Vec::new();
    for part in parts.iter().filter(|part| part.job(job).is_some()) {
        let name = &part.swarm.metadata.name;
        let (swarm, pool) = plan::swarm(proxy, namespace, name, &[]).await?;
        found.extend(explained(&pool, &swarm, job));
    }
    if found.is_empty() {
        return Err(gone(proxy, namespace, args.swarm.as_deref(), &parts, job).await);
    }
    let text = |_| found.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join("\n");
    let document = || {
        let mut all = found.iter().map(|(it, _)| serde_json::to_value(it).unwrap_or_default());
        if found.len() == 1 { all.next().unwrap_or_default() } else { all.collect() }
    };
    let workers = || found.iter().filter_map(|(it, _)| it.worker.clone()).collect();
    Ok(args.display.answer(true, text, document, workers)?)
}

/// Returns the failure about a job that no pool has, and when it was removed.
async fn gone(
    proxy: &Proxy,
    namespace: &str,
    swarm: Option<&str>,
    pools: &[LivePool],
    job: &JobName,
) -> Failure {
    let mut hidden = String::new();
    for pool in pools {
        let name = &pool.swarm.metadata.name;
        let episodes = match history::of_swarm(proxy, namespace, name).await {
            Ok(episodes) => episodes,
            Err(sentence) => {
                hidden = format!("; it may have been removed: {sentence}");
                continue;
            }
        };
        let past = Past { episodes: &episodes, now: pool.now, since: None };
        if let Some(removed) = past.removed(job.as_str()) {
            return Failure::No(format!(
                "Swarm `{name}` in namespace `{namespace}` has no job `{job}` any more; {removed}"
            ));
        }
    }
    Failure::No(format!("{}{hidden}", has_no_job(pools, namespace, swarm, job)))
}

/// Explains a job of the pool; `None` if it has just left the pool.
fn explained(pool: &LivePool, swarm: &LiveSwarm, job: &JobName) -> Option<(Explanation, String)> {
    let state = pool.job(job)?;
    let worker = state.session.and_then(|session| pool.worker(session));
    let metadata = &pool.swarm.metadata;
    let past = pool.past();
    let reports = pool.hidden.as_ref().map(|why| format!("{NOT_VISIBLE}: {why}"));
    let history = pool.without_episodes.clone();
    let is_held = state.worker.is_some() || state.is_everywhere;
    let entry = JobEntry {
        worker_silent_since_unix_s: worker.and_then(|worker| pool.silent_since(worker)),
        waits_for: waits(pool, &state, worker).into_iter().collect(),
        ..Entries::of(pool).entry(&state)
    };
    let why = if state.is_everywhere { EVERYWHERE.to_owned() } else { why(pool, swarm, &state) };
    let explanation = Explanation {
        revision: Some(pool.ledger.revision()),
        unread: [&reports, &history].into_iter().flatten().cloned().collect(),
        ..Explanation::of(&entry, pool.named(), &past, why)
    };
    let renewed = worker.and_then(|worker| worker.report.as_ref()?.renewed);
    let renewed = renewed.map(|at| format!(", last renewed {} ago", age_of(pool.now, at)));
    let next = || {
        let (job, namespace) = (shell::word(job.as_str()), shell::word(&metadata.namespace));
        format!("kubectl swarm logs {job} -n {namespace}")
    };
    let notes = Notes {
        of_worker: renewed.unwrap_or_default(),
        reports,
        history,
        next: (explanation.failing.is_some() && is_held).then(next),
        ..Notes::default()
    };
    let text = explanation.text(&past, &notes);
    Some((explanation, text))
}

/// Returns the thing that a job waits for, with its bound.
fn waits(pool: &LivePool, state: &JobState<'_>, worker: Option<&LiveWorker>) -> Option<Wait> {
    let swarm = &pool.swarm;
    let who = state.worker.or(Some("its previous worker"));
    let unheard = worker.and_then(|worker| pool.unheard_for(worker));
    // A silent worker neither stops its jobs nor reports about them.
    let is_silent = worker.is_some_and(|worker| pool.silent_for(worker).is_some());
    if is_silent && state.phase != JobPhase::Stopping {
        let wait = Wait::new("a renewal of the Lease of its worker", who);
        let wait = wait.lasting(unheard, Some(swarm.fence_wait()));
        return Some(wait.with_note("then the job may get another worker (handover.lease)"));
    }
    if worker.is_some_and(|worker| pool.is_lost(worker)) && state.phase == JobPhase::Published {
        return Some(Wait::new("the next decision, since its worker has ended", None));
    }
    match state.phase {
        JobPhase::Stopping => {
            let waited = pool.past().under_way(state.name.as_str()).map(|(_, _, ms)| ms);
            let waited = waited.map(Duration::from_millis);
            let (left, note) = release(swarm, waited, unconfirmed_for(pool, state));
            let wait = Wait::new("the acknowledgement that the job has stopped", who);
            let most = left.map(|left| left.saturating_add(waited.unwrap_or_default()));
            Some(wait.lasting(waited, most).with_note(note))
        }
        // Without the reports, the user cannot know whether the worker has acknowledged it.
        JobPhase::Published if pool.hidden.is_none() && worker.is_some_and(|it| !it.is_plain) => {
            let wait = Wait::new("the acknowledgement of its view", who);
            let wait = wait.lasting(None, Some(swarm.fence_wait()));
            Some(wait.with_note("a worker that stays silent loses its jobs then"))
        }
        JobPhase::Waiting => {
            let grace = swarm.spec["rebalance"]["returnGrace"].as_str();
            let grace = grace.and_then(|grace| swarm_local::time(grace).ok());
            let grace = grace.unwrap_or(Timing::default().return_grace);
            let wait = Wait::new("the worker of its slot, or the next decision", state.worker);
            let wait = wait.lasting(None, Some(grace));
            Some(wait.with_note(MOVED_THEN))
        }
        _ => None,
    }
}

/// Returns the time since the last sign of the worker of a job, if the worker has not confirmed that it
/// stops the job.
pub(super) fn unconfirmed_for(pool: &LivePool, state: &JobState<'_>) -> Option<Duration> {
    let worker = pool.worker(state.session?)?;
    let report = worker.report.as_ref()?;
    let is_confirmed = report.is_stopping(state.name.as_str()) && !pool.is_lost(worker);
    if is_confirmed { None } else { pool.unheard_for(worker) }
}

/// Returns the rest of the longest time of a release that has lasted for some time, and its meaning; no
/// time if only a proof ends the release. `unconfirmed_for` is the time since the last sign of a worker
/// that has not confirmed the release, and may be frozen.
pub(super) fn release(
    swarm: &SwarmObject,
    waited: Option<Duration>,
    unconfirmed_for: Option<Duration>,
) -> (Option<Duration>, &'static str) {
    let rest = |most: Duration, since: Duration| Some(most.saturating_sub(since));
    let (stop, waited) = (swarm.stop_timeout(), waited.unwrap_or_default());
    match unconfirmed_for {
        _ if !swarm.is_exclusive() => (
            rest(swarm.release_timeout(), waited),
            "then another worker gets it (handover.releaseTimeout)",
        ),
        Some(silence) => (
            rest(swarm.fence_wait(), silence),
            "its worker has not confirmed that yet; without a renewal its Lease is over then",
        ),
        None if waited <= stop => (rest(stop, waited), KILLED_THEN),
        None => (None, "its worker should have killed it before (handover.stopTimeout)"),
    }
}

/// Explains why a job is where it is, by a plan of the Swarm's own spec for the present workers.
fn why(pool: &LivePool, swarm: &LiveSwarm, state: &JobState<'_>) -> String {
    let answer = match swarm.own_plan() {
        Ok(answer) => answer,
        Err(reason) => return format!("it cannot be planned: {reason}"),
    };
    let name = state.name.as_str();
    let document = &answer.document;
    if pool.swarm.spec["suspend"] == true {
        return "the Swarm has `spec.suspend: true`".to_owned();
    }
    if let Some(without) = document.unassigned.iter().find(|it| it.job == name) {
        return without.message.clone();
    }
    let worker = |slot: u32| worker_name(&answer, slot);
    if let Some(step) = document.moves.iter().find(|it| it.job == name) {
        let to = step.to.map_or_else(|| "no worker".to_owned(), worker);
        let paused = pool.swarm.spec["rebalance"]["paused"] == true;
        let halt = if paused { "; rebalance.paused keeps it where it is" } else { "" };
        return format!("it moves to {to} next, with the reason `{}`{halt}", step.reason);
    }
    if document.deferred.iter().flatten().any(|job| job == name) {
        return "it moves for balance once the moves before it are done (rebalance.maxMovesInFlight)"
            .to_owned();
    }
    let job = answer.jobs.get(name);
    match job.and_then(|job| job.pin) {
        Some(pin) => format!("it is pinned to slot {pin}"),
        None if state.phase == JobPhase::Stopping => {
            "its worker leaves the pool; the job gets another one once it has stopped".to_owned()
        }
        None if state.slot.is_none() => NEXT_DECISION.to_owned(),
        None => {
            let (fewest, most) = loads(&answer);
            format!("{STAYS}, and workers have {fewest} to {most} jobs each")
        }
    }
}

fn worker_name(answer: &answer::Answer, slot: u32) -> String {
    let name = answer.names.get(&swarm_core::Slot(slot)).cloned();
    name.unwrap_or_else(|| format!("slot {slot}"))
}

/// Returns the smallest and the largest number of jobs of a worker.
fn loads(answer: &answer::Answer) -> (usize, usize) {
    let mut counts: std::collections::BTreeMap<u32, usize> =
        answer.slots.iter().map(|slot| (slot.0, 0)).collect();
    for slot in answer.document.assignment.values() {
        *counts.entry(*slot).or_default() += 1;
    }
    let fewest = counts.values().min().copied().unwrap_or_default();
    (fewest, counts.values().max().copied().unwrap_or_default())
}
