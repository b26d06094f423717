//! The stores on the API server keep the same contract as the files on one machine.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::reflector;
use swarm_adapters_k8s::api::{Claimant, Swarm};
use swarm_adapters_k8s::ledger::KubeLedgerStore;
use swarm_adapters_k8s::view::ConfigMapViewStore;
use swarm_core::ports::{LedgerStore, Seen};

use super::session;
use crate::contract;
use crate::story::Context;

/// No controller looks at it: it names a pool that does not exist.
const SWARM: &str = "
apiVersion: swarm.k8slab.info/v1alpha1
kind: Swarm
metadata: {name: contract}
spec:
  pool: {statefulSet: {name: nobody}}
";

pub(super) async fn tell(context: Context) -> Result<()> {
    context.operator().await?;
    context.apply(SWARM).await?;
    let swarm = context.api::<Swarm>().get("contract").await?;
    let uid = swarm.metadata.uid.clone().context("the API server gives every object a UID")?;
    let open = || -> Box<dyn LedgerStore> {
        let claimant = |kind: &str, name: &str, uid: &str| Claimant {
            kind: kind.into(),
            name: name.into(),
            uid: uid.into(),
        };
        let (swarm, pool) =
            (claimant("Swarm", "contract", &uid), claimant("StatefulSet", "nobody", "none"));
        let (client, namespace) = (context.client.clone(), &context.namespace);
        let (is_alive, is_current) = (Box::new(|_: &str| true), Box::new(|_: &str, _: &Seen| true));
        Box::new(KubeLedgerStore::new(client, namespace, swarm, pool, is_alive, is_current))
    };
    contract::ledger_store(&open).await?;

    let (cache, _writer) = reflector::store::<ConfigMap>();
    let views = ConfigMapViewStore::new(context.client.clone(), &swarm, cache, Box::new(|_| true));
    contract::view_store(&views, || async {
        let view = context.api::<ConfigMap>().get("contract-config").await?;
        let text = view.data.unwrap_or_default().remove("config.yml").unwrap_or_default();
        Ok((text, view.metadata.resource_version.unwrap_or_default()))
    })
    .await?;
    session::keeps_its_contract(&context).await
}
