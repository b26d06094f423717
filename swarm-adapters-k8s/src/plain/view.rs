//! The view of one Swarm as a key of a ConfigMap, for pods that mount it.

pub(crate) mod writers;

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::PoisonError;

use async_trait::async_trait;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use kube::api::{Patch, PatchParams};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use swarm_client::annotations::{KEY_ANNOTATION, OWNER_ANNOTATION, VERSION_ANNOTATION, VIEW_LABEL};
use swarm_client::api::{FIELD_MANAGER, ProtocolSpec, Swarm, ViewFormat};
use swarm_core::ports::{StoreError, ViewStore};
use swarm_core::{Ledger, SlotRecord, View};
use swarm_spec::{hostport, yaml};
use tokio::sync::Mutex;
use tokio::time::Instant;
use writers::Repairs;

use crate::jobs::reading::Reading;
use crate::requests::bounded;
use crate::version;
use crate::watch::strip;

/// The ConfigMap that the cluster creates in every namespace.
const ROOT_CA: &str = "kube-root-ca.crt";
/// The largest view, in bytes: a ConfigMap holds 1 MiB in all.
const VIEW_BYTES_MAX: usize = 900_000;

/// The most lists, maps and values of a text that is parsed as a view. A view within its limit of
/// bytes has fewer.
const VIEW_VALUES_MAX: usize = 600_000;

/// Returns whether a Swarm with this name exists in the namespace.
pub type Exists = Box<dyn Fn(&str) -> bool + Send + Sync>;

/// A published view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// The number of the publication.
    pub version: u64,
    /// The time of the write, by the API server's clock, in whole seconds.
    pub at: Timestamp,
}

/// The owner of the view in the ConfigMap that a Swarm names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Occupant {
    /// The ConfigMap does not exist.
    Nobody,
    /// This Swarm has written a view into the ConfigMap.
    ThisSwarm,
    /// The ConfigMap has another owner, and this Swarm never wrote into it.
    Others,
}

/// Publishes the view of one Swarm.
///
/// The operator owns only one key, one label and three annotations of the ConfigMap, by server-side
/// apply. The ConfigMap may exist before, and its other content stays. The operator never writes a
/// key with other content than a view, unless this Swarm wrote a view there before.
///
/// A Swarm of sessions that names no ConfigMap never takes over an existing one: the admission
/// policy does not check its author's right to change one.
pub struct ConfigMapViewStore {
    api: Api<ConfigMap>,
    namespace: String,
    name: String,
    key: String,
    format: ViewFormat,
    swarm: String,
    /// Whether the store may write into a ConfigMap into which this Swarm never wrote.
    takes_over: bool,
    exists: Exists,
    cache: Store<ConfigMap>,
    /// The threads that parse views of others, and the tenant of this view.
    reading: (Reading, String),
    /// State that the cache may not show yet.
    last: Mutex<Last>,
    /// Times at which this process repaired a publication that another client had changed.
    repairs: std::sync::Mutex<Repairs>,
}

/// State in addition to the cache.
#[derive(Debug, Default)]
struct Last {
    /// The ConfigMap after this process's latest apply.
    applied: Option<ConfigMap>,
    /// Whether the view has changed since the cache saw it, so that it must be read.
    is_behind: bool,
    /// A publication that was refused because a newer view exists: the version of the existing
    /// object, and of the refused publication.
    ahead: Option<(u64, u64)>,
}

impl ConfigMapViewStore {
    /// The view store of `swarm`. `cache` follows the ConfigMaps with [`VIEW_LABEL`], reduced by
    /// [`strip`]. `exists` returns whether a Swarm exists in the namespace.
    #[must_use]
    pub fn new(client: Client, swarm: &Swarm, cache: Store<ConfigMap>, exists: Exists) -> Self {
        let namespace = swarm.namespace().unwrap_or_default();
        Self {
            api: Api::namespaced(client, &namespace),
            namespace,
            name: swarm.view_config_map(),
            key: swarm.view_key().to_owned(),
            format: swarm.view_format(),
            swarm: swarm.name_any(),
            takes_over: swarm.spec.view.is_some() || swarm.protocol() != ProtocolSpec::Session,
            exists,
            cache,
            reading: (Reading::default(), String::new()),
            last: Mutex::default(),
            repairs: std::sync::Mutex::default(),
        }
    }

