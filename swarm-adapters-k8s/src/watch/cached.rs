//! Caches that watches fill. They keep only the fields that are read, and find objects by keys
//! without a search.

pub(crate) mod keeper;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};

use futures::stream::BoxStream;
use futures::{Stream, StreamExt, stream};
use k8s_openapi::api::apps::v1::{
    Deployment, DeploymentSpec, ReplicaSet, StatefulSet, StatefulSetSpec,
};
use k8s_openapi::api::core::v1::{
    ConfigMap, ContainerState, ContainerStateTerminated, ContainerStatus, Namespace, Node,
    NodeSpec, Pod, PodSpec, PodTemplateSpec,
};
use kube::core::{ObjectMeta, PartialObjectMeta};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher;
use kube::{Api, Resource, ResourceExt};

use keeper::{Index, Keeper};

use swarm_client::annotations::CLAIM_ANNOTATION;
use swarm_client::api::{Swarm, SwarmLedger};
use swarm_spec::spec::Meant;

use super::rollback::Rollbacks;
use super::streams;
use super::strip::{self, Cut, Slim};
use crate::annotations::{
    COST_BEFORE, DELETION_COST, NUDGE_ANNOTATION, STARTED_ANNOTATION, STATEFUL_PODS,
};
use crate::plain::view;
use crate::pool::rollout::PROGRESSING;
use crate::pool::workload::{FAILURE, Kind};
use crate::pool::{fit, trouble};

/// The annotations of pods that the cache keeps.
const OF_PODS: [&str; 5] =
    [NUDGE_ANNOTATION, STARTED_ANNOTATION, CLAIM_ANNOTATION, DELETION_COST, COST_BEFORE];

/// The metadata of a ledger.
pub(crate) type LedgerMeta = PartialObjectMeta<SwarmLedger>;

/// A namespace with its name, and whether it is being deleted.
pub(crate) type NamespaceMeta = PartialObjectMeta<Namespace>;

/// A `ReplicaSet` with its name and owner.
pub(crate) type ReplicaSetMeta = PartialObjectMeta<ReplicaSet>;

/// A kind of cached objects: the fields to keep, and the keys for look-ups.
pub(crate) trait Cached:
    Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned
{
    /// Whether objects are found by their labels. Then a change of labels also reports the previous
    /// object.
    const IS_FOUND_BY_LABELS: bool = false;

    /// Drops the fields that no reader needs.
    fn strip(&mut self);

    /// Namespace and name.
    fn name(&self) -> Name {
        (self.namespace().unwrap_or_default(), self.name_any())
    }

    /// The keys under which the object can be found, in addition to its name.
    fn keys(&self) -> Vec<String> {
        Vec::new()
    }
}

impl Cached for Swarm {
    fn strip(&mut self) {
        let finalizers = self.metadata.finalizers.take();
        // One annotation is a copy of the whole spec, made by `kubectl apply`.
        strip::metadata(&mut self.metadata, &[]);
        // A replica that removes one finalizer has to write the others back.
        self.metadata.finalizers = finalizers;
    }

    fn keys(&self) -> Vec<String> {
        let namespace = self.namespace().unwrap_or_default();
        let mut keys = vec![with_uid(self.metadata.uid.as_deref().unwrap_or_default())];
        let (kind, workload) = self.pool();
        let named = workload.and_then(|it| match it {
            Meant::Named(name) => Some(name),
            Meant::Labelled(_) => None,
        });
        keys.push(with_pool(kind, &namespace, named));
        for source in &self.spec.job_sources {
            let named = source.config_map.as_ref().map(|named| named.name.as_str());
            keys.extend(named.map(|name| with_source(&namespace, Some(name))));
            keys.extend(source.selector.as_ref().map(|_| with_source(&namespace, None)));
        }
        keys
    }
}

/// The key of the Swarm, or the pod, with this UID.
pub(crate) fn with_uid(uid: &str) -> String {
    format!("uid {uid}")
}

/// The key of the Swarms that name this pool, or of the Swarms that select pools by labels.
pub(crate) fn with_pool(kind: Kind, namespace: &str, name: Option<&str>) -> String {
    format!("{kind} {namespace}/{}", name.unwrap_or_default())
}

/// The key of the Swarms that name this source of jobs, or of the Swarms that select sources by labels.
pub(crate) fn with_source(namespace: &str, name: Option<&str>) -> String {
    format!("source {namespace}/{}", name.unwrap_or_default())
}

