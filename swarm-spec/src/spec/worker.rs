//! What workers are told of themselves, and how they are asked.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ProtocolSpec, VersionEndpoint};
use crate::duration::{self, Duration};
use crate::rule::Rule;

/// The most words of a command.
pub(crate) const WORDS_MAX: usize = 256;
/// The most characters of one word of a command.
pub(crate) const WORD_MAX: usize = 4_096;

/// How workers are configured and addressed.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerSpec {
    /// How workers are spoken to. Default: `Plain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<ProtocolSpec>,
    /// What `swarm-worker` does with a job. In a cluster the command line of the worker decides; this
    /// field serves `swarm-operator local`.
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

/// What `swarm-worker` does with a job; exactly one of these.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [Rule::new(
    "[has(self.log), has(self.command), has(self.ping)].filter(it, it).size() == 1",
    "write exactly one of log, command and ping"
)]))]
pub struct RunnerSpec {
    /// Writes a line for every second the job runs, for demonstrations and tests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<LogRunnerSpec>,
    /// Runs a program with arguments; `{job}` in an argument stands for the name of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 256),
        inner(length(max = 4096), regex(pattern = "^[^\\x00]*$"))
    )]
    #[schemars(extend("x-kubernetes-validations" = [Rule::new(
        "self[0] != ''",
        "write the program first, as in [\"ffmpeg\", \"-i\", \"{job}\"]"
    )]))]
    pub command: Option<Vec<String>>,
    /// Calls an HTTP endpoint `host:port`, which is the name of the job, again and again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ping: Option<PingRunnerSpec>,
}

/// The `log` runner has no settings.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LogRunnerSpec {}

/// How the `ping` runner calls.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PingRunnerSpec {
    /// From one call to the next. Default: `30s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = [duration::bounded(), more_than_nothing()]))]
    pub interval: Option<Duration>,
    /// How long an answer is waited for. Default: `5s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = [duration::bounded(), more_than_nothing()]))]
    pub timeout: Option<Duration>,
}

fn more_than_nothing() -> Rule {
    Rule::new("duration(self) > duration('0s')", "0s is no time at all; write for example 1s")
}
