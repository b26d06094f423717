//! Pods that are created one by one, and selected by a label, share 27 streams: one is deleted, one
//! is added. A second Swarm with overlapping labels reports the owner of the pods, and gets none of
//! them. It takes over when the first Swarm is deleted.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use swarm_client::api::SwarmLedger;
use swarm_spec::yaml;

use super::a_deployment_is_a_pool::{pods_by_slot, sample};
use super::bad_input_is_refused::reported;
use super::pool::{all_reports, at_rest, jobs_of, moved};
use crate::scenario::Context;

const LEDGER: &str = "pods.streams";

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let (swarm, template) = by_label("{matchLabels: {app: swarm-worker}}")?;
    let jobs = jobs_of(&swarm);
    refused(&context, &swarm).await?;
    context.apply(&swarm).await?;
    for name in ["camera-a", "camera-b", "camera-c"] {
        make(&context, &template, name).await?;
    }
    let three = at_rest(&context, &jobs, 3, Instant::now()).await?;

    let change = Instant::now();
    context.api::<Pod>().delete("camera-b", &DeleteParams::default()).await?;
    let two = at_rest(&context, &jobs, 2, change).await?;
    let of_the_gone = three["camera-b"].jobs.len();
    ensure!(moved(&three, &two) == of_the_gone, "only the jobs of the deleted one move");

    let change = Instant::now();
    make(&context, &template, "camera-d").await?;
    let after = at_rest(&context, &jobs, 3, change).await?;
    let gained = after["camera-d"].jobs.len();
    ensure!(moved(&two, &after) == gained, "only the jobs of the new one move");
    let slots = pods_by_slot(&context, LEDGER).await?;
    ensure!(slots.keys().eq(&[0, 1, 2]), "the lowest free slot is filled: {slots:?}");

    overlapping(&context, &swarm).await?;
    ensure!(all_reports(&context).await? == after, "their owner is undisturbed");
    taken_over(&context, &jobs).await
}

/// The Swarm of the sample with a pool of pods, and the template of its pods.
fn by_label(pods: &str) -> Result<(String, Value)> {
    let text = sample()?;
    let documents = yaml::documents(&text)?;
    let deployment = documents.iter().find(|(_, value)| value["kind"] == "Deployment");
    let template = deployment.context("the sample has a Deployment")?.1["spec"]["template"].clone();
    let swarm = text.split("---").next().unwrap_or_default();
    let by_name = "    deployment:\n      name: swarm-worker\n";
    ensure!(swarm.contains(by_name), "the sample names its Deployment");
    Ok((swarm.replace(by_name, &format!("    pods: {pods}\n")), template))
}

async fn make(context: &Context, template: &Value, name: &str) -> Result<()> {
    let mut pod = template.clone();
    pod["metadata"]["name"] = json!(name);
    let pod: Pod = serde_json::from_value(pod)?;
    context.api::<Pod>().create(&PostParams::default(), &pod).await?;
    Ok(())
}

/// Tries specs that only rules of the schema refuse.
async fn refused(context: &Context, swarm: &str) -> Result<()> {
    let wrong = [
        ("  pool:\n", "  replicas: 2\n  pool:\n", "nothing scales pods"),
        ("  pool:\n", "  refresh: {mode: Evict}\n  pool:\n", "need a StatefulSet"),
        ("    pods:", "    deployment: {name: x}\n    pods:", "write exactly one of"),
        ("{app: swarm-worker}", "{}", "at least 1 properties"),
    ];
    for (right, wrong, message) in wrong {
        let refusal = context.apply(&swarm.replacen(right, wrong, 1)).await;
        let text = refusal.map_or_else(|error| format!("{error:#}"), |()| "accepted".to_owned());
        ensure!(text.contains(message), "`{wrong}`: {text}");
    }
    Ok(())
}

/// Applies a second Swarm that selects the same pods.
async fn overlapping(context: &Context, swarm: &str) -> Result<()> {
    let second = swarm
        .replace("name: streams", "name: second")
        .replace("swarm-worker-config", "second-config");
    context.apply(&second).await?;
    let message = reported(context, "second", "PodsClaimed").await?;
    ensure!(message.starts_with("3 pods with the labels"), "{message}");
    ensure!(message.contains("`camera-a` to `streams`"), "{message}");
    let ledger = context.api::<SwarmLedger>().get("pods.second").await?;
    ensure!(
        ledger.spec.holdings.holders.is_empty(),
        "it has no holder: {:?}",
        ledger.spec.holdings
    );
    Ok(())
}

/// Deletes the first Swarm. The second Swarm has the pods within half a minute.
async fn taken_over(context: &Context, jobs: &std::collections::BTreeSet<String>) -> Result<()> {
    context.kubectl(&["delete", "swarm", "streams", "--timeout=5m"]).await?;
    let change = Instant::now();
    let fallback = ["wait", "--for=jsonpath={.status.assigned}=27", "swarm/second", "--timeout=5m"];
    context.kubectl(&fallback).await?;
    let pods = pods_by_slot(context, "pods.second").await?;
    ensure!(pods.len() == 3, "it has {pods:?}");
    let took = change.elapsed().as_millis();
    context.laps.lap(format!("{} jobs and 3 pods taken over after {took} ms", jobs.len()));
    Ok(())
}
