//! The autoscaler of Kubernetes reads the operator's gauge as an external metric. It scales the
//! Swarm through the scale subresource. It also scales the workload of a managed pool whose Swarm
//! has no `spec.replicas`.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use swarm_adapters_k8s::managed::wanted::ObjectKind;
use swarm_client::api::Swarm;

use super::session_pool::{GRACEFUL, Kind, SessionPool, TICK};
use crate::binaries::repository;
use crate::external_metrics::{ExternalMetrics, gauges};
use crate::run_log::Moment;
use crate::scenario::Context;
use crate::until::until;

/// The name of the Swarm in the documentation.
const NAME: &str = "streams";
/// The largest number of jobs of one worker.
const MAX_JOBS: usize = 3;

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let server = ExternalMetrics::serve(&context.cluster, &context.namespace).await?;
    let outcome = scaled_by_kubernetes(&context).await;
    ExternalMetrics::remove(&context.cluster).await?;
    drop(server);
    outcome
}

async fn scaled_by_kubernetes(context: &Context) -> Result<()> {
    let mut pool = SessionPool::new(context, NAME);
    pool.kind = Kind::Managed;
    pool.spec = json!({"worker": {"maxJobs": MAX_JOBS}});
    pool.apply().await?;
    pool.at_rest_on(2).await?;
    gauge(context, 2).await?;

    let documented = documented()?;
    context.apply(&documented).await?;
    follows(&pool, "the Swarm").await?;

    context.kubectl(&["delete", "hpa", NAME]).await?;
    pool.spec["replicas"] = json!(null);
    pool.apply_swarm().await?;
    let swarm = "{apiVersion: swarm.k8slab.info/v1alpha1, kind: Swarm, name: streams}";
    let workload = "{apiVersion: apps/v1, kind: Deployment, name: streams}";
    ensure!(documented.contains(swarm), "the documentation points to the Swarm");
    context.apply(&documented.replace(swarm, workload)).await?;
    follows(&pool, "the Deployment").await?;
    of_a_repaired_pool(&pool).await
}

/// The manifest of docs/autoscale.md, with a shorter time before it scales down.
fn documented() -> Result<String> {
    let page = fs::read_to_string(repository().join("docs/autoscale.md"))?;
    let blocks = page.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let mut blocks = blocks.filter(|block| block.contains("kind: HorizontalPodAutoscaler"));
    let block = blocks.next().context("docs/autoscale.md has no autoscaler")?;
    ensure!(block.contains("stabilizationWindowSeconds: 60"), "{block}");
    Ok(block.replace("stabilizationWindowSeconds: 60", "stabilizationWindowSeconds: 3"))
}

/// Waits until the operator's gauge and the status of the Swarm show this number of workers.
async fn gauge(context: &Context, workers: i64) -> Result<()> {
    until(&format!("the gauge to be {workers}"), || async {
        let all = gauges(&context.cluster, "swarm_needed_workers", &context.namespace).await?;
        ensure!(all == [(NAME.to_owned(), workers)], "{all:?}");
        let swarm = context.api::<Swarm>().get(NAME).await?;
        let desired = swarm.status.and_then(|status| status.desired_workers);
        ensure!(desired.map(i64::from) == Some(workers), "the status says {desired:?}");
        Ok(Some(()))
    })
    .await
}

/// A list of 15 jobs takes five workers, and a list of six takes two again. No job pauses for
/// longer than a graceful move.
async fn follows(pool: &SessionPool, who: &str) -> Result<()> {
    let large = SessionPool {
        jobs: (0..5 * MAX_JOBS).map(|n| format!("{NAME}:{n}")).collect(),
        ..pool.clone()
    };
    let (mark, change) = (Moment::now(), Instant::now());
    apply_jobs(&large).await?;
    gauge(&pool.context, 5).await?;
    large.at_rest_on(5).await?;
    let grown = change.elapsed().as_millis();
    pool.judge(&format!("{who}: 2 → 5 workers"), mark, GRACEFUL + TICK)?;
    let (mark, change) = (Moment::now(), Instant::now());
    apply_jobs(pool).await?;
    gauge(&pool.context, 2).await?;
    replicas(pool, 2).await?;
    pool.at_rest_on(2).await?;
    let shrunk = change.elapsed().as_millis();
    pool.judge(&format!("{who}: 5 → 2 workers"), mark, GRACEFUL + TICK)?;
    pool.context.laps.lap(format!("{who}: five after {grown} ms, two after {shrunk} ms"));
    Ok(())
}

/// Changes only the jobs: the number that an autoscaler has written stays.
async fn apply_jobs(pool: &SessionPool) -> Result<()> {
    let jobs: Vec<_> = pool.jobs.iter().map(|name| json!({"name": name})).collect();
    let patch = Patch::Merge(json!({"spec": {"jobs": jobs}}));
    pool.context.api::<Swarm>().patch(NAME, &PatchParams::default(), &patch).await?;
    Ok(())
}

async fn replicas(pool: &SessionPool, wanted: i32) -> Result<()> {
    until(&format!("{wanted} replicas"), || async {
        let found = pool.context.api::<Deployment>().get(NAME).await?;
        let found = found.spec.and_then(|spec| spec.replicas);
        ensure!(found == Some(wanted), "{found:?}");
        Ok(Some(()))
    })
    .await
}

/// Edits one object of the pool and deletes another. The operator repairs both, and leaves the
/// autoscaler's number alone.
async fn of_a_repaired_pool(pool: &SessionPool) -> Result<()> {
    let context = &pool.context;
    let large = SessionPool {
        jobs: (0..4 * MAX_JOBS).map(|n| format!("{NAME}:{n}")).collect(),
        ..pool.clone()
    };
    apply_jobs(&large).await?;
    replicas(pool, 4).await?;
    let label = "app.kubernetes.io/name";
    let edit = Patch::Merge(json!({"metadata": {"labels": {label: "mine"}}}));
    let params = PatchParams { field_manager: Some("somebody".into()), ..PatchParams::default() };
    let deployments = context.api::<Deployment>();
    deployments.patch_metadata(NAME, &params, &edit).await?;
    let budgets = super::managed_pools::api(context, ObjectKind::Budget);
    budgets.delete(NAME, &DeleteParams::default()).await?;
    until("the pool to be repaired", || async {
        let labels = deployments.get(NAME).await?.metadata.labels.unwrap_or_default();
        let found = labels.get(label);
        ensure!(found.is_some_and(|found| found != "mine"), "{found:?}");
        Ok(budgets.get_metadata_opt(NAME).await?.map(drop))
    })
    .await?;
    large.at_rest_on(4).await?;
    replicas(pool, 4).await?;
    let swarm = context.api::<Swarm>().get(NAME).await?;
    ensure!(swarm.spec.replicas.is_none(), "nobody writes spec.replicas");
    // The number is the same after a few rounds of the autoscaler and turns of the operator.
    tokio::time::sleep(Duration::from_secs(5)).await;
    replicas(pool, 4).await
}
