//! A node dies with everything on it, and returns later. The jobs of its workers run elsewhere
//! after `returnGrace`, and are shared evenly again when the node is back.
//!
//! Only Kubernetes can report that a node is dead: it marks the node when the kubelet falls silent.
//! The pods of the node stay as they are for minutes, and nothing confirms their end. The operator
//! counts these pods as gone.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::ListParams;
use swarm_client::api::Swarm;

use super::live_pools_are_shown::expect;
use super::nodes::{node_of, ready, with_one_replica};
use super::pool::{Reports, at_rest, jobs_of, judge, report, sample};
use crate::scenario::Context;
use crate::until::until;

/// The Swarm of the sample.
const SWARM: &str = "streams";
const WORKERS: usize = 4;
/// The time for which the jobs of a missing worker wait for that worker.
const RETURN_GRACE: Duration = Duration::from_secs(5);

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let grace = format!("  rebalance: {{returnGrace: {}s}}\n  view:", RETURN_GRACE.as_secs());
    let manifest = spread(&sample(WORKERS)?.replacen("  view:", &grace, 1))?;
    let jobs = jobs_of(&manifest);
    context.apply(&manifest).await?;
    let before = at_rest(&context, &jobs, WORKERS, Instant::now()).await?;
    let lost = with_one_replica(&context).await?;
    let (away, left) = workers_on(&context, lost).await?;
    ensure!(!away.is_empty() && !left.is_empty(), "all workers are on one node");

    let change = Instant::now();
    context.cluster.kill_node(lost)?;
    let lap = |what: &str| context.laps.lap(format!("{} ms: {what}", change.elapsed().as_millis()));
    ready(&context, lost, "Unknown").await?;
    lap("the node counts as not ready");
    for worker in &left {
        let now = report(&context, worker).await?;
        ensure!(now == before[worker], "{worker} was granted jobs that may still run elsewhere");
    }
    let of_the_others = until("their jobs to run elsewhere", || async {
        let mut reports = Reports::new();
        for worker in &left {
            reports.insert(worker.clone(), report(&context, worker).await?);
        }
        judge(&reports, &jobs, left.len())?;
        Ok(Some(reports))
    })
    .await?;
    lap("every job runs, on the other node");
    lost_workers_are_named(&context, &away).await?;
    lap("the status names the lost workers");
    for worker in &away {
        let pod = context.api::<Pod>().get(worker).await?;
        ensure!(pod.metadata.deletion_timestamp.is_none(), "{worker} was deleted, and not lost");
    }
    for worker in &left {
        let kept = before[worker].jobs.is_subset(&of_the_others[worker].jobs);
        ensure!(kept, "{worker} lost jobs");
    }

    let change = Instant::now();
    context.cluster.revive_node(lost).await?;
    at_rest(&context, &jobs, WORKERS, change).await?;
    Ok(())
}

/// Waits until the Swarm says that its pool is smaller than asked, and each lost worker is listed.
async fn lost_workers_are_named(context: &Context, away: &[String]) -> Result<()> {
    until("the lost workers to be named", || async {
        let swarm = context.api::<Swarm>().get(SWARM).await?;
        let status = swarm.status.unwrap_or_default();
        let ready = status.conditions.iter().find(|it| it.type_ == "Ready");
        let reason = ready.map(|it| it.reason.clone()).unwrap_or_default();
        ensure!(reason == "WorkersMissing", "Ready has the reason {reason}");
        let named: BTreeSet<_> = status.missing_workers.iter().map(|it| &it.worker).collect();
        ensure!(named == away.iter().collect(), "{named:?} instead of {away:?}");
        Ok(Some(()))
    })
    .await?;
    expect(context, &["status", SWARM], 3, "").await?;
    let table = expect(context, &["workers", SWARM], 0, "").await?;
    for worker in away {
        let line = table.lines().find(|line| line.starts_with(worker.as_str()));
        ensure!(line.is_some_and(|line| line.contains(" since ")), "{worker}: {table}");
    }
    Ok(())
}

/// Makes the sample's preference, workers on all nodes, a requirement. A pod then waits for a node
/// that was just lost, where Kubernetes does not schedule pods yet.
fn spread(manifest: &str) -> Result<String> {
    const WISHES: &str = "whenUnsatisfiable: ScheduleAnyway";
    ensure!(manifest.contains(WISHES), "the sample spreads its workers");
    Ok(manifest.replace(WISHES, "whenUnsatisfiable: DoNotSchedule"))
}

/// The workers on a node, and the workers elsewhere.
async fn workers_on(context: &Context, node: u8) -> Result<(Vec<String>, Vec<String>)> {
    let pods = context.api::<Pod>().list(&ListParams::default()).await?;
    let (mut on, mut elsewhere) = (Vec::new(), Vec::new());
    for pod in &pods.items {
        let there = if node_of(pod)? == node { &mut on } else { &mut elsewhere };
        there.push(pod.name_any());
    }
    Ok((on, elsewhere))
}
