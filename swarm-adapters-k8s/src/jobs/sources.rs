//! Fetches the ConfigMaps that hold jobs, when their versions have changed.
//!
//! Any author of ConfigMaps decides how much the operator has to read. So lists are counted before
//! they are kept, and parsed in parallel with the turns. A Swarm whose lists take long rests before
//! its lists are read again. All slow lists of a tenant rest while they take too much time
//! together.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::GetParams;
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::ObjectRef;
use kube::{Api, ResourceExt};
use swarm_client::api::{JobSource, Swarm};
use swarm_core::Jobs;
use swarm_core::ports::StoreError;
use swarm_spec::manifest::{
    Gathered, SOURCE_BYTES_MAX, SOURCE_MAPS_MAX, SourceError, SourceRecord,
};
use tokio::time::Instant;

use super::JobSources;
use super::convert;
use super::cooldown::{COOLDOWN_FACTOR, COOLDOWN_MAX, SHARED_COOLDOWN_FACTOR};
use super::listed::Read;
use super::memory_budget::Place;
use super::reading::SMALL_BYTES_MAX;
use crate::ledger::KubeLedgerStore;
use crate::requests::bounded;
use crate::status::{Reason, RefusedRequest, Verdict};
use crate::turn::Turn;
use crate::watch::cached::{self, Cache};
use crate::watch::caches::Caches;
use crate::watch::strip;

/// Name and version of a ConfigMap.
type Version = (String, Option<String>);

/// The longest reading time of a list that needs no rest: it is read whenever it changes.
const QUICK: Duration = Duration::from_millis(250);

/// The shortest rest that the status reports.
const LONG_REST: Duration = Duration::from_secs(10);

/// Number of keys outside the sources that are kept, for the message about a missing key.
const OTHER_KEYS: usize = 8;
/// The API server's status code for a version that it has not seen yet.
const TOO_EARLY: u16 = 504;
/// Time until a list that found no room is read again.
const NO_PLACE: Duration = Duration::from_secs(30);

/// The latest content of a Swarm's sources.
#[derive(Default)]
pub(crate) struct Loaded {
    /// The ConfigMaps that were read, and the generation of the spec that names them.
    seen: Option<(Vec<Version>, Option<i64>)>,
    /// The problem with these ConfigMaps.
    complaint: Option<Verdict>,
    /// The last valid list.
    jobs: Option<Jobs>,
    /// The ConfigMaps that the Swarm's selectors found.
    record: Option<SourceRecord>,
    /// The list's share of the memory budget.
    place: Option<Place>,
    /// The time before which the sources are not read again.
    rests_until: Option<Instant>,
    /// Whether the sources were read in this turn.
    is_new: bool,
    /// Whether reading the sources was slow, so that they share the rest of their tenant.
    is_costly: bool,
}

impl Loaded {
    /// The state of a Swarm without sources.
    pub(crate) fn none() -> Self {
        Self { record: Some(SourceRecord::default()), ..Self::default() }
    }

    /// The ConfigMaps that the selectors of the current list found; `None` before the first list.
    pub(crate) fn record(&self) -> Option<&SourceRecord> {
        self.record.as_ref()
    }

    /// Whether reading the sources and acting on them was slow.
    pub(crate) fn is_costly(&self) -> bool {
        self.is_costly
    }

    /// Whether the sources were read in this turn.
    pub(crate) fn read(&self) -> Read {
        if self.is_new { Read::Now } else { Read::Before }
    }

    /// The remaining rest of the sources, if they have changed.
    fn rests_for(
        &self,
        found: &[Version],
        generation: Option<i64>,
        tenants: Option<Instant>,
    ) -> Option<Duration> {
        self.requeue_after(found, generation, tenants).filter(|rest| !rest.is_zero())
    }

    /// Time until changes that the rest has delayed are read. The tenant's shared rest counts too.
    /// It is zero if the rest ended in the middle of a turn: that turn has not read the changes,
    /// and no later event shows them again.
    fn requeue_after(
        &self,
        found: &[Version],
        generation: Option<i64>,
        tenants: Option<Instant>,
    ) -> Option<Duration> {
        let now = Instant::now();
        let together = self.is_costly.then(|| tenants.unwrap_or(now));
        let until = self.rests_until.max(together)?;
        let is_known =
            self.seen.as_ref().is_some_and(|(maps, of)| maps == found && *of == generation);
        (!is_known).then(|| until.saturating_duration_since(now))
    }
}

