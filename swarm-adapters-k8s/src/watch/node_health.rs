//! Watches for objects that disappear: deleted ledgers, namespaces that are being deleted, and
//! unreachable nodes.

use std::collections::HashMap;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::runtime::reflector::{ObjectRef, Store, store};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};

use super::cached::{Cache, Changes, ForCache, LedgerMeta, NamespaceMeta, cached};
use super::rollback::Rollbacks;
use super::strip::Slim;
use crate::scope::Scope;

/// The cache of namespaces, and the stream of their changes. An operator of one namespace has no
/// right to read them.
pub(crate) fn namespaces(
    scope: &Scope,
    client: &Client,
    rollbacks: &Rollbacks,
) -> (Store<NamespaceMeta>, Changes<NamespaceMeta>) {
    match scope {
        Scope::Cluster => {
            let everything = watcher::Config::default();
            let (cache, stream) = cached(Api::all(client.clone()), everything, rollbacks);
            (cache.store, stream.boxed())
        }
        Scope::Namespace(_) => (store().0, futures::stream::pending().boxed()),
    }
}

/// A cache of the existing ledgers, and the stream of deleted ones. The pool of a deleted ledger
/// may need a new one, or be free for another Swarm. A write to a ledger triggers no turn.
pub(crate) fn ledgers(
    api: Api<Slim<LedgerMeta, ForCache>>,
    rollbacks: &Rollbacks,
) -> (Store<LedgerMeta>, Changes<LedgerMeta>) {
    let (Cache { store, .. }, stream) = cached(api, watcher::Config::default(), rollbacks);
    let there = store.clone();
    let is_gone = move |ledger: &LedgerMeta| {
        std::future::ready(there.get(&ObjectRef::from_obj(ledger)).is_none())
    };
    (store, stream.try_filter(is_gone).boxed())
}

/// The taint of a node whose kubelet has fallen silent. The taint of a node that is only not ready
/// differs: its kubelet can still end pods.
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// The taint with which an administrator marks a node as permanently off.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// The state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeState {
    /// The node's kubelet answers, or answered a moment ago.
    There,
    /// The node's kubelet does not answer. Its containers may still run.
    Unreachable,
    /// A person marked it as out of service.
    Off,
}

impl NodeState {
    /// The state of the node of this name, from the cache. A deleted node is off. Without rights to
    /// read nodes, the operator takes all of them to be reachable.
    fn of(nodes: &Store<Node>, name: &str) -> Self {
        match nodes.get(&ObjectRef::new(name)) {
            Some(node) if is_out_of_service(&node) => Self::Off,
            Some(node) if has_taint(&node, UNREACHABLE) => Self::Unreachable,
            None if !nodes.is_empty() => Self::Off,
            Some(_) | None => Self::There,
        }
    }

    /// The state of a pod's node.
    pub(crate) fn of_pod(nodes: &Store<Node>, pod: &Pod) -> Self {
        let name = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        name.map_or(Self::There, |name| Self::of(nodes, name))
    }
}

/// The cache of nodes, and the stream of nodes whose state has changed. An operator of one
/// namespace has no right to read them.
pub(crate) fn nodes(
    scope: &Scope,
    client: &Client,
    rollbacks: &Rollbacks,
) -> (Store<Node>, Changes<Node>) {
    match scope {
        Scope::Cluster => {
            let everything = watcher::Config::default();
            let (cache, stream) = cached::<Node>(Api::all(client.clone()), everything, rollbacks);
            let (store, mut known) = (cache.store.clone(), HashMap::new());
            let has_changed = move |node: &Node| {
                let name = node.name_any();
                let fate = NodeState::of(&store, &name);
                let before = known.remove(&name).unwrap_or(NodeState::There);
                if fate != NodeState::There && store.get(&ObjectRef::from_obj(node)).is_some() {
                    known.insert(name, fate);
                }
                fate != before
            };
            (cache.store, stream.try_filter(changed(has_changed)).boxed())
        }
        Scope::Namespace(_) => (store().0, futures::stream::pending().boxed()),
    }
}

fn changed(
    mut has_changed: impl FnMut(&Node) -> bool,
) -> impl FnMut(&Node) -> std::future::Ready<bool> {
    move |node| std::future::ready(has_changed(node))
}

fn has_taint(node: &Node, key: &str) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.into_iter().any(|taint| taint.key == key)
}

/// Whether a person marked the node as out of service.
pub(crate) fn is_out_of_service(node: &Node) -> bool {
    has_taint(node, OUT_OF_SERVICE)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(name: &str, taint: &str) -> Node {
        let taints = json!([{"key": taint, "effect": "NoExecute"}]);
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"taints": taints}}))
            .unwrap()
    }

    #[test]
    fn nodes_are_silent_or_off_or_deleted() {
        let (nodes, mut writer) = store();
        let fate = |name: &str, nodes: &Store<Node>| {
            let pod = serde_json::from_value(json!({"spec": {"nodeName": name}})).unwrap();
            NodeState::of_pod(nodes, &pod)
        };
        assert_eq!(
            fate("any", &nodes),
            NodeState::There,
            "who may not see nodes knows nothing of them"
        );
        for (name, taint) in [("there", "other"), ("silent", UNREACHABLE), ("off", OUT_OF_SERVICE)]
        {
            writer.apply_watcher_event(&watcher::Event::Apply(node(name, taint)));
        }
        let fates = ["there", "silent", "off", "deleted"].map(|name| fate(name, &nodes));
        assert_eq!(
            fates,
            [NodeState::There, NodeState::Unreachable, NodeState::Off, NodeState::Off]
        );
        assert_eq!(
            NodeState::of_pod(&nodes, &Pod::default()),
            NodeState::There,
            "it waits for a node"
        );
    }
}
