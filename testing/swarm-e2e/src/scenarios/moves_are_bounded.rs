//! `spec.rebalance`: a pause in which nothing moves, and a budget under which jobs move in batches
//! until they are balanced. The output of `kubectl get` and `kubectl explain` is checked, too.

use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use swarm_adapters_k8s::status::ready_reason;
use swarm_client::api::{Swarm, SwarmLedger};

use super::pool::{Reasons, all_reports, at_rest, jobs_of, moved, reports, sample};
use crate::scenario::Context;
use crate::until::until;

/// The largest number of moves at a time.
const BUDGET: usize = 3;
/// The number of jobs that a third worker of 27 streams takes.
const MOVES: usize = 9;

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    // Labels instead of the name: they match exactly one StatefulSet.
    let by_name = "    statefulSet:\n      name: swarm-worker\n";
    let by_label = "    statefulSet:\n      matchLabels: {app: swarm-worker}\n";
    let manifest = sample(2)?.replacen(by_name, by_label, 1);
    ensure!(manifest.contains(by_label), "the sample names its StatefulSet");
    let jobs = jobs_of(&manifest);
    context.apply(&manifest).await?;
    let two = at_rest(&context, &jobs, 2, Instant::now()).await?;

    rebalance(&context, "{\"paused\": true}").await?;
    reason(&context, "Paused").await?;
    let ready = "--output=jsonpath={.status.conditions[?(@.type=='Ready')].status}";
    let ready = context.kubectl(&["get", "swarm", "streams", ready]).await?;
    ensure!(ready == "True", "paused and all jobs run: {ready}");
    context.kubectl(&["scale", "statefulset", "swarm-worker", "--replicas=3"]).await?;
    let three = until("a third worker to answer", || async {
        let reports = reports(&context).await?;
        Ok((reports.len() == 3).then_some(reports))
    })
    .await?;
    context
        .kubectl(&["wait", "--for=condition=Ready", "pod/swarm-worker-2", "--timeout=5m"])
        .await?;
    ensure!(moved(&two, &three) == 0, "nothing moves while paused: {three:?}");
    let version = version(&context).await?;

    let change = Instant::now();
    let budget = format!("{{\"paused\": false, \"maxMovesInFlight\": {BUDGET}}}");
    let mut reasons = Reasons::of(&context, "streams").await?;
    rebalance(&context, &budget).await?;
    reasons.wait_for("Rebalancing").await?;
    let after = at_rest(&context, &jobs, 3, change).await?;
    ensure!(moved(&two, &after) == MOVES, "{} jobs moved", moved(&two, &after));
    let batches = self::version(&context).await? - version;
    context.laps.lap(format!("{MOVES} jobs moved in {batches} publications"));
    // The first publication may only add the new worker.
    ensure!(batches >= i64::try_from(MOVES / BUDGET)?, "in {batches} publications");
    reason(&context, "Settled").await?;

    ambiguous(&context).await?;
    looks(&context).await
}

async fn rebalance(context: &Context, fields: &str) -> Result<()> {
    let patch = format!("{{\"spec\": {{\"rebalance\": {fields}}}}}");
    context.kubectl(&["patch", "swarm", "streams", "--type=merge", "--patch", &patch]).await?;
    Ok(())
}

async fn reason(context: &Context, reason: &str) -> Result<()> {
    until(&format!("the Swarm to be {reason}"), || async {
        let swarm = context.api::<Swarm>().get("streams").await?;
        if ready_reason(swarm.status.as_ref()) != Some(reason) {
            bail!("conditions are {:?}", swarm.status.map(|status| status.conditions));
        }
        Ok(Some(()))
    })
    .await
}

async fn version(context: &Context) -> Result<i64> {
    let ledger = context.api::<SwarmLedger>().get("statefulset.swarm-worker").await?;
    Ok(ledger.spec.version)
}

/// Adds a second StatefulSet with the same labels. The Swarm reports it, and the workers keep
/// running.
async fn ambiguous(context: &Context) -> Result<()> {
    let before = all_reports(context).await?;
    let second = "
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: second, labels: {app: swarm-worker}}
spec:
  replicas: 0
  serviceName: second
  selector: {matchLabels: {app: second}}
  template:
    metadata: {labels: {app: second}}
    spec: {containers: [{name: none, image: none}]}
";
    context.apply(second).await?;
    reason(context, "PoolAmbiguous").await?;
    ensure!(all_reports(context).await? == before, "the workers keep running");
    context.kubectl(&["label", "statefulset", "second", "app-"]).await?;
    reason(context, "Settled").await
}

/// Checks that the columns and the explanations are as documented.
async fn looks(context: &Context) -> Result<()> {
    let table = context.kubectl(&["get", "swarm", "-o", "wide"]).await?;
    let (head, row) = table.split_once('\n').context("a table")?;
    let words: Vec<_> = head.split_whitespace().collect();
    let expected = [
        "NAME", "READY", "JOBS", "WORKERS", "FAILING", "MOVING", "REASON", "AS", "OF", "AGE",
        "ASSIGNED", "EDIT", "SEEN", "REVISION", "VERSION", "MESSAGE",
    ];
    ensure!(words == expected, "columns are {words:?}");
    ensure!(row.starts_with("streams") && row.contains("Settled"), "{row}");
    context.laps.lap(table.trim().to_owned());
    for (field, words) in [
        ("swarm.spec", "ConfigMaps with more jobs"),
        ("swarm.spec.rebalance", "Number of jobs that may move at a time"),
        ("swarm.spec.jobSources", "ConfigMaps with these labels"),
        ("swarm.spec.pool.statefulSet", "Labels of the workload itself"),
    ] {
        let text = context.kubectl(&["explain", field]).await?;
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        ensure!(text.contains(words), "{field} explains: {text}");
    }
    for condition in ["Ready", "PoolReady", "AllJobsAssigned"] {
        let condition = format!("--for=condition={condition}");
        context.kubectl(&["wait", &condition, "swarm/streams", "--timeout=5m"]).await?;
    }
    Ok(())
}
