//! `stop`: the end of a pool on one machine.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The end of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Stopped {
    /// The state directory.
    pub dir: String,
    /// Time until no process was left.
    pub took_ms: u64,
    /// Number of processes of an earlier run that were ended.
    pub killed: usize,
    /// The jobs and workers that did not end in time and were killed.
    pub killed_jobs: Vec<String>,
}
