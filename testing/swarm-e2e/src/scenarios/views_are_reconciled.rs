//! Foreign changes of the ConfigMap that workers read are reverted, or reported in a sentence.
//! Workers run the jobs in the ledger.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::bad_input_is_refused::reported;
use super::pool::{Reports, all_reports, at_rest, jobs_of, sample};
use crate::scenario::Context;
use crate::until::until;

const VIEW: &str = "swarm-worker-config";
const KEY: &str = "config.yml";
/// A foreign view.
const FOREIGN: &str = "workloads: {swarm-worker-0: {jobs: [stream:foreign], version: 99}}\n";

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let manifest = sample(2)?;
    let jobs = jobs_of(&manifest);
    context.apply(&manifest).await?;
    let before = at_rest(&context, &jobs, 2, Instant::now()).await?;
    let right = text(&context).await?.context("a view")?;

    let api = context.api::<ConfigMap>();
    let edit = Patch::Merge(json!({"data": {KEY: FOREIGN}}));
    api.patch(VIEW, &PatchParams::default(), &edit).await?;
    restored(&context, &right, "edited").await?;

    let foreign = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": VIEW},
        "data": {KEY: FOREIGN, "theirs": "stays"},
    });
    let taken = PatchParams::apply("somebody-else").force();
    api.patch(VIEW, &taken, &Patch::Apply(foreign)).await?;
    restored(&context, &right, "taken by another field manager").await?;
    let theirs = api.get(VIEW).await?.data.unwrap_or_default().remove("theirs");
    ensure!(theirs.as_deref() == Some("stays"), "fields of other managers are left alone");

    context.kubectl(&["delete", "configmap", VIEW]).await?;
    restored(&context, &right, "deleted").await?;
    ensure!(at_rest(&context, &jobs, 2, Instant::now()).await? == before, "nothing moved");

    immutable(&context, &manifest, &before).await
}

async fn text(context: &Context) -> Result<Option<String>> {
    let view = context.api::<ConfigMap>().get_opt(VIEW).await?;
    Ok(view.and_then(|view| view.data?.remove(KEY)))
}

async fn restored(context: &Context, right: &str, what: &str) -> Result<()> {
    let change = Instant::now();
    until("the view as it was", || async {
        Ok((text(context).await?.as_deref() == Some(right)).then_some(()))
    })
    .await?;
    let took = change.elapsed().as_millis();
    context.laps.lap(format!("a view that was {what} was restored within {took} ms"));
    Ok(())
}

/// Makes the view immutable. The operator reports that, and saves no assignment that it cannot
/// publish.
async fn immutable(context: &Context, manifest: &str, before: &Reports) -> Result<()> {
    let api = context.api::<ConfigMap>();
    let freeze = Patch::Merge(json!({"immutable": true}));
    api.patch(VIEW, &PatchParams::default(), &freeze).await?;
    let edited = manifest.replace("stream:foo:new", "stream:bar:new");
    context.apply(&edited).await?;
    let message = reported(context, "streams", "ViewImmutable").await?;
    ensure!(message.contains("delete it, which recreates it"), "what to do: {message}");
    ensure!(all_reports(context).await? == *before, "the last valid assignment keeps running");

    context.kubectl(&["delete", "configmap", VIEW]).await?;
    until("a view again", || async { text(context).await }).await?;
    // A kubelet forgets that the ConfigMap was immutable once no pod of its node mounts it.
    context.kubectl(&["scale", "statefulset", "swarm-worker", "--replicas=0"]).await?;
    let gone = ["wait", "--for=delete", "pod", "--selector=app=swarm-worker", "--timeout=5m"];
    context.kubectl(&gone).await?;
    context.kubectl(&["scale", "statefulset", "swarm-worker", "--replicas=2"]).await?;
    at_rest(context, &jobs_of(&edited), 2, Instant::now()).await?;
    context.kubectl(&["wait", "--for=condition=Ready", "swarm/streams", "--timeout=5m"]).await?;
    Ok(())
}