    /// Parses views of others on the threads of `reading`, as texts of `tenant`.
    #[must_use]
    pub(crate) fn reading_by(mut self, reading: Reading, tenant: String) -> Self {
        self.reading = (reading, tenant);
        self
    }

    /// The time of the latest repair of a publication that another client had changed or deleted.
    /// Workers may have read the other view meanwhile.
    #[must_use]
    pub fn repaired_at(&self) -> Option<Instant> {
        self.repairs.lock().unwrap_or_else(PoisonError::into_inner).last()
    }

    /// The owner of the current view, by the annotation of every publication. Asks the API server
    /// only if the cache does not show a view of this Swarm.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] or [`StoreError::Refused`] if the ConfigMap cannot be read.
    pub(crate) async fn occupant(&self) -> Result<Occupant, StoreError> {
        let cached = self.cache.get(&ObjectRef::new(&self.name).within(&self.namespace));
        if cached.is_some_and(|cached| self.has_written(&cached.metadata)) {
            return Ok(Occupant::ThisSwarm);
        }
        let found = bounded(self.what(), self.api.get_metadata_opt(&self.name)).await?;
        Ok(match found {
            Some(found) if self.has_written(&found.metadata) => Occupant::ThisSwarm,
            Some(_) => Occupant::Others,
            None => Occupant::Nobody,
        })
    }

    /// Whether the store still has the ConfigMap, key and format that `swarm` asks for.
    #[must_use]
    pub fn is_for(&self, swarm: &Swarm) -> bool {
        self.name == swarm.view_config_map()
            && self.key == swarm.view_key()
            && self.format == swarm.view_format()
    }

    /// The newest known view; `None` without a view, or if its time of writing is unknown.
    pub async fn published(&self) -> Option<Published> {
        let known = self.known(&*self.last.lock().await)?;
        let version = known.annotations().get(VERSION_ANNOTATION)?.parse().ok()?;
        let ours = |entry: &&ManagedFieldsEntry| entry.manager.as_deref() == Some(FIELD_MANAGER);
        let at = known.managed_fields().iter().filter(ours).filter_map(|it| it.time.as_ref());
        Some(Published { version, at: at.map(|time| time.0).max()? })
    }

    /// The size of the view as last seen or written, in bytes; 0 while it is not known.
    pub(crate) fn bytes(&self) -> usize {
        let cached = self.cache.get(&ObjectRef::new(&self.name).within(&self.namespace));
        let last = self.last.try_lock().ok();
        let applied = last.as_ref().and_then(|last| last.applied.as_ref());
        let is_newer = |applied: &&ConfigMap| {
            cached.as_deref().is_none_or(|cached| version::of(cached) < version::of(*applied))
        };
        let newest = applied.filter(is_newer).or(cached.as_deref());
        let digest = newest.and_then(|map| map.data.as_ref()?.get(&self.key));
        digest.and_then(|digest| bytes_in(digest)).unwrap_or_default()
    }

    fn what(&self) -> String {
        format!("view ConfigMap `{}`", self.name)
    }

    /// The newest known ConfigMap: this process's own write, or a later state from the cache.
    fn known(&self, last: &Last) -> Option<ConfigMap> {
        let key = ObjectRef::new(&self.name).within(&self.namespace);
        let cached = self.cache.get(&key).map(|object| (*object).clone());
        match (cached, &last.applied) {
            (Some(cached), Some(last)) if version::of(&cached) < version::of(last) => {
                Some(last.clone())
            }
            (Some(cached), _) => Some(cached),
            (None, _) => None,
        }
    }

