//! The cost of a worker that pings all others.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::process::{Cost, cost};
use crate::cluster::Cluster;
use crate::output::say;
use crate::scenario::Context;
use crate::until::until_within;

/// The number of workers, and of the targets of each.
const PEERS: u16 = 20;
/// The bound on every wait.
const WITHIN: Duration = Duration::from_mins(5);

pub(super) async fn measure(cluster: &Arc<Cluster>, rest: Duration) -> Result<()> {
    let context = Context::new(cluster, "figures-peering").await?;
    context.operator().await?;
    let target = |n| json!({"name": format!("peering-{n}.peering-pods:9090")});
    let swarm = json!({
        "apiVersion": "swarm.k8slab.info/v1alpha1", "kind": "Swarm", "metadata": {"name": "peering"},
        "spec": {
            "replicas": PEERS, "replication": "All",
            "pool": {"managed": {"kind": "StatefulSet"}},
            "worker": {"runner": {"ping": {"interval": "30s"}}},
            "jobs": (0..PEERS).map(target).collect::<Vec<_>>(),
        },
    });
    context.apply(&swarm.to_string()).await?;
    until_within("all to have pinged all", WITHIN, || async {
        for n in 0..PEERS {
            let pod = format!("peering-{n}");
            let text = cluster.pod_http(&context.namespace, &pod, 9090, "metrics").await?;
            let answered = text.matches("swarm_pings_answered_total{").count();
            ensure!(answered == usize::from(PEERS), "{pod} had answers from {answered}");
        }
        Ok(Some(()))
    })
    .await?;
    let before = costs(&context).await?;
    tokio::time::sleep(rest).await;
    let after = costs(&context).await?;
    let spent = |cost: &[Cost]| cost.iter().map(|it| it.cpu_seconds).sum::<f64>();
    let millis = (spent(&after) - spent(&before)) * 1e3 / f64::from(PEERS);
    let most = after.iter().map(|it| it.peak_mib).max().unwrap_or_default();
    say(format_args!(
        "{PEERS} pods × {PEERS} targets every 30 s: {:.1} ms of CPU a minute and worker, {most} MiB at most",
        millis * 60.0 / rest.as_secs_f64()
    ));
    context.kubectl(&["delete", "swarm", "--all"]).await.map(drop)
}

/// The cost of each worker so far.
async fn costs(context: &Context) -> Result<Vec<Cost>> {
    let mut costs = Vec::new();
    for n in 0..PEERS {
        let pod = context.api::<Pod>().get(&format!("peering-{n}")).await?;
        costs.push(cost(context.cluster.process(&pod).await?)?);
    }
    Ok(costs)
}
