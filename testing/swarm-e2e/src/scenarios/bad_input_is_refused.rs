//! A user gets one sentence for a mistake: from the API server if the schema covers it, else as
//! condition and Event. The last valid assignment keeps running after each mistake.

use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use kube::ResourceExt as _;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use swarm_adapters_k8s::status::ready_reason;
use swarm_client::api::{API_VERSION, Swarm, SwarmLedger, Writer};
use swarm_spec::yaml;

use super::pool::{Reports, all_reports, at_rest, jobs_of, sample};
use crate::scenario::Context;
use crate::until::until;

/// The number of characters of a refusal that are printed.
const SHOWN: usize = 120;

/// Specs with the verdicts of file, `plan` and API server. A test of the manifests reads the same
/// table.
const SPECS: &str = include_str!("../../../specs.yaml");

/// Texts of manifests with the values that kubectl reads. A test of the reader has the same table.
const READINGS: &str = include_str!("../../../readings.yaml");

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let good = sample(2)?;
    let jobs = jobs_of(&good);
    context.apply(&good).await?;
    let before = at_rest(&context, &jobs, 2, Instant::now()).await?;

    refused(&context, &good, "  jobs:", "  jbos:", "unknown field \"spec.jbos\"").await?;
    refused(&context, &good, "stream:cars:updated", "stream:cars:new", "Duplicate value").await?;
    refused(&context, &good, "stream:cars:updated", "\"two words\"", "should match").await?;
    let finite = "stream:cars:updated\n      runOnce: true";
    let message = "a job with runOnce needs workers";
    refused(&context, &good, "stream:cars:updated", finite, message).await?;
    let (moved, message) = ("name: swarm-worker\n  view", "spec.pool cannot be changed");
    refused(&context, &good, moved, &moved.replace("worker", "other"), message).await?;
    let wait = "  rebalance: {returnGrace: 2d}\n  view:";
    refused(&context, &good, "  view:", wait, "returnGrace").await?;
    let (name, long) = ("name: streams", format!("name: {}", "s".repeat(64)));
    refused(&context, &good, name, &long, "the name of a Swarm has at most 63 characters").await?;
    let pool = moved.replace("swarm-worker", &"w".repeat(204));
    refused(&context, &second_of(&good), moved, &pool, "at most 203 characters").await?;
    specs_are_judged_as_in_files(&context).await?;
    kubectl_reads_the_values_of_the_table(&context).await?;
    still(&context, &before, "refused edits").await?;
    a_ledger_only_goes_forward(&context).await?;
    still(&context, &before, "refused writes of its ledger").await?;

    second_swarm_on_the_pool(&context, &good).await?;
    still(&context, &before, "a second Swarm on the pool").await?;
    pool_that_is_not_there(&context).await?;
    statefulset_that_goes_away(&context, &good, &before).await
}

