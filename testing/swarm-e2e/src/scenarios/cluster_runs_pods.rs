//! The basis of every other scenario: pods run on both nodes, are recreated, and objects can be
//! created. When this fails, the cluster is at fault and not the product.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt as _};

use crate::scenario::Context;
use crate::until::until;

const MANIFEST: &str = "
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: idle}
spec:
  replicas: 2
  podManagementPolicy: Parallel
  serviceName: idle
  selector: {matchLabels: {app: idle}}
  template:
    metadata: {labels: {app: idle}}
    spec:
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: DoNotSchedule
          labelSelector: {matchLabels: {app: idle}}
      containers:
        - name: idle
          image: registry.local/pause:1
          imagePullPolicy: Never
---
apiVersion: v1
kind: ConfigMap
metadata: {name: note}
data: {text: hello}
";

pub(super) async fn run(context: Context) -> Result<()> {
    context.apply(MANIFEST).await?;
    let note = context.api::<ConfigMap>().get("note").await?;
    ensure!(note.data == Some(BTreeMap::from([("text".into(), "hello".into())])), "{note:?}");

    let pods: Api<Pod> = context.api();
    let first = until("two ready pods", || ready(&pods, 2)).await?;
    context.laps.lap("two pods ready");
    let nodes: BTreeSet<_> =
        first.iter().filter_map(|pod| pod.spec.as_ref()?.node_name.clone()).collect();
    ensure!(nodes.len() == 2, "pods are not spread: {nodes:?}");

    let lost = pods.get("idle-0").await?.uid();
    pods.delete("idle-0", &DeleteParams::default()).await?;
    until("idle-0 to be back", || async {
        let back = ready(&pods, 2).await?.unwrap_or_default();
        let is_new = |pod: &Pod| pod.name_any() == "idle-0" && pod.uid() != lost;
        Ok(back.iter().any(is_new).then_some(()))
    })
    .await?;
    context.laps.lap("deleted pod is back");
    Ok(())
}

async fn ready(pods: &Api<Pod>, wanted: usize) -> Result<Option<Vec<Pod>>> {
    let mut found = pods.list(&ListParams::default()).await?.items;
    found.retain(is_ready);
    if found.len() < wanted {
        bail!("{} of {wanted} ready", found.len());
    }
    Ok(Some(found))
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = |all: &Vec<_>| all.iter().any(is_true_ready);
    pod.metadata.deletion_timestamp.is_none() && conditions.is_some_and(ready)
}

fn is_true_ready(condition: &k8s_openapi::api::core::v1::PodCondition) -> bool {
    condition.type_ == "Ready" && condition.status == "True"
}
