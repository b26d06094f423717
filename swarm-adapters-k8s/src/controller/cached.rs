//! Caches that watches keep: of each object only what is read, and found without a look at all.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, RwLock};

use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, StatefulSet, StatefulSetSpec};
use k8s_openapi::api::core::v1::{
    ConfigMap, ContainerState, ContainerStateTerminated, ContainerStatus, Node, NodeSpec, Pod,
    PodSpec,
};
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::{ObjectRef, Store, store};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource, ResourceExt};

use super::STATEFUL_PODS;
use super::cost::DELETION_COST;
use super::gone::NamespaceMeta;
use super::wide::ReplicaSetMeta;
use crate::api::Swarm;
use crate::view;
use crate::watch::pauses;
use crate::workload::Kind;

/// How many objects a list has a page. A page is held twice, as text and as objects, and a Swarm
/// with 1,000 jobs has 150 kB of it, most of which is about who wrote what.
const PAGE: u32 = 25;
/// How the names of our own annotations begin.
const OURS: &str = "swarm.k8slab.info/";

/// What is kept of one kind of objects, and under which names they are found.
pub(super) trait Cached:
    Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned
{
    /// Drops what nobody reads.
    fn slim(&mut self);

    /// Namespace and name.
    fn name(&self) -> Name {
        (self.namespace().unwrap_or_default(), self.name_any())
    }

    /// The names under which the object is looked for, beside its own.
    fn keys(&self) -> Vec<String> {
        Vec::new()
    }
}

impl Cached for Swarm {
    fn slim(&mut self) {
        self.metadata.managed_fields = None;
        // A copy of the whole spec, made by `kubectl apply`.
        self.annotations_mut().retain(|name, _| name.starts_with(OURS));
    }

    fn keys(&self) -> Vec<String> {
        let namespace = self.namespace().unwrap_or_default();
        let mut keys = vec![with_uid(self.metadata.uid.as_deref().unwrap_or_default())];
        let (kind, workload) = self.spec.pool.workload();
        keys.push(with_pool(kind, &namespace, workload.and_then(|it| it.name.as_deref())));
        for source in &self.spec.job_sources {
            let named = source.config_map.as_ref().map(|named| named.name.as_str());
            keys.extend(named.map(|name| with_source(&namespace, Some(name))));
            keys.extend(source.selector.as_ref().map(|_| with_source(&namespace, None)));
        }
        keys
    }
}

/// The key of the Swarm, or the pod, with this UID.
pub(super) fn with_uid(uid: &str) -> String {
    format!("uid {uid}")
}

/// The key of Swarms that name this pool, or that name none and go by labels.
pub(super) fn with_pool(kind: Kind, namespace: &str, name: Option<&str>) -> String {
    format!("{kind} {namespace}/{}", name.unwrap_or_default())
}

/// The key of Swarms that name this source of jobs, or that go by labels.
pub(super) fn with_source(namespace: &str, name: Option<&str>) -> String {
    format!("source {namespace}/{}", name.unwrap_or_default())
}

impl Cached for StatefulSet {
    fn slim(&mut self) {
        self.metadata.managed_fields = None;
        self.metadata.annotations = None;
        let Some(spec) = self.spec.take() else { return };
        let StatefulSetSpec { replicas, ordinals, selector, .. } = spec;
        let kept = StatefulSetSpec { replicas, ordinals, selector, ..StatefulSetSpec::default() };
        self.spec = Some(kept);
    }

    fn keys(&self) -> Vec<String> {
        self.namespace().into_iter().collect()
    }
}

impl Cached for Deployment {
    fn slim(&mut self) {
        self.metadata.managed_fields = None;
        self.metadata.annotations = None;
        let Some(spec) = self.spec.take() else { return };
        let DeploymentSpec { replicas, selector, .. } = spec;
        self.spec = Some(DeploymentSpec { replicas, selector, ..DeploymentSpec::default() });
        if let Some(status) = &mut self.status {
            status.conditions = None;
        }
    }

    fn keys(&self) -> Vec<String> {
        self.namespace().into_iter().collect()
    }
}

impl Cached for ReplicaSetMeta {
    fn slim(&mut self) {
        self.metadata.managed_fields = None;
        self.metadata.annotations = None;
        self.metadata.labels = None;
    }

    fn keys(&self) -> Vec<String> {
        controller_key(self).into_iter().collect()
    }
}

/// The key of what the object with this UID controls.
pub(super) fn owned_by(uid: &str) -> String {
    format!("of {uid}")
}

fn controller_key(object: &impl Resource) -> Option<String> {
    let owners = object.meta().owner_references.iter().flatten();
    let controller = owners.into_iter().find(|owner| owner.controller == Some(true));
    controller.map(|owner| owned_by(&owner.uid))
}

/// The key of the pods of a namespace that no StatefulSet makes.
pub(super) fn in_namespace(namespace: &str) -> String {
    format!("in {namespace}")
}

