//! `jobs`: the jobs of a Swarm with their phases.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use swarm_core::JobPhase;
use swarm_core::verdict::number;
use swarm_terminal::show::{Answer, Display};
use swarm_view::jobs::{Columns, JobEntry, Jobs};
use swarm_view::pool::Home;
use swarm_view::printable::{Form, printable};

use super::entries::{Entries, message_of_unassigned};
use super::pool::{LivePool, newest_read};
use super::{Failure, NamedSwarm, Scope, every_or, nearest, out_of_date, run};
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
    #[command(flatten)]
    pub(crate) named: NamedSwarm,
    /// List the jobs of all Swarms in all namespaces
    #[arg(long, short = 'A', conflicts_with_all = ["name", "by_option", "namespace"])]
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

/// Prints the jobs of a Swarm. Exit code 3 if the Swarm or the worker does not exist, or if no operator
/// works.
pub(crate) fn jobs(args: &JobsArgs) -> ExitCode {
    run(&args.scope.cluster, async |proxy| {
        let namespace = args.scope.namespace_unless(args.all_namespaces)?;
        args.display.show(async || answer(args, proxy, &namespace).await).await
    })
}

async fn answer(args: &JobsArgs, proxy: &Proxy, namespace: &str) -> Result<Answer, Failure> {
    let pools = every_or(proxy, namespace, args.named.get()).await?;
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
    let jobs = pools.iter().flat_map(|pool| {
        let entries = Entries::of(pool);
        let shown = pool.jobs().map(move |state| entries.line(&state));
        shown.filter(|line| args.shows(&line.entry))
    });
    let jobs = Jobs { jobs: jobs.collect() };
    let names = || jobs.jobs.iter().map(|line| line.entry.name.clone()).collect();
    let text = |is_wide| {
        let columns = Columns {
            home: Home::Cluster,
            is_of_all: args.all_namespaces,
            is_wide,
            is_of_unassigned: args.unassigned,
        };
        let mut text = jobs.text(columns, newest_read(&pools));
        for pool in &pools {
            args.add_rest(&mut text, pool);
        }
        text
    };
    let complaints = out_of_date(&pools);
    let answer = args.display.answer(complaints.is_empty(), text, || json!(jobs), names)?;
    Ok(answer.with_complaints(complaints))
}

impl JobsArgs {
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
        if let (true, Some(message)) = (self.unassigned, message_of_unassigned(&pool.swarm)) {
            let _ = writeln!(text, "{}", printable(&format!("{place}{message}"), Form::Line));
        }
    }

    fn shows(&self, entry: &JobEntry<String>) -> bool {
        let Self { worker, job, unassigned, failing, .. } = self;
        worker.as_ref().is_none_or(|worker| entry.is_on(worker))
            && job.as_ref().is_none_or(|text| entry.has(text))
            && (!unassigned || entry.phase == JobPhase::Unassigned.as_str())
            && (!failing || entry.failing.is_some())
    }
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
