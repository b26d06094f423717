//! The behaviour of an API server that our adapters rely on. The contract is written once, and runs
//! on the real API server and on the one in memory.

mod random;
mod watches;
mod writes;

use anyhow::{Result, bail, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, GetParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Client, Error, ResourceExt as _};
use serde_json::{Value, json};

pub use random::transcript;

/// An API server under test.
pub struct Place<'a> {
    /// A client with all rights.
    pub client: &'a Client,
    /// A namespace in which no other object has the names of the contract.
    pub namespace: &'a str,
    /// A version that is too old for a watch.
    pub forgotten: &'a str,
}

/// The contract of an API server.
///
/// # Errors
///
/// The first promise that is not kept.
pub async fn api_server(place: &Place<'_>) -> Result<()> {
    writes::versions_are_compared(place).await?;
    reads_are_at_a_version_or_later(place).await?;
    writes::a_dry_run_makes_nothing(place).await?;
    writes::deletions_have_preconditions(place).await?;
    writes::a_lease_is_made_by_a_put_unless_it_names_a_uid(place).await?;
    writes::managers_own_what_they_apply(place).await?;
    writes::an_apply_of_another_object_is_refused(place).await?;
    writes::json_patches_test(place).await?;
    writes::status_and_spec_have_endpoints_of_their_own(place).await?;
    writes::finalizers_keep_what_is_deleted(place).await?;
    writes::pods_are_evicted_as_they_were_seen(place).await?;
    writes::workloads_are_scaled_as_they_were_seen(place).await?;
    watches::lists_come_in_pages_and_as_metadata(place).await?;
    watches::a_watch_goes_on_where_it_ended(place).await?;
    watches::what_is_selected_no_more_is_gone(place).await?;
    watches::a_quiet_watch_ends_in_time(place).await?;
    watches::a_forgotten_version_is_gone(place).await
}

impl Place<'_> {
    fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), self.namespace)
    }
}

async fn reads_are_at_a_version_or_later(place: &Place<'_>) -> Result<()> {
    let (maps, post) = (place.maps(), PostParams::default());
    let first = maps.create(&post, &map("read", "1")).await?;
    let next = ConfigMap { data: map("", "2").data, ..first.clone() };
    let second = maps.replace("read", &post, &next).await?;
    let found = maps.get_with("read", &GetParams::at(&version(&second))).await?;
    ensure!(version(&found) == version(&second), "one from before that version");
    let found = maps.get_with("read", &GetParams::at(&version(&first))).await?;
    ensure!(["1", "2"].contains(&text(&found)), "{found:?}");
    refused(404, "a read of nothing", maps.get_with("nothing", &GetParams::at("1")).await)
}

/// A ConfigMap with one text.
fn map(name: &str, text: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        data: Some([("text".to_owned(), text.to_owned())].into()),
        ..ConfigMap::default()
    }
}

fn text(map: &ConfigMap) -> &str {
    map.data.as_ref().and_then(|data| data.get("text")).map_or("", String::as_str)
}

/// The patch with which a manager applies such a ConfigMap.
fn applied(name: &str, data: &Value) -> Patch<Value> {
    let metadata = json!({"name": name});
    Patch::Apply(
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}),
    )
}

fn manager(name: &str) -> PatchParams {
    PatchParams::apply(name)
}

fn version(object: &impl kube::Resource) -> String {
    object.resource_version().unwrap_or_default()
}

/// Checks that a request was refused with this code.
fn refused<T: std::fmt::Debug>(code: u16, what: &str, answer: kube::Result<T>) -> Result<()> {
    match answer {
        Err(Error::Api(status)) if status.code == code => Ok(()),
        Err(error) => bail!("{what}: expected {code}, not: {error}"),
        Ok(object) => bail!("{what}: expected {code}, but it was done: {object:?}"),
    }
}

/// Checks that both versions are numbers, and that `after` is later.
fn is_later(before: &str, after: &str) -> Result<()> {
    let (before, after): (u64, u64) = (before.parse()?, after.parse()?);
    ensure!(before < after, "version {after} does not follow {before}");
    Ok(())
}