impl Cached for Pod {
    fn slim(&mut self) {
        self.metadata.managed_fields = None;
        // A pool may go by the labels of pods, though not of those that a StatefulSet makes.
        self.metadata.labels.take_if(|labels| labels.contains_key(STATEFUL_PODS));
        let is_read = |name: &str| name.starts_with(OURS) || name == DELETION_COST;
        self.annotations_mut().retain(|name, _| is_read(name));
        let node_name = self.spec.take().and_then(|spec| spec.node_name);
        self.spec = Some(PodSpec { node_name, ..PodSpec::default() });
        if let Some(status) = self.status.take() {
            let mut kept = k8s_openapi::api::core::v1::PodStatus {
                phase: status.phase,
                conditions: status.conditions,
                pod_ip: status.pod_ip,
                ..Default::default()
            };
            // Of the others nobody asks; their times alone are a quarter of a pod.
            kept.conditions.iter_mut().for_each(|all| all.retain(|one| one.type_ == "Ready"));
            // Of a pod that has ended it matters whether all of it has.
            let has_ended = matches!(kept.phase.as_deref(), Some("Succeeded" | "Failed"));
            let containers = status.container_statuses.filter(|_| has_ended);
            kept.container_statuses = containers.map(|all| all.into_iter().map(state_of).collect());
            self.status = Some(kept);
            if has_ended {
                // Of those of Jobs there may be many, and none is a worker any more.
                self.spec = None;
                self.metadata.annotations = None;
            }
        }
    }

    fn keys(&self) -> Vec<String> {
        let name = self.metadata.name.as_deref().unwrap_or_default();
        let namespace = self.namespace().unwrap_or_default();
        let mut keys = vec![with_uid(self.metadata.uid.as_deref().unwrap_or_default())];
        if self.metadata.labels.is_some() {
            keys.extend(controller_key(self));
            keys.push(in_namespace(&namespace));
        } else {
            let pool = name.rsplit_once('-').map(|(pool, _)| pool);
            keys.extend(pool.map(|pool| of_pool(&namespace, pool)));
        }
        keys
    }
}

/// A container's state, and whether that is its last.
fn state_of(container: ContainerStatus) -> ContainerStatus {
    let state = container.state.map(|state| ContainerState {
        terminated: state.terminated.map(|_| ContainerStateTerminated::default()),
        ..ContainerState::default()
    });
    ContainerStatus { name: container.name, state, ..ContainerStatus::default() }
}

/// The key of the pods that have the names of a pool's.
pub(super) fn of_pool(namespace: &str, pool: &str) -> String {
    format!("{namespace}/{pool}")
}

impl Cached for ConfigMap {
    fn slim(&mut self) {
        view::slim(self);
    }
}

impl Cached for PartialObjectMeta<ConfigMap> {
    fn slim(&mut self) {
        self.metadata.managed_fields = None;
        self.metadata.annotations = None;
        self.metadata.owner_references = None;
    }

    fn keys(&self) -> Vec<String> {
        self.namespace().into_iter().collect()
    }
}

impl Cached for Node {
    fn slim(&mut self) {
        self.metadata.managed_fields = None;
        self.metadata.annotations = None;
        self.metadata.labels = None;
        self.status = None;
        let taints = self.spec.take().and_then(|spec| spec.taints);
        self.spec = Some(NodeSpec { taints, ..NodeSpec::default() });
    }
}

impl Cached for NamespaceMeta {
    fn slim(&mut self) {
        self.metadata.managed_fields = None;
        self.metadata.annotations = None;
    }
}

/// A cache whose objects are found by other names, too.
#[derive(Clone)]
pub(super) struct Cache<K: Cached + 'static> {
    pub(super) store: Store<K>,
    index: Arc<RwLock<Index>>,
}

impl<K: Cached> Cache<K> {
    /// The objects with this key.
    pub(super) fn with(&self, key: &str) -> Vec<Arc<K>> {
        let index = self.index.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        let found = index.current.objects.get(key).into_iter().flatten();
        found.filter_map(|(namespace, name)| self.get(namespace, name)).collect()
    }

    /// The object of this name.
    pub(super) fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.store.get(&ObjectRef::new(name).within(namespace))
    }
}

