//! A Swarm gets more jobs than one object of its ledger can hold, and loses them again, while its
//! workers run. The ledger is divided into parts and merged again, and no job moves because of
//! that.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::json;
use swarm_client::api::SwarmLedger;

use super::pool::{Reports, as_recorded, at_rest, moved, sample};
use crate::operator;
use crate::scenario::Context;
use crate::until::until;

/// A number of jobs that fits into one object.
const FEW: usize = 15_000;
/// A number of jobs that needs parts.
const MANY: usize = 30_000;

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let all = sample(2)?;
    let (head, rest) = all.split_once("  jobs:\n").unwrap_or_default();
    let (_, pool) = rest.split_once("---").unwrap_or_default();
    // Quiets the workers: a line for each job and second would keep the machine busy with the log.
    let quiet = "          env:\n            - {name: RUST_LOG, value: warn}\n";
    let pool = pool.replacen("          env:\n", quiet, 1);
    ensure!(pool.contains("RUST_LOG"), "the sample's workers have an environment");
    let map = ConfigMap {
        metadata: ObjectMeta { name: Some("list".into()), ..ObjectMeta::default() },
        data: Some(BTreeMap::from([("jobs".to_owned(), list(FEW)?)])),
        ..ConfigMap::default()
    };
    context.api::<ConfigMap>().create(&PostParams::default(), &map).await?;
    let sources = "  jobSources:\n    - {configMap: {name: list, key: jobs}}\n";
    context.apply(&format!("{head}{sources}---{pool}")).await?;
    let few = at_rest(&context, &names(FEW), 2, Instant::now()).await?;
    ensure!(parts(&context).await?.is_empty(), "one object is enough");

    let many = set(&context, MANY, 2).await?;
    ensure!(moved(&few, &many) == 0, "no job moves for the ledger");
    let divided = parts(&context).await?;
    ensure!(divided.len() == 4, "parts: {divided:?}");
    as_recorded(&context, &many).await?;

    an_operator_goes_on(&context, &many).await?;
    let divided = parts(&context).await?;
    let more = set(&context, MANY + 1, 2).await?;
    ensure!(moved(&many, &more) == 0, "nor for one job more");
    let after = parts(&context).await?;
    ensure!(after.difference(&divided).count() == 1, "which changes one part");

    let change = Instant::now();
    context.kubectl(&["scale", "statefulset", "swarm-worker", "--replicas=3"]).await?;
    let wide = at_rest(&context, &names(MANY + 1), 3, change).await?;
    let moves = moved(&more, &wide);
    ensure!(moves == MANY.div_ceil(3), "{moves} moved for a worker more");
    as_recorded(&context, &wide).await?;

    let back = set(&context, FEW, 3).await?;
    let (moves, needed) = (moved(&wide, &back), needed(&wide));
    ensure!(moves == needed, "{moves} moved, and {needed} had to");
    ensure!(parts(&context).await?.is_empty(), "no part is left");
    as_recorded(&context, &back).await
}

/// Stops the operator and starts it again. The new process reads the parts, and finds nothing to
/// do.
async fn an_operator_goes_on(context: &Context, before: &Reports) -> Result<()> {
    let published = || async {
        let ledger = context.api::<SwarmLedger>().get("statefulset.swarm-worker").await?;
        anyhow::Ok(ledger.spec.version)
    };
    let before_that = published().await?;
    operator::stop(&context.cluster).await?;
    operator::go_on(&context.cluster).await?;
    context.kubectl(&["wait", "--for=condition=Ready", "swarm/streams", "--timeout=5m"]).await?;
    // Removes one job and adds it again. The new process needs the ledger to move no other job.
    set(context, MANY - 1, 2).await?;
    let back = set(context, MANY, 2).await?;
    ensure!(moved(before, &back) == 0, "another operator moves no job");
    // A takeover writes the ledger as well, but publishes nothing.
    ensure!(published().await? == before_that + 2, "and publishes twice");
    Ok(())
}

/// Counts the remaining jobs that must move until no worker has more than its share of them.
fn needed(before: &Reports) -> usize {
    let (few, most) = (names(FEW), FEW.div_ceil(before.len()));
    let kept = before.values().map(|report| report.jobs.intersection(&few).count());
    kept.map(|kept| kept.saturating_sub(most)).sum()
}

/// Sets the number of jobs in the list, and waits until all of them run on this number of workers.
async fn set(context: &Context, count: usize, workers: usize) -> Result<Reports> {
    let change = Instant::now();
    let patch = Patch::Merge(json!({"data": {"jobs": list(count)?}}));
    context.api::<ConfigMap>().patch("list", &PatchParams::default(), &patch).await?;
    let reports = at_rest(context, &names(count), workers, change).await?;
    // Workers may run a list a moment before the parts of the old ledger are removed.
    until("the Swarm to be ready", || async {
        let status =
            ["get", "swarm", "streams", "--output=jsonpath={.status.jobs} {.status.assigned}"];
        let counts = context.kubectl(&status).await?;
        Ok((counts == format!("{count} {count}")).then_some(()))
    })
    .await?;
    Ok(reports)
}

/// The existing parts, as `kubectl get` shows them.
async fn parts(context: &Context) -> Result<BTreeSet<String>> {
    let columns = "--output=custom-columns=:.metadata.name,:.spec.ledger";
    let text = context.kubectl(&["get", "swarmledgerparts", "--no-headers", columns]).await?;
    let part = |line: &str| {
        let (name, ledger) = line.trim().split_once(' ').context("two columns")?;
        ensure!(ledger.trim() == "statefulset.swarm-worker", "a part of {ledger}");
        Ok(name.to_owned())
    };
    text.lines().filter(|line| !line.trim().is_empty()).map(part).collect()
}

fn names(count: usize) -> BTreeSet<String> {
    (0..count).map(|n| format!("camera-{n:07}")).collect()
}

fn list(count: usize) -> Result<String> {
    let mut list = String::new();
    for name in names(count) {
        writeln!(list, "- {name}")?;
    }
    Ok(list)
}