/// Checks that the API server refuses writes that turn a ledger back. Such a write has a lower
/// epoch, another writer of the same epoch, no writer, or a lower revision.
async fn a_ledger_only_goes_forward(context: &Context) -> Result<()> {
    let ledgers = context.api::<SwarmLedger>();
    let found = ledgers.list(&ListParams::default()).await?.items;
    let ledger = found.into_iter().next().context("no ledger")?;
    let Writer { member, epoch } =
        ledger.spec.writer.clone().context("a ledger without a writer")?;
    let other = || "other-1".to_owned();
    let none_less = "another writer has a higher epoch";
    let cases = [
        (Some(Writer { member: other(), epoch }), ledger.spec.revision, none_less),
        (Some(Writer { member: other(), epoch: epoch - 1 }), ledger.spec.revision, none_less),
        (
            Some(Writer { member: member.clone(), epoch: epoch - 1 }),
            ledger.spec.revision,
            none_less,
        ),
        (None, ledger.spec.revision, none_less),
        (Some(Writer { member, epoch }), ledger.spec.revision - 1, "a ledger only goes forward"),
    ];
    for (writer, revision, expected) in cases {
        // The patch has no resource version: a stale version would be refused before the rule
        // applies.
        let patch = json!({"spec": {"writer": writer, "revision": revision}});
        let written =
            ledgers.patch(&ledger.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await;
        match written {
            Err(kube::Error::Api(status)) if status.code == 422 => {
                ensure!(status.message.contains(expected), "{patch}: {}", status.message);
            }
            other => bail!("{patch} was not refused: {other:?}"),
        }
    }
    Ok(())
}

/// Judges every spec of the table on a dry run.
async fn specs_are_judged_as_in_files(context: &Context) -> Result<()> {
    let documents = yaml::documents(SPECS)?;
    let cases = documents.first().and_then(|(_, cases)| cases.as_array());
    let cases = cases.context("the table of specs is no list")?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("swarm.json");
    for case in cases {
        let pool = json!({"statefulSet": {"name": "swarm-worker"}});
        let mut spec = json!({"jobs": [{"name": "a"}], "pool": pool});
        for (field, value) in case["spec"].as_object().context("a case has no spec")? {
            spec[field] = value.clone();
        }
        let metadata = json!({"name": "cases"});
        let swarm =
            json!({"apiVersion": API_VERSION, "kind": "Swarm", "metadata": metadata, "spec": spec});
        tokio::fs::write(&file, swarm.to_string()).await?;
        let path = file.display().to_string();
        let create = ["create", "--dry-run=server", "--validate=strict", "--filename", &path];
        match (context.kubectl(&create).await, case["server"].as_str()) {
            (Ok(_), None) => {}
            (Ok(_), Some(_)) => bail!("{} was accepted", case["spec"]),
            (Err(error), None) => {
                return Err(error.context(format!("{} was refused", case["spec"])));
            }
            (Err(error), Some(expected)) => {
                let text = format!("{error:#}");
                ensure!(text.contains(expected), "no `{expected}` for {}: {text}", case["spec"]);
            }
        }
    }
    context.laps.lap(format!("{} specs are judged as in files", cases.len()));
    Ok(())
}

/// Checks that the kubectl of this version reads every text of the table as the table says.
async fn kubectl_reads_the_values_of_the_table(context: &Context) -> Result<()> {
    let documents = yaml::documents(READINGS)?;
    let cases = documents.first().and_then(|(_, cases)| cases.as_array());
    let cases = cases.context("the table of readings is no list")?;
    let mut manifest = "kind: ConfigMap\napiVersion: v1\nmetadata: {name: readings}\n\
                        base: &base {a: 1, b: 2}\nvalues:\n"
        .to_owned();
    for case in cases {
        let text = case["text"].as_str().context("a case has no text")?;
        manifest.extend(["- ", text, "\n"]);
    }
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("readings.yaml");
    tokio::fs::write(&file, manifest).await?;
    let path = file.display().to_string();
    let label = ["label", "--local", "--output=json", "--filename", &path, "read=yes"];
    let read: Value = serde_json::from_str(&context.kubectl(&label).await?)?;
    for (index, case) in cases.iter().enumerate() {
        let found = &read["values"][index];
        ensure!(*found == case["value"], "kubectl reads {} as {found}", case["text"]);
    }
    context.laps.lap(format!("kubectl reads {} texts as the table says", cases.len()));
    Ok(())
}

/// Checks that `good` with one thing wrong is refused, with a message that contains `message`.
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
            // The line ends with the message, after the command and, sometimes, the whole object.
            let shown: String = line.chars().rev().take(SHOWN).collect();
            context.laps.lap(format!("refused: {}", shown.chars().rev().collect::<String>()));
            Ok(())
        }
    }
}

async fn still(context: &Context, before: &Reports, after_what: &str) -> Result<()> {
    let now = all_reports(context).await?;
    ensure!(now == *before, "after {after_what} workers run something else: {now:?}");
    Ok(())
}

/// Waits until a Swarm's `Ready` has this reason, and for the Event that reports it. Returns
/// the sentence.
pub(super) async fn reported(context: &Context, swarm: &str, reason: &str) -> Result<String> {
    let message = until(&format!("{swarm} to be {reason}"), || async {
        let swarm = context.api::<Swarm>().get(swarm).await?;
        if ready_reason(swarm.status.as_ref()) != Some(reason) {
            bail!("conditions are {:?}", swarm.status.map(|status| status.conditions));
        }
        let conditions = swarm.status.unwrap_or_default().conditions;
        let stalled = conditions.into_iter().find(|condition| condition.type_ == "Stalled");
        stalled.map(|condition| Some(condition.message)).context("no condition Stalled")
    })
    .await?;
    until("the Event", || async {
        let about = format!("involvedObject.name={swarm}");
        let events = context.kubectl(&["get", "events", "--field-selector", &about]).await?;
        Ok(events.contains(reason).then_some(()))
    })
    .await?;
    context.laps.lap(format!("{swarm} is {reason}: {message}"));
    Ok(message)
}

/// Another Swarm on the same pool.
fn second_of(good: &str) -> String {
    let swarm = good.split("---").next().unwrap_or_default();
    swarm.replace("name: streams", "name: second").replace("swarm-worker-config", "second-config")
}

async fn second_swarm_on_the_pool(context: &Context, good: &str) -> Result<()> {
    context.apply(&second_of(good)).await?;
    reported(context, "second", "PoolClaimed").await?;
    context.kubectl(&["delete", "swarm", "second", "--timeout=5m"]).await?;
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
    reported(context, "orphan", "PoolNotFound").await?;
    context.kubectl(&["delete", "swarm", "orphan", "--timeout=5m"]).await?;
    Ok(())
}

/// Deletes the StatefulSet without its pods. The pods keep running, and are the same pool when the
/// StatefulSet is back.
async fn statefulset_that_goes_away(context: &Context, good: &str, before: &Reports) -> Result<()> {
    context.kubectl(&["delete", "statefulset", "swarm-worker", "--cascade=orphan"]).await?;
    reported(context, "streams", "PoolNotFound").await?;
    still(context, before, "the loss of the StatefulSet").await?;
    let change = Instant::now();
    context.apply(good).await?;
    context.kubectl(&["wait", "--for=condition=Ready", "swarm/streams", "--timeout=5m"]).await?;
    let after = at_rest(context, &jobs_of(good), 2, change).await?;
    ensure!(after == *before, "the same pods keep the same jobs: {after:?}");
    Ok(())
}
