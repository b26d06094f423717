//! Which workload is the pool of a Swarm, and how many workers it is to have.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::events::EventType;
use kube::runtime::reflector::ObjectRef;
use kube::{Resource, ResourceExt};
use serde_json::json;
use swarm_core::ports::StoreError;

use super::cached::{self, Cache};
use super::context::{Caches, Context, Memory};
use crate::api::{Swarm, WorkloadRef};
use crate::ledger::bounded;
use crate::observe;
use crate::status::{Reason, Verdict};

/// So many take-overs within this time are a contest: somebody keeps at it.
const CONTEST: (usize, Duration) = (3, Duration::from_mins(5));

/// The number of pods that this process asked a workload for, and the version that made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scaled {
    replicas: u32,
    version: u64,
}

impl Caches {
    /// The StatefulSet that is the pool of `swarm`.
    pub(super) fn pool_of(&self, swarm: &Swarm) -> Result<Arc<StatefulSet>, Verdict> {
        let namespace = swarm.namespace().unwrap_or_default();
        let not_found = |message| Verdict { reason: Reason::PoolNotFound, message };
        let WorkloadRef { name, match_labels } = &swarm.spec.pool.stateful_set;
        if let Some(name) = name {
            let found = self.pools.get(&namespace, name);
            return found.ok_or_else(|| {
                not_found(format!("no StatefulSet `{name}` in this namespace; create it"))
            });
        }
        let labels = match_labels.clone().unwrap_or_default();
        let mut found = self.pools.with(&namespace);
        found.retain(|pool| {
            let has = |(key, value)| pool.labels().get(key) == Some(value);
            labels.iter().all(has)
        });
        let told: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let told = told.join(",");
        match found.as_slice() {
            [one] => Ok(one.clone()),
            [] => Err(not_found(format!(
                "no StatefulSet in this namespace has the labels `{told}`; create one, or label one"
            ))),
            several => {
                let mut names: Vec<_> =
                    several.iter().map(|pool| format!("`{}`", pool.name_any())).collect();
                names.sort();
                let message = format!(
                    "the StatefulSets {} all have the labels `{told}`; leave them on the one that \
                     is the pool",
                    names.join(", ")
                );
                Err(Verdict { reason: Reason::PoolAmbiguous, message })
            }
        }
    }
}

/// The Swarms whose pool `pool` is, was, or makes ambiguous.
pub(super) fn with_pool(swarms: &Cache<Swarm>, pool: &StatefulSet) -> Vec<ObjectRef<Swarm>> {
    let (namespace, name) = (pool.namespace().unwrap_or_default(), pool.name_any());
    let mut meant = swarms.with(&cached::with_pool(&namespace, Some(&name)));
    // Labels may have been taken away just now, so that nobody can tell whose pool it was.
    meant.extend(swarms.with(&cached::with_pool(&namespace, None)));
    meant.iter().map(|swarm| ObjectRef::from_obj(&**swarm)).collect()
}

/// The Swarms whose worker `pod` is.
pub(super) fn of_pod(
    swarms: &Cache<Swarm>,
    pools: &Cache<StatefulSet>,
    pod: &Pod,
) -> Vec<ObjectRef<Swarm>> {
    let sets = pod.owner_references().iter().filter(|owner| owner.kind == "StatefulSet");
    let set = sets.map(|owner| owner.name.as_str()).next().unwrap_or_default();
    with_pod(swarms, pools, &pod.namespace().unwrap_or_default(), set)
}

/// The Swarms whose pool is the StatefulSet called `name`, to which a pod belongs.
pub(super) fn with_pod(
    swarms: &Cache<Swarm>,
    pools: &Cache<StatefulSet>,
    namespace: &str,
    name: &str,
) -> Vec<ObjectRef<Swarm>> {
    let pool = pools.get(namespace, name);
    let mut meant = swarms.with(&cached::with_pool(namespace, None));
    meant.retain(|swarm| {
        let has =
            |(key, value)| pool.as_ref().and_then(|pool| pool.labels().get(key)) == Some(value);
        let labels = &swarm.spec.pool.stateful_set.match_labels;
        labels.as_ref().is_some_and(|labels| labels.iter().all(has))
    });
    meant.extend(swarms.with(&cached::with_pool(namespace, Some(name))));
    meant.iter().map(|swarm| ObjectRef::from_obj(&**swarm)).collect()
}

