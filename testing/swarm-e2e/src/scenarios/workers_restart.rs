//! Workers that end and return in their slots find their jobs, and no job moves to another slot. In
//! one scenario a worker is killed from outside, and in the other all restart in turn.

use std::time::Instant;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use swarm_client::api::SwarmLedger;

use super::pool::{at_rest, jobs_of, sample};
use crate::scenario::Context;
use crate::until::until;

/// Kills a worker. The kubelet restarts its container, and the operator takes no part.
pub(super) async fn killed(context: Context) -> Result<()> {
    context.operator().await?;
    let manifest = sample(2)?;
    let jobs = jobs_of(&manifest);
    context.apply(&manifest).await?;
    let before = at_rest(&context, &jobs, 2, Instant::now()).await?;
    let version = version(&context).await?;

    let pods = context.api::<Pod>();
    let worker = pods.get("swarm-worker-0").await?;
    let change = Instant::now();
    context.cluster.kill_containers(&worker).await?;
    until("the worker to have been restarted", || async {
        let status = pods.get("swarm-worker-0").await?.status.unwrap_or_default();
        let containers = status.container_statuses.unwrap_or_default();
        Ok(containers.iter().any(|it| it.restart_count == 1).then_some(()))
    })
    .await?;
    let after = at_rest(&context, &jobs, 2, change).await?;
    ensure!(after == before, "it has other jobs than before: {after:?}");
    no_job_moved(&context, version).await
}

/// Restarts all workers: `kubectl rollout restart` ends one pod after the other. The jobs of each
/// slot wait for its next pod.
pub(super) async fn rolled(context: Context) -> Result<()> {
    context.operator().await?;
    let manifest = sample(3)?;
    let jobs = jobs_of(&manifest);
    context.apply(&manifest).await?;
    let before = at_rest(&context, &jobs, 3, Instant::now()).await?;
    let version = version(&context).await?;

    let change = Instant::now();
    context.kubectl(&["rollout", "restart", "statefulset/swarm-worker"]).await?;
    let status = ["rollout", "status", "statefulset/swarm-worker", "--timeout=5m"];
    context.kubectl(&status).await?;
    let after = at_rest(&context, &jobs, 3, change).await?;
    ensure!(after == before, "they have other jobs than before: {after:?}");
    no_job_moved(&context, version).await
}

/// The version of the ledger, which counts publications.
async fn version(context: &Context) -> Result<i64> {
    Ok(context.api::<SwarmLedger>().get("statefulset.swarm-worker").await?.spec.version)
}

/// Checks that nothing was published since `version`, so no worker had other jobs even for a
/// moment.
async fn no_job_moved(context: &Context, version: i64) -> Result<()> {
    let now = self::version(context).await?;
    ensure!(now == version, "{} publications meanwhile", now - version);
    Ok(())
}
