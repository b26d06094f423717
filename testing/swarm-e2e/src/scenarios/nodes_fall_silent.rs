//! Nodes of sessions fall silent in part. A kubelet is frozen or dead while its pods run, a pod has
//! no network, or a node is cut off from the API server. Pools of both policies run side by side.
//! Nothing moves while workers can still renew their Leases. Workers that cannot renew stop their
//! own jobs before others start these jobs.

use anyhow::{Result, ensure};

use super::nodes;
use super::session_pool::{SHORT_GRACEFUL, SILENCE, SessionPool, TICK};
use crate::run_log::Moment;
use crate::scenario::Context;

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let mut pools = SessionPool::of_both_policies(&context, 2).map(SessionPool::with_short_leases);
    for pool in &mut pools {
        pool.must_spread = true;
        // Jobs of a worker whose Lease was revoked do not wait for it.
        pool.return_grace = "5m";
    }
    let node = nodes::with_one_replica(&context).await?;
    for pool in &pools {
        pool.apply().await?;
    }
    for pool in &pools {
        pool.at_rest().await?;
    }
    a_silent_kubelet(&context, &pools, node).await?;
    let [exclusive, patient] = &pools;
    tokio::try_join!(a_pod_is_cut_off(exclusive, node), a_pod_is_cut_off(patient, node))?;
    a_node_is_cut_off(&context, &pools, node).await
}

/// Freezes a kubelet, and then kills it, while its pods run and renew their Leases. Kubernetes
/// gives the node up. Workers that renew still count as present, and keep their jobs.
async fn a_silent_kubelet(context: &Context, pools: &[SessionPool; 2], node: u8) -> Result<()> {
    let (components, kubelet) = (&context.cluster.components, format!("kubelet-{node}"));
    let before = [pools[0].at_rest().await?, pools[1].at_rest().await?];
    for (what, is_killed) in [("a kubelet was frozen", false), ("a kubelet was killed", true)] {
        let mark = Moment::now();
        if is_killed {
            components.kill(&kubelet)?;
        } else {
            components.freeze(&kubelet)?;
        }
        nodes::ready(context, node, "Unknown").await?;
        context.laps.lap(format!("{what}, and Kubernetes gave the node up"));
        if is_killed {
            components.restart(&kubelet)?;
        } else {
            components.thaw(&kubelet)?;
        }
        nodes::ready(context, node, "True").await?;
        for (pool, before) in pools.iter().zip(&before) {
            let after = pool.at_rest().await?;
            ensure!(after == *before, "{}: {what}: {before:?} became {after:?}", pool.name);
            pool.untouched(&format!("{what} and came back"), mark)?;
        }
    }
    Ok(())
}

/// Cuts the pod on `node` off from its network. The pod keeps running.
async fn a_pod_is_cut_off(pool: &SessionPool, node: u8) -> Result<()> {
    let context = &pool.context;
    let [zero, one] = [pool.pod(0).await?, pool.pod(1).await?];
    let pod = if nodes::node_of(&zero)? == node { zero } else { one };
    let mark = Moment::now();
    let cut = context.cluster.cut_off_pod(&pod).await?;
    pool.at_rest_on(1).await?;
    pool.judge("a pod was cut off", mark, SILENCE + TICK)?;
    let back = Moment::now();
    cut.reconnect()?;
    pool.at_rest().await?;
    pool.judge("it was reconnected", back, SHORT_GRACEFUL)
}

/// Cuts the kubelet of the node and all its pods off from the API server.
async fn a_node_is_cut_off(context: &Context, pools: &[SessionPool; 2], node: u8) -> Result<()> {
    let mark = Moment::now();
    let cut = context.cluster.cut_off_node(node)?;
    for pool in pools {
        pool.at_rest_on(1).await?;
        pool.judge("a node was cut off", mark, SILENCE + TICK)?;
    }
    let back = Moment::now();
    cut.reconnect()?;
    nodes::ready(context, node, "True").await?;
    for pool in pools {
        pool.at_rest().await?;
        pool.judge("the node was reconnected", back, SHORT_GRACEFUL)?;
    }
    Ok(())
}
