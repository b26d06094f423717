//! Delivery of a changed view to plain workers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Delivery of a changed view to plain workers. Only workers whose own jobs changed are refreshed;
/// workers that lost jobs come first.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RefreshSpec {
    /// Action for a worker whose jobs changed. Default: `HotReload`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<RefreshMode>,
    /// Number of workers that may be missing or not ready before no more are replaced. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub max_unavailable: Option<i32>,
}

/// Action for a worker whose jobs changed. `HotReload` makes the kubelet update the file at once,
/// for programs that watch it. `Evict` replaces the pod within its disruption budgets, for programs
/// that read the file only at start. `Delete` replaces it without regard to budgets. `None` does
/// nothing; the file changes within two minutes. Default: `HotReload`.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefreshMode {
    /// Nudges the kubelet; the program reads its file again.
    #[default]
    HotReload,
    /// Evicts the pod.
    Evict,
    /// Deletes the pod.
    Delete,
    /// Does nothing.
    None,
}

/// HTTP endpoint at which a worker reports its jobs. It answers GET with
/// `{"version": 7, "jobs": ["a", "b"]}`. If the answer has `jobs`, its `version` is ignored.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VersionEndpoint {
    /// Port of the pod.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
    /// Path of the URL. Default: `/internal/version`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024), regex(pattern = "^/[!-~]*$"))]
    pub path: Option<String>,
}
