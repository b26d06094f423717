//! A deleted ledger is recreated at once. Every job has one worker again, under a higher token.
//! Every worker soon has the newest view, under a version that it never saw.

use std::collections::BTreeSet;
use std::time::Instant;

use anyhow::{Result, ensure};
use kube::ResourceExt as _;
use swarm_client::api::SwarmLedger;

use super::claims_are_kept::{LEDGER, rose, tokens};
use super::pool::{Reports, all_reports, at_rest, jobs_of, reports, sample};
use crate::operator;
use crate::scenario::Context;
use crate::until::until;

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let manifest = sample(2)?;
    let jobs = jobs_of(&manifest);
    context.apply(&manifest).await?;
    at_rest(&context, &jobs, 2, Instant::now()).await?;
    lost_under_an_operator(&context, &jobs).await?;

    // The second part stops the operator. Later scenarios share it, so it is started after a
    // failure, too.
    let outcome = lost_without_an_operator(&context, &manifest).await;
    operators(&context, "--replicas=2").await?;
    let status = ["rollout", "status", "deployment/swarm-controller", "--timeout=5m"];
    context.cluster.kubectl(&[&status[..], &["--namespace", operator::NAMESPACE]].concat()).await?;
    outcome
}

async fn lost_under_an_operator(context: &Context, jobs: &BTreeSet<String>) -> Result<()> {
    let (before, tokens) = (all_reports(context).await?, tokens(context).await?);
    let ledgers = context.api::<SwarmLedger>();
    let lost = ledgers.get(LEDGER).await?.uid();
    context.kubectl(&["delete", "swarmledger", LEDGER]).await?;
    let change = Instant::now();
    until("another ledger", || async {
        let found = ledgers.get_opt(LEDGER).await?;
        Ok(found.filter(|ledger| ledger.uid() != lost && ledger.spec.version > 0).map(drop))
    })
    .await?;
    let took = change.elapsed().as_millis();
    context.laps.lap(format!("the ledger was recreated within {took} ms"));
    newer(context, &before, jobs, change).await?;
    rose(&tokens, &self::tokens(context).await?)
}

/// Changes jobs and deletes the ledger while no operator runs. The next view of the workers comes
/// from the first publication of the new ledger.
async fn lost_without_an_operator(context: &Context, manifest: &str) -> Result<()> {
    let (before, tokens) = (all_reports(context).await?, tokens(context).await?);
    operators(context, "--replicas=0").await?;
    let gone = ["wait", "--for=delete", "pod", "--selector=app=swarm-controller", "--timeout=5m"];
    context.cluster.kubectl(&[&gone[..], &["--namespace", operator::NAMESPACE]].concat()).await?;
    let edited = manifest.replace("stream:foo:new", "stream:bar:new");
    let edited = edited.replace("stream:xxrtve1\n", "stream:other\n");
    context.apply(&edited).await?;
    context.kubectl(&["delete", "swarmledger", LEDGER]).await?;
    operators(context, "--replicas=2").await?;
    let ledgers = context.api::<SwarmLedger>();
    until("a ledger again", || async {
        let found = ledgers.get_opt(LEDGER).await?;
        Ok(found.filter(|ledger| ledger.spec.version > 0).map(drop))
    })
    .await?;
    newer(context, &before, &jobs_of(&edited), Instant::now()).await?;
    rose(&tokens, &self::tokens(context).await?)
}

async fn operators(context: &Context, replicas: &str) -> Result<()> {
    let scale =
        ["scale", "deployment", "swarm-controller", replicas, "--namespace", operator::NAMESPACE];
    context.cluster.kubectl(&scale).await.map(drop)
}

/// Waits until all workers have a version above all earlier ones, sooner than a kubelet's regular
/// sync.
pub(super) async fn newer(
    context: &Context,
    before: &Reports,
    jobs: &BTreeSet<String>,
    change: Instant,
) -> Result<()> {
    at_rest(context, jobs, 2, change).await?;
    let had = before.values().map(|report| report.version).max().unwrap_or_default();
    until("every worker to have a newer version", || async {
        let reports = reports(context).await?;
        Ok(reports.values().all(|report| report.version > had).then_some(()))
    })
    .await?;
    let took = change.elapsed();
    context.laps.lap(format!("every worker has a newer version after {} ms", took.as_millis()));
    ensure!(
        took < super::list_changes_arrive::WITHOUT_NUDGE,
        "no worker was nudged: it took {took:?}"
    );
    Ok(())
}
