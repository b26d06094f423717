//! A ledger that no operator watches, for scenarios and figures of the ledger's store.

use anyhow::{Context as _, Result};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use swarm_adapters_k8s::ledger::{KubeLedgerStore, Lookups};
use swarm_client::api::{Claimant, Swarm};
use swarm_core::ports::Seen;

use crate::scenario::Context;

/// The name of the ledger.
pub(crate) const LEDGER: &str = "statefulset.nobody";

/// A Swarm with a pool that does not exist, and the stores of its ledger.
pub(crate) struct BareLedger {
    pub(crate) context: Context,
    pub(crate) swarm: Swarm,
    uid: String,
}

impl BareLedger {
    /// Creates the Swarm, without a ledger.
    pub(crate) async fn new(context: &Context, name: &str) -> Result<Self> {
        let swarm = json!({
            "apiVersion": "swarm.k8slab.info/v1alpha1", "kind": "Swarm",
            "metadata": {"name": name}, "spec": {"pool": {"statefulSet": {"name": "nobody"}}},
        });
        context.apply(&swarm.to_string()).await?;
        let swarm = context.api::<Swarm>().get(name).await?;
        let uid = swarm.uid().context("the API server gives every object a UID")?;
        Ok(Self { context: context.clone(), swarm, uid })
    }

    /// Opens a store without memory.
    pub(crate) fn open(&self) -> KubeLedgerStore {
        self.open_as(self.context.client.clone())
    }

    /// Opens a store without memory for another client.
    pub(crate) fn open_as(&self, client: Client) -> KubeLedgerStore {
        let claimant = |kind: &str, name: &str, uid: &str| Claimant {
            kind: kind.into(),
            name: name.into(),
            uid: uid.into(),
        };
        let swarm = claimant("Swarm", &self.swarm.name_any(), &self.uid);
        let pool = claimant("StatefulSet", "nobody", "none");
        let (is_alive, is_current) = (Box::new(|_: &str| true), Box::new(|_: &str, _: &Seen| true));
        KubeLedgerStore::new(
            client,
            &self.context.namespace,
            swarm,
            pool,
            Lookups { is_alive, is_current },
        )
    }
}
