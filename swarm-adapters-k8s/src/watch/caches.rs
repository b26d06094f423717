//! The caches that watches fill, with look-ups that need no other data.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::ResourceExt;
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::store::WriterDropped;
use kube::runtime::reflector::{ObjectRef, Store};
use swarm_client::api::Swarm;

use super::cached::{Cache, LedgerMeta, NamespaceMeta};
use super::foreign_swarms::ForeignSwarms;
use super::non_statefulset::NonStatefulSet;
use super::on_demand::OnDemand;
use super::rollback::Rollbacks;

/// The caches that watches keep.
pub(crate) struct Caches {
    /// All Swarms. The cache keeps Swarms of other replicas as records.
    pub(crate) swarms: Cache<Swarm>,
    pub(crate) foreign_swarms: ForeignSwarms,
    pub(crate) pools: Pools,
    /// The pods of StatefulSets.
    pub(crate) pods: Cache<Pod>,
    pub(crate) views: Cache<ConfigMap>,
    /// Namespaces by name only, if the operator serves all: it needs to know which are being
    /// deleted.
    pub(crate) namespaces: Store<NamespaceMeta>,
    /// Nodes by name and taints, if the operator serves all namespaces: it needs the lost nodes.
    pub(crate) nodes: Store<Node>,
    /// Ledgers by name and version only: their existence, and writes of other operators.
    pub(crate) ledgers: Store<LedgerMeta>,
    /// All ConfigMaps, by name, labels and version only, once some Swarm has sources.
    pub(crate) sources: Cache<PartialObjectMeta<ConfigMap>>,
    /// Starts the watch for `sources` when the first Swarm has sources.
    pub(crate) asked_sources: OnDemand,
    /// Rollbacks of the store that fills all these caches.
    pub(crate) rollbacks: Rollbacks,
}

impl Caches {
    /// Returns when every cache has its first complete state, so that a missing object certainly
    /// does not exist. The controller itself waits for the cache of the Swarms.
    ///
    /// Only one task may await this: a second waiter would replace the first, which would never
    /// wake.
    pub(crate) async fn wait_until_filled(&self) -> Result<(), WriterDropped> {
        self.pools.sets.store.wait_until_ready().await?;
        self.pods.store.wait_until_ready().await?;
        self.views.store.wait_until_ready().await
    }

    /// Whether the `ConfigMap` that `swarm` names holds a view.
    pub(crate) fn has_view_of(&self, swarm: &Swarm) -> bool {
        let namespace = swarm.namespace().unwrap_or_default();
        self.views.get(&namespace, &swarm.view_config_map()).is_some()
    }

    /// Whether a ledger of this name is known in the namespace of `swarm`.
    pub(crate) fn has_ledger(&self, swarm: &Swarm, name: &str) -> bool {
        let namespace = swarm.namespace().unwrap_or_default();
        self.ledgers.get(&ObjectRef::new(name).within(&namespace)).is_some()
    }

    /// Whether the namespace of `swarm` is known to be terminating.
    pub(crate) fn is_going(&self, swarm: &Swarm) -> bool {
        let namespace =
            self.namespaces.get(&ObjectRef::new(&swarm.namespace().unwrap_or_default()));
        namespace.is_some_and(|namespace| namespace.metadata.deletion_timestamp.is_some())
    }

    /// The Swarms that have a worker on `node`. O(pods): nodes change rarely.
    pub(crate) fn with_worker_on(&self, node: &Node) -> Vec<ObjectRef<Swarm>> {
        let runs_there = |pod: &Arc<Pod>| {
            pod.spec.as_ref().is_some_and(|spec| spec.node_name == node.metadata.name)
        };
        let pods = [&self.pods.store, &self.pools.non_statefulset.pods.store];
        let pods = pods.into_iter().flat_map(Store::state).filter(runs_there);
        pods.flat_map(|pod| self.pools.of_pod(&self.swarms, &pod)).collect()
    }

    /// The Swarms in `namespace` if that is terminating.
    pub(crate) fn in_terminating(&self, namespace: &NamespaceMeta) -> Vec<ObjectRef<Swarm>> {
        if namespace.metadata.deletion_timestamp.is_none() {
            return Vec::new();
        }
        let swarms = self.swarms.store.state().into_iter();
        let there = swarms.filter(|swarm| swarm.namespace() == namespace.metadata.name);
        there.map(|swarm| ObjectRef::from_obj(&*swarm)).collect()
    }
}

/// The caches of workloads.
#[derive(Clone)]
pub(crate) struct Pools {
    pub(crate) sets: Cache<StatefulSet>,
    pub(crate) non_statefulset: NonStatefulSet,
}
