//! A node dies under workers with long Leases and `Exclusive`. The operator does not wait for these
//! Leases once an administrator declares the node off. The administrator sets the taint that
//! Kubernetes has for this, or deletes the node. The declaration does not count for a node whose
//! workers still renew.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::api::DeleteParams;
use kube::{Api, ResourceExt as _};
use swarm_adapters_host::runlog::judge::Event;
use swarm_client::api::SwarmLedger;

use super::nodes;
use super::session_pool::{Policy, SessionPool, TICK};
use crate::cluster::node_name;
use crate::operator;
use crate::run_log::Moment;
use crate::scenario::Context;
use crate::until::until;

/// A lease much longer than this scenario can wait.
const LEASE: Duration = Duration::from_mins(10);
/// The longest allowed time from the declaration until all jobs run elsewhere. An idle machine needs
/// some seconds.
const WITHIN: Duration = Duration::from_secs(LEASE.as_secs() / 10);
/// The number of log lines for which every job has to keep running. Jobs log once a second.
const TICKS: usize = 8;
const TAINT: &str = "node.kubernetes.io/out-of-service";

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let node = nodes::with_one_replica(&context).await?;
    let name = node_name(node);
    let mut pool = SessionPool::new(&context, "patient");
    (pool.policy, pool.lease, pool.lease_allowed) = (Policy::Exclusive, LEASE, LEASE);
    pool.must_spread = true;
    pool.apply().await?;
    lives_on(&pool, node).await?;

    dies(&pool, node).await?;
    let declared = Moment::now();
    let taint = format!("{TAINT}=nodeshutdown:NoExecute");
    context.cluster.kubectl(&["taint", "node", &name, &taint]).await?;
    runs_elsewhere(&pool, declared, "tainted").await?;
    context.cluster.kubectl(&["taint", "node", &name, &format!("{TAINT}-")]).await?;
    comes_back(&pool, node).await?;

    dies(&pool, node).await?;
    let declared = Moment::now();
    delete(&context, node).await?;
    runs_elsewhere(&pool, declared, "deleted").await?;
    comes_back(&pool, node).await
}

async fn delete(context: &Context, node: u8) -> Result<()> {
    let nodes: Api<Node> = Api::all(context.client.clone());
    nodes.delete(&node_name(node), &DeleteParams::default()).await?;
    Ok(())
}

/// Deletes the node by mistake. The node is back when its kubelet restarts.
async fn lives_on(pool: &SessionPool, node: u8) -> Result<()> {
    let before = pool.at_rest().await?;
    let mark = Moment::now();
    delete(&pool.context, node).await?;
    until("every job to keep running for a while", || async {
        let history = pool.history()?;
        ensure!(history.running(&pool.jobs)? == before, "something moved");
        let ticks = |job: &String| history.since(mark).filter(|event| event.job == *job).count();
        Ok(pool.jobs.iter().all(|job| TICKS <= ticks(job)).then_some(()))
    })
    .await?;
    let kubelet = format!("kubelet-{node}");
    pool.context.cluster.components.kill(&kubelet)?;
    pool.context.cluster.components.restart(&kubelet)?;
    nodes::ready(&pool.context, node, "True").await?;
    ensure!(pool.at_rest().await? == before, "something moved when the node was back");
    pool.untouched("a node was deleted by mistake", mark)
}

/// Kills the node and waits until Kubernetes gives it up. Nothing moves.
async fn dies(pool: &SessionPool, node: u8) -> Result<()> {
    pool.at_rest().await?;
    let [zero, one] = [pool.pod(0).await?, pool.pod(1).await?];
    ensure!(nodes::node_of(&zero)? != nodes::node_of(&one)?, "both workers are on one node");
    pool.context.cluster.kill_node(node)?;
    let mark = Moment::now();
    nodes::ready(&pool.context, node, "Unknown").await?;
    has_living_owner(pool, node).await?;
    let history = pool.history()?;
    let moved = history.since(mark).find(|event| event.event == Event::Start);
    ensure!(moved.is_none(), "nobody declared it off, and {moved:?}");
    Ok(())
}

/// Waits until a replica on the other node has the Swarm. The declaration also makes Kubernetes
/// replace the replica on the dead node. A replica that has just started does not know yet which
/// workers are silent.
async fn has_living_owner(pool: &SessionPool, node: u8) -> Result<()> {
    until("a replica that lives to have the Swarm", || async {
        let ledger = pool.context.api::<SwarmLedger>().get("statefulset.patient").await?;
        let member = ledger.spec.writer.context("nobody writes the ledger")?.member;
        let pods = operator::pods(&pool.context.cluster).await?;
        let of_member = pods.iter().find(|pod| member.starts_with(&pod.name_any()));
        let of_member = of_member.with_context(|| format!("{member} has no pod"))?;
        Ok((nodes::node_of(of_member)? != node).then_some(()))
    })
    .await
}

async fn runs_elsewhere(pool: &SessionPool, declared: Moment, what: &str) -> Result<()> {
    until("all jobs to run", || async { pool.history()?.running(&pool.jobs).map(Some) }).await?;
    pool.judge(&format!("the node was {what}"), declared, WITHIN + TICK)
}

async fn comes_back(pool: &SessionPool, node: u8) -> Result<()> {
    pool.context.cluster.revive_node(node).await?;
    // All workers may be on one node, whose end would then end all of them.
    pool.context.kubectl(&["rollout", "restart", "statefulset/patient"]).await?;
    pool.context.kubectl(&["rollout", "status", "statefulset/patient", "--timeout=5m"]).await?;
    pool.at_rest().await?;
    pool.context.laps.lap("the node is back, and jobs are shared again");
    Ok(())
}
