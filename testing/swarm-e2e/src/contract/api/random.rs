//! Random operations on a few ConfigMaps. Every server gets the same operations, and must give the
//! same answers.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{
    Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions, WatchEvent,
    WatchParams,
};
use kube::{Client, Error, ResourceExt as _};
use serde_json::{Value, json};

use super::{applied, version};

/// The bound on the arrival of an event.
const WITHIN: Duration = Duration::from_secs(30);
/// The object that is made last. A watch that shows it has shown all earlier changes.
const LAST: &str = "random-last";

/// Random numbers from a seed (`SplitMix64`).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        usize::try_from(mixed % end.max(1) as u64).unwrap_or_default()
    }

    fn one_of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }
}

struct Run {
    maps: Api<ConfigMap>,
    random: Random,
    /// The versions and UIDs in answers, in order, by name.
    seen: BTreeMap<String, Vec<(String, String)>>,
    /// All versions in answers.
    versions: Vec<u64>,
}

/// Sends `count` operations. Returns one line for each request with its answer, and one for each
/// event of a watch of all changes. A line has no versions and UIDs, but shows whether these are
/// new.
///
/// # Errors
///
/// When a request gets no answer, or the versions of the watch do not rise.
pub async fn transcript(
    client: &Client,
    namespace: &str,
    seed: u64,
    count: usize,
) -> Result<Vec<String>> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let from = maps.list(&ListParams::default()).await?.metadata.resource_version;
    let (objects, versions) = Default::default();
    let mut run = Run { maps: maps.clone(), random: Random(seed), seen: objects, versions };
    let mut lines = Vec::new();
    for _ in 0..count {
        lines.push(run.operation().await?);
    }
    maps.create(&PostParams::default(), &super::map(LAST, "")).await?;
    let from = from.context("a list has a version")?;
    lines.extend(watched(&maps, &from).await?);
    maps.delete(LAST, &DeleteParams::default()).await?;
    for name in NAMES {
        let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        let _ = maps.patch(name, &PatchParams::default(), &free).await;
        let _ = maps.delete(name, &DeleteParams::default()).await;
    }
    Ok(lines)
}

const NAMES: [&str; 3] = ["random-a", "random-b", "random-c"];
const KEYS: [&str; 3] = ["x", "y", "z"];
const VALUES: [&str; 3] = ["1", "2", "3"];
const MANAGERS: [&str; 3] = ["one", "two", "three"];

impl Run {
    async fn operation(&mut self) -> Result<String> {
        let name = self.random.one_of(&NAMES);
        match self.random.below(10) {
            0 => self.create(name).await,
            1 | 2 => self.replace(name).await,
            3 => self.merge(name).await,
            4..=6 => self.apply(name).await,
            7 => self.delete(name).await,
            8 => self.finalizers(name).await,
            _ => {
                let answer = self.maps.get(name).await;
                self.line(&format!("get {name}"), name, answer)
            }
        }
    }

    /// Random data, never empty: our adapters never write an empty map, whose ownership is special.
    fn data(&mut self) -> Value {
        let mut data = serde_json::Map::new();
        for _ in 0..=self.random.below(2) {
            data.insert(self.random.one_of(&KEYS).to_owned(), json!(self.random.one_of(&VALUES)));
        }
        Value::Object(data)
    }

    /// A version and UID from an earlier answer, the newest more often than others.
    fn past(&mut self, name: &str) -> Option<(String, String)> {
        let seen = self.seen.get(name)?;
        let back = [0, 0, 0, 1, 2][self.random.below(5)];
        seen.iter().rev().nth(back).or(seen.last()).cloned()
    }

    fn object(&mut self, name: &str) -> Result<ConfigMap> {
        let data = self.data();
        Ok(serde_json::from_value(json!({"metadata": {"name": name}, "data": data}))?)
    }

    async fn create(&mut self, name: &str) -> Result<String> {
        let object = self.object(name)?;
        let params =
            PostParams { field_manager: Some("maker".to_owned()), ..PostParams::default() };
        let answer = self.maps.create(&params, &object).await;
        self.line(&format!("create {name} {:?}", object.data), name, answer)
    }

    async fn replace(&mut self, name: &str) -> Result<String> {
        let mut object = self.object(name)?;
        let past = self.past(name);
        object.metadata.resource_version = past.as_ref().map(|(version, _)| version.clone());
        if self.random.below(3) == 0 {
            object.metadata.uid = past.map(|(_, uid)| uid);
        }
        if self.random.below(4) == 0 {
            object.metadata.resource_version = None;
        }
        let params =
            PostParams { field_manager: Some("maker".to_owned()), ..PostParams::default() };
        let answer = self.maps.replace(name, &params, &object).await;
        self.line(&format!("replace {name} {:?}", object.data), name, answer)
    }

