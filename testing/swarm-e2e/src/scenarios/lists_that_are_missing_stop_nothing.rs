//! Lists of a selector are deleted, recreated, emptied in order and made optional, while the
//! operator runs and while none runs. Jobs stop only because of an edit, as the reports of the
//! workers show.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ObjectMeta, PostParams};
use swarm_client::api::SwarmLedger;

use super::bad_input_is_refused::reported;
use super::jobs_come_from_config_maps::{config_map, set};
use super::pool::{Reports, all_reports, at_rest, sample};
use crate::operator;
use crate::scenario::Context;
use crate::until::until;

const LABELS: &[(&str, &str)] = &[("list", "peers")];

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let (lists, own) = (["[a1, a2]", "[b1, b2]"], "stream:own:new");
    list(&context, "peers-a", lists[0]).await?;
    list(&context, "peers-b", lists[1]).await?;
    context.apply(&swarm("")?).await?;
    let all = BTreeSet::from(["a1", "a2", "b1", "b2", own].map(String::from));
    let before = at_rest(&context, &all, 2, Instant::now()).await?;
    is_ready(&context).await?;

    delete(&context, "peers-b").await?;
    missing(&context, &before, "ConfigMap `peers-b`, which held jobs").await?;
    let writer = writer(&context).await?;
    operator::stop(&context.cluster).await?;
    operator::go_on(&context.cluster).await?;
    taken_over(&context, writer.as_deref()).await?;
    missing(&context, &before, "ConfigMap `peers-b`, which held jobs").await?;
    list(&context, "peers-b", lists[1]).await?;
    is_ready(&context).await?;
    unchanged(&context, &before, "a list that was made again").await?;

    let writer = self::writer(&context).await?;
    operator::stop(&context.cluster).await?;
    delete(&context, "peers-a").await?;
    operator::go_on(&context.cluster).await?;
    taken_over(&context, writer.as_deref()).await?;
    missing(&context, &before, "ConfigMap `peers-a`, which held jobs").await?;
    delete(&context, "peers-b").await?;
    missing(&context, &before, "ConfigMaps `peers-a`, `peers-b`, which held jobs").await?;
    list(&context, "peers-a", lists[0]).await?;
    list(&context, "peers-b", lists[1]).await?;
    is_ready(&context).await?;
    unchanged(&context, &before, "both lists that were made again").await?;

    orders_are_carried_out(&context, own).await?;
    mistakes_are_named(&context, own).await
}

/// Empties a list, and deletes a list of a source that may be missing.
async fn orders_are_carried_out(context: &Context, own: &str) -> Result<()> {
    set(context, "peers-b", "jobs", "[]").await?;
    let left = BTreeSet::from(["a1", "a2", own].map(String::from));
    let before = at_rest(context, &left, 2, Instant::now()).await?;
    is_ready(context).await?;
    delete(context, "peers-b").await?;
    context.apply(&swarm(", optional: true")?).await?;
    is_ready(context).await?;
    unchanged(context, &before, "the deletion of an empty list").await?;
    delete(context, "peers-a").await?;
    let left = BTreeSet::from([own.to_owned()]);
    at_rest(context, &left, 2, Instant::now()).await?;
    is_ready(context).await
}

/// Reports a list in `binaryData`, and refuses more jobs in a Swarm than it may have.
async fn mistakes_are_named(context: &Context, own: &str) -> Result<()> {
    let bytes = ByteString(vec![0x1f, 0x8b, 0xff]);
    let map = ConfigMap {
        metadata: ObjectMeta {
            name: Some("peers-gz".to_owned()),
            labels: Some(LABELS.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect()),
            ..ObjectMeta::default()
        },
        binary_data: Some([("jobs".to_owned(), bytes)].into()),
        ..ConfigMap::default()
    };
    context.api::<ConfigMap>().create(&PostParams::default(), &map).await?;
    let message = reported(context, "streams", "SourceMissing").await?;
    ensure!(message.contains("the key `jobs` is in `binaryData`"), "{message}");
    delete(context, "peers-gz").await?;
    let mut more = format!("    - name: {own}\n");
    for n in 0..2_058 {
        writeln!(more, "    - name: more{n}")?;
    }
    let many = swarm("")?.replace(&format!("    - name: {own}\n"), &more);
    let refused = context.apply(&many).await.err().context("2,059 jobs were accepted")?;
    let refused = format!("{refused:#}");
    ensure!(refused.contains("spec.jobs has at most 2000 jobs"), "{refused}");
    ensure!(refused.contains("spec.jobSources"), "{refused}");
    Ok(())
}

/// The shipped sample with two workers, one job of its own and the lists with the label.
fn swarm(optional: &str) -> Result<String> {
    let all = sample(2)?;
    let (head, rest) = all.split_once("  jobs:\n").unwrap_or_default();
    let (_, pool) = rest.split_once("---").unwrap_or_default();
    let source = format!("{{selector: {{matchLabels: {{list: peers}}}}, key: jobs{optional}}}");
    let own = "stream:own:new";
    Ok(format!("{head}  jobSources:\n    - {source}\n  jobs:\n    - name: {own}\n---{pool}"))
}

async fn list(context: &Context, name: &str, jobs: &str) -> Result<()> {
    config_map(context, name, LABELS, "jobs", jobs).await
}

async fn delete(context: &Context, name: &str) -> Result<()> {
    context.kubectl(&["delete", "configmap", name]).await.map(drop)
}

/// Waits until the Swarm is ready with its newest spec.
async fn is_ready(context: &Context) -> Result<()> {
    let wait = ["wait", "--for=condition=Ready", "swarm/streams", "--timeout=5m"];
    context.kubectl(&wait).await.map(drop)
}

/// Waits until the Swarm reports this text about a missing list, and checks that all jobs still
/// run.
async fn missing(context: &Context, before: &Reports, words: &str) -> Result<()> {
    until(&format!("`{words}` to be said"), || async {
        let said = reported(context, "streams", "SourceMissing").await?;
        ensure!(said.contains(words), "{said}");
        Ok(Some(()))
    })
    .await?;
    unchanged(context, before, words).await
}

async fn unchanged(context: &Context, before: &Reports, after: &str) -> Result<()> {
    let now = all_reports(context).await?;
    let jobs = |reports: &Reports| {
        let each = reports.iter().map(|(name, report)| (name.clone(), report.jobs.clone()));
        each.collect::<Vec<_>>()
    };
    ensure!(jobs(&now) == jobs(before), "after {after}: {now:?}, and before {before:?}");
    Ok(())
}

/// The operator that writes the ledger of the Swarm.
async fn writer(context: &Context) -> Result<Option<String>> {
    let ledger = context.api::<SwarmLedger>().get("statefulset.swarm-worker").await?;
    Ok(ledger.spec.writer.map(|writer| writer.member))
}

/// Waits until another operator writes the ledger. That operator has then reconciled the Swarm.
async fn taken_over(context: &Context, before: Option<&str>) -> Result<()> {
    until("another operator to take over", || async {
        Ok((writer(context).await?.as_deref() != before).then_some(()))
    })
    .await
}