impl Cached for StatefulSet {
    fn strip(&mut self) {
        strip::metadata(&mut self.metadata, &[]);
        let Some(spec) = self.spec.take() else { return };
        let StatefulSetSpec { replicas, ordinals, selector, update_strategy, .. } = spec;
        let (selector, template) = (strip::selector(selector), cut(spec.template));
        self.spec = Some(StatefulSetSpec {
            replicas,
            ordinals,
            selector,
            update_strategy,
            min_ready_seconds: spec.min_ready_seconds,
            template,
            ..StatefulSetSpec::default()
        });
    }

    fn keys(&self) -> Vec<String> {
        self.namespace().into_iter().collect()
    }
}

impl Cached for Deployment {
    fn strip(&mut self) {
        strip::metadata(&mut self.metadata, &[]);
        let Some(spec) = self.spec.take() else { return };
        let DeploymentSpec { replicas, selector, paused, progress_deadline_seconds, .. } = spec;
        let (selector, template) = (strip::selector(selector), cut(spec.template));
        self.spec = Some(DeploymentSpec {
            replicas,
            selector,
            paused,
            progress_deadline_seconds,
            template,
            ..DeploymentSpec::default()
        });
        if let Some(status) = &mut self.status {
            let is_read = |type_: &str| [FAILURE, PROGRESSING].contains(&type_);
            status.conditions.iter_mut().for_each(|all| all.retain(|it| is_read(&it.type_)));
        }
    }

    fn keys(&self) -> Vec<String> {
        self.namespace().into_iter().collect()
    }
}

/// Reduces a template to the fields that [`fit`] reads, as a text in the field of the name.
/// Templates have no name.
fn cut(template: PodTemplateSpec) -> PodTemplateSpec {
    let name = template.spec.and_then(fit::packed);
    let metadata = Some(ObjectMeta { name, ..ObjectMeta::default() });
    PodTemplateSpec { metadata, spec: None }
}

/// Restores the fields that [`fit`] reads from a reduced template.
pub(crate) fn uncut(template: &PodTemplateSpec) -> Option<PodSpec> {
    fit::unpacked(template.metadata.as_ref()?.name.as_deref()?)
}

impl Cached for ReplicaSetMeta {
    fn strip(&mut self) {
        strip::metadata(&mut self.metadata, &[]);
        self.metadata.labels = None;
    }

    fn keys(&self) -> Vec<String> {
        controller_key(self).into_iter().collect()
    }
}

/// The key of the objects that the object with this UID controls.
pub(crate) fn owned_by(uid: &str) -> String {
    format!("of {uid}")
}

fn controller_key(object: &impl Resource) -> Option<String> {
    let owners = object.meta().owner_references.iter().flatten();
    let controller = owners.into_iter().find(|owner| owner.controller == Some(true));
    controller.map(|owner| owned_by(&owner.uid))
}

/// The key of the pods of a namespace that no StatefulSet controls.
pub(crate) fn in_namespace(namespace: &str) -> String {
    format!("in {namespace}")
}

/// Labels that every pod has, and that therefore select no pool.
const EVERY_POD_HAS: [&str; 3] =
    ["controller-revision-hash", "pod-template-hash", "statefulset.kubernetes.io/pod-name"];

impl Cached for Pod {
    fn strip(&mut self) {
        // The labels of pods may select a pool or set the capacity of workers. The labels that
        // Kubernetes adds to every pod may not.
        self.labels_mut().retain(|name, _| !EVERY_POD_HAS.contains(&name.as_str()));
        strip::metadata(&mut self.metadata, &OF_PODS);
        let (several, trouble) = (several_containers(self), trouble::of(self));
        let hopeless = trouble::hopeless(self).map(ToOwned::to_owned);
        let spec = self.spec.take().unwrap_or_default();
        let node_name = spec.node_name.clone();
        let of_set = self.labels().contains_key(STATEFUL_PODS);
        // The template of the StatefulSet has the same content as the specs of its pods.
        let kept = if of_set { PodSpec::default() } else { fit::cut_pod(spec) };
        self.spec = Some(PodSpec { node_name, ..kept });
        if let Some(status) = self.status.take() {
            let mut kept = k8s_openapi::api::core::v1::PodStatus {
                phase: status.phase,
                conditions: status.conditions,
                pod_ip: status.pod_ip,
                // The message summarizes the dropped states of the containers.
                message: trouble,
                reason: hopeless,
                ..Default::default()
            };
            // No reader needs the other conditions, whose times alone take a quarter of a pod.
            kept.conditions.iter_mut().for_each(|all| all.retain(|one| one.type_ == "Ready"));
            // For an ended pod it matters whether all containers have ended.
            let has_ended = matches!(kept.phase.as_deref(), Some("Succeeded" | "Failed"));
            let containers = status.container_statuses.filter(|_| has_ended);
            let containers = containers.map(|all| all.into_iter().map(state_of).collect());
            // For a running pod it matters since when each of several containers runs.
            kept.container_statuses = containers.or(several);
            self.status = Some(kept);
            if has_ended {
                // Jobs may leave many ended pods, and none of them is a worker any more.
                self.spec = None;
                self.metadata.annotations = None;
            }
        }
    }

