//! The finalizer of a Swarm. It is set before the operator claims anything for the Swarm, and
//! removed after the release.

use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use swarm_client::api::Swarm;
use swarm_core::ports::StoreError;

use crate::annotations::FINALIZER;
use crate::metrics::Metrics;
use crate::requests::bounded;
use crate::services::Services;
use crate::status::RefusedRequest;
use crate::turn::named;

/// Whether a Swarm has the finalizer.
pub(crate) fn has_finalizer(swarm: &Swarm) -> bool {
    swarm.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
}

/// Sets and removes the finalizer of Swarms.
pub(super) struct Finalizers {
    client: Client,
    metrics: Metrics,
}

impl Finalizers {
    /// Writes by the client of `services`.
    pub(super) fn of(services: &Services) -> Self {
        Self { client: services.client.clone(), metrics: services.metrics.clone() }
    }

    /// Sets the finalizer. The watch then shows the Swarm with it, which causes another turn.
    pub(super) async fn set(&self, swarm: &Swarm) -> Result<(), StoreError> {
        let mut finalizers = swarm.finalizers().to_vec();
        finalizers.push(FINALIZER.to_owned());
        self.write(swarm, &finalizers).await
    }

    /// Removes the finalizer, if the Swarm has it.
    pub(super) async fn remove(&self, swarm: &Swarm) -> Result<(), StoreError> {
        if !has_finalizer(swarm) {
            return Ok(());
        }
        let mut finalizers = swarm.finalizers().to_vec();
        finalizers.retain(|finalizer| finalizer != FINALIZER);
        self.write(swarm, &finalizers).await
    }

    /// Writes the list of finalizers at the known version. A concurrent writer changes the version,
    /// so this write fails with a conflict and loses no finalizer. An answer of 422 is therefore
    /// always a refusal.
    async fn write(&self, swarm: &Swarm, finalizers: &[String]) -> Result<(), StoreError> {
        let (namespace, name) = named(swarm);
        let api: Api<Swarm> = Api::namespaced(self.client.clone(), namespace);
        let patch = Patch::Merge(json!({"metadata": {
            "uid": swarm.uid(),
            "resourceVersion": swarm.resource_version(),
            "finalizers": finalizers,
        }}));
        let params = PatchParams::default();
        let written = api.patch_metadata(name, &params, &patch);
        let written = bounded(format!("finalizer of Swarm `{name}`"), written).await;
        if let Err(StoreError::Refused { .. }) = &written {
            self.metrics.count_refused(RefusedRequest::Finalizer);
        }
        written.map(drop)
    }
}
