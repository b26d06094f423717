//! The stores on the API server keep the same contract as the files on one machine.

use anyhow::Result;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::reflector;
use swarm_adapters_k8s::plain::view::ConfigMapViewStore;
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
    let open = || {
        let (client, cache) = (context.client.clone(), cache.clone());
        ConfigMapViewStore::new(client, &ledger.swarm, cache, Box::new(|_| true))
    };
    let read = || async {
        let view = context.api::<ConfigMap>().get("contract-config").await?;
        let text = view.data.unwrap_or_default().remove("config.yml").unwrap_or_default();
        Ok((text, view.metadata.resource_version.unwrap_or_default()))
    };
    contract::view_store(&open(), read).await?;
    context.kubectl(&["delete", "configmap", "contract-config"]).await?;
    contract::views_go_forward(&open(), &open(), read).await?;
    session::keeps_its_contract(&context).await
}
