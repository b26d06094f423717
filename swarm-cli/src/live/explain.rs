//! `explain`: the holder of a job, the reason for it, and the thing that the job waits for.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use swarm_core::{FailingState, JobName, JobPhase, Timing};
use swarm_local::show::{Answer, Display};
use swarm_view::history::Past;
use swarm_view::shell;
use swarm_view::table::{EVERY_WORKER, EVERYWHERE, add_field};
use swarm_view::waits::Wait;

use super::history;
use super::objects::SwarmObject;
use super::plan::{self, LiveSwarm};
use super::pool::{JobState, LivePool, LiveWorker};
use super::{Failure, NOT_VISIBLE, Scope, age_of, age_since, has_no_job, run, with_jobs};
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

/// A job with its explanation.
struct Explained {
    job: String,
    title: Option<String>,
    namespace: String,
    swarm: String,
    revision: u64,
    worker: Option<String>,
    is_everywhere: bool,
    slot: Option<u32>,
    token: u64,
    phase: JobPhase,
    /// Sentence about failures.
    failing: Option<String>,
    /// Age of the last renewal of its worker.
    heard: Option<String>,
    waits_for: Option<Wait>,
    why: String,
    /// Sentence about its last move.
    last_move: String,
    /// Sentence about its last edit.
    last_edit: Option<String>,
    /// The last move as parts of a document: since when, and from where.
    since: Value,
    came: Value,
    /// The last edit as part of a document: the time and the fields.
    edited: Value,
    /// Sentence about reports of workers that were not read.
    without_reports: Option<String>,
    /// Sentence about a history that was not read.
    without_history: Option<String>,
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
    let text = |_| found.iter().map(Explained::text).collect::<Vec<_>>().join("\n");
    let document = || match found.as_slice() {
        [one] => one.document(),
        several => several.iter().map(Explained::document).collect(),
    };
    let workers = || found.iter().filter_map(|it| it.worker.clone()).collect();
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
fn explained(pool: &LivePool, swarm: &LiveSwarm, job: &JobName) -> Option<Explained> {
    let state = pool.job(job)?;
    let worker = state.session.and_then(|session| pool.worker(session));
    let renewed = worker.and_then(|worker| worker.report.as_ref()?.renewed);
    let metadata = &pool.swarm.metadata;
    let title = pool.swarm.inline_jobs().get(job.as_str()).and_then(|job| job["title"].as_str());
    let past = pool.past();
    let (since, came) = past.came(job.as_str(), state.worker);
    Some(Explained {
        job: job.to_string(),
        title: title.map(str::to_owned),
        namespace: metadata.namespace.clone(),
        swarm: metadata.name.clone(),
        revision: pool.ledger.revision(),
        worker: state.worker.map(str::to_owned),
        is_everywhere: state.is_everywhere,
        slot: state.slot.map(|slot| slot.0),
        token: state.token,
        phase: state.phase,
        failing: failing(pool, &state),
        heard: renewed.map(|renewed| age_of(pool.now, renewed)),
        waits_for: waits(pool, &state, worker),
        why: if state.is_everywhere { EVERYWHERE.to_owned() } else { why(pool, swarm, &state) },
        last_move: past.last_move(job.as_str(), state.worker),
        last_edit: past.last_edit(job.as_str()),
        since,
        came,
        edited: past.edited(job.as_str()),
        without_reports: pool.hidden.as_ref().map(|why| format!("{NOT_VISIBLE}: {why}")),
        without_history: pool.without_episodes.clone(),
    })
}

/// Describes the failures of a job, if its worker reports them.
fn failing(pool: &LivePool, state: &JobState<'_>) -> Option<String> {
    let failing = state.failing?;
    let course = match failing.state {
        FailingState::Failed => "; it is not restarted any more",
        FailingState::Restarting => "",
    };
    let last = failing.last_output.last().map(|line| format!(": {line:?}")).unwrap_or_default();
    let since = age_since(pool.now, failing.since_unix_s);
    Some(format!("{} restarts for {since}, {}{last}{course}", failing.restarts, failing.last_exit))
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
            Some(wait.with_note("then another worker gets it (rebalance.returnGrace)"))
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
        None if waited <= stop => {
            (rest(stop, waited), "then its worker kills it (handover.stopTimeout)")
        }
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
        None if state.slot.is_none() => "the next decision gives it a worker".to_owned(),
        None => {
            let (fewest, most) = loads(&answer);
            format!(
                "nothing moves it: it is on a worker of the pool, and workers have {fewest} to {most} \
                 jobs each"
            )
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

impl Explained {
    fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |name: &str, value: &str| add_field(&mut text, name, value);
        let title = self.title.as_ref().map(|title| format!(" ({title})")).unwrap_or_default();
        line("Job:", &format!("{}{title}", self.job));
        line("Swarm:", &format!("{}/{}, revision {}", self.namespace, self.swarm, self.revision));
        let failing = self.failing.as_ref().map(|it| format!(": {it}")).unwrap_or_default();
        line("Phase:", &format!("{}{failing}", self.phase.as_str()));
        if let Some(worker) = &self.worker {
            let slot = self.slot.map(|slot| format!(", slot {slot}")).unwrap_or_default();
            let heard = self.heard.as_ref().map(|age| format!(", last renewed {age} ago"));
            let heard = heard.unwrap_or_default();
            line("Worker:", &format!("{worker}{slot}, token {}{heard}", self.token));
        }
        if self.is_everywhere {
            line("Worker:", &format!("{EVERY_WORKER}, token {}", self.token));
        }
        if let Some(wait) = &self.waits_for {
            line("Waits for:", &wait.sentence());
        }
        if let Some(sentence) = &self.without_reports {
            line("Reports:", sentence);
        }
        if !self.is_everywhere {
            line("Came:", self.without_history.as_ref().unwrap_or(&self.last_move));
        }
        if let Some(sentence) = &self.last_edit {
            line("Edited:", sentence);
        }
        line("Why:", &self.why);
        if self.failing.is_some() && (self.worker.is_some() || self.is_everywhere) {
            let (job, namespace) = (shell::word(&self.job), shell::word(&self.namespace));
            line("Next:", &format!("kubectl swarm logs {job} -n {namespace}"));
        }
        text
    }

    fn document(&self) -> Value {
        let unread = [&self.without_reports, &self.without_history].into_iter().flatten();
        json!({
            "job": self.job,
            "title": self.title,
            "namespace": self.namespace,
            "swarm": self.swarm,
            "revision": self.revision,
            "worker": self.worker,
            "everywhere": self.is_everywhere,
            "slot": self.slot,
            "token": self.token,
            "phase": self.phase.as_str(),
            "failing": self.failing,
            "waitsFor": self.waits_for.iter().collect::<Vec<_>>(),
            "since": self.since,
            "came": self.came,
            "edited": self.edited,
            "why": self.why,
            "unread": unread.collect::<Vec<_>>(),
        })
    }
}