    /// The ConfigMap, if it exists. Its key is this Swarm's, or holds a view, or is empty.
    async fn existing(&self, last: &Last) -> Result<Option<ConfigMap>, StoreError> {
        let known = self.known(last).filter(|known| !last.is_behind && self.is_ours(known));
        if known.is_some() {
            return Ok(known);
        }
        // The cache shows no ConfigMap with this Swarm's view in this key. Another owner's may
        // exist.
        let found = bounded(self.what(), self.api.get_opt(&self.name)).await?;
        if let Some(found) = &found
            && !self.is_ours(found)
        {
            self.refuse_foreign_claim(found)?;
            self.refuse_takeover(found)?;
            self.read(found).await?;
        }
        Ok(found.map(|found| slimmed(found, &self.key)))
    }

    /// Whether this Swarm has written a view into the object before.
    fn has_written(&self, meta: &ObjectMeta) -> bool {
        let annotations = meta.annotations.as_ref();
        annotations.and_then(|all| all.get(OWNER_ANNOTATION)) == Some(&self.swarm)
    }

    /// Whether the admission policy checked the author's right to change the ConfigMap, or this
    /// Swarm wrote into it before.
    fn may_use(&self, existing: &ConfigMap) -> bool {
        self.takes_over || self.has_written(&existing.metadata)
    }

    /// Whether this Swarm has written its view into this key before. Changes by other clients since
    /// do not matter.
    fn is_ours(&self, existing: &ConfigMap) -> bool {
        self.has_written(&existing.metadata)
            && existing.annotations().get(KEY_ANNOTATION) == Some(&self.key)
    }

    /// Refuses the cluster's own ConfigMap. The operator may write every ConfigMap, but the author
    /// of the Swarm may not.
    fn refuse_cluster_own(&self) -> Result<(), StoreError> {
        if self.name != ROOT_CA {
            return Ok(());
        }
        let reason = format!(
            "ConfigMap `{ROOT_CA}` belongs to the cluster; set spec.view.configMapName to another name"
        );
        Err(StoreError::Refused { code: "ViewOccupied", reason })
    }

    /// Parses the content of the key. Its author may have made it slow to parse.
    async fn read(&self, found: &ConfigMap) -> Result<Option<View>, StoreError> {
        let text = found.data.as_ref().and_then(|data| data.get(&self.key));
        let Some(text) = text.cloned() else { return Ok(None) };
        let ((reading, tenant), format) = (&self.reading, self.format);
        let (view, _) = reading.of(tenant, text.len(), move || read(&text, format)).await;
        view.map(Some).map_err(|why| {
            let reason = format!(
                "key `{}` of ConfigMap `{}` holds something else than a view, which is left as it \
                 is: {why}; set spec.view to another ConfigMap or key, or remove this one",
                self.key, self.name
            );
            StoreError::Refused { code: "ViewOccupied", reason }
        })
    }

    fn refuse_foreign_claim(&self, existing: &ConfigMap) -> Result<(), StoreError> {
        let Some(owner) = existing.annotations().get(OWNER_ANNOTATION) else { return Ok(()) };
        if *owner == self.swarm || !(self.exists)(owner) {
            return Ok(());
        }
        let reason = format!(
            "ConfigMap `{}` holds the view of Swarm `{owner}`; \
             set spec.view.configMapName to another name",
            self.name
        );
        Err(StoreError::Refused { code: "ViewClaimed", reason })
    }

    /// Refuses a ConfigMap of another owner, if no policy checked the right to change it. The
    /// content stays unread.
    fn refuse_takeover(&self, existing: &ConfigMap) -> Result<(), StoreError> {
        if self.may_use(existing) {
            return Ok(());
        }
        let reason = format!(
            "ConfigMap `{name}` exists, and a Swarm of sessions takes over none unasked; set \
             spec.view.configMapName to `{name}` or to a free name, or delete the ConfigMap",
            name = self.name
        );
        Err(StoreError::Refused { code: "ViewOccupied", reason })
    }