    fn keys(&self) -> Vec<String> {
        let name = self.metadata.name.as_deref().unwrap_or_default();
        let namespace = self.namespace().unwrap_or_default();
        let mut keys = vec![with_uid(self.metadata.uid.as_deref().unwrap_or_default())];
        if self.labels().contains_key(STATEFUL_PODS) {
            let pool = name.rsplit_once('-').map(|(pool, _)| pool);
            keys.extend(pool.map(|pool| of_pool(&namespace, pool)));
        } else {
            keys.extend(controller_key(self));
            keys.push(in_namespace(&namespace));
        }
        keys
    }
}

/// The states of a pod's containers, if several can run at a time. Sidecars and debug containers
/// count. Empty until the kubelet has reported on all of them. `None` if the pod has one container.
pub(crate) fn several_containers(pod: &Pod) -> Option<Vec<ContainerStatus>> {
    let spec = pod.spec.as_ref()?;
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars = sidecars.filter(|it| it.restart_policy.is_some());
    let mut names: BTreeSet<_> =
        spec.containers.iter().chain(sidecars).map(|it| &it.name).collect();
    names.extend(spec.ephemeral_containers.iter().flatten().map(|it| &it.name));
    if names.len() < 2 {
        return None;
    }
    let status = pod.status.as_ref()?;
    let all = [
        &status.container_statuses,
        &status.init_container_statuses,
        &status.ephemeral_container_statuses,
    ];
    let reported = all.into_iter().flatten().flatten().filter(|it| names.contains(&it.name));
    let found: Vec<_> = reported.cloned().map(state_of).collect();
    Some(if found.len() == names.len() { found } else { Vec::new() })
}

/// The state of a container: its start if it runs, or its end.
fn state_of(container: ContainerStatus) -> ContainerStatus {
    let state = container.state.map(|state| ContainerState {
        terminated: state.terminated.map(|_| ContainerStateTerminated::default()),
        running: state.running,
        ..ContainerState::default()
    });
    ContainerStatus { name: container.name, state, ..ContainerStatus::default() }
}

/// The key of the pods with the names of a pool's pods.
pub(crate) fn of_pool(namespace: &str, pool: &str) -> String {
    format!("{namespace}/{pool}")
}

impl Cached for ConfigMap {
    fn strip(&mut self) {
        view::strip(self);
    }
}

impl Cached for PartialObjectMeta<ConfigMap> {
    const IS_FOUND_BY_LABELS: bool = true;

    fn strip(&mut self) {
        strip::metadata(&mut self.metadata, &[]);
        self.metadata.owner_references = None;
    }

    fn keys(&self) -> Vec<String> {
        self.namespace().into_iter().collect()
    }
}

impl Cached for Node {
    fn strip(&mut self) {
        strip::metadata(&mut self.metadata, &[]);
        self.metadata.labels = None;
        self.status = None;
        let taints = self.spec.take().and_then(|spec| spec.taints);
        self.spec = Some(NodeSpec { taints, ..NodeSpec::default() });
    }
}

impl Cached for LedgerMeta {
    fn strip(&mut self) {
        strip::metadata(&mut self.metadata, &[]);
    }
}

impl Cached for NamespaceMeta {
    fn strip(&mut self) {
        strip::metadata(&mut self.metadata, &[]);
    }
}

/// A cache whose objects can also be found by keys.
#[derive(Clone)]
pub(crate) struct Cache<K: Cached + 'static> {
    pub(crate) store: Store<K>,
    index: Arc<RwLock<Index>>,
}

impl<K: Cached> Cache<K> {
    /// The objects with this key.
    pub(crate) fn with(&self, key: &str) -> Vec<Arc<K>> {
        let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
        let found = index.current.objects.get(key).into_iter().flatten();
        found.filter_map(|(namespace, name)| self.get(namespace, name)).collect()
    }

    /// Whether a complete state was seen.
    pub(crate) fn is_filled(&self) -> bool {
        let index = self.index.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        index.is_filled
    }

    /// The object of this name.
    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.store.get(&ObjectRef::new(name).within(namespace))
    }
}

/// The objects that a watch reports as changed, deleted ones included.
pub(crate) type Changes<K> = BoxStream<'static, Result<K, watcher::Error>>;

/// Reduces an object to the fields that its cache keeps.
pub(crate) struct ForCache;

impl<K: Cached> Cut<K> for ForCache {
    fn cut(object: &mut K) {
        object.strip();
    }
}

