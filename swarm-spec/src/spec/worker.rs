//! What workers are told of themselves, and how they are asked.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ProtocolSpec, RunnerSpec, VersionEndpoint};

/// How workers are configured and addressed.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerSpec {
    /// How workers are spoken to. Default: `Plain`; `Session` for `pool.managed` without an image of
    /// your own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<ProtocolSpec>,
    /// What `swarm-worker` does with a job: in `swarm-operator local`, in managed pools, and in any
    /// other worker of sessions that runs with `--runner swarm`. When it changes, every worker stops its
    /// jobs and begins them again, at once; no pod is replaced. (With `protocol: Plain` a managed pool
    /// replaces them.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner: Option<RunnerSpec>,
    /// Where workers report which jobs they run. With it the operator knows when a worker has
    /// released a job and when all of them have the newest view; without it, it can only wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version_endpoint: Option<VersionEndpoint>,
    /// The most jobs that one worker may have. Default: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub max_jobs: Option<i32>,
}
