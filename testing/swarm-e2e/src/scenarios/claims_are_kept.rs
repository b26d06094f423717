//! A pool and a view belong to one Swarm at a time. Another Swarm that wants them reports the owner
//! and changes nothing. It takes over when pool and view are free. No token ever decreases.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::ListParams;
use swarm_client::api::SwarmLedger;

use super::a_lost_ledger_is_recreated::newer;
use super::bad_input_is_refused::reported;
use super::pool::{Reports, all_reports, at_rest, jobs_of, report, sample};
use crate::scenario::Context;
use crate::until::until;

/// The ledger of the sample's pool.
pub(super) const LEDGER: &str = "statefulset.swarm-worker";

/// The fencing token of every job.
pub(super) type Tokens = BTreeMap<String, u64>;

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let streams = sample(2)?;
    let jobs = jobs_of(&streams);
    context.apply(&streams).await?;
    let before = at_rest(&context, &jobs, 2, Instant::now()).await?;
    let started = containers(&context).await?;

    second_swarm_on_the_pool(&context, &streams, &before).await?;
    second_swarm_takes_over(&context, &jobs).await?;
    statefulset_comes_back(&context, &streams, &jobs).await?;
    swarm_comes_back(&context, &streams, &jobs).await?;
    ensure!(containers(&context).await? == started, "no worker was restarted");
    second_pool_on_the_view(&context, &streams, &jobs).await
}

/// The Swarm of a manifest, without its pool, under another name.
fn swarm_of(manifest: &str, name: &str) -> String {
    let swarm = manifest.split("---").next().unwrap_or_default();
    swarm.replace("name: streams", &format!("name: {name}"))
}

async fn second_swarm_on_the_pool(
    context: &Context,
    streams: &str,
    before: &Reports,
) -> Result<()> {
    let tokens = tokens(context).await?;
    context.apply(&swarm_of(streams, "second")).await?;
    let message = reported(context, "second", "PoolClaimed").await?;
    ensure!(message.contains("belongs to Swarm `streams`"), "who has it: {message}");
    ensure!(all_reports(context).await? == *before, "the first is undisturbed");
    ensure!(self::tokens(context).await? == tokens, "the ledger is unchanged, too");
    Ok(())
}

/// Deletes the first Swarm. The waiting Swarm gets pool, view and workers.
async fn second_swarm_takes_over(context: &Context, jobs: &BTreeSet<String>) -> Result<()> {
    let (before, tokens) = (all_reports(context).await?, tokens(context).await?);
    context.kubectl(&["delete", "swarm", "streams", "--timeout=5m"]).await?;
    newer(context, &before, jobs, Instant::now()).await?;
    context.kubectl(&["wait", "--for=condition=Ready", "swarm/second", "--timeout=5m"]).await?;
    let holder = context.api::<SwarmLedger>().get(LEDGER).await?.spec.swarm.name;
    ensure!(holder == "second", "the claim is that of {holder}");
    rose(&tokens, &self::tokens(context).await?)
}

/// Deletes the workload without its pods and applies it again. The pool is the same.
async fn statefulset_comes_back(
    context: &Context,
    streams: &str,
    jobs: &BTreeSet<String>,
) -> Result<()> {
    let (before, tokens) = (all_reports(context).await?, tokens(context).await?);
    context.kubectl(&["delete", "statefulset", "swarm-worker", "--cascade=orphan"]).await?;
    reported(context, "second", "PoolNotFound").await?;
    let pool = streams.split("---").skip(1).collect::<Vec<_>>().join("---");
    context.apply(&pool).await?;
    let change = Instant::now();
    context.kubectl(&["wait", "--for=condition=Ready", "swarm/second", "--timeout=5m"]).await?;
    let after = at_rest(context, jobs, 2, change).await?;
    ensure!(after == before, "the same pods keep the same jobs: {after:?}");
    ensure!(self::tokens(context).await? == tokens, "nothing was granted again");
    Ok(())
}

/// Checks that a Swarm that is deleted and applied again does not grant a token twice.
async fn swarm_comes_back(context: &Context, streams: &str, jobs: &BTreeSet<String>) -> Result<()> {
    let (before, tokens) = (all_reports(context).await?, tokens(context).await?);
    context.kubectl(&["delete", "swarm", "second", "--timeout=5m"]).await?;
    let change = Instant::now();
    context.apply(&swarm_of(streams, "second")).await?;
    newer(context, &before, jobs, change).await?;
    rose(&tokens, &self::tokens(context).await?)
}

/// Applies a Swarm with a pool of its own, whose view belongs in a ConfigMap that already holds
/// another view.
async fn second_pool_on_the_view(
    context: &Context,
    streams: &str,
    jobs: &BTreeSet<String>,
) -> Result<()> {
    let before = all_reports(context).await?;
    let other = streams
        .replace("name: streams", "name: third")
        .replace("swarm-worker", "other-worker")
        .replace("other-worker:dev", "swarm-worker:dev")
        .replace("other-worker-config", "swarm-worker-config")
        .replace("replicas: 2", "replicas: 1");
    context.apply(&other).await?;
    let message = reported(context, "third", "ViewClaimed").await?;
    ensure!(message.contains("holds the view of Swarm `second`"), "who has it: {message}");
    ensure!(all_reports(context).await? == before, "the owner is undisturbed");

    context.kubectl(&["delete", "swarm", "second", "--timeout=5m"]).await?;
    let change = Instant::now();
    until("the other pool to run the jobs", || async {
        let report = report(context, "other-worker-0").await?;
        if report.jobs != *jobs {
            bail!("it runs {} jobs", report.jobs.len());
        }
        Ok(Some(()))
    })
    .await?;
    let took = change.elapsed().as_millis();
    context.laps.lap(format!("the view was taken over {took} ms after the other Swarm was gone"));
    at_rest(context, &BTreeSet::new(), 2, change).await.map(drop)
}

/// The UID of each pod, and the number of restarts of its containers.
async fn containers(context: &Context) -> Result<BTreeMap<String, (Option<String>, i32)>> {
    let workers = ListParams::default().labels("app=swarm-worker");
    let pods = context.api::<Pod>().list(&workers).await?;
    let container = |pod: Pod| {
        let containers = pod.status.iter().flat_map(|it| it.container_statuses.iter().flatten());
        let restarts = containers.map(|it| it.restart_count).sum();
        (pod.name_any(), (pod.uid(), restarts))
    };
    Ok(pods.into_iter().map(container).collect())
}

/// The token of every held job, from the ledger.
pub(super) async fn tokens(context: &Context) -> Result<Tokens> {
    let ledger = context.api::<SwarmLedger>().get(LEDGER).await?;
    let holders = ledger.spec.holdings.holders.into_iter();
    Ok(holders.flat_map(|holder| holder.jobs).collect())
}

/// Checks that every job was granted again, under a higher token.
pub(super) fn rose(before: &Tokens, after: &Tokens) -> Result<()> {
    ensure!(!before.is_empty() && !after.is_empty(), "there are tokens to compare");
    for (job, token) in after {
        let earlier = before.get(job).copied().unwrap_or_default();
        ensure!(earlier < *token, "the token of {job} went from {earlier} to {token}");
    }
    Ok(())
}
