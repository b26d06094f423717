//! Finds the workload that is the pool of a Swarm, and the Swarm of a pod.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;
use swarm_client::api::Swarm;
use swarm_spec::spec::Meant;

use super::claims::{self, Members};
use super::fit::{self, Misfit};
use super::observe;
use super::workload::{Kind, Workload};
use crate::managed::wanted;
use crate::status::{Reason, Verdict};
use crate::watch::cached::{self, Cache, Cached, ReplicaSetMeta, has_labels, of_pool, uncut};
use crate::watch::caches::{Caches, Pools};
use crate::watch::non_statefulset::{controller, deployment_of_set};

impl Caches {
    /// The workload that is the pool of `swarm`.
    pub(crate) fn pool_of(&self, swarm: &Swarm) -> Result<Workload, Verdict> {
        let namespace = swarm.namespace().unwrap_or_default();
        match swarm.pool() {
            (Kind::StatefulSet, Some(named)) => {
                let found = find(&self.pools.sets, Kind::StatefulSet, &namespace, named)?;
                is_own(swarm, &*found, found.spec.as_ref().map(|spec| &spec.selector))?;
                Ok(Workload::from(&*found))
            }
            (Kind::Deployment, Some(named)) => {
                let deployments = &self.pools.non_statefulset.deployments;
                let found = find(deployments, Kind::Deployment, &namespace, named)?;
                is_own(swarm, &*found, found.spec.as_ref().map(|spec| &spec.selector))?;
                Ok(Workload::from(&*found))
            }
            (Kind::Pods | Kind::StatefulSet | Kind::Deployment, _) => {
                let stays = |pod: &&Arc<Pod>| {
                    pod.metadata.deletion_timestamp.is_none() && !observe::is_terminal(pod)
                };
                let Members { own, free, .. } = self.members(swarm);
                // Pods that are being claimed count already.
                let pods = own.iter().chain(&free).filter(stays).count();
                Ok(Workload::of_pods(swarm, pods))
            }
        }
    }

    /// The ways in which the pods of `pool` do not suit `swarm`. It judges the template of the
    /// workload, or each pod in a pool of labelled pods.
    pub(crate) fn misfits(&self, swarm: &Swarm, pool: &Workload) -> Vec<Misfit> {
        if pool.kind != Kind::Pods {
            let template = self.template_of(pool);
            return template.map_or_else(Vec::new, |template| fit::misfits(swarm, &template));
        }
        let mut found: Vec<Misfit> = Vec::new();
        for pod in self.members(swarm).own {
            for misfit in pod.spec.iter().flat_map(|spec| fit::misfits(swarm, spec)) {
                if !found.contains(&misfit) {
                    found.push(misfit);
                }
            }
        }
        found
    }

    /// The cached part of a workload's template. A pool of labelled pods has none.
    fn template_of(&self, pool: &Workload) -> Option<PodSpec> {
        let (namespace, name) = (&pool.namespace, &pool.name);
        match pool.kind {
            Kind::StatefulSet => {
                let set = self.pools.sets.get(namespace, name)?;
                uncut(&set.spec.as_ref()?.template)
            }
            Kind::Deployment => {
                let found = self.pools.non_statefulset.deployments.get(namespace, name)?;
                uncut(&found.spec.as_ref()?.template)
            }
            Kind::Pods => None,
        }
    }

    /// The service account of `pod`, one of `pool`, if known.
    pub(crate) fn account_of(&self, pool: &Workload, pod: &Pod) -> Option<String> {
        if pool.kind == Kind::Pods {
            return pod.spec.as_ref()?.service_account_name.clone();
        }
        // A template without an account uses the default account of the namespace.
        let named = self.template_of(pool)?.service_account_name;
        Some(named.unwrap_or_else(|| "default".into()))
    }

    /// The pods that may be workers of `pool`. For a StatefulSet they are the pods with its names.
    pub(crate) fn pods_of(&self, swarm: &Swarm, pool: &Workload) -> Vec<Arc<Pod>> {
        match pool.kind {
            Kind::StatefulSet => self.pods.with(&of_pool(&pool.namespace, &pool.name)),
            Kind::Deployment => self.pools.non_statefulset.pods_of(pool),
            Kind::Pods => self.members(swarm).own,
        }
    }

