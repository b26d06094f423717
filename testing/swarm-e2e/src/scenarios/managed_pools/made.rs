//! One `Swarm` of a dozen lines gets all objects that it needs, and its jobs run.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::json;
use swarm_client::annotations::SWARM_LABEL;

use super::objects;
use crate::scenario::Context;
use crate::until::until;

const MANIFEST: &str = "
apiVersion: swarm.k8slab.info/v1alpha1
kind: Swarm
metadata: {name: streams}
spec:
  replicas: 3
  pool:
    managed: {}
  worker:
    runner: {log: {}}
  jobs:
    - name: stream:xxrtve1
    - name: stream:cars:new
    - name: stream:cctv0:updated
    - name: stream:sportnews0:updated
";

pub(crate) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let applied = Instant::now();
    context.apply(MANIFEST).await?;
    let loads = until("four jobs to run on three pods", || async {
        let loads = running(&context).await?;
        ensure!(loads.len() == 3 && loads.values().sum::<usize>() == 4, "running: {loads:?}");
        Ok(Some(loads))
    })
    .await?;
    ensure!(loads.values().max() == Some(&2), "uneven: {loads:?}");
    context.laps.lap(format!("four jobs run {} ms after the apply", applied.elapsed().as_millis()));
    context.kubectl(&["wait", "--for=condition=Ready", "swarm/streams", "--timeout=5m"]).await?;
    let expected = [
        "Deployment streams",
        "PodDisruptionBudget streams",
        "RoleBinding streams",
        "Service streams-pods",
        "ServiceAccount streams",
    ];
    let found = objects(&context, "streams").await?;
    ensure!(found.iter().eq(&expected), "there are {found:?}");
    let maps = context.api::<ConfigMap>().list_metadata(&ListParams::default()).await?;
    let maps: Vec<_> = maps.iter().map(ResourceExt::name_any).collect();
    ensure!(maps == ["kube-root-ca.crt"], "sessions need no ConfigMap: {maps:?}");
    a_program_of_another_image_runs(&context).await
}

/// Puts our worker into an image that does not contain it, and runs a program of that image.
async fn a_program_of_another_image_runs(context: &Context) -> Result<()> {
    let command = ["sh", "-c", "echo \"running $0\"; exec sleep 1000", "{job}"];
    let swarm = json!({
        "apiVersion": "swarm.k8slab.info/v1alpha1", "kind": "Swarm", "metadata": {"name": "other"},
        "spec": {
            "replicas": 1,
            "pool": {"managed": {"image": "busybox:stable"}},
            "worker": {"protocol": "Session", "runner": {"command": command}},
            "jobs": [{"name": "feed:0"}],
        },
    });
    context.apply(&swarm.to_string()).await?;
    until("the program to run", || async {
        let pods = ListParams::default().labels(&format!("{SWARM_LABEL}=other"));
        let pods = context.api::<Pod>().list_metadata(&pods).await?;
        let pod = pods.items.first().context("no pod")?.name_any();
        let log = context.cluster.pod_log(&context.namespace, &pod).await?;
        ensure!(log.contains("running feed:0"), "{log}");
        Ok(Some(()))
    })
    .await
}

/// The number of jobs that each pod runs, by its log.
async fn running(context: &Context) -> Result<BTreeMap<String, usize>> {
    let pods = ListParams::default().labels(&format!("{SWARM_LABEL}=streams"));
    let mut loads = BTreeMap::new();
    for pod in context.api::<Pod>().list(&pods).await? {
        let log = context.cluster.pod_log(&context.namespace, &pod.name_any()).await?;
        let (started, stopped) =
            (log.matches("started job=").count(), log.matches("stopped job=").count());
        loads.insert(pod.name_any(), started.saturating_sub(stopped));
    }
    Ok(loads)
}
