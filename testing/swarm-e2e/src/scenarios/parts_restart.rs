//! Kubelets and the API server are killed and restarted. Nothing moves, nothing is lost, and an
//! edit that follows takes effect.

use std::collections::BTreeSet;
use std::time::Instant;

use anyhow::{Result, ensure};
use kube::api::{Patch, PatchParams};
use serde_json::json;
use swarm_client::api::Swarm;

use super::pool::{all_reports, at_rest, jobs_of, sample};
use crate::scenario::Context;
use crate::until::until;

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let manifest = sample(2)?;
    let mut jobs = jobs_of(&manifest);
    context.apply(&manifest).await?;
    at_rest(&context, &jobs, 2, Instant::now()).await?;
    for parts in [&["kubelet-1", "kubelet-2"][..], &["apiserver"]] {
        restart(&context, parts, &mut jobs).await?;
    }
    Ok(())
}

async fn restart(context: &Context, parts: &[&str], jobs: &mut BTreeSet<String>) -> Result<()> {
    let before = all_reports(context).await?;
    let names = parts.join(" and ");
    for part in parts {
        context.cluster.components.kill(part)?;
    }
    for part in parts {
        context.cluster.components.restart(part)?;
    }
    // Edits the list as soon as the API server accepts it, while everything else still reconnects.
    let start = Instant::now();
    jobs.insert(format!("stream:after-{}:new", parts[0]));
    edit(context, jobs).await?;
    let took = start.elapsed().as_millis();
    context.laps.lap(format!("{names} killed; an edit was taken {took} ms after the restart"));
    let after = at_rest(context, jobs, 2, Instant::now()).await?;
    let kept = before.iter().all(|(worker, report)| report.jobs.is_subset(&after[worker].jobs));
    ensure!(kept, "one more job moved others: {before:?}, {after:?}");
    context.cluster.nodes_ready().await
}

async fn edit(context: &Context, jobs: &BTreeSet<String>) -> Result<()> {
    let list: Vec<_> = jobs.iter().map(|name| json!({"name": name})).collect();
    let patch = Patch::Merge(json!({"spec": {"jobs": list}}));
    let swarms = context.api::<Swarm>();
    until("the edit to be accepted", || async {
        swarms.patch("streams", &PatchParams::default(), &patch).await?;
        Ok(Some(()))
    })
    .await
}
