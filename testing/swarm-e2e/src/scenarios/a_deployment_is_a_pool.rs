//! The pods of a Deployment share 27 streams. A rollout moves each stream once, from its pod to the
//! successor of that pod, with surge and without. A Swarm without `spec.replicas` follows the size
//! of its Deployment. A Swarm with `spec.replicas` scales the Deployment, and exactly the emptied
//! pods are deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::ListParams;
use swarm_client::api::SwarmLedger;
use swarm_core::stored::StoredHolder;

use super::bad_input_is_refused::reported;
use super::pool::{at_rest, jobs_of, report, swarm_first};
use crate::binaries::repository;
use crate::scenario::Context;
use crate::until::until;

const LEDGER: &str = "deployment.swarm-worker";
/// The timeout of a rollout of three pods, as a flag of kubectl.
const ROLLOUT: &str = "--timeout=5m";

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let manifest = sample()?;
    let jobs = jobs_of(&manifest);
    ensure!(jobs.len() == 27, "the sample has {} streams", jobs.len());
    context.apply(&manifest).await?;
    at_rest(&context, &jobs, 3, Instant::now()).await?;

    let surge = r#"{"spec":{"strategy":{"rollingUpdate":{"maxSurge":1,"maxUnavailable":0}}}}"#;
    rolled_out(&context, &jobs, surge).await?;
    let no_surge = r#"{"spec":{"strategy":{"rollingUpdate":{"maxSurge":0,"maxUnavailable":1}}}}"#;
    rolled_out(&context, &jobs, no_surge).await?;

    followed(&context, &jobs).await?;
    scaled_by_the_swarm(&context, &jobs).await?;
    taken_over(&context, &jobs).await?;
    comes_back(&context, &manifest, &jobs).await
}

/// The shipped sample, with the names that other scenarios' workers have.
pub(super) fn sample() -> Result<String> {
    let file = repository().join("deploy/samples/deployment.yaml");
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    swarm_first(
        &text.replace("stream-worker", "swarm-worker").replace("streams-deployment", "streams"),
    )
}

/// The slot and the token of each job in the ledger.
type Held = BTreeMap<String, (u32, u64)>;

async fn held(context: &Context, ledger: &str) -> Result<Held> {
    let ledger = context.api::<SwarmLedger>().get(ledger).await?;
    let mut held = Held::new();
    for StoredHolder { slot, jobs, .. } in ledger.spec.holdings.holders {
        held.extend(jobs.into_iter().map(|(job, token)| (job, (slot, token))));
    }
    Ok(held)
}

/// The pods that exist, by slot, from the ledger.
pub(super) async fn pods_by_slot(context: &Context, ledger: &str) -> Result<BTreeMap<u32, String>> {
    let ledger = context.api::<SwarmLedger>().get(ledger).await?;
    let holders = ledger.spec.holdings.holders.into_iter();
    Ok(holders.filter_map(|it| Some((it.slot, it.worker?))).collect())
}

/// Restarts all pods. Each job stays in its slot and is granted once again, to the successor of its
/// pod.
async fn rolled_out(context: &Context, jobs: &BTreeSet<String>, strategy: &str) -> Result<()> {
    context.kubectl(&["patch", "deployment", "swarm-worker", "--patch", strategy]).await?;
    let before = held(context, LEDGER).await?;
    let pods = pods_by_slot(context, LEDGER).await?;
    let change = Instant::now();
    context.kubectl(&["rollout", "restart", "deployment/swarm-worker"]).await?;
    context.kubectl(&["rollout", "status", "deployment/swarm-worker", ROLLOUT]).await?;
    at_rest(context, jobs, 3, change).await?;
    let after = held(context, LEDGER).await?;
    let successors = pods_by_slot(context, LEDGER).await?;
    ensure!(pods.len() == 3 && successors.len() == 3, "three slots: {pods:?}, {successors:?}");
    for (slot, pod) in &pods {
        ensure!(successors.get(slot) != Some(pod), "slot {slot} still has {pod}");
    }
    for (job, (slot, token)) in &before {
        let (now, latest) = after.get(job).with_context(|| format!("nobody holds {job}"))?;
        ensure!(now == slot, "{job} went from slot {slot} to {now}");
        let moves = latest.saturating_sub(*token);
        ensure!(moves == 1, "{job} moved {moves} times, from {token} to {latest}");
    }
    context.laps.lap(format!("{} jobs moved once each in the rollout", before.len()));
    Ok(())
}

