//! `spec.replicas`: the Swarm decides the number of workers, by `kubectl scale` and by a horizontal
//! autoscaler. No worker is deleted before its jobs have moved.

use std::collections::BTreeSet;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::ListParams;
use swarm_client::api::Swarm;

use super::bad_input_is_refused::reported;
use super::pool::{Reports, all_reports, at_rest, jobs_of, report, sample};
use crate::scenario::Context;
use crate::until::until;

const AUTOSCALER: &str = "
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: streams}
spec:
  scaleTargetRef: {apiVersion: swarm.k8slab.info/v1alpha1, kind: Swarm, name: streams}
  minReplicas: 4
  maxReplicas: 5
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}]
";

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let manifest = sample(1)?.replacen("  pool:\n", "  replicas: 2\n  pool:\n", 1);
    let jobs = jobs_of(&manifest);
    context.apply(&manifest).await?;
    at_rest(&context, &jobs, 2, Instant::now()).await?;

    context.kubectl(&["scale", "swarm", "streams", "--replicas=3"]).await?;
    let three = at_rest(&context, &jobs, 3, Instant::now()).await?;
    scale_subresource(&context).await?;

    let change = Instant::now();
    context.kubectl(&["scale", "swarm", "streams", "--replicas=1"]).await?;
    emptied_before_they_go(&context, &three).await?;
    at_rest(&context, &jobs, 1, change).await?;
    taken_over(&context, &jobs).await?;

    context.apply(AUTOSCALER).await?;
    at_rest(&context, &jobs, 4, Instant::now()).await?;
    context.kubectl(&["delete", "hpa", "streams"]).await?;
    Ok(())
}

/// Checks the scale that an autoscaler reads.
async fn scale_subresource(context: &Context) -> Result<()> {
    let path = format!(
        "/apis/swarm.k8slab.info/v1alpha1/namespaces/{}/swarms/streams/scale",
        context.namespace
    );
    until("the scale to be three", || async {
        let text = context.cluster.kubectl(&["get", "--raw", &path]).await?;
        let scale: serde_json::Value = serde_json::from_str(&text)?;
        let (wanted, there) = (&scale["spec"]["replicas"], &scale["status"]["replicas"]);
        if *wanted != 3 || *there != 3 || scale["status"]["selector"] != "app=swarm-worker" {
            bail!("{scale}");
        }
        Ok(Some(()))
    })
    .await
}

/// Checks that the workload is scaled down only when the surplus workers report that they run
/// nothing.
async fn emptied_before_they_go(context: &Context, three: &Reports) -> Result<()> {
    ensure!(three.values().all(|report| !report.jobs.is_empty()), "all three have jobs");
    let emptied = until("the top slots to be empty", || async {
        let mut empty = true;
        for pod in ["swarm-worker-1", "swarm-worker-2"] {
            empty &= report(context, pod).await?.jobs.is_empty();
        }
        Ok(empty.then(Instant::now))
    })
    .await;
    let emptied = emptied.context("a worker was deleted before its jobs had moved")?;
    until("the workload to be scaled down", || async {
        let set = context.api::<StatefulSet>().get("swarm-worker").await?;
        Ok((set.spec.and_then(|spec| spec.replicas) == Some(1)).then_some(()))
    })
    .await?;
    let after = emptied.elapsed().as_millis();
    context.laps.lap(format!("fewer pods {after} ms after they had no jobs"));
    Ok(())
}

/// Scales the workload again and again, like an autoscaler that points to the workload.
async fn contested(context: &Context) -> Result<()> {
    for _ in 0..2 {
        context.kubectl(&["scale", "statefulset", "swarm-worker", "--replicas=2"]).await?;
        until("the Swarm to correct it", || async {
            let set = context.api::<StatefulSet>().get("swarm-worker").await?;
            Ok((set.spec.and_then(|spec| spec.replicas) == Some(1)).then_some(()))
        })
        .await?;
    }
    let message = reported(context, "streams", "ScaleContested").await?;
    ensure!(message.contains("let the autoscaler point to Swarm `streams`"), "{message}");
    Ok(())
}

/// Scales the workload by hand. The Swarm corrects the number and reports that.
async fn taken_over(context: &Context, jobs: &BTreeSet<String>) -> Result<()> {
    context.kubectl(&["scale", "statefulset", "swarm-worker", "--replicas=2"]).await?;
    until("the Event", || async {
        let about = "involvedObject.name=streams";
        let events = context.kubectl(&["get", "events", "--field-selector", about]).await?;
        let line = events.lines().find(|line| line.contains("ScaleTakenOver"));
        Ok(line.map(|line| context.laps.lap(line.to_owned())))
    })
    .await?;
    at_rest(context, jobs, 1, Instant::now()).await?;
    contested(context).await?;
    at_rest(context, jobs, 1, Instant::now()).await?;
    let swarm = context.api::<Swarm>().get("streams").await?;
    ensure!(swarm.spec.replicas == Some(1), "the Swarm decides");
    let pods = context.api::<Pod>().list(&ListParams::default().labels("app=swarm-worker")).await?;
    ensure!(pods.iter().all(|pod| pod.name_any() == "swarm-worker-0"), "one pod stays");
    ensure!(all_reports(context).await?.len() == 1, "one worker");
    Ok(())
}
