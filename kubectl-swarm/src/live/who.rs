//! `who`: the worker that holds a job.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use swarm_core::JobName;
use swarm_terminal::show::{Answer, Display};
use swarm_view::jobs::Jobs;
use swarm_view::pool::Home;

use super::entries::Entries;
use super::pool::{Reach, newest_read};
use super::{Failure, Scope, every, has_no_job, out_of_date, run, with_jobs};
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

/// Prints the holders of jobs. Exit code 3 if no Swarm has one of the jobs, or if no operator
/// works.
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
    let entries: Vec<_> = pools.iter().map(Entries::of).collect();
    let (mut found, mut complaints) = (Vec::new(), out_of_date(&pools));
    for job in wanted {
        let holders = entries.iter().filter_map(|entries| entries.find(job));
        let before = found.len();
        found.extend(holders);
        if found.len() == before {
            complaints.push(has_no_job(&pools, namespace, args.swarm.as_deref(), job));
        }
    }
    let found = Jobs { jobs: found };
    let text =
        |is_wide| found.holders(Home::Cluster, is_wide || args.all_namespaces, newest_read(&pools));
    let workers = || found.jobs.iter().filter_map(|line| line.entry.worker.clone()).collect();
    let answer = args.display.answer(complaints.is_empty(), text, || json!(found), workers)?;
    Ok(answer.with_complaints(complaints))
}
