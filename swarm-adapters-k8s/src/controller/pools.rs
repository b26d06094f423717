//! Which workload is the pool of a Swarm, and how many workers it is to have.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::events::EventType;
use kube::runtime::reflector::ObjectRef;
use serde_json::json;
use swarm_core::ports::StoreError;
use tokio::time::Instant;

use super::cached::{self, Cache, Cached, of_pool};
use super::claims::{self, Members};
use super::context::{Context, Memory};
use super::non_statefulset::{NonStatefulSet, ReplicaSetMeta, controller, deployment_of_set};
use super::watches::Caches;
use crate::api::{Swarm, WorkloadRef};
use crate::ledger::bounded;
use crate::observe;
use crate::status::{Reason, Verdict};
use crate::version;
use crate::workload::{Kind, Workload};

/// So many take-overs within this time are a contest: somebody keeps at it.
const CONTEST: (usize, Duration) = (3, Duration::from_mins(5));

/// The number of pods that this process asked a workload for, and the version that made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scaled {
    replicas: u32,
    version: u64,
}

/// The caches of what makes pods.
#[derive(Clone)]
pub(super) struct Pools {
    pub(super) sets: Cache<StatefulSet>,
    pub(super) non_statefulset: NonStatefulSet,
}

impl Caches {
    /// The workload that is the pool of `swarm`.
    pub(super) fn pool_of(&self, swarm: &Swarm) -> Result<Workload, Verdict> {
        let namespace = swarm.namespace().unwrap_or_default();
        match swarm.spec.pool.workload() {
            (Kind::StatefulSet, Some(named)) => {
                let found = find(&self.pools.sets, Kind::StatefulSet, &namespace, named)?;
                Ok(Workload::from(&*found))
            }
            (Kind::Deployment, Some(named)) => {
                let deployments = &self.pools.non_statefulset.deployments;
                let found = find(deployments, Kind::Deployment, &namespace, named)?;
                Ok(Workload::from(&*found))
            }
            (Kind::Pods | Kind::StatefulSet | Kind::Deployment, _) => {
                let stays = |pod: &&Arc<Pod>| {
                    pod.metadata.deletion_timestamp.is_none() && !observe::is_terminal(pod)
                };
                let Members { own, free, .. } = self.members(swarm);
                // Those that are only now claimed are on their way.
                let pods = own.iter().chain(&free).filter(stays).count();
                Ok(Workload::of_pods(swarm, pods))
            }
        }
    }

    /// The pods that may be workers of `pool`; of a StatefulSet those that have the names of its
    /// own.
    pub(super) fn pods_of(&self, swarm: &Swarm, pool: &Workload) -> Vec<Arc<Pod>> {
        match pool.kind {
            Kind::StatefulSet => self.pods.with(&of_pool(&pool.namespace, &pool.name)),
            Kind::Deployment => self.pools.non_statefulset.pods_of(pool),
            Kind::Pods => self.members(swarm).own,
        }
    }
}

/// The workload that is meant.
fn find<K: Cached>(
    cache: &Cache<K>,
    kind: Kind,
    namespace: &str,
    meant: &WorkloadRef,
) -> Result<Arc<K>, Verdict> {
    let not_found = |message| Verdict { reason: Reason::PoolNotFound, message };
    let WorkloadRef { name, match_labels } = meant;
    if let Some(name) = name {
        let found = cache.get(namespace, name);
        return found
            .ok_or_else(|| not_found(format!("no {kind} `{name}` in this namespace; create it")));
    }
    let labels = match_labels.clone().unwrap_or_default();
    let mut found = cache.with(namespace);
    found.retain(|pool| has_labels(&**pool, &labels));
    let told: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let told = told.join(",");
    match found.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(not_found(format!(
            "no {kind} in this namespace has the labels `{told}`; create one, or label one"
        ))),
        several => {
            let mut names: Vec<_> =
                several.iter().map(|pool| format!("`{}`", pool.name_any())).collect();
            names.sort();
            let message = format!(
                "the {kind}s {} all have the labels `{told}`; leave them on the one that is the pool",
                names.join(", ")
            );
            Err(Verdict { reason: Reason::PoolAmbiguous, message })
        }
    }
}

/// Whether an object has all these labels.
pub(super) fn has_labels(object: &impl ResourceExt, labels: &BTreeMap<String, String>) -> bool {
    labels.iter().all(|(key, value)| object.labels().get(key) == Some(value))
}

/// The Swarms whose pool this workload is, was, or makes ambiguous.
pub(super) fn with_pool(
    swarms: &Cache<Swarm>,
    kind: Kind,
    pool: &impl ResourceExt,
) -> Vec<ObjectRef<Swarm>> {
    let (namespace, name) = (pool.namespace().unwrap_or_default(), pool.name_any());
    let mut meant = swarms.with(&cached::with_pool(kind, &namespace, Some(&name)));
    // Labels may have been taken away just now, so that nobody can tell whose pool it was.
    meant.extend(swarms.with(&cached::with_pool(kind, &namespace, None)));
    meant.iter().map(|swarm| ObjectRef::from_obj(&**swarm)).collect()
}

impl Pools {
    /// The Swarms whose worker `pod` is.
    pub(super) fn of_pod(&self, swarms: &Cache<Swarm>, pod: &Pod) -> Vec<ObjectRef<Swarm>> {
        let namespace = pod.namespace().unwrap_or_default();
        if let Some((set, _)) = controller(pod, "StatefulSet") {
            return self.with_pod(swarms, Kind::StatefulSet, &namespace, set);
        }
        let mut meant = match self.non_statefulset.deployment_of(pod) {
            Some((name, _)) => self.with_pod(swarms, Kind::Deployment, &namespace, &name),
            None => Vec::new(),
        };
        let mut by_labels = swarms.with(&cached::with_pool(Kind::Pods, &namespace, None));
        by_labels.retain(|swarm| claims::may_concern(swarm, pod));
        meant.extend(by_labels.iter().map(|swarm| ObjectRef::from_obj(&**swarm)));
        meant
    }

