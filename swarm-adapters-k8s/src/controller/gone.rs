//! Notices what goes: ledgers that somebody deletes, namespaces on their way out, and nodes that
//! nobody reaches.

use std::collections::HashSet;

use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::{ObjectRef, Store, store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};

use super::Scope;
use crate::api::SwarmLedger;

/// A ledger without what it holds.
pub(super) type LedgerMeta = PartialObjectMeta<SwarmLedger>;
/// A namespace by its name and whether it is going.
pub(super) type NamespaceMeta = PartialObjectMeta<Namespace>;
/// The changes that a watch tells of.
type Changes<K> = BoxStream<'static, Result<K, watcher::Error>>;

/// The cache of namespaces, and the stream of their changes. The operator of one namespace has no
/// right to look at any.
pub(super) fn namespaces(
    scope: &Scope,
    client: &Client,
) -> (Store<NamespaceMeta>, Changes<NamespaceMeta>) {
    match scope {
        Scope::Cluster => {
            let (cache, stream) =
                super::cached::cached(Api::all(client.clone()), watcher::Config::default());
            (cache.store, stream.boxed())
        }
        Scope::Namespace(_) => (store().0, futures::stream::pending().boxed()),
    }
}

/// A cache of which ledgers there are, and the stream of those that went: such a pool may need one
/// again, or be free for another Swarm. What is written into a ledger needs no turn.
pub(super) fn ledgers(api: Api<LedgerMeta>) -> (Store<LedgerMeta>, Changes<LedgerMeta>) {
    let (reader, writer) = store();
    let stream = watcher(api, watcher::Config::default())
        .default_backoff()
        .modify(|ledger| {
            ledger.managed_fields_mut().clear();
            ledger.metadata.annotations = None;
        })
        .reflect(writer)
        .inspect_err(|error| tracing::warn!(%error, "a watch failed and is tried again"))
        .filter_map(|event| {
            std::future::ready(match event {
                Ok(watcher::Event::Delete(ledger)) => Some(Ok(ledger)),
                Ok(
                    watcher::Event::Apply(_)
                    | watcher::Event::Init
                    | watcher::Event::InitApply(_)
                    | watcher::Event::InitDone,
                )
                | Err(_) => None,
            })
        });
    (reader, stream.boxed())
}

/// The taint of a node whose kubelet has fallen silent. One that only says that it is not ready can
/// still end its pods.
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// The cache of nodes, and the stream of those that were lost or came back. The operator of one
/// namespace has no right to look at any.
pub(super) fn nodes(scope: &Scope, client: &Client) -> (Store<Node>, Changes<Node>) {
    match scope {
        Scope::Cluster => {
            let (cache, stream) =
                super::cached::cached::<Node>(Api::all(client.clone()), watcher::Config::default());
            let mut lost = HashSet::new();
            let has_changed = move |node: &Node| {
                let name = node.name_any();
                if is_unreachable(node) { lost.insert(name) } else { lost.remove(&name) }
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

/// Whether the node is known to have fallen silent.
pub(super) fn is_unreachable(node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.into_iter().any(|taint| taint.key == UNREACHABLE)
}

/// Whether the node of a pod is known to have fallen silent.
pub(super) fn is_lost(nodes: &Store<Node>, pod: &Pod) -> bool {
    let name = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    let node = name.and_then(|name| nodes.get(&ObjectRef::new(name)));
    node.is_some_and(|node| is_unreachable(&node))
}
