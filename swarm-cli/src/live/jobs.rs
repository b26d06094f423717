//! `jobs`: the jobs of a Swarm with their phases.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use swarm_core::JobPhase;
use swarm_core::verdict::number;
use swarm_local::show::{Answer, Display};
use swarm_view::printable::{Form, printable};
use swarm_view::table::{columns, whole_table};

use super::pool::{JobState, LivePool, place_heads};
use super::status::why_unassigned;
use super::{Failure, Scope, age_since, every_or, nearest, run};
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
  kubectl swarm jobs cameras --unassigned        jobs that no worker runs
  kubectl swarm jobs -A --failing                of all Swarms of the cluster")]
pub(crate) struct JobsArgs {
    /// The name of the Swarm [default: the only one of the namespace]
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// List the jobs of all Swarms in all namespaces
    #[arg(long, short = 'A', conflicts_with_all = ["name", "namespace"])]
    all_namespaces: bool,
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

/// A job that is shown.
struct Shown<'a> {
    pool: &'a LivePool,
    title: &'a str,
    state: JobState<'a>,
    /// The moment since which it fails, or since which its worker has it, as far as the history goes
    /// back; in seconds of Unix time.
    since: Option<u64>,
}

/// Prints the jobs of a Swarm. Exit code 3 if the Swarm or the worker does not exist.
pub(crate) fn jobs(args: &JobsArgs) -> ExitCode {
    run(&args.scope.cluster, async |proxy| {
        let namespace = args.scope.namespace_unless(args.all_namespaces)?;
        args.display.show(async || answer(args, proxy, &namespace).await).await
    })
}

async fn answer(args: &JobsArgs, proxy: &Proxy, namespace: &str) -> Result<Answer, Failure> {
    let pools = every_or(proxy, namespace, args.name.as_deref()).await?;
    if let Some(worker) = &args.worker {
        let names = || pools.iter().flat_map(LivePool::all_workers).map(|it| it.name.as_str());
        if !names().any(|name| name == worker) {
            let hint = nearest(worker, names());
            let has_none = match pools.as_slice() {
                [pool] => format!("Swarm `{}` has no", pool.swarm.metadata.name),
                _ => "no Swarm has a".to_owned(),
            };
            return Err(Failure::No(format!("{has_none} worker `{worker}`{hint}")));
        }
    }
    let shown: Vec<_> = pools.iter().flat_map(|pool| args.shown_of(pool)).collect();
    let document = || json!({ "jobs": shown.iter().map(document).collect::<Vec<_>>() });
    let names = || shown.iter().map(|it| it.state.name.to_string()).collect();
    let text = |is_wide| {
        let mut text = table(&shown, args.all_namespaces, is_wide, args.failing);
        for pool in &pools {
            args.add_rest(&mut text, pool);
        }
        text
    };
    Ok(args.display.answer(true, text, document, names)?)
}

impl JobsArgs {
    /// Returns the jobs of a pool that are to be shown. O(jobs · log jobs).
    fn shown_of<'a>(&self, pool: &'a LivePool) -> Vec<Shown<'a>> {
        let (inline, held) = (pool.swarm.inline_jobs(), pool.past().held_since());
        let shown = pool.jobs().map(|state| {
            let job = inline.get(state.name.as_str());
            let title = job.and_then(|job| job["title"].as_str()).unwrap_or_default();
            let failing = state.failing.map(|it| it.since_unix_s);
            let held = || Some(held.get(state.name.as_str())? / 1_000);
            let since = failing.or_else(held);
            Shown { pool, title, state, since }
        });
        shown.filter(|it| self.shows(&it.state, it.title)).collect()
    }

    /// Appends sentences about jobs of a pool that the table does not have, or about its reasons.
    fn add_rest(&self, text: &mut String, pool: &LivePool) {
        let (namespace, name) = pool.place();
        let place =
            if self.all_namespaces { format!("{namespace}/{name}: ") } else { String::new() };
        let unnamed = pool.unnamed_failing();
        if 0 < unnamed && !self.unassigned && self.worker.is_none() {
            let them = number(unnamed, "job that fails is", "jobs that fail are");
            let _ = writeln!(
                text,
                "… {place}and {unnamed} more {them} not named; a worker names its worst three"
            );
        }
        if let (true, Some(message)) = (self.unassigned, why_unassigned(&pool.swarm).1) {
            let _ = writeln!(text, "{}", printable(&format!("{place}{message}"), Form::Line));
        }
    }

    fn shows(&self, state: &JobState<'_>, title: &str) -> bool {
        let Self { worker, job, unassigned, failing, .. } = self;
        let has = |text: &String| state.name.as_str().contains(text) || title.contains(text);
        let is_on = |worker| state.is_everywhere || state.worker == Some(worker);
        worker.as_deref().is_none_or(is_on)
            && job.as_ref().is_none_or(has)
            && (!unassigned || state.phase == JobPhase::Unassigned)
            && (!failing || state.failing.is_some())
    }
}

/// Makes a table. Columns without a value in any row are left out.
fn table(shown: &[Shown<'_>], is_of_all: bool, is_wide: bool, has_output: bool) -> String {
    let mut heads = place_heads(is_of_all);
    heads.extend([columns::JOB, columns::TITLE, columns::WORKER, columns::PHASE]);
    heads.extend(["RESTARTS", "SINCE", "LAST EXIT"]);
    heads.extend(if is_wide { &["SLOT", "TOKEN"][..] } else { &[] });
    heads.extend((is_wide || has_output).then_some("LAST OUTPUT"));
    let mut rows = vec![heads.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    rows.extend(shown.iter().map(|Shown { pool, title, state, since }| {
        let failing = state.failing;
        let known = |text: Option<String>| text.unwrap_or_default();
        let mut row = pool.place_cells(is_of_all);
        row.extend([
            state.name.to_string(),
            (*title).to_owned(),
            state.shown_worker().to_owned(),
            state.phase.as_str().to_owned(),
            known(failing.map(|it| it.restarts.to_string())),
            known(since.map(|since| age_since(pool.now, since))),
            known(failing.map(|it| it.last_exit.clone())),
        ]);
        if is_wide {
            row.extend([known(state.slot.map(|slot| slot.to_string())), state.token.to_string()]);
        }
        if is_wide || has_output {
            row.push(known(failing.and_then(|it| it.last_output.last().cloned())));
        }
        row
    }));
    whole_table(rows)
}

fn document(Shown { pool, title, state, since }: &Shown<'_>) -> Value {
    let (namespace, swarm) = pool.place();
    json!({
        "job": state.name.as_str(),
        "title": (!title.is_empty()).then_some(title),
        "namespace": namespace,
        "swarm": swarm,
        "worker": state.worker,
        "everywhere": state.is_everywhere,
        "slot": state.slot.map(|slot| slot.0),
        "phase": state.phase.as_str(),
        "token": state.token,
        "sinceUnixS": since,
        "restarts": state.failing.map(|it| it.restarts),
        "lastExit": state.failing.map(|it| it.last_exit.as_str()),
        "lastOutput": state.failing.map(|it| &it.last_output),
    })
}

/// Returns the place of a phase in [`PHASES`].
fn place_of(wanted: JobPhase) -> usize {
    PHASES.iter().position(|phase| *phase == wanted).unwrap_or_default()
}

/// The number of jobs in each phase that has some.
pub(super) type Phases = [(JobPhase, usize)];

/// Returns the number of jobs in each phase that has some, the most usual phases first. O(jobs).
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
