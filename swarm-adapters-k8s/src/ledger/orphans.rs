//! Removes orphaned ledgers: their Swarms no longer exist, because a user removed the finalizer by
//! hand, or the operator ended between the last two writes of a release.

use std::collections::BTreeMap;

use kube::api::ListParams;
use kube::{Api, ResourceExt};
use swarm_client::api::{Swarm, SwarmLedger};
use swarm_core::ports::StoreError;

use super::Claim;
use super::stores::Ledgers;
use crate::pool::workload::Kind;
use crate::requests::bounded;
use crate::status::RefusedRequest;
use crate::watch::caches::Caches;

/// The orphaned ledgers that stay although no Swarm in the cache concerns them, by namespace and
/// name, with the version that was checked.
pub(crate) type Kept = BTreeMap<(String, String), Option<String>>;

impl Caches {
    /// The names of the ledgers of pools of this kind.
    pub(crate) fn ledgers_of(&self, namespace: &str, kind: Kind) -> Vec<String> {
        let all = self.ledgers.state();
        let within = all.iter().filter(|it| it.namespace().as_deref() == Some(namespace));
        let names = within.map(|it| it.name_any());
        let is_of = |name: &String| Kind::of_ledger(name).is_some_and(|(of, _)| of == kind);
        let mut names: Vec<_> = names.filter(is_of).collect();
        names.sort();
        names
    }

    /// Whether a Swarm exists that may have the ledger of this name.
    fn has_swarm_of_ledger(&self, namespace: &str, name: &str) -> bool {
        let meant = self.pools.of_ledger(&self.swarms, namespace, name);
        meant.iter().any(|swarm| self.swarms.get(namespace, &swarm.name).is_some())
    }
}

impl Ledgers {
    /// Removes the ledgers whose Swarms were deleted. If no Swarm in the cache concerns a ledger,
    /// the sweep asks the API server, once for each version of the ledger.
    pub(crate) async fn sweep(&self, kept: &mut Kept) {
        if !self.caches.swarms.is_filled() {
            return;
        }
        let ledgers = self.caches.ledgers.state();
        let mut known = Kept::new();
        for ledger in ledgers {
            let (namespace, name) = (ledger.namespace().unwrap_or_default(), ledger.name_any());
            if self.caches.has_swarm_of_ledger(&namespace, &name) {
                continue;
            }
            let (key, version) = ((namespace, name), ledger.resource_version());
            if kept.get(&key) != Some(&version)
                && let Err(error) = self.sweep_ledger(&key.0, &key.1).await
            {
                if matches!(error, StoreError::Refused { .. }) {
                    self.metrics.count_refused(RefusedRequest::Cleanup);
                }
                tracing::warn!(namespace = key.0, ledger = key.1, %error, "a ledger was not swept");
            }
            known.insert(key, version);
        }
        *kept = known;
    }

    /// Removes one ledger if its Swarm does not exist.
    async fn sweep_ledger(&self, namespace: &str, name: &str) -> Result<(), StoreError> {
        let ledgers: Api<SwarmLedger> = Api::namespaced(self.client.clone(), namespace);
        let Some(claim) = Claim::on(&self.client, namespace, name).await? else { return Ok(()) };
        let swarms: Api<Swarm> = Api::namespaced(self.client.clone(), namespace);
        let named = ListParams::default().fields(&format!("metadata.name={}", claim.swarm.name));
        let what = format!("Swarm `{}`", claim.swarm.name);
        // The Swarm existed before its ledger, so a Swarm that is missing now was deleted. The
        // request is a list of one, since a `get` also answers "not found" while the API server
        // does not serve Swarms.
        let found = bounded(what, swarms.list_metadata(&named)).await?;
        if found.items.iter().any(|swarm| swarm.metadata.uid.as_ref() == Some(&claim.swarm.uid)) {
            return Ok(());
        }
        tracing::info!(
            namespace,
            ledger = name,
            swarm = claim.swarm.name,
            "its Swarm no longer exists"
        );
        claim.remove(&ledgers, name).await
    }
}
