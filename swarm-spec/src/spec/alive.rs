//! The liveness check of a runner's programs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::duration::{self, Duration};
use crate::rule::Rule;

use super::runner::{more_than_nothing, probe_names_a_program};

/// Liveness check of a program: exactly one of `exec`, `http`, `output` and `file`. A job that fails
/// it is stopped, and restarted as one that ended by itself. With `ready` the checks begin when the
/// job is ready. An edit restarts no job, and applies to running jobs.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    Rule::new(
        "[has(self.exec), has(self.http), has(self.output), has(self.file)].filter(it, it).size() \
         == 1",
        "write exactly one of exec, http, output and file"
    ),
    Rule::new(
        "has(self.exec) || has(self.http) || !(has(self.every) || has(self.failures))",
        "every and failures belong to exec and http; leave them out"
    ),
]))]
pub struct AliveSpec {
    /// Program that ends with exit code 0 while the job is alive. It runs in the directory and
    /// environment of the job, and may have the placeholders of `command`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 256),
        inner(length(max = 4096), regex(pattern = "^[^\\x00]*$"))
    )]
    #[schemars(extend("x-kubernetes-validations" = [probe_names_a_program()]))]
    pub exec: Option<Vec<String>>,
    /// URL that answers with a status of 200 to 299 while the job is alive, such as
    /// `http://127.0.0.1:{param.port}/healthz`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096), regex(pattern = "^http://[!-~]+$"))]
    pub http: Option<String>,
    /// Time without any output after which the job is stalled, such as `30s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = [duration::bounded(), more_than_nothing()]))]
    pub output: Option<Duration>,
    /// Files that the job writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<AliveFileSpec>,
    /// Time from one check to the next, and the longest time of one check. Default: `10s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = [duration::bounded(), more_than_nothing()]))]
    pub every: Option<Duration>,
    /// Number of failed checks in a row after which the job is stalled. Default: 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000))]
    pub failures: Option<i32>,
    /// Time from the start of the job during which it cannot be stalled. Default: `0s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = [duration::bounded()]))]
    pub start_period: Option<Duration>,
}

/// Files that a job writes. The job is stalled if none of them changed for a while.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AliveFileSpec {
    /// Pattern of their paths, such as `/srv/recordings/{job}/*.mp4`, relative to the directory of
    /// `command`. `*` matches any text within one name, `?` one character, and `[a-z]` one of
    /// several. It may have the placeholders of `command`, whose values match literally.
    #[schemars(
        length(min = 1, max = 4096),
        regex(pattern = "^[^\\x00]*$"),
        extend("x-kubernetes-validations" = [Rule::new(
            "!self.contains('**')",
            "** could search the whole machine; write * for each directory"
        )])
    )]
    pub path: String,
    /// Time without a change after which the job is stalled, such as `30s`. A file changes by its
    /// content, and a new file is a change.
    #[schemars(extend("x-kubernetes-validations" = [duration::bounded(), more_than_nothing()]))]
    pub within: Duration,
}
