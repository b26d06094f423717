//! Conversion of the resource into the core's terms. Needs no client and no clock.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use serde_json::json;
use swarm_client::api::Swarm;
use swarm_core::Desired;
use swarm_core::handover::LeaseTerms;
use swarm_spec::convert::{self, Home};
use swarm_spec::error::SpecError;
use swarm_spec::manifest::{self, Gathered, SourceError, SourceRecord};

/// The desired state of a Swarm, with only its inline jobs.
///
/// # Errors
///
/// [`SpecError`] if a schema older than this operator accepted an invalid spec.
pub fn desired(swarm: &Swarm) -> Result<Desired, SpecError> {
    convert::desired(swarm.metadata.name.as_deref().unwrap_or_default(), &swarm.spec)
}

/// The timing of the sessions of a Swarm's workers.
///
/// # Errors
///
/// As [`desired`].
pub fn lease_terms(swarm: &Swarm) -> Result<LeaseTerms, SpecError> {
    convert::lease_terms(&swarm.spec, Home::Cluster)
}

/// All jobs of `swarm`: its inline jobs, and the jobs of its sources among `config_maps`. These
/// ConfigMaps are in the Swarm's namespace. `gone` are the ConfigMaps of the previous list that no
/// longer exist.
///
/// # Errors
///
/// [`SourceError`] says what is missing or wrong, and what to do about it.
pub fn jobs(
    swarm: &Swarm,
    config_maps: impl IntoIterator<Item = ConfigMap>,
    gone: &SourceRecord,
) -> Result<Gathered, SourceError> {
    let object = |map: ConfigMap| {
        json!({
            "kind": "ConfigMap",
            "metadata": {"name": map.name_any(), "labels": map.labels()},
            "data": map.data.unwrap_or_default(),
            "binaryData": map.binary_data.unwrap_or_default(),
        })
    };
    let maps = config_maps.into_iter().map(object);
    manifest::jobs_in_namespace(&swarm.name_any(), &swarm.spec, maps, gone)
}
