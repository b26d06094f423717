//! The claim of a Swarm on a pool: the part of its ledger that identifies the Swarm and the pool.

use kube::core::{ApiResource, NotUsed, Object};
use kube::{Api, Client};
use serde::Deserialize;
use swarm_client::api::{Claimant, SwarmLedger};
use swarm_core::ports::StoreError;

use super::{remove, unreadable};
use crate::requests::bounded;

/// The claim on a ledger: its Swarm and its pool.
pub(crate) struct Claim {
    pub(crate) swarm: Claimant,
    pub(crate) pool: Claimant,
    uid: String,
    version: String,
}

/// The part of a ledger with its claim. All versions of the operator write it in the same form.
#[derive(Clone, Debug, Deserialize)]
struct ClaimSpec {
    swarm: Claimant,
    pool: Claimant,
}

impl Claim {
    /// Returns the claim on the ledger of this name, if the ledger exists. Works for ledgers with
    /// unreadable holdings, too.
    pub(crate) async fn on(
        client: &Client,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Self>, StoreError> {
        let resource = ApiResource::erase::<SwarmLedger>(&());
        let api: Api<Object<ClaimSpec, NotUsed>> =
            Api::namespaced_with(client.clone(), namespace, &resource);
        let found = bounded(format!("ledger `{name}`"), api.get_opt(name)).await;
        let pool = name.split_once('.').map_or(name, |(_, pool)| pool);
        let found = found.map_err(|error| unreadable(pool, error))?;
        Ok(found.map(|object| Self {
            uid: object.metadata.uid.unwrap_or_default(),
            version: object.metadata.resource_version.unwrap_or_default(),
            swarm: object.spec.swarm,
            pool: object.spec.pool,
        }))
    }

    /// Removes the ledger if it still has the version at which the claim was read.
    pub(crate) async fn remove(self, api: &Api<SwarmLedger>, name: &str) -> Result<(), StoreError> {
        remove(api, name, self.uid, self.version).await
    }
}
