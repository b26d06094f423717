//! Facts about the pods of sessions, and the Swarms that a Lease concerns.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ContainerStatus, Node, Pod};
use kube::ResourceExt;
use kube::runtime::reflector::{ObjectRef, Store};
use swarm_client::api::Swarm;
use swarm_core::handover::Holder;
use swarm_core::overseer::{Containers, Fact, PodFacts};

use super::ended::has_terminated;
use super::leases::{Known, Named};
use super::{KnownSessions, Sessions};
use crate::clock;
use crate::pool::observe::is_terminal;
use crate::watch::cached::with_uid;
use crate::watch::caches::Caches;
use crate::watch::node_health::{NodeState, is_out_of_service};

impl Caches {
    /// The pod with this UID, if it exists.
    pub(super) fn pod(&self, namespace: &str, uid: &str) -> Option<Arc<Pod>> {
        let caches = [&self.pods, &self.pools.non_statefulset.pods];
        let mut found = caches.into_iter().flat_map(|pods| pods.with(&with_uid(uid)));
        found.find(|pod| pod.metadata.namespace.as_deref() == Some(namespace))
    }

    /// Whether a pod with this UID exists.
    pub(super) fn has_pod(&self, namespace: &str, uid: &str) -> bool {
        self.pod(namespace, uid).is_some()
    }
}

impl Sessions {
    /// The Swarms that a change of a session may concern: the Swarms that have its pod as a worker,
    /// and the Swarm that writes its view.
    pub(crate) fn concerned_by(&self, (namespace, session): &Named) -> Vec<ObjectRef<Swarm>> {
        let pod = self.caches.pod(namespace, session.pod_uid());
        let of_pod = |pod: Arc<Pod>| self.caches.pools.of_pod(&self.caches.swarms, &pod);
        let mut concerned = pod.map(of_pod).unwrap_or_default();
        let writer = self.views.swarm_of(namespace, &session.to_string());
        let writer = writer.map(|name| ObjectRef::new(&name).within(namespace));
        concerned.extend(writer.filter(|writer| !concerned.contains(writer)));
        concerned
    }

    /// Whether a session in this pod may still write its Lease: it has neither closed it, nor lost
    /// it, nor been silent for too long.
    pub(crate) fn holds_lease(&self, namespace: &str, pod: &Pod) -> bool {
        let (uid, now) = (pod.metadata.uid.as_deref().unwrap_or_default(), clock::now());
        let may_write =
            |known: &Known| known.seen.lease.holder == Holder::Session && !known.is_silent(now);
        !is_terminal(pod) && self.leases.of_pod(namespace, uid).iter().any(may_write)
    }

    /// Records the facts about a pod, whether it still exists or not, and the node on which it was
    /// seen to run.
    pub(super) fn learn_pod(&self, namespace: &str, uid: &str, sessions: &mut KnownSessions) {
        let KnownSessions { overseer, nodes, .. } = sessions;
        let now = clock::now();
        let pod = self.caches.pod(namespace, uid);
        let known = &self.caches.nodes;
        if let Some(node) = pod.as_deref().and_then(|pod| node_of(known, pod)) {
            let seen = (node.name_any(), node.uid().unwrap_or_default());
            let noted = nodes.entry(uid.to_owned()).or_insert_with(|| seen.clone());
            // The node's object was recreated while the pod kept running.
            if *noted != seen && overseer.is_heard(now, uid) {
                *noted = seen;
            }
        }
        let is_over =
            |pod: &Pod| is_terminal(pod) || NodeState::of_pod(known, pod) != NodeState::There;
        let facts = PodFacts {
            is_lost: pod.as_deref().is_none_or(is_over),
            has_terminated: self.ended.contains(uid) || pod.as_deref().is_some_and(has_terminated),
            is_node_off: nodes.get(uid).is_some_and(|node| is_node_off(known, node)),
            containers: pod.as_deref().map(containers).unwrap_or_default(),
        };
        overseer.learn(now, Fact::Pod(uid.to_owned(), facts));
    }
}

/// The states of the pod's containers, as far as the cache keeps them; see [`several_containers`].
fn containers(pod: &Pod) -> Containers {
    let Some(status) = &pod.status else { return Containers::Unknown };
    let Some(all) = &status.container_statuses else { return Containers::One };
    let start = |it: &ContainerStatus| {
        Some(it.state.as_ref()?.running.as_ref()?.started_at.as_ref()?.0.as_second())
    };
    let starts: Option<Vec<_>> = all.iter().map(start).collect();
    let oldest = starts.and_then(|starts| starts.into_iter().min());
    oldest.map_or(Containers::Unknown, Containers::AllSince)
}

fn node_of(nodes: &Store<Node>, pod: &Pod) -> Option<Arc<Node>> {
    let name = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    name.and_then(|name| nodes.get(&ObjectRef::new(name)))
}

/// Whether the node with this name and UID was deleted, or is marked out of service.
fn is_node_off(nodes: &Store<Node>, (name, uid): &(String, String)) -> bool {
    let node = nodes.get(&ObjectRef::new(name));
    node.is_none_or(|node| node.uid().as_ref() != Some(uid) || is_out_of_service(&node))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::runtime::reflector::store::store;
    use kube::runtime::watcher::Event;
    use serde_json::json;

    fn node(uid: &str, taint: Option<&str>) -> Node {
        let taints: Vec<_> =
            taint.map(|key| json!({"key": key, "effect": "NoExecute"})).into_iter().collect();
        serde_json::from_value(
            json!({"metadata": {"name": "n", "uid": uid}, "spec": {"taints": taints}}),
        )
        .unwrap()
    }

    #[test]
    fn a_pod_of_several_containers_says_since_when_all_of_them_run() {
        let of = |statuses: &serde_json::Value| {
            let status = json!({"phase": "Running", "containerStatuses": statuses});
            containers(&serde_json::from_value(json!({"metadata": {}, "status": status})).unwrap())
        };
        let status = |state: serde_json::Value| {
            json!({
                "name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
                "state": state,
            })
        };
        let since = |time: &str| status(json!({"running": {"startedAt": time}}));
        let (early, late) = (since("2026-01-01T00:00:00Z"), since("2026-01-01T00:01:00Z"));
        assert_eq!(of(&json!(null)), Containers::One);
        assert_eq!(of(&json!([])), Containers::Unknown, "nobody reported on them");
        let start = "2026-01-01T00:00:00Z".parse::<jiff::Timestamp>().unwrap().as_second();
        assert_eq!(of(&json!([late, early])), Containers::AllSince(start));
        assert_eq!(of(&json!([late, status(json!({"waiting": {}}))])), Containers::Unknown);
    }

    #[test]
    fn a_node_that_was_seen_and_is_gone_or_out_of_service_is_off() {
        let seen = ("n".to_owned(), "1".to_owned());
        let is_off = |present: Option<Node>| {
            let (nodes, mut writer) = store();
            if let Some(node) = present {
                writer.apply_watcher_event(&Event::Apply(node));
            }
            is_node_off(&nodes, &seen)
        };
        assert!(!is_off(Some(node("1", None))));
        assert!(!is_off(Some(node("1", Some("node.kubernetes.io/unreachable")))));
        assert!(is_off(Some(node("1", Some("node.kubernetes.io/out-of-service")))));
        assert!(is_off(Some(node("2", None))), "another one has taken its name");
        assert!(is_off(None));
    }
}
