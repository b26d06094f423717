//! Limits of the files with the output of jobs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::size::Size;

/// Limits of the files with the output of jobs, on one machine. An edit restarts no job. On a
/// cluster the container runtime keeps the output, with limits of the kubelet.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogsSpec {
    /// Size at which the file of a job is renamed to `FILE.1`, and a new one begins. Default:
    /// `4MiB`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_size: Option<Size>,
    /// Number of files of each job, with the growing one. Default: 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub max_files: Option<i32>,
    /// Size of the files of all jobs together. Beyond it the oldest files of removed jobs are
    /// deleted first, and then the oldest renamed files. Growing files lose
    /// their first lines last of all. Default: `1GiB`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_total: Option<Size>,
}

/// The limits of a spec, with defaults for missing fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLimits {
    /// The size in bytes at which the file of a job is rotated.
    pub size_max: u64,
    /// The number of files of each job, including the growing one.
    pub files_max: usize,
    /// The size in bytes of the files of all jobs together.
    pub total_max: u64,
}

impl Default for LogLimits {
    /// Two files of 4 MiB for each job, and 1 GiB in all.
    fn default() -> Self {
        Self { size_max: 4 << 20, files_max: 2, total_max: 1 << 30 }
    }
}

impl From<&LogsSpec> for LogLimits {
    fn from(spec: &LogsSpec) -> Self {
        let defaults = Self::default();
        let files_max = spec.max_files.and_then(|it| usize::try_from(it).ok());
        Self {
            size_max: spec.max_size.map_or(defaults.size_max, Size::bytes),
            files_max: files_max.unwrap_or(defaults.files_max),
            total_max: spec.max_total.map_or(defaults.total_max, Size::bytes),
        }
    }
}
