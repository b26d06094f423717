//! Writes that the API server refuses, or would carry out only in part: a quota, CRDs that lack the
//! parts of a large ledger, CRDs of another version. The operator reports each in a sentence, and
//! the last valid assignment keeps running. It makes the refused write once that is possible.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use swarm_client::api::SwarmLedger;

use super::bad_input_is_refused::reported;
use super::claims_are_kept::{LEDGER, tokens};
use super::pool::{all_reports, at_rest, jobs_of, sample};
use crate::operator;
use crate::scenario::Context;
use crate::until::until;

const PARTS: &str = "swarmledgerparts.swarm.k8slab.info";
const DEFINITION: &str = "swarmledgers.swarm.k8slab.info";

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    quota(&context).await?;
    no_parts(&context).await?;

    let definitions: Api<CustomResourceDefinition> = Api::all(context.client.clone());
    let right = definitions.get(DEFINITION).await?;
    let result = older_definitions(&context, &right).await;
    // Restores the CRDs also after a failure: later scenarios share them.
    define(&context, &right).await?;
    result?;
    let jobs = jobs_of(&edited()?);
    at_rest(&context, &jobs, 2, Instant::now()).await?;
    context.kubectl(&["wait", "--for=condition=Ready", "swarm/streams", "--timeout=5m"]).await?;
    Ok(())
}

fn edited() -> Result<String> {
    Ok(sample(2)?.replace("stream:foo:new", "stream:bar:new"))
}

/// Sets a quota that leaves no room for the ledger.
async fn quota(context: &Context) -> Result<()> {
    let manifest = sample(2)?;
    let hard = "--hard=count/swarmledgers.swarm.k8slab.info=0";
    context.kubectl(&["create", "quota", "tight", hard]).await?;
    until("the quota to count", || async {
        let path = r"jsonpath={.status.hard.count/swarmledgers\.swarm\.k8slab\.info}";
        let seen = context.kubectl(&["get", "quota", "tight", "--output", path]).await?;
        Ok((seen == "0").then_some(()))
    })
    .await?;
    context.apply(&manifest).await?;
    let message = reported(context, "streams", "WriteRefused").await?;
    ensure!(message.contains("quota: tight"), "which: {message}");
    context.kubectl(&["delete", "quota", "tight"]).await?;
    at_rest(context, &jobs_of(&manifest), 2, Instant::now()).await.map(drop)
}

/// Removes the CRD of the parts of a large ledger.
async fn no_parts(context: &Context) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(context.client.clone());
    definitions.delete(PARTS, &DeleteParams::default()).await?;
    let there =
        || async { anyhow::Ok(context.kubectl(&["get", "swarmledgerparts"]).await.is_ok()) };
    until("the kind to be removed", || async { Ok((!there().await?).then_some(())) }).await?;
    let result = too_many_for_one_object(context).await;
    // Restores the kind also after a failure: later scenarios need it.
    operator::install_resources(&context.cluster).await?;
    result
}

async fn too_many_for_one_object(context: &Context) -> Result<()> {
    const MANY: usize = 55_000;
    let before = all_reports(context).await?;
    let mut list = String::new();
    for n in 0..MANY {
        writeln!(list, "- j{n}")?;
    }
    let map = ConfigMap {
        metadata: ObjectMeta { name: Some("many".into()), ..ObjectMeta::default() },
        data: Some(BTreeMap::from([("jobs".to_owned(), list)])),
        ..ConfigMap::default()
    };
    context.api::<ConfigMap>().create(&PostParams::default(), &map).await?;
    let source = r#"[{"op": "add", "path": "/spec/jobSources", "value": [{"configMap": {"name": "many", "key": "jobs"}}]}]"#;
    context.kubectl(&["patch", "swarm", "streams", "--type=json", "--patch", source]).await?;
    let message = reported(context, "streams", "SchemaTooOld").await?;
    ensure!(message.contains("`SwarmLedgerPart`"), "what is missing: {message}");
    ensure!(message.contains("apply deploy/crds"), "what to do: {message}");
    ensure!(all_reports(context).await? == before, "the last valid list keeps running");
    let back = r#"[{"op": "remove", "path": "/spec/jobSources"}]"#;
    context.kubectl(&["patch", "swarm", "streams", "--type=json", "--patch", back]).await?;
    context.kubectl(&["wait", "--for=condition=Ready", "swarm/streams", "--timeout=5m"]).await?;
    ensure!(all_reports(context).await? == before, "and nothing moved on the way back");
    Ok(())
}

/// Installs CRDs of a version without a field that the operator writes. The API server would drop
/// the field silently.
async fn older_definitions(context: &Context, right: &CustomResourceDefinition) -> Result<()> {
    let (before, tokens) = (all_reports(context).await?, tokens(context).await?);
    let revision = context.api::<SwarmLedger>().get(LEDGER).await?.spec.revision;
    let mut older = serde_json::to_value(right)?;
    let schema = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
    let schema = older.pointer_mut(schema).and_then(Value::as_object_mut).context("a schema")?;
    schema.remove("x-kubernetes-validations");
    let fields = schema.get_mut("properties").and_then(Value::as_object_mut);
    fields.context("fields")?.remove("pool").context("a field that is written")?;
    let required = schema.get_mut("required").and_then(Value::as_array_mut).context("required")?;
    required.retain(|field| field != "pool");
    define(context, &serde_json::from_value(older)?).await?;

    context.apply(&edited()?).await?;
    let message = reported(context, "streams", "SchemaTooOld").await?;
    ensure!(message.contains("apply deploy/crds"), "what to do: {message}");
    ensure!(all_reports(context).await? == before, "the last valid assignment keeps running");

    // Through these CRDs the ledger is read without the field, and nothing was lost.
    let path = format!(
        "/apis/swarm.k8slab.info/v1alpha1/namespaces/{}/swarmledgers/{LEDGER}",
        context.namespace
    );
    let text = context.cluster.kubectl(&["get", "--raw", &path]).await?;
    let seen: Value = serde_json::from_str(&text)?;
    ensure!(seen["spec"]["revision"] == revision, "it was not written: {seen}");
    define(context, right).await?;
    ensure!(self::tokens(context).await? == tokens, "every token is still there");
    Ok(())
}

/// Replaces the CRD of ledgers, and waits until the API server uses it.
async fn define(context: &Context, definition: &CustomResourceDefinition) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(context.client.clone());
    let patch = Patch::Merge(json!({"spec": {"versions": definition.spec.versions}}));
    definitions.patch(DEFINITION, &PatchParams::default(), &patch).await?;
    let has_pool = |definition: &Value| {
        !definition.pointer("/properties/spec/properties/pool").unwrap_or(&Value::Null).is_null()
    };
    let wanted = serde_json::to_value(&definition.spec.versions)?;
    let wanted = has_pool(wanted.pointer("/0/schema/openAPIV3Schema").context("a schema")?);
    until("the API server to use it", || async {
        let probe = context.api::<SwarmLedger>().get(LEDGER).await;
        Ok((probe.is_ok() == wanted).then_some(()))
    })
    .await
}