/// The jobs of a Swarm that has sources.
pub(crate) struct JobList {
    /// The last valid list; `None` before the first one.
    pub(crate) jobs: Option<Jobs>,
    /// The problem with the newest list.
    pub(crate) complaint: Option<Verdict>,
}

/// The result of a fetch.
enum Fetched {
    Lists(NewLists),
    /// The operator may not read one of the ConfigMaps.
    Refused(Verdict),
}

/// The fetched lists.
struct NewLists {
    jobs: Result<Gathered, SourceError>,
    /// Time of the fetch. Zero for small lists, where it mostly measures the API server.
    fetched_in: Duration,
    /// Time of the parsing.
    parsed_in: Duration,
}

impl JobSources {
    /// The jobs of a Swarm that has sources: the last valid list, and the problem with the newest.
    /// Every ConfigMap on the ledger's record must be in the list.
    pub(crate) async fn resolve(
        &self,
        turn: &Turn<'_>,
        loaded: &mut Loaded,
        ledgers: &KubeLedgerStore,
    ) -> Result<JobList, StoreError> {
        let swarm = turn.swarm;
        let found = self.caches.sources_of(swarm);
        let generation = swarm.metadata.generation;
        let seen = Some((found.clone(), generation));
        let tenants = self.cooldowns.until(&self.sharing.tenant(swarm));
        loaded.is_new = false;
        let rest = loaded.rests_for(&found, generation, tenants);
        if loaded.seen != seen && rest.is_none() {
            loaded.complaint = None;
            let record = source_record(swarm, ledgers).await?;
            match self.read(turn, &found, record).await? {
                Fetched::Lists(NewLists { jobs, fetched_in, parsed_in }) => {
                    loaded.rests_until =
                        (QUICK < parsed_in).then(|| Instant::now() + parsed_in * COOLDOWN_FACTOR);
                    (loaded.seen, loaded.is_new, loaded.is_costly) = (seen, true, false);
                    self.note_cost(turn, loaded, fetched_in + parsed_in);
                    match jobs {
                        Ok(jobs) => self.keep(turn, loaded, jobs),
                        Err(error) => loaded.complaint = Some(verdict(error)),
                    }
                }
                // No event shows when access is granted, so every turn tries again.
                Fetched::Refused(verdict) => {
                    return Ok(JobList { jobs: loaded.jobs.clone(), complaint: Some(verdict) });
                }
            }
        }
        let is_long = rest.is_some_and(|rest| LONG_REST <= rest);
        let complaint = loaded.complaint.clone().or_else(|| is_long.then(throttled));
        Ok(JobList { jobs: loaded.jobs.clone(), complaint })
    }

    /// Adds `took` to the cost of a Swarm's lists, if they were read in this turn.
    pub(crate) fn note_cost(&self, turn: &Turn<'_>, loaded: &mut Loaded, took: Duration) {
        if loaded.is_new && QUICK < took {
            loaded.is_costly = true;
            self.cooldowns.add(&self.sharing.tenant(turn.swarm), took * SHARED_COOLDOWN_FACTOR);
        }
    }

    /// Replaces the kept list with `gathered`, if the memory budget has room.
    fn keep(&self, turn: &Turn<'_>, loaded: &mut Loaded, gathered: Gathered) {
        let Gathered { jobs, record } = gathered;
        match self.memory_budget.take(turn.namespace, &jobs, loaded.place.take()) {
            Ok(place) => {
                (loaded.jobs, loaded.place, loaded.record) =
                    (Some(jobs), Some(place), Some(record));
            }
            Err((place, reason)) => {
                loaded.place = place;
                loaded.complaint = Some(verdict(SourceError::TooLarge(reason)));
                // No event shows when other lists shrink, so this list is read again later.
                let again = Instant::now() + NO_PLACE;
                loaded.seen = None;
                loaded.rests_until = loaded.rests_until.max(Some(again));
            }
        }
    }