/// Scales the Deployment under a Swarm without `spec.replicas`. The Swarm follows, and Kubernetes
/// chooses the pod to delete.
async fn followed(context: &Context, jobs: &BTreeSet<String>) -> Result<()> {
    for replicas in [4, 2, 3] {
        let change = Instant::now();
        let wanted = format!("--replicas={replicas}");
        context.kubectl(&["scale", "deployment", "swarm-worker", &wanted]).await?;
        at_rest(context, jobs, replicas, change).await?;
    }
    Ok(())
}

/// Scales the Swarm up and down. On the way down the top slots are emptied, and only their pods are
/// deleted.
async fn scaled_by_the_swarm(context: &Context, jobs: &BTreeSet<String>) -> Result<()> {
    let decide = r#"{"spec":{"replicas":5}}"#;
    context.kubectl(&["patch", "swarm", "streams", "--type=merge", "--patch", decide]).await?;
    at_rest(context, jobs, 5, Instant::now()).await?;
    for replicas in [4, 2] {
        let pods = pods_by_slot(context, LEDGER).await?;
        let slots: Vec<_> = pods.keys().copied().collect();
        let stay: BTreeSet<_> =
            pods.iter().filter(|(slot, _)| **slot < replicas).map(|(_, pod)| pod.clone()).collect();
        ensure!(stay.len() == replicas as usize, "the slots are {slots:?}");
        let go: Vec<_> = pods.into_values().filter(|pod| !stay.contains(pod)).collect();
        let change = Instant::now();
        let wanted = format!("--replicas={replicas}");
        context.kubectl(&["scale", "swarm", "streams", &wanted]).await?;
        emptied_before_they_go(context, &go).await?;
        at_rest(context, jobs, replicas as usize, change).await?;
        let left = marked(context).await?;
        let names: BTreeSet<_> = left.keys().cloned().collect();
        ensure!(names == stay, "{stay:?} should stay, and {left:?} did");
        ensure!(left.values().all(Option::is_none), "no remaining pod is marked: {left:?}");
    }
    Ok(())
}

/// Every pod with its deletion cost.
async fn marked(context: &Context) -> Result<BTreeMap<String, Option<String>>> {
    let workers = ListParams::default().labels("app=swarm-worker");
    let pods = context.api::<Pod>().list(&workers).await?;
    let cost =
        |pod: &Pod| pod.annotations().get("controller.kubernetes.io/pod-deletion-cost").cloned();
    Ok(pods.iter().map(|pod| (pod.name_any(), cost(pod))).collect())
}

async fn emptied_before_they_go(context: &Context, pods: &[String]) -> Result<()> {
    let emptied = until("the pods to be deleted to be empty", || async {
        for pod in pods {
            let report = report(context, pod).await?;
            if !report.jobs.is_empty() {
                bail!("{pod} runs {} jobs", report.jobs.len());
            }
        }
        Ok(Some(()))
    });
    emptied.await.context("a worker was deleted before its jobs had moved")
}

/// Scales the Deployment by hand while the Swarm decides. The Swarm corrects the number, and
/// reports it.
async fn taken_over(context: &Context, jobs: &BTreeSet<String>) -> Result<()> {
    for _ in 0..3 {
        context.kubectl(&["scale", "deployment", "swarm-worker", "--replicas=3"]).await?;
        until("the Swarm to correct it", || async {
            let deployment = context.api::<Deployment>().get("swarm-worker").await?;
            Ok((deployment.spec.and_then(|spec| spec.replicas) == Some(2)).then_some(()))
        })
        .await?;
    }
    let message = reported(context, "streams", "ScaleContested").await?;
    ensure!(message.contains("the replicas of Deployment `swarm-worker`"), "{message}");
    at_rest(context, jobs, 2, Instant::now()).await.map(drop)
}

/// Deletes the Deployment without its pods, and applies it again. The pods are the same pool, and
/// no job leaves its slot while the new Deployment adopts the pods.
async fn comes_back(context: &Context, manifest: &str, jobs: &BTreeSet<String>) -> Result<()> {
    let before = slots(&held(context, LEDGER).await?);
    context.kubectl(&["delete", "deployment", "swarm-worker", "--cascade=orphan"]).await?;
    reported(context, "streams", "PoolNotFound").await?;
    let change = Instant::now();
    context.apply(&manifest.replacen("  replicas: 3", "  replicas: 2", 1)).await?;
    context.kubectl(&["rollout", "status", "deployment/swarm-worker", ROLLOUT]).await?;
    at_rest(context, jobs, 2, change).await?;
    ensure!(slots(&held(context, LEDGER).await?) == before, "jobs moved");
    Ok(())
}

fn slots(held: &Held) -> BTreeMap<String, u32> {
    held.iter().map(|(job, (slot, _))| (job.clone(), *slot)).collect()
}
