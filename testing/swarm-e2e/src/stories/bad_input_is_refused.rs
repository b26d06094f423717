//! What a user gets for a mistake: one sentence, from the API server where the schema sees it, else
//! as condition and Event; and whatever they do, the last good assignment keeps running.

use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use swarm_adapters_k8s::api::Swarm;
use swarm_adapters_k8s::status::ready_reason;

use super::pool::{REST_WITHIN, Reports, at_rest, jobs_of, reports, sample};
use crate::story::Context;
use crate::until::until;

/// How much of a refusal is printed.
const TOLD: usize = 120;

/// What only rules see, and the sentence they say.
const BEYOND_THE_SCHEMA: [(&str, &str); 15] = [
    ("handover: {releaseTimeout: 25h}", "write a duration from 0s to 24h"),
    ("handover: {policy: Exclusive}", "handover.policy: Exclusive needs workers that acknowledge"),
    ("handover: {lease: {duration: 16s}}", "handover.lease.duration is too short"),
    ("handover: {stopTimeout: 9s}", "handover.lease.duration is too short"),
    ("handover: {lease: {renew: 100ms}}", "write a duration from 500ms to 20m"),
    ("refresh: {maxUnavailable: 0}", "greater than or equal to 1"),
    ("refresh: {mode: Restart}", "Unsupported value"),
    ("rebalance: {batchWindow: 25h}", "write a duration from 0s to 24h"),
    ("rebalance: {maxMovesInFlight: 0}", "greater than or equal to 1"),
    ("replicas: -1", "greater than or equal to 0"),
    ("jobSources: [{key: jobs}]", "write either configMap: {name, key}, or selector"),
    ("jobSources: [{selector: {matchLabels: {a: b}}}]", "key belongs to selector"),
    (
        "jobSources: [{configMap: {name: a, key: b}, key: jobs}]",
        "key belongs to selector: each selected ConfigMap is read there",
    ),
    ("jobSources: [{selector: {matchLabels: {}}, key: jobs}]", "at least 1 properties"),
    (
        "jobSources: [{configMap: {name: a, key: b}, shareSuffix: true, format: hostports}]",
        "shareSuffix means nothing beside format: hostports",
    ),
];

pub(super) async fn tell(context: Context) -> Result<()> {
    context.operator().await?;
    let good = sample(2)?;
    let jobs = jobs_of(&good);
    context.apply(&good).await?;
    let before = at_rest(&context, &jobs, 2, Instant::now()).await?;

    refused(&context, &good, "  jobs:", "  jbos:", "unknown field \"spec.jbos\"").await?;
    refused(&context, &good, "stream:cars:updated", "stream:cars:new", "Duplicate value").await?;
    refused(&context, &good, "stream:cars:updated", "\"two words\"", "should match").await?;
    let finite = "stream:cars:updated\n      runOnce: true";
    let message = "a job with runOnce needs workers that tell when it is done";
    refused(&context, &good, "stream:cars:updated", finite, message).await?;
    let (moved, message) = ("name: swarm-worker\n  view", "spec.pool cannot be changed");
    refused(&context, &good, moved, &moved.replace("worker", "other"), message).await?;
    let wait = "  rebalance: {initialWait: 2d}\n  view:";
    refused(&context, &good, "  view:", wait, "initialWait").await?;
    for (fields, message) in BEYOND_THE_SCHEMA {
        refused(&context, &good, "  view:", &format!("  {fields}\n  view:"), message).await?;
    }
    let asked = "      port: 9090\n";
    refused(&context, &good, asked, "      port: 0\n", "greater than or equal to 1").await?;
    let relative = "      port: 9090\n      path: internal\n";
    refused(&context, &good, asked, relative, "should match").await?;
    let both = "name: swarm-worker\n      matchLabels: {app: x}\n  view";
    refused(&context, &good, moved, both, "write either name or matchLabels").await?;
    still(&context, &before, "refused edits").await?;

    second_swarm_on_the_pool(&context, &good).await?;
    still(&context, &before, "a second Swarm on the pool").await?;
    pool_that_is_not_there(&context).await?;
    statefulset_that_goes_away(&context, &good, &before).await
}

