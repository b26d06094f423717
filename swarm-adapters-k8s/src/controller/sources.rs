//! Fetches the ConfigMaps that hold jobs, when their versions say that there is something new.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::ObjectRef;
use kube::{Api, ResourceExt};
use swarm_core::Jobs;
use swarm_core::ports::StoreError;
use swarm_spec::manifest::SourceError;

use super::cached::{self, Cache};
use super::caches::Caches;
use super::context::Context;
use crate::api::{JobSource, Swarm};
use crate::convert;
use crate::ledger::bounded;
use crate::status::{Reason, RefusedRequest, Verdict};

/// A ConfigMap by name, and its version.
type Version = (String, Option<String>);

/// What the sources of a Swarm said last.
#[derive(Default)]
pub(super) struct Loaded {
    /// Which ConfigMaps were read, and the generation of the spec that names them.
    seen: Option<(Vec<Version>, Option<i64>)>,
    /// What is wrong with those.
    complaint: Option<Verdict>,
    /// The last good list.
    pub(super) jobs: Option<Jobs>,
}

impl Context {
    /// The jobs of a Swarm that has sources: the last good list, and what is wrong with the newest.
    pub(super) async fn jobs(
        &self,
        swarm: &Swarm,
        loaded: &mut Loaded,
    ) -> Result<(Option<Jobs>, Option<Verdict>), StoreError> {
        let found = self.caches.sources_of(swarm);
        let seen = Some((found.clone(), swarm.metadata.generation));
        if loaded.seen != seen {
            let namespace = swarm.namespace().unwrap_or_default();
            let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &namespace);
            let mut maps = Vec::new();
            for (name, _) in &found {
                let what = format!("ConfigMap `{name}`");
                let found = bounded(what, api.get_opt(name)).await;
                match found {
                    Ok(found) => maps.extend(found),
                    // Nothing shows that it may be read now, so it is tried again and again.
                    Err(StoreError::Refused { reason: message, .. }) => {
                        self.count_refused(RefusedRequest::Source);
                        let verdict = Verdict { reason: Reason::SourceForbidden, message };
                        return Ok((loaded.jobs.clone(), Some(verdict)));
                    }
                    Err(error) => return Err(error),
                }
            }
            loaded.complaint = None;
            match convert::jobs(swarm, maps) {
                Ok(jobs) => loaded.jobs = Some(jobs),
                Err(SourceError::Missing(message)) => {
                    loaded.complaint = Some(Verdict { reason: Reason::SourceMissing, message });
                }
                Err(SourceError::Invalid(message)) => {
                    loaded.complaint = Some(Verdict { reason: Reason::SourceInvalid, message });
                }
            }
            loaded.seen = seen;
        }
        Ok((loaded.jobs.clone(), loaded.complaint.clone()))
    }
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