/// A cache, and the stream of changes that fills it. The cache is ahead of the stream. The stream
/// also returns deleted objects.
pub(crate) fn cached<K>(
    api: Api<Slim<K, ForCache>>,
    config: watcher::Config,
    rollbacks: &Rollbacks,
) -> (Cache<K>, impl Stream<Item = Result<K, watcher::Error>> + Send + 'static)
where
    K: Cached + Send + Sync + 'static,
{
    let (cache, mut keeper) = Keeper::of_new_cache(rollbacks);
    let events = streams::events(api, config, rollbacks);
    let changes = events.flat_map(move |event| {
        stream::iter(seen(event).map_or(Vec::new(), |event| keeper.apply(event)))
    });
    (cache, changes.map(Ok))
}

/// The event, if the watch did not fail.
pub(crate) fn seen<K>(
    event: Result<watcher::Event<K>, watcher::Error>,
) -> Option<watcher::Event<K>> {
    // The watch itself waits before it tries again. The controller would delay all watches after
    // each failure of one, and double that delay every time.
    event.inspect_err(|error| tracing::warn!(%error, "a watch failed and is tried again")).ok()
}

/// An object by namespace and name.
type Name = (String, String);

/// Whether an object has all these labels.
pub(crate) fn has_labels(object: &impl ResourceExt, labels: &BTreeMap<String, String>) -> bool {
    labels.iter().all(|(key, value)| object.labels().get(key) == Some(value))
}

#[cfg(test)]
impl<K: Cached> Cache<K> {
    /// A cache that holds these objects, as a watch would have filled it.
    pub(crate) fn holding(objects: impl IntoIterator<Item = K>) -> Self {
        let (cache, mut keeper) = Keeper::of_new_cache(&Rollbacks::default());
        let listed = objects.into_iter().map(|mut object| {
            object.strip();
            watcher::Event::InitApply(object)
        });
        let (begins, ends) = ([watcher::Event::Init], [watcher::Event::InitDone]);
        for event in begins.into_iter().chain(listed).chain(ends) {
            keeper.apply(event);
        }
        cache
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_stripped_pod_says_since_when_its_containers_run_if_it_has_several() {
        let running = |name: &str| {
            json!({
                "name": name, "image": "i", "imageID": "", "ready": true, "restartCount": 1,
                "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            })
        };
        let kept = |spec: &Value, statuses: &Value| {
            let mut status = statuses.clone();
            status["phase"] = "Running".into();
            let pod = json!({"metadata": {"name": "w-1"}, "spec": spec, "status": status});
            let mut pod: Pod = serde_json::from_value(pod).unwrap();
            pod.strip();
            let kept = pod.status.unwrap().container_statuses;
            kept.map(|all| all.into_iter().map(|it| it.name).collect::<Vec<_>>())
        };
        let one = json!({"containers": [{"name": "a"}], "initContainers": [{"name": "i"}]});
        let reported = json!({"containerStatuses": [running("a")]});
        assert_eq!(kept(&one, &reported), None);
        let two = json!({"containers": [{"name": "a"}, {"name": "b"}]});
        assert_eq!(kept(&two, &reported), Some(vec![]), "the other is not reported on");
        let both = json!({"containerStatuses": [running("a"), running("b")]});
        assert_eq!(kept(&two, &both), Some(vec!["a".into(), "b".into()]));
        let sidecar = json!({
            "containers": [{"name": "a"}],
            "initContainers": [{"name": "s", "restartPolicy": "Always"}],
        });
        let all = json!({
            "containerStatuses": [running("a")], "initContainerStatuses": [running("s")],
        });
        assert_eq!(kept(&sidecar, &all), Some(vec!["a".into(), "s".into()]));
    }

    #[test]
    fn a_slim_pod_keeps_all_that_is_read_from_it() {
        let mut pod: Pod = serde_json::from_value(json!({
            "metadata": {
                "name": "w-1", "namespace": "n", "uid": "u",
                "labels": {
                    "a": "b", "apps.kubernetes.io/pod-index": "1", "controller-revision-hash": "x",
                },
                "annotations": {"swarm.k8slab.info/nudge": "1.1", "other": "x"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "w", "uid": "s"}],
            },
            "spec": {"nodeName": "node", "containers": [{"name": "c"}]},
            "status": {"phase": "Running", "podIP": "1.2.3.4", "hostIP": "5.6.7.8", "conditions": [
                {"type": "Ready", "status": "True"}, {"type": "Initialized", "status": "True"},
            ]},
        }))
        .unwrap();
        pod.strip();
        assert_eq!(pod.keys(), [with_uid("u"), of_pool("n", "w")]);
        let expected = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "w-1", "namespace": "n", "uid": "u",
                "labels": {"a": "b", "apps.kubernetes.io/pod-index": "1"},
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