/// The pool as it is after our own last scaling, which the cache may not have seen yet.
pub(super) fn as_scaled<'a>(pool: &'a StatefulSet, memory: &Memory) -> Cow<'a, StatefulSet> {
    let Some(scaled) = memory.scaled.filter(|scaled| version(pool) < scaled.version) else {
        return Cow::Borrowed(pool);
    };
    let mut pool = pool.clone();
    if let Some(spec) = &mut pool.spec {
        spec.replicas = i32::try_from(scaled.replicas).ok();
    }
    Cow::Owned(pool)
}

/// Remembers that somebody else scaled the pool of a Swarm that decides on it itself.
pub(super) fn note_takeover(swarm: &Swarm, pool: &StatefulSet, memory: &mut Memory) {
    let now = observe::replicas(pool);
    let Some(wanted) = swarm.spec.replicas.and_then(|count| u32::try_from(count).ok()) else {
        memory.replicas_seen = None;
        memory.takeovers.clear();
        return;
    };
    memory.takeovers.retain(|at| at.elapsed() < CONTEST.1);
    let before = memory.replicas_seen.replace(now);
    if before.is_some_and(|before| before != now) && now != wanted {
        memory.taken_over = Some(now);
    }
}

impl Memory {
    /// What there is to say while somebody keeps scaling the pool of `swarm` against it, as an
    /// autoscaler does that points to the workload.
    pub(super) fn contest(&self, swarm: &Swarm, pool: &StatefulSet) -> Option<Verdict> {
        self.contest_ends_in()?;
        let (count, name, pool) = (self.takeovers.len(), swarm.name_any(), pool.name_any());
        let message = format!(
            "somebody set the replicas of StatefulSet `{pool}` {count} times within {} minutes, and \
             each time they were put back, since spec.replicas of the Swarm decides: let the \
             autoscaler point to Swarm `{name}` instead of the StatefulSet, or take spec.replicas \
             out of the Swarm",
            CONTEST.1.as_secs() / 60
        );
        Some(Verdict { reason: Reason::ScaleContested, message })
    }

    /// How long the contest goes on if nobody scales the pool any more; `None` if there is none.
    pub(super) fn contest_ends_in(&self) -> Option<Duration> {
        let (count, within) = CONTEST;
        let first = self.takeovers.len().checked_sub(count)?;
        within.checked_sub(self.takeovers[first].elapsed()).filter(|left| !left.is_zero())
    }
}

impl Context {
    /// Gives the pool this number of pods, unless it changed since it was seen.
    pub(super) async fn scale(
        &self,
        swarm: &Swarm,
        pool: &StatefulSet,
        replicas: u32,
        memory: &mut Memory,
    ) -> Result<(), StoreError> {
        let (namespace, name) = (pool.namespace().unwrap_or_default(), pool.name_any());
        let api: Api<StatefulSet> = Api::namespaced(self.client.clone(), &namespace);
        let patch = Patch::Merge(json!({
            "metadata": {"resourceVersion": pool.resource_version()},
            "spec": {"replicas": replicas},
        }));
        let params = PatchParams::default();
        let scaled = api.patch_scale(&name, &params, &patch);
        let scaled = bounded(format!("scale of StatefulSet `{name}`"), scaled).await?;
        let before = observe::replicas(pool);
        tracing::info!(namespace, pool = name, before, replicas, "pool scaled");
        memory.scaled = Some(Scaled { replicas, version: version(&scaled) });
        memory.replicas_seen = Some(replicas);
        if let Some(found) = memory.taken_over.take() {
            memory.takeovers.push(Instant::now());
            let (swarm_name, wanted) = (swarm.name_any(), replicas);
            let note = format!(
                "somebody set the replicas of StatefulSet `{name}` to {found}; they are {wanted} \
                 again, since Swarm `{swarm_name}` decides: use \
                 `kubectl scale swarm {swarm_name}`, or take spec.replicas out of the Swarm"
            );
            self.publish_event(swarm, EventType::Warning, "ScaleTakenOver", note).await;
        }
        Ok(())
    }
}

/// Orders versions of one object, as that of views.
fn version(object: &impl Resource) -> u64 {
    let version = object.meta().resource_version.as_deref();
    version.and_then(|version| version.parse().ok()).unwrap_or(0)
}