    /// Time until the next look at sources that changed during their rest.
    pub(crate) fn rest_for(&self, turn: &Turn<'_>, loaded: &Loaded) -> Option<Duration> {
        let swarm = turn.swarm;
        if loaded.rests_until.is_none() && !loaded.is_costly {
            return None;
        }
        let tenants = self.cooldowns.until(&self.sharing.tenant(swarm));
        loaded.requeue_after(&self.caches.sources_of(swarm), swarm.metadata.generation, tenants)
    }

    /// Fetches and parses the ConfigMaps `found`. Returns a verdict if the API server refuses one.
    /// The ConfigMaps on `record` must exist.
    async fn read(
        &self,
        turn: &Turn<'_>,
        found: &[Version],
        record: SourceRecord,
    ) -> Result<Fetched, StoreError> {
        let Turn { swarm, namespace, .. } = *turn;
        let (started, mut fetched) = (Instant::now(), 0_usize);
        let too_large = |what: String| {
            let most = "divide the jobs among several Swarms";
            let jobs = Err(SourceError::TooLarge(format!("{what}; {most}")));
            let (fetched_in, parsed_in) = (started.elapsed(), Duration::ZERO);
            Ok(Fetched::Lists(NewLists { jobs, fetched_in, parsed_in }))
        };
        if SOURCE_MAPS_MAX < found.len() {
            let count = found.len();
            return too_large(format!(
                "the sources are {count} ConfigMaps, and at most {SOURCE_MAPS_MAX} are read"
            ));
        }
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        let (mut maps, mut bytes, mut deleted) = (Vec::new(), 0_usize, Vec::new());
        for (name, version) in found {
            let what = format!("ConfigMap `{name}`");
            match bounded(what, get(&api, name, version.clone())).await {
                Ok(Some(map)) => {
                    fetched += contents(&map);
                    let map = named_keys(swarm, map);
                    bytes += map.data.iter().flatten().map(|(_, text)| text.len()).sum::<usize>();
                    maps.push(map);
                }
                Ok(None) => deleted.push(name),
                Err(StoreError::Refused { reason: message, .. }) => {
                    self.metrics.count_refused(RefusedRequest::Source);
                    let verdict = Verdict { reason: Reason::SourceForbidden, message };
                    return Ok(Fetched::Refused(verdict));
                }
                Err(error) => return Err(error),
            }
            if SOURCE_BYTES_MAX < bytes {
                return too_large(format!(
                    "with ConfigMap `{name}` the sources have {bytes} bytes, and at most \
                     {SOURCE_BYTES_MAX} are read"
                ));
            }
        }
        let is_large = SMALL_BYTES_MAX < fetched;
        let fetched_in = if is_large { started.elapsed() } else { Duration::ZERO };
        let exists = |name: &str| {
            let was_deleted = deleted.iter().any(|deleted| *deleted == name);
            !was_deleted && self.caches.sources.get(namespace, name).is_some()
        };
        let gone = record.without(exists);
        let (tenant, swarm) = (self.sharing.tenant(swarm), swarm.clone());
        let read = self.reading.of(&tenant, bytes, move || convert::jobs(&swarm, maps, &gone));
        let (jobs, parsed_in) = read.await;
        Ok(Fetched::Lists(NewLists { jobs, fetched_in, parsed_in }))
    }
}

/// The ConfigMaps of the previous list, from the ledger; empty for a Swarm without a selector that
/// must find any.
async fn source_record(
    swarm: &Swarm,
    ledgers: &KubeLedgerStore,
) -> Result<SourceRecord, StoreError> {
    let is_recorded = |it: &JobSource| it.selector.is_some() && !it.is_optional();
    if !swarm.spec.job_sources.iter().any(is_recorded) {
        return Ok(SourceRecord::default());
    }
    match ledgers.sources().await {
        // The turn gets the same refusal and reports it.
        Err(StoreError::Refused { .. }) => Ok(SourceRecord::default()),
        answer => answer,
    }
}