/// Applying `good` with one thing wrong is refused with a message that contains `message`.
async fn refused(
    context: &Context,
    good: &str,
    right: &str,
    wrong: &str,
    message: &str,
) -> Result<()> {
    ensure!(good.contains(right), "the sample has no `{right}` to get wrong");
    match context.apply(&good.replacen(right, wrong, 1)).await {
        Ok(()) => bail!("`{wrong}` was accepted"),
        Err(error) => {
            let text = format!("{error:#}");
            let line = text.lines().find(|line| line.contains(message));
            let line = line.with_context(|| format!("no `{message}` in: {text}"))?;
            // What comes before is the command and, sometimes, the whole object.
            let told: String = line.chars().rev().take(TOLD).collect();
            context.laps.lap(format!("refused: {}", told.chars().rev().collect::<String>()));
            Ok(())
        }
    }
}

async fn still(context: &Context, before: &Reports, after_what: &str) -> Result<()> {
    let now = reports(context).await?;
    ensure!(now == *before, "after {after_what} workers run something else: {now:?}");
    Ok(())
}

/// Waits until a Swarm's `Ready` has this reason, and for the Event that tells it. Returns
/// the sentence.
pub(super) async fn told(context: &Context, swarm: &str, reason: &str) -> Result<String> {
    let message = until(&format!("{swarm} to be {reason}"), REST_WITHIN, || async {
        let swarm = context.api::<Swarm>().get(swarm).await?;
        if ready_reason(swarm.status.as_ref()) != Some(reason) {
            bail!("conditions are {:?}", swarm.status.map(|status| status.conditions));
        }
        let conditions = swarm.status.unwrap_or_default().conditions;
        let stalled = conditions.into_iter().find(|condition| condition.type_ == "Stalled");
        stalled.map(|condition| Some(condition.message)).context("no condition Stalled")
    })
    .await?;
    until("the Event", REST_WITHIN, || async {
        let about = format!("involvedObject.name={swarm}");
        let events = context.kubectl(&["get", "events", "--field-selector", &about]).await?;
        Ok(events.contains(reason).then_some(()))
    })
    .await?;
    context.laps.lap(format!("{swarm} is {reason}: {message}"));
    Ok(message)
}

async fn second_swarm_on_the_pool(context: &Context, good: &str) -> Result<()> {
    let second = good
        .split("---")
        .next()
        .unwrap_or_default()
        .replace("name: streams", "name: second")
        .replace("swarm-worker-config", "second-config");
    context.apply(&second).await?;
    told(context, "second", "PoolClaimed").await?;
    context.kubectl(&["delete", "swarm", "second", "--timeout=30s"]).await?;
    Ok(())
}

async fn pool_that_is_not_there(context: &Context) -> Result<()> {
    let orphan = "
apiVersion: swarm.k8slab.info/v1alpha1
kind: Swarm
metadata: {name: orphan}
spec:
  jobs: [{name: a}]
  pool: {statefulSet: {name: nobody}}
";
    context.apply(orphan).await?;
    told(context, "orphan", "PoolNotFound").await?;
    context.kubectl(&["delete", "swarm", "orphan", "--timeout=30s"]).await?;
    Ok(())
}

/// The StatefulSet goes, its pods stay: they go on, and are the same pool when it is back.
async fn statefulset_that_goes_away(context: &Context, good: &str, before: &Reports) -> Result<()> {
    context.kubectl(&["delete", "statefulset", "swarm-worker", "--cascade=orphan"]).await?;
    told(context, "streams", "PoolNotFound").await?;
    still(context, before, "the loss of the StatefulSet").await?;
    let change = Instant::now();
    context.apply(good).await?;
    context.kubectl(&["wait", "--for=condition=Ready", "swarm/streams", "--timeout=30s"]).await?;
    let after = at_rest(context, &jobs_of(good), 2, change).await?;
    ensure!(after == *before, "the same pods keep the same jobs: {after:?}");
    Ok(())
}
