//! Helpers for scenarios about nodes.

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, ResourceExt as _};

use crate::cluster::{NODES, node_name, takes_pods};
use crate::operator;
use crate::scenario::Context;
use crate::until::until;

/// The node that a pod is on.
pub(super) fn node_of(pod: &Pod) -> Result<u8> {
    let on = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
    let node = NODES.into_iter().find(|node| node_name(*node) == on);
    let Some(node) = node else { bail!("{} is on no node", pod.name_any()) };
    Ok(node)
}

/// A node whose loss leaves a replica of the operator. If both nodes have a replica, one replica is
/// lost as well.
pub(super) async fn with_one_replica(context: &Context) -> Result<u8> {
    until("a replica of the operator", || async {
        let pods = operator::pods(&context.cluster).await?;
        let on = pods.iter().map(node_of).collect::<Result<Vec<_>>>()?;
        let stays = |node: &u8| on.iter().any(|at| at != node);
        // Prefers a node with a replica, so that one is lost as well.
        let found = NODES.into_iter().filter(stays).max_by_key(|node| on.contains(node));
        found.with_context(|| format!("the replicas are on {on:?}")).map(Some)
    })
    .await
}

/// Waits until Kubernetes reports this readiness of a node. `True` also waits until the node takes
/// pods, and `Unknown` means a silent node.
pub(super) async fn ready(context: &Context, node: u8, status: &str) -> Result<()> {
    let nodes: Api<Node> = Api::all(context.client.clone());
    let name = node_name(node);
    until(&format!("{name} to be ready: {status}"), || async {
        let node = nodes.get(&name).await?;
        ensure!(status != "True" || takes_pods(&node), "it is still tainted: {:?}", node.spec);
        let conditions = node.status.and_then(|status| status.conditions);
        let ready = conditions.unwrap_or_default().into_iter().find(|it| it.type_ == "Ready");
        let Some(ready) = ready else { bail!("it has not reported") };
        ensure!(ready.status == status, "{}", ready.status);
        Ok(Some(()))
    })
    .await
}
