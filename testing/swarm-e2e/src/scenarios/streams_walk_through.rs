//! The main purpose of the product, as a user of the sample sees it. The workers of a StatefulSet
//! share 27 streams, through scaling, an edit of the list, and the loss of a worker and of the
//! operator. In the end the Swarm is deleted.

use std::collections::BTreeSet;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::ResourceExt as _;
use swarm_client::api::{Swarm, SwarmLedger};

use super::pool::{Reports, all_reports, at_rest, jobs_of, moved, sample};
use crate::operator;
use crate::scenario::Context;
use crate::until::until;

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let manifest = sample(2)?;
    let jobs = jobs_of(&manifest);
    ensure!(jobs.len() == 27, "the sample has 27 streams, not {}", jobs.len());

    let start = Instant::now();
    context.apply(&manifest).await?;
    let two = at_rest(&context, &jobs, 2, start).await?;
    ready(&context).await?;
    endpoints(&context).await?;

    let three = scale(&context, &jobs, 3).await?;
    ensure!(moved(&two, &three) == 9, "a third worker takes 9 of 27, not {}", moved(&two, &three));
    let two = scale(&context, &jobs, 2).await?;
    ensure!(
        moved(&three, &two) == 9,
        "only the jobs of the third move, not {}",
        moved(&three, &two)
    );

    let (jobs, two) = edit_the_list(&context, &manifest, &two).await?;
    let two = lose_a_worker(&context, &jobs, &two).await?;
    let jobs = lose_the_operator(&context, &jobs, &two).await?;
    delete_the_swarm(&context, &jobs).await
}

async fn ready(context: &Context) -> Result<()> {
    context.kubectl(&["wait", "--for=condition=Ready", "swarm/streams", "--timeout=5m"]).await?;
    Ok(())
}

/// Checks the other endpoints of a worker and of the operator.
async fn endpoints(context: &Context) -> Result<()> {
    let get = |namespace, pod: String, port, path| async move {
        context.cluster.pod_http(namespace, &pod, port, path).await
    };
    let (mine, worker) = (context.namespace.as_str(), || "swarm-worker-0".to_owned());
    let health = get(mine, worker(), 9090, "internal/health").await?;
    ensure!(health.contains("\"version\"") && health.contains("\"date\""), "health: {health}");
    let metrics = get(mine, worker(), 9090, "metrics").await?;
    ensure!(metrics.contains("swarm_worker_jobs 1"), "a worker of 13 or 14 jobs: {metrics}");

    let operators = operator::pods(&context.cluster).await?;
    let operator = operators.first().context("no operator pod")?.name_any();
    let metrics = get(operator::NAMESPACE, operator, 8080, "metrics").await?;
    ensure!(metrics.contains("swarm_ledger_writes_total"), "of the operator: {metrics}");
    Ok(())
}

async fn scale(context: &Context, jobs: &BTreeSet<String>, workers: usize) -> Result<Reports> {
    let change = Instant::now();
    let replicas = format!("--replicas={workers}");
    context.kubectl(&["scale", "statefulset", "swarm-worker", &replicas]).await?;
    at_rest(context, jobs, workers, change).await
}

/// Removes one stream and adds another. The workers that have neither are not affected.
async fn edit_the_list(
    context: &Context,
    manifest: &str,
    before: &Reports,
) -> Result<(BTreeSet<String>, Reports)> {
    let edited = manifest.replace("stream:foo:new", "stream:bar:new");
    let jobs = jobs_of(&edited);
    let change = Instant::now();
    context.apply(&edited).await?;
    let after = at_rest(context, &jobs, 2, change).await?;
    ensure!(moved(before, &after) <= 1, "an edit of one stream moves at most one other");
    Ok((jobs, after))
}

/// Deletes a pod, which is recreated in its slot, with its jobs.
async fn lose_a_worker(
    context: &Context,
    jobs: &BTreeSet<String>,
    before: &Reports,
) -> Result<Reports> {
    let pods = context.api::<Pod>();
    let lost = pods.get("swarm-worker-0").await?.uid();
    let change = Instant::now();
    context.kubectl(&["delete", "pod", "swarm-worker-0", "--wait=false"]).await?;
    until("another pod in slot 0", || async {
        Ok((pods.get("swarm-worker-0").await?.uid() != lost).then_some(()))
    })
    .await?;
    let after = at_rest(context, jobs, 2, change).await?;
    ensure!(after == *before, "a worker that returns finds its jobs; none moved");
    Ok(after)
}

/// Stops the operator, while the workers keep running. A new operator finds everything in order,
/// and carries out the edits made meanwhile.
async fn lose_the_operator(
    context: &Context,
    jobs: &BTreeSet<String>,
    before: &Reports,
) -> Result<BTreeSet<String>> {
    operator::stop(&context.cluster).await?;
    ensure!(all_reports(context).await? == *before, "workers keep running without the operator");
    let remove = r#"[{"op": "remove", "path": "/spec/jobs/0"}]"#;
    context.kubectl(&["patch", "swarm", "streams", "--type=json", "--patch", remove]).await?;

    let change = Instant::now();
    operator::go_on(&context.cluster).await?;
    let mut jobs = jobs.clone();
    jobs.remove("stream:xxrtve1");
    let after = at_rest(context, &jobs, 2, change).await?;
    ensure!(moved(before, &after) <= 1, "the new operator moves no more than the change needs");
    let version = |reports: &Reports| reports.values().map(|report| report.version).max();
    ensure!(version(&after) > version(before), "versions continue");
    Ok(jobs)
}

/// Deletes the Swarm. Its workers are left without jobs, and the pool is not touched.
async fn delete_the_swarm(context: &Context, jobs: &BTreeSet<String>) -> Result<()> {
    ensure!(!jobs.is_empty(), "there is something to stop");
    let change = Instant::now();
    context.kubectl(&["delete", "swarm", "streams", "--timeout=5m"]).await?;
    context.laps.lap(format!("kubectl delete returned after {} ms", change.elapsed().as_millis()));
    at_rest(context, &BTreeSet::new(), 2, change).await?;
    until("the ledger to be deleted with its Swarm", || async {
        let swarm = context.api::<Swarm>().get_opt("streams").await?;
        let ledger = context.api::<SwarmLedger>().get_opt("statefulset.swarm-worker").await?;
        Ok((swarm.is_none() && ledger.is_none()).then_some(()))
    })
    .await?;
    let view = context.api::<ConfigMap>().get("swarm-worker-config").await?;
    let text = view.data.unwrap_or_default().remove("config.yml").unwrap_or_default();
    ensure!(!text.contains("stream:"), "the view stays, emptied: {text}");
    Ok(())
}
