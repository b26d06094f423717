//! The watches that only pools without a StatefulSet need: Deployments, the sets of replicas that they make, and pods
//! outside StatefulSets. They begin when the first Swarm asks for such a pool. Other installations
//! do not pay for them.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::reflector::store::WriterDropped;
use kube::runtime::watcher;
use kube::{Client, ResourceExt};

use super::cached::{Cache, Cached, Changes, ReplicaSetMeta, cached, in_namespace, owned_by};
use super::on_demand::OnDemand;
use super::rollback::Rollbacks;
use crate::annotations::STATEFUL_PODS;
use crate::pool::workload::Workload;
use crate::scope::Scope;

/// The caches behind those watches.
#[derive(Clone)]
pub(crate) struct NonStatefulSet {
    pub(crate) deployments: Cache<Deployment>,
    replica_sets: Cache<ReplicaSetMeta>,
    /// The pods that no StatefulSet controls.
    pub(crate) pods: Cache<Pod>,
    asked: OnDemand,
}

/// The changes that the watches report.
pub(crate) struct Streams {
    pub(crate) deployments: Changes<Deployment>,
    pub(crate) replica_sets: Changes<ReplicaSetMeta>,
    pub(crate) pods: Changes<Pod>,
}

/// The caches, and the streams that fill them after the first request.
pub(crate) fn non_statefulset(
    scope: &Scope,
    client: &Client,
    rollbacks: &Rollbacks,
) -> (NonStatefulSet, Streams) {
    let asked = OnDemand::default();
    let everything = watcher::Config::default;
    let (deployments, of_deployments) = cached(scope.api(client), everything(), rollbacks);
    let (replica_sets, of_replica_sets) =
        cached::<ReplicaSetMeta>(scope.api(client), everything(), rollbacks);
    let others = everything().labels(&format!("!{STATEFUL_PODS}"));
    let (pods, of_pods) = cached(scope.api(client), others, rollbacks);
    let streams = Streams {
        deployments: asked.once_asked(of_deployments),
        replica_sets: asked.once_asked(of_replica_sets),
        pods: asked.once_asked(of_pods),
    };
    (NonStatefulSet { deployments, replica_sets, pods, asked }, streams)
}

impl NonStatefulSet {
    /// Starts the watches, unless they have started.
    pub(crate) fn ask(&self) {
        self.asked.ask();
    }

    /// Returns when every cache has its first complete state. Only one task may await this.
    pub(crate) async fn wait_until_filled(&self) -> Result<(), WriterDropped> {
        self.deployments.store.wait_until_ready().await?;
        self.replica_sets.store.wait_until_ready().await?;
        self.pods.store.wait_until_ready().await
    }

    /// The pods of a Deployment, found by the UID of each `ReplicaSet` of it.
    pub(crate) fn pods_of(&self, deployment: &Workload) -> Vec<Arc<Pod>> {
        let sets = self.replica_sets.with(&owned_by(&deployment.uid));
        let uids = sets.iter().filter_map(|set| set.metadata.uid.as_deref());
        uids.flat_map(|uid| self.pods.with(&owned_by(uid))).collect()
    }

    /// The pods of a namespace that no StatefulSet controls.
    pub(crate) fn pods_in(&self, namespace: &str) -> Vec<Arc<Pod>> {
        self.pods.with(&in_namespace(namespace))
    }

    /// The Deployment of a pod, by name and UID.
    pub(crate) fn deployment_of(&self, pod: &Pod) -> Option<(String, String)> {
        let (set, uid) = controller(pod, "ReplicaSet")?;
        let set = self.replica_sets.get(pod.metadata.namespace.as_deref()?, set)?;
        let is_same = set.metadata.uid.as_deref() == Some(uid);
        deployment_of_set(&set).filter(|_| is_same)
    }
}

/// The Deployment that controls a `ReplicaSet`, by name and UID.
pub(crate) fn deployment_of_set(set: &ReplicaSetMeta) -> Option<(String, String)> {
    let (name, uid) = controller(set, "Deployment")?;
    Some((name.to_owned(), uid.to_owned()))
}

/// The controller of an object, if it is of this kind: its name and UID.
pub(crate) fn controller<'a>(object: &'a impl Cached, kind: &str) -> Option<(&'a str, &'a str)> {
    let owners = object.owner_references();
    let owner = owners.iter().find(|owner| owner.controller == Some(true))?;
    (owner.kind == kind).then_some((&owner.name, &owner.uid))
}

#[cfg(test)]
impl NonStatefulSet {
    /// Caches that hold only these pods.
    pub(crate) fn holding(pods: impl IntoIterator<Item = Pod>) -> Self {
        Self {
            deployments: Cache::holding([]),
            replica_sets: Cache::holding([]),
            pods: Cache::holding(pods),
            asked: OnDemand::default(),
        }
    }
}