/// A cache, and the stream of changes that keeps it; the cache is ahead of the stream.
pub(super) fn cached<K>(
    api: Api<K>,
    config: watcher::Config,
) -> (Cache<K>, impl Stream<Item = Result<K, watcher::Error>> + Send + 'static)
where
    K: Cached + Send + Sync + 'static,
{
    let (store, writer) = store();
    let index = Arc::new(RwLock::new(Index::default()));
    let noted = index.clone();
    let stream = watcher(api, config.page_size(PAGE))
        .backoff(pauses())
        .modify(K::slim)
        .inspect_ok(move |event| {
            noted.write().unwrap_or_else(std::sync::PoisonError::into_inner).note(event);
        })
        .reflect(writer)
        .touched_objects()
        .inspect_err(|error| tracing::warn!(%error, "a watch failed and is tried again"))
        // The watch waits by itself before it tries again. The controller would make all watches
        // wait for each failure of any, and twice as long every time.
        .filter(|change| std::future::ready(change.is_ok()));
    (Cache { store, index }, stream)
}

/// An object by namespace and name.
type Name = (String, String);

/// Which objects have which keys. It follows the same events as the cache, a moment earlier.
#[derive(Default)]
struct Index {
    current: Keys,
    /// The complete state while it is being listed.
    fresh: Keys,
}

#[derive(Default)]
struct Keys {
    objects: BTreeMap<String, BTreeSet<Name>>,
    /// The keys of each object, to find what a change took away.
    of: BTreeMap<Name, Vec<String>>,
}

impl Index {
    fn note<K: Cached>(&mut self, event: &Event<K>) {
        match event {
            Event::Init => self.fresh = Keys::default(),
            Event::InitApply(object) => self.fresh.set(object.name(), object.keys()),
            Event::InitDone => self.current = std::mem::take(&mut self.fresh),
            Event::Apply(object) => self.current.set(object.name(), object.keys()),
            Event::Delete(object) => self.current.set(object.name(), Vec::new()),
        }
    }
}

impl Keys {
    fn set(&mut self, name: Name, keys: Vec<String>) {
        if self.of.get(&name).is_some_and(|before| *before == keys) {
            return;
        }
        for key in self.of.remove(&name).unwrap_or_default() {
            if let Entry::Occupied(mut found) = self.objects.entry(key) {
                found.get_mut().remove(&name);
                if found.get().is_empty() {
                    found.remove();
                }
            }
        }
        for key in &keys {
            self.objects.entry(key.clone()).or_default().insert(name.clone());
        }
        if !keys.is_empty() {
            self.of.insert(name, keys);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn swarm(name: &str, pool: &str) -> Swarm {
        serde_json::from_value(json!({
            "apiVersion": "swarm.k8slab.info/v1alpha1",
            "kind": "Swarm",
            "metadata": {"name": name, "namespace": "n", "uid": name},
            "spec": {"pool": {"statefulSet": {"name": pool}}},
        }))
        .unwrap()
    }

    fn with(index: &Index, pool: &str) -> Vec<String> {
        let found = index.current.objects.get(&with_pool(Kind::StatefulSet, "n", Some(pool)));
        found.into_iter().flatten().map(|(_, name)| name.clone()).collect()
    }

    #[test]
    fn what_a_change_took_away_is_found_no_more() {
        let mut index = Index::default();
        index.note(&Event::Apply(swarm("a", "p")));
        index.note(&Event::Apply(swarm("b", "p")));
        index.note(&Event::Apply(swarm("b", "q")));
        assert_eq!((with(&index, "p"), with(&index, "q")), (vec!["a".into()], vec!["b".into()]));
        index.note(&Event::Delete(swarm("a", "p")));
        assert_eq!(with(&index, "p"), Vec::<String>::new());
        assert_eq!((index.current.objects.len(), index.current.of.len()), (2, 1));
    }

    #[test]
    fn a_new_list_replaces_all_at_its_end_and_not_before() {
        let mut index = Index::default();
        index.note(&Event::Apply(swarm("a", "p")));
        index.note::<Swarm>(&Event::Init);
        index.note(&Event::InitApply(swarm("b", "p")));
        assert_eq!(with(&index, "p"), ["a"]);
        index.note::<Swarm>(&Event::InitDone);
        assert_eq!(with(&index, "p"), ["b"]);
    }

    #[test]
    fn a_slim_pod_still_tells_all_that_is_asked_of_it() {
        let mut pod: Pod = serde_json::from_value(json!({
            "metadata": {
                "name": "w-1", "namespace": "n", "uid": "u",
                "labels": {"a": "b", "apps.kubernetes.io/pod-index": "1"},
                "annotations": {"swarm.k8slab.info/nudge": "1.1", "other": "x"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "w", "uid": "s"}],
            },
            "spec": {"nodeName": "node", "containers": [{"name": "c"}]},
            "status": {"phase": "Running", "podIP": "1.2.3.4", "hostIP": "5.6.7.8", "conditions": [
                {"type": "Ready", "status": "True"}, {"type": "Initialized", "status": "True"},
            ]},
        }))
        .unwrap();
        pod.slim();
        assert_eq!(pod.keys(), [with_uid("u"), of_pool("n", "w")]);
        let expected = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "w-1", "namespace": "n", "uid": "u",
                "annotations": {"swarm.k8slab.info/nudge": "1.1"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "w", "uid": "s"}],
            },
            "spec": {"nodeName": "node", "containers": []},
            "status": {"phase": "Running", "podIP": "1.2.3.4", "conditions": [
                {"type": "Ready", "status": "True"},
            ]},
        });
        assert_eq!(serde_json::to_value(&pod).unwrap(), expected);
    }
}