    fn refuse_immutable(&self, existing: &ConfigMap) -> Result<(), StoreError> {
        if existing.immutable != Some(true) {
            return Ok(());
        }
        let reason = format!(
            "ConfigMap `{}` is immutable, so workers cannot get new views; delete it, which \
             recreates it. Then scale the pool to 0 and back: a kubelet does not read an immutable \
             ConfigMap again",
            self.name
        );
        Err(StoreError::Refused { code: "ViewImmutable", reason })
    }

    /// Refuses to publish over a newer view, which another operator may have published, so that the
    /// ledger is read again first. After that the ledger wins, and an edited view is overwritten.
    fn refuse_older(
        &self,
        existing: &ConfigMap,
        published: u64,
        last: &mut Last,
    ) -> Result<(), StoreError> {
        let there = existing.annotations().get(VERSION_ANNOTATION).and_then(|it| it.parse().ok());
        let ahead = (version::of(existing), published);
        if there.is_none_or(|there: u64| there <= published) || last.ahead == Some(ahead) {
            return Ok(());
        }
        last.ahead = Some(ahead);
        Err(StoreError::Conflict { what: self.what() })
    }

    /// Whether the published view has no workers, in any version. In a pool of only sessions that
    /// view stays. Its version is the publication that removed the last plain worker, so that
    /// worker stops its jobs. Moves of sessions then need no writes.
    fn is_emptied(&self, existing: &ConfigMap) -> bool {
        let Some(version) = existing.annotations().get(VERSION_ANNOTATION) else { return false };
        let parsed = version.parse().ok();
        let empty = parsed.map(|version| View { version, ..View::default() }.to_yaml());
        empty.is_some_and(|yaml| self.holds(existing, &yaml, version))
    }

    /// Whether the view of the ledger is already published.
    fn is_published(
        &self,
        existing: &ConfigMap,
        ledger: &Ledger,
        yaml: &str,
        version: &str,
    ) -> bool {
        self.holds(existing, yaml, version)
            || has_only_sessions(ledger) && self.is_emptied(existing)
    }

    fn holds(&self, existing: &ConfigMap, yaml: &str, version: &str) -> bool {
        let data = existing.data.as_ref().and_then(|data| data.get(&self.key));
        let written = existing.annotations().get(VERSION_ANNOTATION);
        data.is_some_and(|data| *data == digest(yaml))
            && written.is_some_and(|written| written == version)
            && self.has_written(&existing.metadata)
            && existing.labels().contains_key(VIEW_LABEL)
    }
}

/// Parses a text as a view.
fn read(text: &str, format: ViewFormat) -> Result<View, String> {
    if let Some(why) = yaml::too_many_values(text, VIEW_VALUES_MAX) {
        return Err(why);
    }
    match format {
        // After a change of the format, the key still holds the previous view.
        ViewFormat::Hostports if is_hostports(text) => Ok(View::default()),
        ViewFormat::Hostports | ViewFormat::Workloads => swarm_spec::view::read(text),
    }
}

/// Whether a ledger has sessions and no plain workers.
pub(crate) fn has_only_sessions(ledger: &Ledger) -> bool {
    let mut records = ledger.slots.values().peekable();
    records.peek().is_some() && records.all(|record| !record.session.is_plain())
}

/// The view for plain workers: sessions have views of their own.
fn of_plain_workers(ledger: &Ledger) -> View {
    if has_only_sessions(ledger) {
        // The jobs of sessions do not matter here, and each may run all jobs.
        return View { version: ledger.version, ..View::default() };
    }
    let mut view = ledger.view();
    for record in ledger.slots.values().filter(|record| !record.session.is_plain()) {
        view.workers.remove(&record.worker);
    }
    view
}

