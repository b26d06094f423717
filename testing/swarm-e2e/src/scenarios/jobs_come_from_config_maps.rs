//! Jobs in ConfigMaps: by name, by labels under generated names, and tens of thousands of them. A
//! missing or invalid source is reported.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ObjectMeta, PostParams};
use swarm_client::api::{Swarm, SwarmLedger};

use super::bad_input_is_refused::reported;
use super::pool::{all_reports, at_rest, sample};
use crate::scenario::Context;
use crate::until::until;

/// The documented capacity of one ledger object.
const MANY: usize = 20_000;

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let sources = "  jobSources:
    - {configMap: {name: channels, key: jobs}, shareSuffix: true}
    - {selector: {matchLabels: {list: peers}}, key: hosts, format: hostports}
  jobs:
    - name: stream:own:new
";
    let all = sample(2)?;
    let (head, rest) = all.split_once("  jobs:\n").unwrap_or_default();
    let (_, pool) = rest.split_once("---").unwrap_or_default();
    context.apply(&format!("{head}{sources}---{pool}")).await?;
    reported(&context, "streams", "SourceMissing").await?;

    config_map(&context, "channels", &[], "jobs", "[bbc, zdf]").await?;
    config_map(&context, "peers-5h7k2", &[("list", "peers")], "hosts", "a.example,80").await?;
    let mut jobs =
        BTreeSet::from(["stream:own:new", "bbc", "zdf", "a.example:80"].map(String::from));
    at_rest(&context, &jobs, 2, Instant::now()).await?;
    // Workers may run a list a moment before the status reports it.
    let settled = ["wait", "--for=condition=Ready", "swarm/streams", "--timeout=5m"];
    context.kubectl(&settled).await?;
    let digest = digest(&context).await?;

    // kustomize does the same: new content gets a new name, and then the old ConfigMap is deleted.
    config_map(&context, "peers-9x8y7", &[("list", "peers")], "hosts", "b.example,80").await?;
    context.kubectl(&["delete", "configmap", "peers-5h7k2"]).await?;
    jobs.remove("a.example:80");
    jobs.insert("b.example:80".to_owned());
    let before = at_rest(&context, &jobs, 2, Instant::now()).await?;
    until("another digest for another list", || async {
        Ok((self::digest(&context).await? != digest).then_some(()))
    })
    .await?;

    set(&context, "channels", "jobs", "[bbc, zdf, stream:own:new]").await?;
    reported(&context, "streams", "SourceInvalid").await?;
    context.kubectl(&["delete", "configmap", "channels"]).await?;
    reported(&context, "streams", "SourceMissing").await?;
    ensure!(all_reports(&context).await? == before, "the last valid list keeps running");

    let mut list = String::new();
    jobs = BTreeSet::from(["stream:own:new", "b.example:80"].map(String::from));
    for n in 0..MANY - 2 {
        let name = format!("stream:camera{n:05}:new");
        writeln!(list, "- {name}")?;
        jobs.insert(name);
    }
    let change = Instant::now();
    config_map(&context, "channels", &[], "jobs", &list).await?;
    at_rest(&context, &jobs, 2, change).await?;
    context.kubectl(&["wait", "--for=condition=Ready", "swarm/streams", "--timeout=5m"]).await?;
    too_many(&context).await
}

/// Refuses more jobs than a view can hold with a message, and keeps the last valid assignment.
async fn too_many(context: &Context) -> Result<()> {
    let revision = || async {
        let ledger = context.api::<SwarmLedger>().get("statefulset.swarm-worker").await?;
        anyhow::Ok(ledger.spec.revision)
    };
    let (before, said) = (all_reports(context).await?, revision().await?);
    config_map(context, "peers-more", &[("list", "peers")], "hosts", &hosts()).await?;
    reported(context, "streams", "ViewTooLarge").await?;
    ensure!(
        revision().await? == said,
        "an assignment that cannot be published is not saved either"
    );
    ensure!(all_reports(context).await? == before, "the last valid list keeps running");
    Ok(())
}

fn hosts() -> String {
    (0..MANY).fold(String::new(), |text, n| text + &format!("host{n}.of.some.example.com,80\n"))
}

pub(super) async fn config_map(
    context: &Context,
    name: &str,
    labels: &[(&str, &str)],
    key: &str,
    text: &str,
) -> Result<()> {
    let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    let map = ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(labels.iter().map(own).collect()),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([(key.to_owned(), text.to_owned())])),
        ..ConfigMap::default()
    };
    context.api::<ConfigMap>().create(&PostParams::default(), &map).await?;
    Ok(())
}

pub(super) async fn set(context: &Context, name: &str, key: &str, text: &str) -> Result<()> {
    let api = context.api::<ConfigMap>();
    let mut map = api.get(name).await?;
    map.data = Some(BTreeMap::from([(key.to_owned(), text.to_owned())]));
    api.replace(name, &PostParams::default(), &map).await?;
    Ok(())
}

/// The digest of the list in force.
async fn digest(context: &Context) -> Result<String> {
    until("the Swarm to be ready", || async {
        let status = context.api::<Swarm>().get("streams").await?.status.unwrap_or_default();
        let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
        if ready.is_none_or(|ready| ready.status != "True") {
            bail!("conditions are {:?}", status.conditions);
        }
        Ok(status.source_digest)
    })
    .await
}
