//! How plain workers are brought to what was published for them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How workers are brought to read what is new. Only workers whose own jobs changed are concerned,
/// and those that gave jobs to others come before those.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RefreshSpec {
    /// What is done with a worker that has old jobs. Default: `HotReload`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<RefreshMode>,
    /// How many workers may be missing or not ready at a time before no more are replaced. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub max_unavailable: Option<i32>,
}

/// What is done with a worker that has old jobs. `HotReload`, the default, for programs that read
/// their file again when it changes: the kubelet is nudged to bring it at once. `Evict`, for programs
/// that read it only when they start: the pod is evicted, as far as disruption budgets allow, and its
/// successor reads the new one. `Delete`: the same without asking the budgets. `None`: nothing; the
/// file changes within a minute or two.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefreshMode {
    /// The program reads its file again; the kubelet is nudged.
    #[default]
    HotReload,
    /// The pod is evicted.
    Evict,
    /// The pod is deleted.
    Delete,
    /// Nothing.
    None,
}

/// Where a worker tells which jobs it runs: it answers GET with
/// `{"version": 7, "jobs": ["a", "b"]}`. Where there are jobs in the answer only they count.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VersionEndpoint {
    /// The port of the pod.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
    /// The path. Default: `/internal/version`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024), regex(pattern = "^/[!-~]*$"))]
    pub path: Option<String>,
}