/// The ConfigMap at this version or later, if it exists. A watch has shown this version, so the API
/// server has it in memory. A read without a version would go to the store, at twice the cost. If
/// the store was rolled back to an earlier version, memory has no answer.
async fn get(
    api: &Api<ConfigMap>,
    name: &str,
    resource_version: Option<String>,
) -> kube::Result<Option<ConfigMap>> {
    match api.get_with(name, &GetParams { resource_version }).await {
        Ok(map) => Ok(Some(map)),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
        Err(kube::Error::Api(status)) if status.code == TOO_EARLY => api.get_opt(name).await,
        Err(error) => Err(error),
    }
}

/// The verdict on a Swarm whose newest list of jobs is not read yet.
fn throttled() -> Verdict {
    let message = format!(
        "changed lists of jobs are read within {} minutes: large lists of this namespace take too \
         much of the operator's time; change them less often, or divide them among namespaces",
        COOLDOWN_MAX.as_secs() / 60
    );
    Verdict { reason: Reason::SourcesThrottled, message }
}

/// The verdict on a newest list of jobs that is not used.
fn verdict(error: SourceError) -> Verdict {
    let (reason, message) = match error {
        SourceError::Missing(message) => (Reason::SourceMissing, message),
        SourceError::Invalid(message) => (Reason::SourceInvalid, message),
        SourceError::TooLarge(message) => (Reason::SourcesTooLarge, message),
    };
    Verdict { reason, message }
}

/// Bytes of the keys and texts of a ConfigMap.
fn contents(map: &ConfigMap) -> usize {
    let texts = map.data.iter().flatten().map(|(key, text)| key.len() + text.len());
    let others = map.binary_data.iter().flatten().map(|(key, data)| key.len() + data.0.len());
    texts.chain(others).sum()
}

/// The ConfigMap with only the texts that a source of `swarm` may refer to, and a few of its other
/// keys. It may have 70,000 keys. A key with bytes keeps only its name, for the message about it.
fn named_keys(swarm: &Swarm, mut map: ConfigMap) -> ConfigMap {
    let keys = swarm.spec.job_sources.iter().flat_map(|source| {
        let named = source.config_map.as_ref().map(|named| &named.key);
        named.into_iter().chain(&source.key)
    });
    let keys: Vec<_> = keys.collect();
    if let Some(data) = &mut map.binary_data {
        data.retain(|key, bytes| {
            bytes.0 = Vec::new();
            keys.contains(&key)
        });
    }
    let mut others = 0;
    if let Some(data) = &mut map.data {
        data.retain(|key, text| {
            let is_named = keys.contains(&key);
            if !is_named {
                (*text, others) = (String::new(), others + 1);
            }
            is_named || others <= OTHER_KEYS
        });
    }
    strip::metadata(&mut map.metadata, &[]);
    map
}

impl Caches {
    /// The ConfigMaps to which the sources of `swarm` refer, with their versions, each once.
    fn sources_of(&self, swarm: &Swarm) -> Vec<Version> {
        let namespace = swarm.namespace().unwrap_or_default();
        let mut found = Vec::new();
        for source in &swarm.spec.job_sources {
            if let Some(named) = &source.config_map {
                found.extend(self.sources.get(&namespace, &named.name));
            }
            if source.selector.is_some() {
                let mut all = self.sources.with(&namespace);
                all.retain(|map| has(source, map));
                found.extend(all);
            }
        }
        let each = found.iter().map(|map| (map.name_any(), map.resource_version()));
        let mut each: Vec<_> = each.collect();
        each.sort();
        each.dedup();
        each
    }
}

/// Whether a ConfigMap has the labels that `source` selects.
fn has(source: &JobSource, map: &PartialObjectMeta<ConfigMap>) -> bool {
    let has = |(key, value)| map.labels().get(key) == Some(value);
    source.selector.as_ref().is_some_and(|selector| selector.match_labels.iter().all(has))
}

