//! Workers that report their jobs. The Swarm is ready when they do, and names workers that do not.
//! Gainers wait for losers no longer than the losers need.

use std::time::Instant;

use anyhow::{Result, ensure};
use kube::api::{Patch, PatchParams};
use serde_json::json;
use swarm_client::api::Swarm;

use super::pool::{at_rest, jobs_of, sample};
use crate::scenario::Context;
use crate::until::until;

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let manifest = sample(2)?;
    ensure!(manifest.contains("versionEndpoint"), "the sample's workers are asked");
    let jobs = jobs_of(&manifest);
    context.apply(&manifest).await?;
    at_rest(&context, &jobs, 2, Instant::now()).await?;
    condition(&context, "Converged", "True", "AllHaveNewest").await?;

    // A third of the jobs moves to the third worker.
    for asked in [true, false] {
        let endpoint = if asked { json!({"port": 9090}) } else { json!(null) };
        patch(&context, json!({"worker": {"versionEndpoint": endpoint}})).await?;
        context.kubectl(&["scale", "statefulset", "swarm-worker", "--replicas=3"]).await?;
        context.kubectl(&["rollout", "status", "statefulset", "swarm-worker"]).await?;
        let ready = Instant::now();
        at_rest(&context, &jobs, 3, ready).await?;
        let how = if asked { "with" } else { "without" };
        context.laps.lap(format!("9 jobs moved {how} answers, {:?} after Ready", ready.elapsed()));
        let reason = if asked { "AllHaveNewest" } else { "AllPublished" };
        condition(&context, "Converged", "True", reason).await?;
        context.kubectl(&["scale", "statefulset", "swarm-worker", "--replicas=2"]).await?;
        at_rest(&context, &jobs, 2, Instant::now()).await?;
    }

    // Nothing listens on this port.
    patch(
        &context,
        json!({"worker": {"versionEndpoint": {"port": 9099}}, "jobs": [{"name": "a"}]}),
    )
    .await?;
    condition(&context, "Converged", "False", "Refreshing").await?;
    condition(&context, "Ready", "False", "Refreshing").await?;
    // The first worker may be reported a moment before the second.
    let named = until("both to be named", || async {
        let path =
            "-o=jsonpath={.status.workersStale} {.status.conditions[?(@.type=='Ready')].message}";
        let named = context.kubectl(&["get", "swarm", "streams", path]).await?;
        let wanted = "2 these workers do not have their newest jobs yet: swarm-";
        ensure!(named.contains(wanted), "{named}");
        Ok(Some(named))
    })
    .await?;
    context.laps.lap(named);
    patch(&context, json!({"worker": {"versionEndpoint": {"port": 9090}}})).await?;
    condition(&context, "Ready", "True", "Settled").await
}

async fn patch(context: &Context, spec: serde_json::Value) -> Result<()> {
    let patch = Patch::Merge(json!({"spec": spec}));
    context.api::<Swarm>().patch("streams", &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Waits until a condition has this status and reason.
async fn condition(context: &Context, kind: &str, status: &str, reason: &str) -> Result<()> {
    let what = format!("{kind} to be {status} with {reason}");
    until(&what, || async {
        let path = format!(
            "-o=jsonpath={{.status.conditions[?(@.type=='{kind}')].status}} \
             {{.status.conditions[?(@.type=='{kind}')].reason}}"
        );
        let named = context.kubectl(&["get", "swarm", "streams", &path]).await?;
        ensure!(named == format!("{status} {reason}"), "{named}");
        Ok(Some(()))
    })
    .await
}