    /// The pods of the managed pool of this Swarm, even if its workload no longer exists.
    pub(crate) fn pods_made_for(&self, namespace: &str, swarm: &str) -> Vec<Arc<Pod>> {
        let mut pods = self.pods.with(&of_pool(namespace, swarm));
        pods.extend(self.pools.non_statefulset.pods_in(namespace));
        pods.retain(|pod| wanted::missing_labels(pod.labels(), swarm).is_empty());
        pods
    }
}

/// Refuses a workload that has the name of a managed pool, but that the operator did not create. If
/// another client has changed the labels of its own workload, the immutable selector identifies it.
fn is_own(
    swarm: &Swarm,
    workload: &impl ResourceExt,
    selector: Option<&LabelSelector>,
) -> Result<(), Verdict> {
    let (swarm_name, name) = (swarm.name_any(), workload.name_any());
    let is_own = swarm.spec.pool.managed.is_none()
        || wanted::missing_labels(workload.labels(), &swarm_name).is_empty()
        || selector.is_some_and(|it| wanted::is_selector_of(it, &swarm_name));
    let message = || format!("`{name}` was not made for this Swarm");
    is_own.then_some(()).ok_or_else(|| Verdict { reason: Reason::PoolNotFound, message: message() })
}

/// The workload with this name, or with these labels.
fn find<K: Cached>(
    cache: &Cache<K>,
    kind: Kind,
    namespace: &str,
    meant: Meant<'_>,
) -> Result<Arc<K>, Verdict> {
    let not_found = |message| Verdict { reason: Reason::PoolNotFound, message };
    let labels = match meant {
        Meant::Named(name) => {
            let missing = || not_found(format!("no {kind} `{name}` in this namespace; create it"));
            return cache.get(namespace, name).ok_or_else(missing);
        }
        Meant::Labelled(labels) => labels,
    };
    let mut found = cache.with(namespace);
    found.retain(|pool| has_labels(&**pool, labels));
    let pairs: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let wanted = pairs.join(",");
    match found.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(not_found(format!(
            "no {kind} in this namespace has the labels `{wanted}`; create one, or label one"
        ))),
        several => {
            let mut names: Vec<_> =
                several.iter().map(|pool| format!("`{}`", pool.name_any())).collect();
            names.sort();
            let message = format!(
                "the {kind}s {} all have the labels `{wanted}`; remove the labels from all but the \
                 pool",
                names.join(", ")
            );
            Err(Verdict { reason: Reason::PoolAmbiguous, message })
        }
    }
}

/// The Swarms whose pool this workload is or was, or whose pool it makes ambiguous.
pub(crate) fn with_pool(
    swarms: &Cache<Swarm>,
    kind: Kind,
    pool: &impl ResourceExt,
) -> Vec<ObjectRef<Swarm>> {
    let (namespace, name) = (pool.namespace().unwrap_or_default(), pool.name_any());
    let mut meant = swarms.with(&cached::with_pool(kind, &namespace, Some(&name)));
    // The labels may just have been removed. Then the cache does not show which pool the workload
    // was.
    meant.extend(swarms.with(&cached::with_pool(kind, &namespace, None)));
    meant.iter().map(|swarm| ObjectRef::from_obj(&**swarm)).collect()
}

impl Pools {
    /// The Swarms that have `pod` as a worker.
    pub(crate) fn of_pod(&self, swarms: &Cache<Swarm>, pod: &Pod) -> Vec<ObjectRef<Swarm>> {
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

    /// The Swarms whose pool is the Deployment of a `ReplicaSet`.
    pub(crate) fn of_replica_set(
        &self,
        swarms: &Cache<Swarm>,
        set: &ReplicaSetMeta,
    ) -> Vec<ObjectRef<Swarm>> {
        let Some((name, _)) = deployment_of_set(set) else { return Vec::new() };
        self.with_pod(swarms, Kind::Deployment, &set.namespace().unwrap_or_default(), &name)
    }

    /// The Swarms whose pool the ledger of this name belongs to.
    pub(crate) fn of_ledger(
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

    /// The Swarms whose pool is the workload `name`, which owns a pod.
    fn with_pod(
        &self,
        swarms: &Cache<Swarm>,
        kind: Kind,
        namespace: &str,
        name: &str,
    ) -> Vec<ObjectRef<Swarm>> {
        let mut meant = swarms.with(&cached::with_pool(kind, namespace, None));
        meant.retain(|swarm| {
            let Some(Meant::Labelled(labels)) = swarm.pool().1 else { return false };
            self.has_labels(kind, namespace, name, labels)
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
