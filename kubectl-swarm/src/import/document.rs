//! A Kubernetes object in the form in which it is written.

use serde::Serialize;
use serde_json::Value;
use swarm_spec::spec::{API_VERSION, SwarmSpec};

/// A Swarm or a ConfigMap.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Document {
    api_version: &'static str,
    kind: &'static str,
    metadata: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    spec: Option<SwarmSpec>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Value>,
}

impl Document {
    /// Makes a ConfigMap.
    pub(super) fn config_map(metadata: Value, data: Value) -> Self {
        let (api_version, kind) = ("v1", "ConfigMap");
        Self { api_version, kind, metadata, spec: None, data: Some(data) }
    }

    /// Makes a Swarm.
    pub(super) fn swarm(metadata: Value, spec: SwarmSpec) -> Self {
        let (api_version, kind) = (API_VERSION, "Swarm");
        Self { api_version, kind, metadata, spec: Some(spec), data: None }
    }
}