    /// The Swarms whose pool the Deployment of a `ReplicaSet` is.
    pub(super) fn of_replica_set(
        &self,
        swarms: &Cache<Swarm>,
        set: &ReplicaSetMeta,
    ) -> Vec<ObjectRef<Swarm>> {
        let Some((name, _)) = deployment_of_set(set) else { return Vec::new() };
        self.with_pod(swarms, Kind::Deployment, &set.namespace().unwrap_or_default(), &name)
    }

    /// The Swarms whose pool the ledger of this name is of.
    pub(super) fn of_ledger(
        &self,
        swarms: &Cache<Swarm>,
        namespace: &str,
        ledger: &str,
    ) -> Vec<ObjectRef<Swarm>> {
        match Kind::of_ledger(ledger) {
            Some((Kind::Pods, swarm)) => vec![ObjectRef::new(swarm).within(namespace)],
            Some((kind, pool)) => self.with_pod(swarms, kind, namespace, pool),
            None => Vec::new(),
        }
    }

    /// The Swarms whose pool is the workload called `name`, to which a pod belongs.
    fn with_pod(
        &self,
        swarms: &Cache<Swarm>,
        kind: Kind,
        namespace: &str,
        name: &str,
    ) -> Vec<ObjectRef<Swarm>> {
        let mut meant = swarms.with(&cached::with_pool(kind, namespace, None));
        meant.retain(|swarm| {
            let labels = swarm.spec.pool.workload().1.and_then(|it| it.match_labels.as_ref());
            labels.is_some_and(|labels| self.has_labels(kind, namespace, name, labels))
        });
        meant.extend(swarms.with(&cached::with_pool(kind, namespace, Some(name))));
        meant.iter().map(|swarm| ObjectRef::from_obj(&**swarm)).collect()
    }

    fn has_labels(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        labels: &BTreeMap<String, String>,
    ) -> bool {
        match kind {
            Kind::StatefulSet => {
                self.sets.get(namespace, name).is_some_and(|it| has_labels(&*it, labels))
            }
            Kind::Deployment => {
                let found = self.non_statefulset.deployments.get(namespace, name);
                found.is_some_and(|it| has_labels(&*it, labels))
            }
            Kind::Pods => false,
        }
    }
}

/// The pool as it is after our own last scaling, which the cache may not have seen yet.
pub(super) fn as_scaled<'a>(pool: &'a Workload, memory: &Memory) -> Cow<'a, Workload> {
    let seen = version::number(pool.resource_version.as_deref());
    match memory.scaled.filter(|scaled| seen < scaled.version) {
        Some(Scaled { replicas, .. }) => Cow::Owned(Workload { replicas, ..pool.clone() }),
        None => Cow::Borrowed(pool),
    }
}

/// Remembers that somebody else scaled the pool of a Swarm that decides on it itself.
pub(super) fn note_takeover(swarm: &Swarm, pool: &Workload, memory: &mut Memory) {
    let now = pool.replicas;
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
    pub(super) fn contest(&self, swarm: &Swarm, pool: &Workload) -> Option<Verdict> {
        self.contest_ends_in()?;
        let (count, name, kind, pool) =
            (self.takeovers.len(), swarm.name_any(), pool.kind, &pool.name);
        let message = format!(
            "somebody set the replicas of {kind} `{pool}` {count} times within {} minutes, and \
             each time they were put back, since spec.replicas of the Swarm decides: let the \
             autoscaler point to Swarm `{name}` instead of the {kind}, or take spec.replicas \
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
        pool: &Workload,
        replicas: u32,
        memory: &mut Memory,
    ) -> Result<(), StoreError> {
        let Workload { kind, namespace, name, replicas: before, .. } = pool;
        let patch = Patch::Merge(json!({
            "metadata": {"resourceVersion": pool.resource_version},
            "spec": {"replicas": replicas},
        }));
        let params = PatchParams::default();
        let what = format!("scale of {kind} `{name}`");
        let client = self.client.clone();
        let scaled = match kind {
            Kind::StatefulSet => {
                let api: Api<StatefulSet> = Api::namespaced(client, namespace);
                bounded(what, api.patch_scale(name, &params, &patch)).await?
            }
            Kind::Deployment => {
                let api: Api<Deployment> = Api::namespaced(client, namespace);
                bounded(what, api.patch_scale(name, &params, &patch)).await?
            }
            Kind::Pods => return Ok(()),
        };
        tracing::info!(namespace, pool = name, before, replicas, "pool scaled");
        memory.scaled = Some(Scaled { replicas, version: version::of(&scaled) });
        memory.replicas_seen = Some(replicas);
        if let Some(found) = memory.taken_over.take() {
            memory.takeovers.push(Instant::now());
            let (swarm_name, wanted) = (swarm.name_any(), replicas);
            let note = format!(
                "somebody set the replicas of {kind} `{name}` to {found}; they are {wanted} \
                 again, since Swarm `{swarm_name}` decides: use \
                 `kubectl scale swarm {swarm_name}`, or take spec.replicas out of the Swarm"
            );
            self.publish_event(swarm, EventType::Warning, "ScaleTakenOver", note).await;
        }
        Ok(())
    }
}
