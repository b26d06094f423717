//! A rollout that does not proceed is not ready, even if all jobs run. `kubectl wait` times out on
//! it, and its message has the cause from the pods. The next cause gets another Event. A pool at 0
//! reports the command to scale it.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use swarm_client::api::Swarm;

use super::a_deployment_is_a_pool;
use super::pool::{at_rest, jobs_of, sample};
use crate::scenario::Context;
use crate::until::until;

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    a_set_with_a_missing_image(&context).await?;
    a_set_at_0(&context).await?;
    context
        .kubectl(&["delete", "swarm/streams", "statefulset/swarm-worker", "--timeout=5m"])
        .await?;
    a_deployment_that_ends_at_once(&context).await
}

/// Sets the image of all pods of a workload.
async fn set_image(context: &Context, workload: &str, image: &str) -> Result<()> {
    let image = format!("swarm-worker={image}");
    context.kubectl(&["set", "image", workload, &image]).await.map(drop)
}

/// Waits until the condition `Ready` has this reason and its message has this part, and returns the
/// message.
async fn says(context: &Context, reason: &str, part: &str) -> Result<String> {
    until(&format!("the Swarm to say {reason}: {part}"), || async {
        let status = context.api::<Swarm>().get("streams").await?.status.unwrap_or_default();
        let ready = status.conditions.iter().find(|it| it.type_ == "Ready").context("no Ready")?;
        let is_so = ready.reason == reason && ready.message.contains(part);
        ensure!(is_so, "{}: {}", ready.reason, ready.message);
        let kind = if reason == "RollingOut" { "Reconciling" } else { "Stalled" };
        ensure!(status.conditions.iter().any(|it| it.type_ == kind), "it is not {kind}");
        Ok(Some(ready.message.clone()))
    })
    .await
}

/// Whether `kubectl wait` finds the Swarm ready within two seconds.
async fn is_ready(context: &Context) -> bool {
    let wait = ["wait", "--for=condition=Ready", "swarm/streams", "--timeout=2s"];
    context.kubectl(&wait).await.is_ok()
}

async fn a_set_with_a_missing_image(context: &Context) -> Result<()> {
    let manifest = sample(3)?;
    let jobs = jobs_of(&manifest);
    context.apply(&manifest).await?;
    at_rest(context, &jobs, 3, Instant::now()).await?;
    context.kubectl(&["wait", "--for=condition=Ready", "swarm/streams", "--timeout=5m"]).await?;

    let change = Instant::now();
    // The sample's images are never pulled.
    set_image(context, "statefulset/swarm-worker", "swarm-worker:missing").await?;
    let message = says(context, "RolloutStalled", "`swarm-worker:missing`").await?;
    context.laps.lap(format!("stalled after {} ms: {message}", change.elapsed().as_millis()));
    ensure!(message.contains("1 of 3 workers run the new template"), "{message}");
    ensure!(!is_ready(context).await, "a broken rollout is ready");

    set_image(context, "statefulset/swarm-worker", "swarm-worker:gone").await?;
    // A StatefulSet waits for a broken pod for ever, even if its template has changed.
    context.kubectl(&["delete", "pod", "swarm-worker-2"]).await?;
    says(context, "RolloutStalled", "`swarm-worker:gone`").await?;
    for image in ["`swarm-worker:missing`", "`swarm-worker:gone`"] {
        noted(context, "RolloutStalled", image).await?;
    }

    set_image(context, "statefulset/swarm-worker", "swarm-worker:dev").await?;
    context.kubectl(&["delete", "pod", "swarm-worker-2"]).await?;
    context.kubectl(&["wait", "--for=condition=Ready", "swarm/streams", "--timeout=5m"]).await?;
    at_rest(context, &jobs, 3, Instant::now()).await?;
    let table = context.kubectl(&["get", "swarm", "streams", "-o", "wide"]).await?;
    for column in ["FAILING", "AS OF", "EDIT", "SEEN"] {
        ensure!(table.contains(column), "{column} is not in: {table}");
    }
    Ok(())
}

/// Waits for an Event with this reason whose note has this part.
async fn noted(context: &Context, reason: &str, part: &str) -> Result<()> {
    until(&format!("an Event {reason} with {part}"), || async {
        let events = context.api::<Event>().list(&ListParams::default()).await?;
        let of_reason = events.iter().filter(|it| it.reason.as_deref() == Some(reason));
        let notes: Vec<_> = of_reason.filter_map(|it| it.note.as_deref()).collect();
        ensure!(notes.iter().any(|note| note.contains(part)), "the notes are {notes:?}");
        Ok(Some(()))
    })
    .await
}

async fn a_set_at_0(context: &Context) -> Result<()> {
    context.kubectl(&["scale", "statefulset", "swarm-worker", "--replicas=0"]).await?;
    let command =
        format!("kubectl -n {} scale statefulset swarm-worker --replicas=1", context.namespace);
    let message = says(context, "NoWorkers", &command).await?;
    context.laps.lap(message);
    let args: Vec<_> = command.split(' ').skip(1).collect();
    context.cluster.kubectl(&args).await?;
    context.kubectl(&["wait", "--for=condition=Ready", "swarm/streams", "--timeout=5m"]).await?;
    Ok(())
}

/// Breaks a Deployment, which counts its deadline itself. The old pods keep running.
async fn a_deployment_that_ends_at_once(context: &Context) -> Result<()> {
    let manifest = a_deployment_is_a_pool::sample()?;
    let jobs = jobs_of(&manifest);
    let deadline = "spec:\n  progressDeadlineSeconds: 15\n  replicas: 3";
    context.apply(&manifest.replacen("spec:\n  replicas: 3", deadline, 1)).await?;
    at_rest(context, &jobs, 3, Instant::now()).await?;
    context.kubectl(&["wait", "--for=condition=Ready", "swarm/streams", "--timeout=5m"]).await?;

    let patch = r#"[{"op": "replace", "path": "/spec/template/spec/containers/0/args", "value": ["nonsense"]}]"#;
    let change = Instant::now();
    let patched = ["patch", "deployment", "swarm-worker", "--type=json", "--patch", patch];
    context.kubectl(&patched).await?;
    says(context, "RollingOut", "of 3 workers run the new template").await?;
    let rolling = change.elapsed();
    ensure!(!is_ready(context).await, "a broken rollout is ready");
    let message = says(context, "RolloutStalled", ", last with exit code ").await?;
    context.laps.lap(format!(
        "rolling out after {} ms, stalled after {:.1} s: {message}",
        rolling.as_millis(),
        change.elapsed().as_secs_f64()
    ));
    ensure!(message.contains("progressDeadlineSeconds, 15 s"), "{message}");
    context.kubectl(&["rollout", "undo", "deployment/swarm-worker"]).await?;
    context.kubectl(&["wait", "--for=condition=Ready", "swarm/streams", "--timeout=5m"]).await?;
    at_rest(context, &jobs, 3, Instant::now()).await.map(drop)
}
