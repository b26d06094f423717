//! Fetches the ConfigMaps that hold jobs, when their versions say that there is something new.
//!
//! Whoever may write ConfigMaps decides how much there is to read. So it is counted before it is kept,
//! read beside the turns, and a Swarm whose lists take long rests before they are read again.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::ObjectRef;
use kube::{Api, ResourceExt};
use swarm_core::Jobs;
use swarm_core::ports::StoreError;
use swarm_spec::manifest::{SOURCE_BYTES_MAX, SOURCE_MAPS_MAX, SourceError};
use tokio::time::Instant;

use super::cached::{self, Cache};
use super::caches::Caches;
use super::context::Context;
use super::kept_jobs::Place;
use crate::api::{JobSource, Swarm};
use crate::convert;
use crate::ledger::bounded;
use crate::slim;
use crate::status::{Reason, RefusedRequest, Verdict};

/// A ConfigMap by name, and its version.
type Version = (String, Option<String>);

/// Lists that are read faster are read as often as they change.
const QUICK: Duration = Duration::from_millis(250);
/// How many times as long as reading them took others are not read again.
const REST: u32 = 3;

/// How many keys that no source names are kept, for the message where a key is missing.
const OTHER_KEYS: usize = 8;
/// How long a list that finds no place is not read again.
const NO_PLACE: Duration = Duration::from_secs(30);

/// What the sources of a Swarm said last.
#[derive(Default)]
pub(super) struct Loaded {
    /// Which ConfigMaps were read, and the generation of the spec that names them.
    seen: Option<(Vec<Version>, Option<i64>)>,
    /// What is wrong with those.
    complaint: Option<Verdict>,
    /// The last good list.
    jobs: Option<Jobs>,
    /// Where that is counted.
    place: Option<Place>,
    /// Before when they are not read again.
    rests_until: Option<Instant>,
}

impl Loaded {
    /// For how long changes of the sources are not read, if there are any.
    pub(super) fn rests_for(&self, found: &[Version], generation: Option<i64>) -> Option<Duration> {
        self.look_in(found, generation).filter(|rest| !rest.is_zero())
    }

    /// After which time changes that were not read while the lists rest are. It is zero where the rest ended
    /// in the middle of a turn: that turn has not read them, and nothing else shows them again.
    fn look_in(&self, found: &[Version], generation: Option<i64>) -> Option<Duration> {
        let rest = self.rests_until?.saturating_duration_since(Instant::now());
        let is_known =
            self.seen.as_ref().is_some_and(|(maps, of)| maps == found && *of == generation);
        (!is_known).then_some(rest)
    }
}

impl Context {
    /// The jobs of a Swarm that has sources: the last good list, and what is wrong with the newest.
    pub(super) async fn jobs(
        &self,
        swarm: &Swarm,
        loaded: &mut Loaded,
    ) -> Result<(Option<Jobs>, Option<Verdict>), StoreError> {
        let found = self.caches.sources_of(swarm);
        let generation = swarm.metadata.generation;
        let seen = Some((found.clone(), generation));
        if loaded.seen != seen && loaded.rests_for(&found, generation).is_none() {
            loaded.complaint = None;
            match self.read(swarm, &found).await? {
                Ok((jobs, took)) => {
                    loaded.rests_until = (QUICK < took).then(|| Instant::now() + took * REST);
                    loaded.seen = seen;
                    match jobs {
                        Ok(jobs) => self.keep(swarm, loaded, jobs),
                        Err(error) => loaded.complaint = Some(verdict(error)),
                    }
                }
                // Nothing shows that it may be read now, so it is tried again and again.
                Err(verdict) => return Ok((loaded.jobs.clone(), Some(verdict))),
            }
        }
        Ok((loaded.jobs.clone(), loaded.complaint.clone()))
    }

    /// Keeps a list in place of the one before, if there is room for it.
    fn keep(&self, swarm: &Swarm, loaded: &mut Loaded, jobs: Jobs) {
        let namespace = swarm.namespace().unwrap_or_default();
        match self.kept_jobs.take(&namespace, &jobs, loaded.place.take()) {
            Ok(place) => (loaded.jobs, loaded.place) = (Some(jobs), Some(place)),
            Err((place, reason)) => {
                loaded.place = place;
                loaded.complaint = Some(verdict(SourceError::TooLarge(reason)));
                // Nothing shows that others have fewer now, so it is read again.
                let again = Instant::now() + NO_PLACE;
                loaded.seen = None;
                loaded.rests_until = loaded.rests_until.max(Some(again));
            }
        }
    }

    /// After which time to look again at sources that changed while they rest.
    pub(super) fn sources_rest_for(&self, swarm: &Swarm, loaded: &Loaded) -> Option<Duration> {
        loaded.rests_until?;
        loaded.look_in(&self.caches.sources_of(swarm), swarm.metadata.generation)
    }

