//! The basis of scenarios about faults: each fault hits only its target, and is undone. No operator
//! takes part, so a failure here is the fault of the harness.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams};

use super::nodes::{node_of, ready};
use super::session_pool::{Protocol, SessionPool};
use crate::cluster::NODES;
use crate::run_log::Moment;
use crate::scenario::Context;
use crate::until::until;

/// A silence that is not accidental: three ticks.
const SILENCE: Duration = Duration::from_secs(3);

/// Two plain workers on two nodes, with a job each, from a view that this scenario writes.
const VIEW: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: plain-config}
data:
  config.yml: |
    workloads:
      plain-0: {jobs: [zero], version: 1}
      plain-1: {jobs: [one], version: 1}
    version: 1
";

pub(super) async fn run(context: Context) -> Result<()> {
    let mut pool = SessionPool::new(&context, "plain");
    (pool.protocol, pool.must_spread) = (Protocol::Plain, true);
    pool.jobs = ["zero", "one"].map(str::to_owned).into();
    context.apply(VIEW).await?;
    pool.apply_workload().await?;
    pool.at_rest().await?;
    let [zero, one] = [pool.pod(0).await?, pool.pod(1).await?];
    ensure!(node_of(&zero)? != node_of(&one)?, "both workers are on one node");
    context.laps.lap("two workers on two nodes");

    freezing(&pool, &zero).await?;
    a_pod_without_network(&pool, &zero).await?;
    nodes_that_are_lost(&pool, &zero, &one).await?;
    the_store_rolled_back(&pool).await?;
    draining(&pool, node_of(&one)?).await
}

async fn freezing(pool: &SessionPool, zero: &Pod) -> Result<()> {
    let frozen = pool.context.cluster.freeze_pod(zero).await?;
    let mark = Moment::now();
    until("a silence", || async {
        let history = pool.history()?;
        let running: Vec<_> = history.since(mark).map(|event| event.job.as_str()).collect();
        ensure!(!running.contains(&"zero"), "a frozen worker still runs: {running:?}");
        Ok((running.contains(&"one") && SILENCE < Moment::now().since(mark)).then_some(()))
    })
    .await?;
    frozen.thaw()?;
    both_run(pool).await?;
    pool.context.laps.lap("a pod was frozen");
    Ok(())
}

async fn a_pod_without_network(pool: &SessionPool, zero: &Pod) -> Result<()> {
    let context = &pool.context;
    let answers = || async {
        let answer = context.cluster.pod_http(&context.namespace, "plain-0", 9090, "ping");
        tokio::time::timeout(Duration::from_secs(1), answer).await?
    };
    until("an answer", || async { answers().await.map(Some) }).await?;
    let cut = context.cluster.cut_off_pod(zero).await?;
    let report: Result<String> = answers().await;
    ensure!(report.is_err(), "a pod without a network answers");
    both_run(pool).await?;
    cut.reconnect()?;
    until("an answer", || async { answers().await.map(Some) }).await?;
    context.laps.lap("a pod lost its network");
    Ok(())
}

/// Cuts one node off from the API server, and kills the kubelet of the other. Both pods keep
/// running.
async fn nodes_that_are_lost(pool: &SessionPool, zero: &Pod, one: &Pod) -> Result<()> {
    let cluster = &pool.context.cluster;
    let kubelet = format!("kubelet-{}", node_of(one)?);
    let cut = cluster.cut_off_node(node_of(zero)?)?;
    cluster.components.kill(&kubelet)?;
    for node in NODES {
        ready(&pool.context, node, "Unknown").await?;
    }
    both_run(pool).await?;
    cut.reconnect()?;
    cluster.components.restart(&kubelet)?;
    for node in NODES {
        ready(&pool.context, node, "True").await?;
    }
    both_run(pool).await?;
    pool.context.laps.lap("a node was cut off, the other one lost its kubelet");
    Ok(())
}

/// Restores a copy of the store. Objects that were created after the copy are gone, and deleted
/// objects are back. Pods do not notice.
async fn the_store_rolled_back(pool: &SessionPool) -> Result<()> {
    let (context, maps) = (&pool.context, pool.context.api::<ConfigMap>());
    let runs = pool.history()?.running(&pool.jobs)?;
    context.cluster.make_etcd_sync().await?;
    context.kubectl(&["create", "configmap", "before"]).await?;
    let copy = context.cluster.copy_etcd().await?;
    context.kubectl(&["create", "configmap", "after"]).await?;
    maps.delete("before", &DeleteParams::default()).await?;
    context.laps.lap("etcd syncs, and was copied");
    context.cluster.restore_etcd(copy).await?;
    ensure!(maps.get_opt("before").await?.is_some(), "an object from before the copy is gone");
    ensure!(maps.get_opt("after").await?.is_none(), "an object from after the copy exists");
    both_run(pool).await?;
    let now = pool.history()?.running(&pool.jobs)?;
    ensure!(now == runs, "other workers run the jobs: {now:?}");
    context.laps.lap("etcd was rolled back");
    Ok(())
}

async fn draining(pool: &SessionPool, node: u8) -> Result<()> {
    let context = &pool.context;
    context.cluster.drain(node, "app=plain").await?;
    until("both workers on one node", || async {
        let pods = context.api::<Pod>().list(&ListParams::default()).await?;
        for pod in &pods.items {
            ensure!(node_of(pod)? != node, "{} is still there", pod.name_any());
        }
        ensure!(pods.items.len() == 2, "{} pods", pods.items.len());
        Ok(Some(()))
    })
    .await?;
    both_run(pool).await?;
    context.cluster.uncordon(node).await?;
    context.laps.lap("a node was drained");
    Ok(())
}

/// Waits until both jobs report that they run, after now.
async fn both_run(pool: &SessionPool) -> Result<()> {
    let mark = Moment::now();
    until("both jobs to run", || async {
        let history = pool.history()?;
        let running: Vec<_> = history.since(mark).map(|event| event.job.as_str()).collect();
        Ok((running.contains(&"zero") && running.contains(&"one")).then_some(()))
    })
    .await
}
