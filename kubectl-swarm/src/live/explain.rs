//! `explain`: the holder of a job, the reason for it, and the thing that the job waits for.

use std::process::ExitCode;

use clap::Args;
use swarm_core::{JobName, Slot};
use swarm_terminal::show::{Answer, Display};
use swarm_view::explain::{Explanation, Notes};
use swarm_view::history::Past;
use swarm_view::jobs::JobEntry;
use swarm_view::picture::{JobFacts, Picture, Step};
use swarm_view::shell;

use super::entries::Entries;
use super::history;
use super::plan::{self, LiveSwarm};
use super::pool::LivePool;
use super::{Failure, NOT_VISIBLE, Scope, age_of, has_no_job, out_of_date, run, with_jobs};
use crate::kubectl::proxy::Proxy;

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

/// Explains a job. Exit code 3 if no Swarm has it, or if no operator works.
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
    let complaints = out_of_date(&parts);
    let answer = args.display.answer(complaints.is_empty(), text, document, workers)?;
    Ok(answer.with_complaints(complaints))
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
            Ok(recorded) => recorded.episodes,
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
    let metadata = &pool.swarm.metadata;
    let past = pool.past();
    let reports = pool.hidden.as_ref().map(|why| format!("{NOT_VISIBLE}: {why}"));
    let history = pool.without_episodes.clone();
    let entries = Entries::of(pool);
    let facts = entries.facts(&state);
    let picture = Picture { loads: pool.loads(), ..entries.picture };
    let why = why(&picture, &facts, swarm);
    let is_held = facts.worker_name().is_some() || facts.is_everywhere();
    let entry = JobEntry { why: Some(why), ..picture.entry(facts) };
    let explanation = Explanation {
        revision: Some(pool.ledger.revision()),
        unread: [&reports, &history].into_iter().flatten().cloned().collect(),
        ..Explanation::of(&entry, pool.named(), &past)
    };
    let worker = state.session.and_then(|session| pool.worker(session));
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

/// Explains why a job is where it is, by a plan of the Swarm's own spec for the present workers.
fn why(picture: &Picture, facts: &JobFacts<'_>, swarm: &LiveSwarm) -> String {
    let answer = match swarm.own_plan() {
        Ok(answer) => answer,
        Err(reason) => return format!("it cannot be planned: {reason}"),
    };
    let (name, document) = (facts.name, &answer.document);
    let step = document.moves.iter().find(|it| it.job == name);
    let worker = |slot| {
        let name = answer.names.get(&Slot(slot)).cloned();
        name.unwrap_or_else(|| format!("slot {slot}"))
    };
    let to = step.and_then(|step| step.to).map(worker);
    let step = step.map(|step| Step { to: to.as_deref(), reason: step.reason });
    let without = document.unassigned.iter().find(|it| it.job == name);
    let job = answer.jobs.get(name);
    picture.why(&JobFacts {
        // The history has the step that is under way.
        step: step.or(facts.step),
        is_deferred: document.deferred.iter().flatten().any(|job| job == name),
        unassigned_message: without.map(|it| it.message.clone()),
        pin: job.and_then(|job| job.pin).map(|slot| slot.0),
        ..facts.clone()
    })
}
