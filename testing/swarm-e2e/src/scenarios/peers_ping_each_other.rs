//! Every worker of the peering sample pings every target, and follows an edit of the list. Pods
//! come and go behind their Service, and every ping of the Service is answered.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use crate::binaries::repository;
use crate::scenario::Context;
use crate::until::until;

/// The longest allowed time until an edit of the list reaches all workers.
const LIST_WITHIN: Duration = Duration::from_secs(10);
/// The port of every worker.
const PORT: u16 = 9090;
/// Another pool, whose one worker pings the Service all the time.
const OBSERVER: &str = "
apiVersion: swarm.k8slab.info/v1alpha1
kind: Swarm
metadata: {name: observer}
spec:
  replicas: 1
  pool: {managed: {kind: StatefulSet}}
  worker: {runner: {ping: {interval: 50ms, timeout: 2s}}}
  jobs: [{name: 'peering:80'}]
";

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let sample = std::fs::read_to_string(repository().join("deploy/samples/peering.yaml"))?;
    context.apply(&sample.replace("interval: 30s", "interval: 200ms")).await?;
    all_reach(&context, 3, "peering:80").await?;
    for n in 0..3 {
        all_reach(&context, 3, &format!("peering-{n}.peering-pods:9090")).await?;
    }
    let answer = context.cluster.pod_http(&context.namespace, "peering-1", PORT, "ping").await?;
    ensure!(answer == "pong from peering-1\n", "it answers {answer}");
    context.laps.lap("each of three reaches all of them");
    an_edit_of_the_list_arrives(&context).await?;
    pods_come_and_go(&context).await
}

/// A counter of a pod for one target.
async fn counted(context: &Context, pod: &str, target: &str, metric: &str) -> Result<u64> {
    let text = context.cluster.pod_http(&context.namespace, pod, PORT, "metrics").await?;
    let start = format!("swarm_pings_{metric}_total{{target=\"{target}\"}} ");
    let count = text.lines().find_map(|line| line.strip_prefix(&start));
    count.map_or(Ok(0), |count| count.parse().with_context(|| format!("{start}{count}")))
}

/// Waits until each of `workers` workers had an answer from a target.
async fn all_reach(context: &Context, workers: usize, target: &str) -> Result<()> {
    until(&format!("{workers} workers to reach {target}"), || async {
        for n in 0..workers {
            let answered = counted(context, &format!("peering-{n}"), target, "answered").await?;
            ensure!(0 < answered, "peering-{n} had no answer");
        }
        Ok(Some(()))
    })
    .await
}

async fn an_edit_of_the_list_arrives(context: &Context) -> Result<()> {
    let list = "peering-0.peering-pods,9090\npeering,80\nobserver-0.observer-pods,9090\n";
    let patch = json!({"data": {"hostports": list}}).to_string();
    context.apply(OBSERVER).await?;
    all_observe(context).await?;
    let map = ["patch", "configmap", "peering-targets", "--type=merge", "--patch", &patch];
    context.kubectl(&map).await?;
    let edited = Instant::now();
    all_reach(context, 3, "observer-0.observer-pods:9090").await?;
    let took = edited.elapsed();
    context.laps.lap(format!("an edit reached three workers after {} ms", took.as_millis()));
    ensure!(took < LIST_WITHIN, "it took {took:?}");
    for n in 0..3 {
        let text = context
            .cluster
            .pod_http(&context.namespace, &format!("peering-{n}"), PORT, "metrics")
            .await?;
        let gone = "target=\"peering-1.peering-pods:9090\"";
        ensure!(!text.contains(gone), "peering-{n} counts a target that is gone: {text}");
    }
    Ok(())
}

/// Waits until the observer has had answers, and returns their number.
async fn all_observe(context: &Context) -> Result<u64> {
    until("the observer to reach the Service", || async {
        let answered = counted(context, "observer-0", "peering:80", "answered").await?;
        ensure!(10 < answered, "it had {answered} answers");
        Ok(Some(answered))
    })
    .await
}

/// Rolls the pool over, and scales it up and down. Every ping through the Service is answered.
async fn pods_come_and_go(context: &Context) -> Result<()> {
    let before = all_observe(context).await?;
    let failed_before = counted(context, "observer-0", "peering:80", "failed").await?;
    context.kubectl(&["rollout", "restart", "statefulset/peering"]).await?;
    context.kubectl(&["rollout", "status", "statefulset/peering", "--timeout=5m"]).await?;
    for replicas in [5, 2] {
        context.kubectl(&["scale", "swarm", "peering", &format!("--replicas={replicas}")]).await?;
        let ready = format!("--for=jsonpath={{.status.readyReplicas}}={replicas}");
        context.kubectl(&["wait", &ready, "statefulset/peering", "--timeout=5m"]).await?;
        all_reach(context, replicas, "peering:80").await?;
    }
    let answered = counted(context, "observer-0", "peering:80", "answered").await? - before;
    let failed = counted(context, "observer-0", "peering:80", "failed").await? - failed_before;
    context.laps.lap(format!("{answered} pings through the Service, {failed} failed"));
    ensure!(failed == 0, "{failed} of {answered} pings failed while pods came and went");
    Ok(())
}