/// The jobs of all workers as lines `host,port`.
fn hostports(view: &View) -> Result<String, StoreError> {
    let jobs: BTreeSet<_> = view.workers.values().flat_map(|entry| &entry.jobs).collect();
    let mut lines = String::new();
    for job in jobs {
        let Some(line) = hostport::line_of(job.as_str()) else {
            let reason = format!(
                "job `{job}` is not an address `host:port`, and spec.view.format is hostports; \
                 rename the job, or leave the format out"
            );
            return Err(StoreError::Refused { code: "ViewNotAddresses", reason });
        };
        lines.push_str(&line);
        lines.push('\n');
    }
    Ok(lines)
}

/// Whether a text has only lines `host,port`.
fn is_hostports(text: &str) -> bool {
    hostport::lines(text).all(|(_, line)| hostport::job_of(line).is_some())
}

/// Bytes of the names of jobs that all workers run: each entry repeats all of them. A view with too
/// many would be too large to build and measure.
fn bytes_of_all(ledger: &Ledger) -> usize {
    let is_plain = |record: &&SlotRecord| record.session.is_plain();
    let entries = ledger.slots.values().filter(is_plain).count();
    let of_all = ledger.cells.jobs.iter().filter(|(_, record)| record.cell.is_for_all());
    // Two quotes, a comma and a space.
    let names = of_all.fold(0_usize, |sum, (job, _)| sum + job.as_str().len() + 4);
    entries.saturating_mul(names)
}

/// The view of a ledger, if it is not too large.
fn view_of(ledger: &Ledger, format: ViewFormat) -> Result<(String, u64), StoreError> {
    let of_all = match format {
        ViewFormat::Workloads => bytes_of_all(ledger),
        ViewFormat::Hostports => 0,
    };
    let refused = |bytes: usize| {
        let instead = if of_all == 0 {
            "divide the jobs among several Swarms"
        } else {
            "with replication: All each worker's entry has all jobs, so let the workers take part in \
             sessions, each with a view of its own (worker.protocol: Session), or have fewer"
        };
        let reason = format!(
            "the view would have {bytes} bytes, more than the {VIEW_BYTES_MAX} that fit into a \
             ConfigMap; {instead}"
        );
        StoreError::Refused { code: "ViewTooLarge", reason }
    };
    if of_all > VIEW_BYTES_MAX {
        return Err(refused(of_all));
    }
    let view = of_plain_workers(ledger);
    let version = view.version;
    let yaml = match format {
        ViewFormat::Workloads => view.to_yaml(),
        ViewFormat::Hostports => hostports(&view)?,
    };
    if yaml.len() > VIEW_BYTES_MAX {
        return Err(refused(yaml.len()));
    }
    Ok((yaml, version))
}

#[async_trait]
impl ViewStore for ConfigMapViewStore {
    fn check(&self, ledger: &Ledger) -> Result<(), StoreError> {
        self.refuse_cluster_own()?;
        let cached = self.cache.get(&ObjectRef::new(&self.name).within(&self.namespace));
        cached.map_or(Ok(()), |cached| self.refuse_immutable(&cached))?;
        view_of(ledger, self.format).map(drop)
    }

    async fn version(&self) -> Result<u64, StoreError> {
        let last = self.last.lock().await;
        let ours = |known: &ConfigMap| known.annotations().get(VERSION_ANNOTATION)?.parse().ok();
        if let Some(version) = self.known(&last).as_ref().and_then(ours) {
            return Ok(version);
        }
        let found = bounded(self.what(), self.api.get_opt(&self.name)).await?;
        let found = found.filter(|found| self.may_use(found));
        let text = found.as_ref().and_then(|found| found.data.as_ref()?.get(&self.key));
        Ok(text.map_or(0, |text| View::version_in(text)))
    }

