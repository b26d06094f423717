//! Notices what goes: ledgers that somebody deletes, and namespaces on their way out.

use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Namespace;
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::{Store, store};
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
