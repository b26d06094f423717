//! A node dies with everything on it, and comes back later. Its workers' jobs run elsewhere after
//! `returnGrace`, and are shared evenly again when it is back.
//!
//! Only Kubernetes can say that a node is dead: it marks the node when its kubelet falls silent. Its
//! pods stay as they are for minutes, and nobody is there to confirm their end; the operator counts
//! them as gone.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::ListParams;

use super::pool::{REST_WITHIN, Reports, at_rest, jobs_of, judge, report, sample};
use crate::cluster::{NODES, node_name};
use crate::operator;
use crate::story::Context;
use crate::until::until;

const WORKERS: usize = 4;
/// How long the jobs of a worker that is gone wait for it.
const RETURN_GRACE: Duration = Duration::from_secs(5);

pub(super) async fn tell(context: Context) -> Result<()> {
    context.operator().await?;
    let grace = format!("  rebalance: {{returnGrace: {}s}}\n  view:", RETURN_GRACE.as_secs());
    let manifest = sample(WORKERS)?.replacen("  view:", &grace, 1);
    let jobs = jobs_of(&manifest);
    context.apply(&manifest).await?;
    let before = at_rest(&context, &jobs, WORKERS, Instant::now()).await?;
    let lost = node_without_operator(&context).await?;
    let (away, left) = workers_on(&context, lost).await?;
    ensure!(!away.is_empty() && !left.is_empty(), "all workers are on one node");

    let change = Instant::now();
    context.cluster.kill_node(lost)?;
    let lap = |what: &str| context.laps.lap(format!("{} ms: {what}", change.elapsed().as_millis()));
    not_ready(&context, lost).await?;
    lap("the node counts as not ready");
    for worker in &left {
        let now = report(&context, worker).await?;
        ensure!(now == before[worker], "{worker} was given jobs that may still run elsewhere");
    }
    let of_the_others = until("their jobs to run elsewhere", REST_WITHIN, || async {
        let mut reports = Reports::new();
        for worker in &left {
            reports.insert(worker.clone(), report(&context, worker).await?);
        }
        judge(&reports, &jobs, left.len())?;
        Ok(Some(reports))
    })
    .await?;
    lap("every job runs, on the other node");
    for worker in &away {
        let pod = context.api::<Pod>().get(worker).await?;
        ensure!(pod.metadata.deletion_timestamp.is_none(), "{worker} was deleted, and not lost");
    }
    for worker in &left {
        let kept = before[worker].jobs.is_subset(&of_the_others[worker].jobs);
        ensure!(kept, "{worker} was made to give jobs away");
    }

    let change = Instant::now();
    context.cluster.revive_node(lost).await?;
    at_rest(&context, &jobs, WORKERS, change).await?;
    Ok(())
}

/// The operator is on the node that stays; losing it is another story.
async fn node_without_operator(context: &Context) -> Result<u8> {
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), operator::NAMESPACE);
    let pods = pods.list(&ListParams::default().labels("app=swarm-controller")).await?;
    let operators: BTreeSet<_> = pods.items.iter().map(node_of).collect();
    let free = NODES.into_iter().find(|node| !operators.contains(&node_name(*node)));
    free.context("the operator is on both nodes")
}

/// The workers on a node, and those that are elsewhere.
async fn workers_on(context: &Context, node: u8) -> Result<(Vec<String>, Vec<String>)> {
    let pods = context.api::<Pod>().list(&ListParams::default()).await?;
    let (on, elsewhere): (Vec<_>, Vec<_>) =
        pods.items.iter().partition(|pod| node_of(pod) == node_name(node));
    let names = |pods: Vec<&Pod>| pods.into_iter().map(kube::ResourceExt::name_any).collect();
    Ok((names(on), names(elsewhere)))
}

fn node_of(pod: &Pod) -> String {
    pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default()
}

async fn not_ready(context: &Context, node: u8) -> Result<()> {
    let nodes: Api<Node> = Api::all(context.client.clone());
    let name = node_name(node);
    until("the loss to be noticed", REST_WITHIN, || async {
        let conditions = nodes.get(&name).await?.status.and_then(|status| status.conditions);
        let ready = conditions.unwrap_or_default().into_iter().find(|it| it.type_ == "Ready");
        Ok(ready.is_some_and(|it| it.status != "True").then_some(()))
    })
    .await
}