    async fn publish(&self, ledger: &Ledger) -> Result<(), StoreError> {
        self.refuse_cluster_own()?;
        let (yaml, published) = view_of(ledger, self.format)?;
        let version = published.to_string();
        let mut last = self.last.lock().await;
        let is_published = |there: &ConfigMap| self.is_published(there, ledger, &yaml, &version);
        if !last.is_behind && self.known(&last).is_some_and(|known| is_published(&known)) {
            return Ok(());
        }
        let existing = self.existing(&last).await?;
        if let Some(existing) = &existing {
            self.refuse_foreign_claim(existing)?;
            if is_published(existing) {
                return Ok(());
            }
            self.refuse_immutable(existing)?;
            self.refuse_older(existing, published, &mut last)?;
        }
        let says = |map: &ConfigMap| map.annotations().get(VERSION_ANNOTATION) == Some(&version);
        let is_repair = last.applied.as_ref().or(existing.as_ref()).is_some_and(says);
        let by = if is_repair { self.changed_by().await } else { None };
        let seen = existing.as_ref().and_then(ResourceExt::resource_version);
        let mut patch = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": self.name,
                "labels": {VIEW_LABEL: "true"},
                "annotations": {
                    OWNER_ANNOTATION: self.swarm,
                    KEY_ANNOTATION: self.key,
                    VERSION_ANNOTATION: version,
                },
            },
            "data": {&self.key: yaml},
        });
        if let Some(seen) = seen {
            // A later publication follows from a later ledger.
            patch["metadata"]["resourceVersion"] = seen.into();
        }
        let (params, patch) = (PatchParams::apply(FIELD_MANAGER).force(), Patch::Apply(patch));
        let written = self.api.patch(&self.name, &params, &patch);
        let written = bounded(self.what(), written).await;
        last.is_behind = matches!(written, Err(StoreError::Conflict { .. }));
        last.applied = Some(slimmed(written?, &self.key));
        last.ahead = None;
        if is_repair {
            self.repairs.lock().unwrap_or_else(PoisonError::into_inner).note(by);
        }
        Ok(())
    }
}

/// The annotations of views.
const ANNOTATIONS: [&str; 3] = [OWNER_ANNOTATION, VERSION_ANNOTATION, KEY_ANNOTATION];

/// Drops from a cached ConfigMap the parts that no code reads. Any author of a ConfigMap may add
/// the label of views, 70,000 keys and as many labels. Only the operator's annotations and a digest
/// of its key stay. The digest shows whether the view is still as written.
pub fn strip(map: &mut ConfigMap) {
    let named = map.annotations().get(KEY_ANNOTATION);
    // Without the annotation, as in older versions, most views had a ConfigMap of their own.
    let only = || map.data.iter().find(|data| data.len() == 1)?.keys().next();
    let key = named.or_else(only).cloned().unwrap_or_default();
    strip_to(map, &key);
}

/// Strips a ConfigMap with a view in this key.
fn strip_to(map: &mut ConfigMap, key: &str) {
    map.binary_data = None;
    let text = map.data.take().and_then(|mut data| data.remove(key));
    map.data = text.map(|text| [(key.to_owned(), digest(&text))].into());
    let meta = &mut map.metadata;
    // Only the time of the operator's own write is read from `managedFields`.
    let managed = meta.managed_fields.take().unwrap_or_default();
    let ours = managed.into_iter().filter(|entry| entry.manager.as_deref() == Some(FIELD_MANAGER));
    let last = ours.max_by_key(|entry| entry.time.as_ref().map(|time| time.0));
    if let Some(labels) = &mut meta.labels {
        labels.retain(|name, _| name == VIEW_LABEL);
    }
    strip::metadata(meta, &ANNOTATIONS);
    meta.managed_fields = last.map(|entry| vec![ManagedFieldsEntry { fields_v1: None, ..entry }]);
    meta.owner_references = None;
}

fn slimmed(mut map: ConfigMap, key: &str) -> ConfigMap {
    strip_to(&mut map, key);
    map
}

/// Distinguishes texts, within one process only.
fn digest(text: &str) -> String {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    format!("{} bytes {:016x}", text.len(), hasher.finish())
}

/// The length of the text of a digest, in bytes.
fn bytes_in(digest: &str) -> Option<usize> {
    digest.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests;
