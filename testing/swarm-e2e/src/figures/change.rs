//! The time from a change of the list until every worker concerned reports that it runs it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use swarm_client::api::Swarm;
use tokio::task::JoinSet;

use super::Times;
use crate::cluster::Cluster;
use crate::output::say;
use crate::scenario::Context;
use crate::scenarios::pool::{Reports, at_rest, jobs_of, report, sample};
use crate::until::DEADLINE;

/// The number of timed changes with nudges.
const CHANGES: usize = 60;
/// The number of workers.
const WORKERS: usize = 3;
/// The constant part of the pause between two changes, so that every change starts from rest.
/// Another part differs from change to change. It keeps changes out of step with the kubelet, which
/// syncs a pod at most once a second.
const PAUSE: Duration = Duration::from_secs(2);
/// The time between two polls of the workers.
const STEP: Duration = Duration::from_millis(5);
/// The number of workers without nudges. Each gets a change at its own time, so a change gives 20
/// times.
const WITHOUT_NUDGE: usize = 20;
/// The number of timed changes without nudges.
const ROUNDS: usize = 3;
/// The bound on the arrival of a change without nudges. A kubelet syncs a pod within 90 seconds.
const WITHOUT_NUDGE_WITHIN: Duration = Duration::from_mins(3);
/// The time between two polls of a worker that is not nudged.
const WITHOUT_NUDGE_STEP: Duration = Duration::from_millis(250);

pub(super) async fn measure(cluster: &Arc<Cluster>) -> Result<()> {
    let nudged = nudged(&Context::new(cluster, "figures-change").await?, CHANGES).await?;
    let without_nudge = without_nudge(&Context::new(cluster, "figures-no-nudge").await?).await?;
    say(
        "\n| from a change of the list until every worker it concerns runs it | changes | median | 99 % | worst |",
    );
    say("|---|---|---|---|---|");
    say(format_args!("| with nudges | {} |", nudged.cells()));
    say(format_args!(
        "| without: view written → a worker runs it, {WITHOUT_NUDGE} workers | {} |",
        without_nudge.cells()
    ));
    Ok(())
}

/// Times changes of a Swarm, which add one stream and remove it in turn.
pub(super) async fn nudged(context: &Context, changes: usize) -> Result<Times> {
    context.operator().await?;
    let manifest = sample(WORKERS)?;
    let mut jobs = jobs_of(&manifest);
    context.apply(&manifest).await?;
    at_rest(context, &jobs, WORKERS, Instant::now()).await?;
    let mut times = Vec::new();
    for n in 0..changes {
        let uneven = Duration::from_millis(137 * n as u64 % 1_000);
        tokio::time::sleep(PAUSE + uneven).await;
        let extra = format!("stream:extra{}:new", n / 2);
        if n % 2 == 0 {
            jobs.insert(extra);
        } else {
            jobs.remove(&extra);
        }
        let list: Vec<_> = jobs.iter().map(|name| json!({"name": name})).collect();
        let patch = Patch::Merge(json!({"spec": {"jobs": list}}));
        let change = Instant::now();
        context.api::<Swarm>().patch("streams", &PatchParams::default(), &patch).await?;
        // On a busy machine a worker may answer too late, and is asked again.
        while !all(context).await.is_ok_and(|reports| run_exactly(&reports, &jobs)) {
            ensure!(change.elapsed() < DEADLINE, "change {n} did not arrive");
            tokio::time::sleep(STEP).await;
        }
        times.push(change.elapsed());
    }
    context.laps.lap(format!("{changes} changes with nudges"));
    context.kubectl(&["delete", "swarm", "--all"]).await?;
    context.kubectl(&["delete", "statefulset", "--all"]).await?;
    Ok(Times::new(times))
}

/// Queries all workers at once. One after another would take longer than the measured time.
async fn all(context: &Context) -> Result<Reports> {
    let mut asked = JoinSet::new();
    for n in 0..WORKERS {
        let (context, name) = (context.clone(), format!("swarm-worker-{n}"));
        asked.spawn(async move { anyhow::Ok((name.clone(), report(&context, &name).await?)) });
    }
    let mut reports = Reports::new();
    while let Some(answer) = asked.join_next().await {
        let (name, report) = answer??;
        reports.insert(name, report);
    }
    Ok(reports)
}

/// Whether each of `jobs` runs exactly once, and nothing else does.
fn run_exactly(reports: &Reports, jobs: &BTreeSet<String>) -> bool {
    let running = reports.values().flat_map(|report| report.jobs.iter());
    let mut running: Vec<_> = running.collect();
    running.sort();
    running.into_iter().eq(jobs)
}

/// Measures the time until a view that was written by hand arrives in pods without nudges.
async fn without_nudge(context: &Context) -> Result<Times> {
    let manifest = sample(WITHOUT_NUDGE)?;
    // The part with the pool only: without a Swarm no operator nudges.
    let (_, pool) = manifest.split_once("\n---\n").unwrap_or_default();
    write_view(context, 0).await?;
    context.apply(pool).await?;
    let timeout = format!("--timeout={}s", WITHOUT_NUDGE_WITHIN.as_secs());
    context.kubectl(&["rollout", "status", "statefulset/swarm-worker", &timeout]).await?;
    context.laps.lap(format!("{WITHOUT_NUDGE} workers without nudges"));
    let mut times = Vec::new();
    for round in 1..=ROUNDS {
        write_view(context, round).await?;
        let written = Instant::now();
        let mut asked = JoinSet::new();
        for n in 0..WITHOUT_NUDGE {
            let context = context.clone();
            asked.spawn(async move { arrived(&context, n, round, written).await });
        }
        for time in asked.join_all().await {
            times.push(time?);
        }
        context.laps.lap(format!("round {round} of {ROUNDS} without nudges"));
    }
    context.kubectl(&["delete", "statefulset", "--all"]).await?;
    Ok(Times::new(times))
}

async fn write_view(context: &Context, round: usize) -> Result<()> {
    let entries = (0..WITHOUT_NUDGE).map(|n| {
        format!("  swarm-worker-{n}:\n    jobs: [\"round{round}\"]\n    version: {round}\n")
    });
    let view = format!("workloads:\n{}version: {round}\n", entries.collect::<String>());
    let patch = Patch::Apply(json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "swarm-worker-config"},
        "data": {"config.yml": view},
    }));
    let params = PatchParams::apply("figures").force();
    context.api::<ConfigMap>().patch("swarm-worker-config", &params, &patch).await?;
    Ok(())
}

async fn arrived(context: &Context, n: usize, round: usize, since: Instant) -> Result<Duration> {
    let (pod, wanted) = (format!("swarm-worker-{n}"), BTreeSet::from([format!("round{round}")]));
    while report(context, &pod).await.map_or(true, |report| report.jobs != wanted) {
        ensure!(since.elapsed() < WITHOUT_NUDGE_WITHIN, "round {round} did not arrive at {pod}");
        tokio::time::sleep(WITHOUT_NUDGE_STEP).await;
    }
    Ok(since.elapsed())
}