/// The Swarms that a change of this ConfigMap may concern. If its labels changed, the caller passes
/// its previous state as well.
pub(crate) fn with_source(
    swarms: &Cache<Swarm>,
    map: &PartialObjectMeta<ConfigMap>,
) -> Vec<ObjectRef<Swarm>> {
    let (namespace, name) = (map.namespace().unwrap_or_default(), map.name_any());
    let mut meant = swarms.with(&cached::with_source(&namespace, Some(&name)));
    let mut labelled = swarms.with(&cached::with_source(&namespace, None));
    labelled.retain(|swarm| swarm.spec.job_sources.iter().any(|source| has(source, map)));
    meant.extend(labelled);
    meant.iter().map(|swarm| ObjectRef::from_obj(&**swarm)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use swarm_client::api::Claimant;

    use super::*;
    use crate::jobs::cooldown::COOLDOWN_FREE;
    use crate::ledger::stores::Stores;
    use crate::pool::workload::{Kind, Workload};
    use crate::testing::{World, failure, swarm};

    fn pool() -> Workload {
        let claimant = Claimant { kind: "StatefulSet".into(), name: "w".into(), uid: "w".into() };
        Workload::gone(Kind::StatefulSet, "n", claimant)
    }

    #[test]
    fn a_change_that_came_before_the_end_of_a_rest_is_looked_at_after_it() {
        let version = |version: &str| vec![("list".to_owned(), Some(version.to_owned()))];
        let rested = |rests_until| Loaded {
            seen: Some((version("1"), Some(1))),
            rests_until,
            ..Loaded::default()
        };
        let now = Instant::now();
        let over = rested(now.checked_sub(Duration::from_secs(1)));
        assert_eq!(over.rests_for(&version("2"), Some(1), None), None);
        assert_eq!(over.requeue_after(&version("2"), Some(1), None), Some(Duration::ZERO));
        assert_eq!(over.requeue_after(&version("1"), Some(1), None), None);
        let minute = Some(now + Duration::from_mins(1));
        assert_eq!(over.rests_for(&version("2"), Some(1), minute), None, "they cost little");
        let costly = Loaded { is_costly: true, ..over };
        assert!(costly.rests_for(&version("2"), Some(1), minute).is_some());
        assert_eq!(costly.requeue_after(&version("2"), Some(1), None), Some(Duration::ZERO));
        let rests = rested(minute);
        assert_eq!(rests.rests_for(&version("1"), Some(1), None), None);
        assert!(rests.rests_for(&version("2"), Some(1), None).is_some());
        assert!(rests.requeue_after(&version("1"), Some(2), None).is_some());
        assert_eq!(rested(None).requeue_after(&version("2"), Some(1), minute), None);
    }

    #[tokio::test]
    async fn costly_lists_of_a_tenant_that_took_too_much_are_read_later_and_others_as_ever() {
        let source = json!({"configMap": {"name": "list", "key": "jobs"}});
        let spec = json!({"pool": {"statefulSet": {"name": "w"}}, "jobSources": [source]});
        let list = json!({"metadata": {"name": "list", "namespace": "n", "resourceVersion": "1"}});
        let (swarms, lists) = (vec![swarm("a", &spec)], vec![list.clone()]);
        let scene = World { swarms, lists, ..World::default() }.with(move |_| {
            let mut list = list.clone();
            list["data"] = json!({"jobs": "- a\n- b\n"});
            (200, list)
        });
        let (sources, swarm) = (&scene.services.jobs, scene.swarm("a"));
        let turn = &Turn::of(&swarm);
        let [mut costly, mut cheap] = [Loaded::default(), Loaded::default()];
        let mut stores = Stores::default();
        let ledgers = scene.services.ledgers.open(turn, &pool(), &mut stores).ledgers;
        for loaded in [&mut costly, &mut cheap] {
            sources.resolve(turn, loaded, ledgers).await.unwrap();
        }
        sources.note_cost(turn, &mut costly, COOLDOWN_FREE);
        let _ = scene.asked();
        let rest = sources.rest_for(turn, &costly);
        assert_eq!(rest, None, "nothing of it has changed");

        for loaded in [&mut costly, &mut cheap] {
            loaded.seen = None;
            let list = sources.resolve(turn, loaded, ledgers).await.unwrap();
            assert_eq!(list.jobs.unwrap().len(), 2, "the last good list");
            let reason = list.complaint.map(|complaint| complaint.reason);
            let throttled = loaded.is_costly.then_some(Reason::SourcesThrottled);
            assert_eq!(reason, throttled);
            let asked = scene.asked();
            assert_eq!(asked.is_empty(), loaded.is_costly, "{asked:?}");
        }
        let rest = sources.rest_for(turn, &costly);
        assert!(rest.is_some_and(|rest| COOLDOWN_FREE < rest && rest <= COOLDOWN_MAX), "{rest:?}");
        assert_eq!(sources.rest_for(turn, &cheap), None);
    }

    #[tokio::test]
    async fn a_list_is_read_at_the_version_that_was_seen_unless_the_store_was_rolled_back() {
        let source = json!({"configMap": {"name": "list", "key": "jobs"}});
        let spec = json!({"pool": {"statefulSet": {"name": "w"}}, "jobSources": [source]});
        let list = json!({"metadata": {"name": "list", "namespace": "n", "resourceVersion": "7"}});
        for is_rolled_back in [false, true] {
            let (swarms, mut answer) = (vec![swarm("a", &spec)], list.clone());
            answer["data"] = json!({"jobs": "- a\n- b\n"});
            let scene = World { swarms, lists: vec![list.clone()], ..World::default() };
            let scene = scene.with(move |asked| {
                if is_rolled_back && asked.query.contains("resourceVersion=7") {
                    return failure(504, "Timeout", "Too large resource version");
                }
                (200, answer.clone())
            });
            let (services, swarm) = (&scene.services, scene.swarm("a"));
            let (mut loaded, mut stores) = (Loaded::default(), Stores::default());
            let opened = services.ledgers.open(&Turn::of(&swarm), &pool(), &mut stores);
            let turn = &Turn::of(&swarm);
            let list = services.jobs.resolve(turn, &mut loaded, opened.ledgers).await.unwrap();
            assert_eq!((list.jobs.unwrap().len(), list.complaint.is_none()), (2, true));
            let at = scene.asked().into_iter().map(|asked| asked.query.contains("resourceVersion"));
            assert_eq!(at.collect::<Vec<_>>(), &[true, false][..=usize::from(is_rolled_back)]);
        }
    }

    #[test]
    fn a_change_wakes_those_that_name_the_config_map_and_those_that_select_it() {
        let with = |name: &str, source: Value| {
            let spec = json!({"pool": {"statefulSet": {"name": name}}, "jobSources": [source]});
            serde_json::from_value::<Swarm>(swarm(name, &spec)).unwrap()
        };
        let labelled = |label: &str| json!({"selector": {"matchLabels": {"l": label}}, "key": "k"});
        let swarms = Cache::holding([
            with("names-it", json!({"configMap": {"name": "list", "key": "k"}})),
            with("selects-it", labelled("x")),
            with("selects-others", labelled("y")),
        ]);
        let map = json!({"metadata": {"name": "list", "namespace": "n", "labels": {"l": "x"}}});
        let woken = with_source(&swarms, &serde_json::from_value(map).unwrap());
        let woken: Vec<_> = woken.into_iter().map(|it| it.name).collect();
        assert_eq!(woken, ["names-it", "selects-it"]);
    }

    #[test]
    fn of_a_source_with_many_keys_the_named_ones_are_kept_and_a_few_names() {
        let source = json!({"configMap": {"name": "list", "key": "jobs"}});
        let spec = json!({"pool": {"statefulSet": {"name": "w"}}, "jobSources": [source]});
        let swarm = Swarm::new("s", serde_json::from_value(spec).unwrap());
        let mut data: Value = (0..70_000).map(|n| (format!("k{n:x}"), json!("x"))).collect();
        data["jobs"] = json!("- a");
        let bytes = json!({"jobs": "H4sI", "x": "H4sI"});
        let map = json!({"metadata": {"name": "list"}, "data": data, "binaryData": bytes});
        let kept = named_keys(&swarm, serde_json::from_value(map).unwrap());
        let bytes = kept.binary_data.unwrap();
        assert_eq!((bytes.len(), bytes["jobs"].0.len()), (1, 0));
        let kept = kept.data.unwrap();
        assert_eq!((kept.len(), kept["jobs"].as_str()), (OTHER_KEYS + 1, "- a"));
        assert!(kept.iter().all(|(key, text)| key == "jobs" || text.is_empty()));
    }
}
