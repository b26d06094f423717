//! `who`: the worker that holds a job.

use std::iter;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use swarm_core::JobName;
use swarm_local::show::{Answer, Display};
use swarm_view::table::{columns, row, whole_table};

use super::pool::{JobState, LivePool, Reach};
use super::{Failure, Scope, every, has_no_job, run, with_jobs};
use crate::kubectl::proxy::Proxy;

/// Arguments of `kubectl swarm who`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl swarm who cam-044                  the worker of a job of any Swarm in this namespace
  kubectl swarm who cam-044 cam-045 -n media
  kubectl swarm who cam-044 --swarm cameras -o json
  kubectl swarm who cam-044 -A               the worker of a job of any Swarm in any namespace")]
pub(crate) struct WhoArgs {
    /// The names of the jobs
    #[arg(required = true, value_name = "JOB")]
    jobs: Vec<String>,
    /// The Swarm of the jobs [default: every Swarm of the namespace that has them]
    #[arg(long, value_name = "NAME")]
    pub(crate) swarm: Option<String>,
    /// Look in all Swarms of all namespaces
    #[arg(long, short = 'A', conflicts_with_all = ["swarm", "namespace"])]
    all_namespaces: bool,
    #[command(flatten)]
    display: Display,
    #[command(flatten)]
    pub(crate) scope: Scope,
}

/// Prints the holders of jobs. Exit code 3 if no Swarm has one of the jobs.
pub(crate) fn who(args: &WhoArgs) -> ExitCode {
    run(&args.scope.cluster, async |proxy| {
        let wanted = args.jobs.iter().map(|job| job.parse::<JobName>());
        let wanted: Result<Vec<_>, _> = wanted.collect();
        let wanted = wanted.map_err(|error| error.to_string())?;
        let namespace = args.scope.namespace_unless(args.all_namespaces)?;
        args.display.show(async || answer(args, proxy, &namespace, &wanted).await).await
    })
}

async fn answer(
    args: &WhoArgs,
    proxy: &Proxy,
    namespace: &str,
    wanted: &[JobName],
) -> Result<Answer, Failure> {
    let pools = if args.all_namespaces {
        every(proxy, Reach::Jobs(wanted)).await?
    } else {
        with_jobs(proxy, namespace, args.swarm.as_deref(), wanted).await?
    };
    let (mut found, mut complaints) = (Vec::new(), Vec::new());
    for job in wanted {
        let holders = pools.iter().filter_map(|pool| Some((pool, pool.job(job)?)));
        let before = found.len();
        found.extend(holders);
        if found.len() == before {
            complaints.push(has_no_job(&pools, namespace, args.swarm.as_deref(), job));
        }
    }
    let text = |is_wide| {
        let rows =
            found.iter().map(|(pool, state)| line(pool, state, is_wide || args.all_namespaces));
        if found.is_empty() {
            String::new()
        } else {
            whole_table(iter::once(head()).chain(rows).collect())
        }
    };
    let document = || {
        let all: Vec<_> = found.iter().map(|(pool, state)| document(pool, state)).collect();
        json!({ "jobs": all })
    };
    let workers = || found.iter().filter_map(|(_, it)| it.worker.map(str::to_owned)).collect();
    let answer = args.display.answer(complaints.is_empty(), text, document, workers)?;
    Ok(answer.with_complaints(complaints))
}

fn head() -> Vec<String> {
    row([columns::JOB, columns::WORKER, columns::PHASE, "SLOT", "TOKEN", "SWARM", "NAMESPACE"])
}

/// Makes the line of a job. A wide one has the namespace, and so has a job of any namespace.
fn line(pool: &LivePool, state: &JobState<'_>, has_namespace: bool) -> Vec<String> {
    let (namespace, swarm) = pool.place();
    vec![
        state.name.to_string(),
        state.shown_worker().to_owned(),
        state.phase.as_str().to_owned(),
        state.slot.map_or_else(|| "-".to_owned(), |slot| slot.to_string()),
        state.token.to_string(),
        swarm.to_owned(),
        if has_namespace { namespace.to_owned() } else { String::new() },
    ]
}

fn document(pool: &LivePool, state: &JobState<'_>) -> serde_json::Value {
    json!({
        "job": state.name.as_str(),
        "swarm": pool.swarm.metadata.name,
        "namespace": pool.swarm.metadata.namespace,
        "worker": state.worker,
        "everywhere": state.is_everywhere,
        "slot": state.slot.map(|slot| slot.0),
        "phase": state.phase.as_str(),
        "token": state.token,
    })
}