    async fn merge(&mut self, name: &str) -> Result<String> {
        let (mut data, past) = (self.data(), self.past(name));
        if self.random.below(2) == 0 {
            data[self.random.one_of(&KEYS)] = Value::Null;
        }
        let version = past.filter(|_| self.random.below(2) == 0).map(|(version, _)| version);
        let is_named = version.is_some();
        let metadata =
            json!({"resourceVersion": version, "labels": {"l": self.random.one_of(&VALUES)}});
        let patch = Patch::Merge(json!({"metadata": metadata, "data": data}));
        let params =
            PatchParams { field_manager: Some("merger".to_owned()), ..PatchParams::default() };
        let answer = self.maps.patch(name, &params, &patch).await;
        self.line(&format!("merge {name} {data} version: {is_named}"), name, answer)
    }

    async fn apply(&mut self, name: &str) -> Result<String> {
        let (data, who) = (self.data(), self.random.one_of(&MANAGERS));
        let is_forced = self.random.below(3) == 0;
        let params = PatchParams::apply(who);
        let params = if is_forced { params.force() } else { params };
        let answer = self.maps.patch(name, &params, &applied(name, &data)).await;
        self.line(&format!("apply {name} {data} by {who} force: {is_forced}"), name, answer)
    }

    async fn delete(&mut self, name: &str) -> Result<String> {
        let past = self.past(name).filter(|_| self.random.below(3) < 2);
        let preconditions = past.map(|(version, uid)| {
            let resource_version = Some(version).filter(|_| self.random.below(2) == 0);
            Preconditions { uid: Some(uid), resource_version }
        });
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        let answer = self.maps.delete(name, &params).await;
        let line = format!("delete {name}");
        Ok(format!("{line} -> {}", code(answer.as_ref().err(), &line)?))
    }

    async fn finalizers(&mut self, name: &str) -> Result<String> {
        let names = [json!(["swarm.k8slab.info/random"]), Value::Null];
        let names = &names[self.random.below(2)];
        let patch = Patch::Merge(json!({"metadata": {"finalizers": names}}));
        let params =
            PatchParams { field_manager: Some("merger".to_owned()), ..PatchParams::default() };
        let answer = self.maps.patch(name, &params, &patch).await;
        self.line(&format!("finalizers {name} {names}"), name, answer)
    }

    /// Describes a request and its answer in one line.
    fn line(&mut self, asked: &str, name: &str, answer: kube::Result<ConfigMap>) -> Result<String> {
        let code = code(answer.as_ref().err(), asked)?;
        let Ok(object) = answer else { return Ok(format!("{asked} -> {code}")) };
        let uid = object.uid().unwrap_or_default();
        let number: u64 = version(&object).parse()?;
        let is_new = !self.versions.contains(&number);
        if is_new {
            self.versions.push(number);
        }
        let seen = self.seen.entry(name.to_owned()).or_default();
        let is_other = seen.last().is_none_or(|(_, before)| *before != uid);
        seen.push((version(&object), uid));
        let mut managers: Vec<_> = object
            .managed_fields()
            .iter()
            .map(|it| {
                let of = |text: &Option<String>| text.clone().unwrap_or_default();
                format!("{} {}", of(&it.manager), of(&it.operation))
            })
            .collect();
        // Ownership by replacing an object is not compared. The server in memory is less exact
        // there, and no adapter relies on it.
        managers.retain(|manager| !manager.starts_with("maker "));
        managers.sort();
        let (labels, data) = (object.labels(), object.data.clone().unwrap_or_default());
        let leaves = object.metadata.deletion_timestamp.is_some();
        Ok(format!(
            "{asked} -> {code} {data:?} {labels:?} {:?} {managers:?} new version: {is_new}, new \
             object: {is_other}, leaves: {leaves}",
            object.finalizers()
        ))
    }
}

fn code(error: Option<&Error>, what: &str) -> Result<u16> {
    match error {
        None => Ok(200),
        Some(Error::Api(status)) => Ok(status.code),
        Some(error) => bail!("{what}: no answer: {error}"),
    }
}

/// The events of a watch from a version on, up to the last object.
async fn watched(maps: &Api<ConfigMap>, from: &str) -> Result<Vec<String>> {
    let mut events = pin!(maps.watch(&WatchParams::default().timeout(60), from).await?);
    let mut lines = Vec::new();
    let mut last = 0;
    loop {
        let event = tokio::time::timeout(WITHIN, events.next()).await.context("no event")?;
        let (type_, object) = match event.context("the watch ended")?? {
            WatchEvent::Added(object) => ("added", object),
            WatchEvent::Modified(object) => ("modified", object),
            WatchEvent::Deleted(object) => ("deleted", object),
            WatchEvent::Bookmark(_) => continue,
            WatchEvent::Error(status) => bail!("the watch failed: {status:?}"),
        };
        let number: u64 = version(&object).parse()?;
        if number <= last {
            bail!("{type_} {}: version {number} after {last}", object.name_any());
        }
        last = number;
        if object.name_any() == LAST {
            return Ok(lines);
        }
        if NAMES.contains(&object.name_any().as_str()) {
            let data = object.data.clone().unwrap_or_default();
            lines.push(format!("{type_} {} {data:?}", object.name_any()));
        }
    }
}
