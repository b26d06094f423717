//! Helpers for scenarios about nodes.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};

use crate::cluster::{NODES, node_name, takes_pods};
use crate::operator;
use crate::scenario::Context;
use crate::until::until;

/// How long Kubernetes may take to notice that a kubelet is silent, or that it is back.
const NOTICED_WITHIN: Duration = Duration::from_secs(45);

/// The node that a pod is on.
pub(super) fn node_of(pod: &Pod) -> Result<u8> {
    let on = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
    let node = NODES.into_iter().find(|node| node_name(*node) == on);
    let Some(node) = node else { bail!("{} is on no node", pod.name_any()) };
    Ok(node)
}

/// The node without the operator; losing the operator as well is another scenario. A pod of the
/// operator that is still being deleted since the scenario before is awaited.
pub(super) async fn without_operator(context: &Context) -> Result<u8> {
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), operator::NAMESPACE);
    until("the operator to be on one node", NOTICED_WITHIN, || async {
        let pods = pods.list(&ListParams::default().labels("app=swarm-controller")).await?;
        let on = pods.items.iter().map(node_of).collect::<Result<BTreeSet<_>>>()?;
        ensure!(!on.is_empty(), "it has no pod");
        let free = NODES.into_iter().find(|node| !on.contains(node));
        free.context("it is on both nodes").map(Some)
    })
    .await
}

/// Waits until Kubernetes reports the readiness of a node: `True`, and then that it takes pods,
/// too; or `Unknown` if it is silent.
pub(super) async fn ready(context: &Context, node: u8, status: &str) -> Result<()> {
    let nodes: Api<Node> = Api::all(context.client.clone());
    let name = node_name(node);
    until(&format!("{name} to be ready: {status}"), NOTICED_WITHIN, || async {
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