    /// Fetches the ConfigMaps `found` and reads them; a verdict if one of them is refused.
    async fn read(
        &self,
        swarm: &Swarm,
        found: &[Version],
    ) -> Result<Result<(Result<Jobs, SourceError>, Duration), Verdict>, StoreError> {
        let too_large = |what: String| {
            let most = "divide the jobs among several Swarms";
            Ok(Ok((Err(SourceError::TooLarge(format!("{what}; {most}"))), Duration::ZERO)))
        };
        if SOURCE_MAPS_MAX < found.len() {
            let count = found.len();
            return too_large(format!(
                "the sources are {count} ConfigMaps, and at most {SOURCE_MAPS_MAX} are read"
            ));
        }
        let namespace = swarm.namespace().unwrap_or_default();
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &namespace);
        let (mut maps, mut bytes) = (Vec::new(), 0_usize);
        for (name, _) in found {
            let what = format!("ConfigMap `{name}`");
            match bounded(what, api.get_opt(name)).await {
                Ok(Some(map)) => {
                    let map = named_keys(swarm, map);
                    bytes += map.data.iter().flatten().map(|(_, text)| text.len()).sum::<usize>();
                    maps.push(map);
                }
                Ok(None) => {}
                Err(StoreError::Refused { reason: message, .. }) => {
                    self.count_refused(RefusedRequest::Source);
                    return Ok(Err(Verdict { reason: Reason::SourceForbidden, message }));
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
        let (tenant, swarm) = (self.sharing.tenant(swarm), swarm.clone());
        Ok(Ok(self.reading.of(&tenant, bytes, move || convert::jobs(&swarm, maps)).await))
    }
}

/// Why the newest list of jobs is not used.
fn verdict(error: SourceError) -> Verdict {
    let (reason, message) = match error {
        SourceError::Missing(message) => (Reason::SourceMissing, message),
        SourceError::Invalid(message) => (Reason::SourceInvalid, message),
        SourceError::TooLarge(message) => (Reason::SourcesTooLarge, message),
    };
    Verdict { reason, message }
}

/// The ConfigMap with the texts that a source of `swarm` may mean, and the first of its other keys, of
/// which it may have 70,000.
fn named_keys(swarm: &Swarm, mut map: ConfigMap) -> ConfigMap {
    let keys = swarm.spec.job_sources.iter().flat_map(|source| {
        let named = source.config_map.as_ref().map(|named| &named.key);
        named.into_iter().chain(&source.key)
    });
    let keys: Vec<_> = keys.collect();
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
    map.binary_data = None;
    slim::metadata(&mut map.metadata, &[]);
    map
}

impl Caches {
    /// The ConfigMaps that the sources of `swarm` speak of, with their versions, each once.
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

/// Whether a ConfigMap has the labels that `source` selects by.
fn has(source: &JobSource, map: &PartialObjectMeta<ConfigMap>) -> bool {
    let has = |(key, value)| map.labels().get(key) == Some(value);
    source.selector.as_ref().is_some_and(|selector| selector.match_labels.iter().all(has))
}

/// The Swarms that a change of this ConfigMap may concern.
pub(super) fn with_source(
    swarms: &Cache<Swarm>,
    map: &PartialObjectMeta<ConfigMap>,
) -> Vec<ObjectRef<Swarm>> {
    let (namespace, name) = (map.namespace().unwrap_or_default(), map.name_any());
    let mut meant = swarms.with(&cached::with_source(&namespace, Some(&name)));
    // One whose labels were removed just now must be noticed, too.
    meant.extend(swarms.with(&cached::with_source(&namespace, None)));
    meant.iter().map(|swarm| ObjectRef::from_obj(&**swarm)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

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
        assert_eq!(over.rests_for(&version("2"), Some(1)), None);
        assert_eq!(over.look_in(&version("2"), Some(1)), Some(Duration::ZERO));
        assert_eq!(over.look_in(&version("1"), Some(1)), None);
        let rests = rested(Some(now + Duration::from_mins(1)));
        assert_eq!(rests.rests_for(&version("1"), Some(1)), None);
        assert!(rests.rests_for(&version("2"), Some(1)).is_some());
        assert!(rests.look_in(&version("1"), Some(2)).is_some());
        assert_eq!(rested(None).look_in(&version("2"), Some(1)), None);
    }

    #[test]
    fn of_a_source_with_many_keys_the_named_ones_are_kept_and_a_few_names() {
        let source = json!({"configMap": {"name": "list", "key": "jobs"}});
        let spec = json!({"pool": {"statefulSet": {"name": "w"}}, "jobSources": [source]});
        let swarm = Swarm::new("s", serde_json::from_value(spec).unwrap());
        let mut data: Value = (0..70_000).map(|n| (format!("k{n:x}"), json!("x"))).collect();
        data["jobs"] = json!("- a");
        let map = json!({"metadata": {"name": "list"}, "data": data});
        let kept = named_keys(&swarm, serde_json::from_value(map).unwrap()).data.unwrap();
        assert_eq!((kept.len(), kept["jobs"].as_str()), (OTHER_KEYS + 1, "- a"));
        assert!(kept.iter().all(|(key, text)| key == "jobs" || text.is_empty()));
    }
}
