//! The stores on the API server keep the same contract as the files on one machine.

use anyhow::Result;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::reflector;
use swarm_adapters_k8s::view::ConfigMapViewStore;
use swarm_core::ports::LedgerStore;

use super::session;
use crate::bare_ledger::BareLedger;
use crate::contract;
use crate::scenario::Context;

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let ledger = BareLedger::new(&context, "contract").await?;
    let open = || -> Box<dyn LedgerStore> { Box::new(ledger.open()) };
    contract::ledger_store(&open).await?;

    let (cache, _writer) = reflector::store::<ConfigMap>();
    let views =
        ConfigMapViewStore::new(context.client.clone(), &ledger.swarm, cache, Box::new(|_| true));
    contract::view_store(&views, || async {
        let view = context.api::<ConfigMap>().get("contract-config").await?;
        let text = view.data.unwrap_or_default().remove("config.yml").unwrap_or_default();
        Ok((text, view.metadata.resource_version.unwrap_or_default()))
    })
    .await?;
    session::keeps_its_contract(&context).await
}
