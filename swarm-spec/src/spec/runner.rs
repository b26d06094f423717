//! What `swarm-worker` does with a job.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::duration::{self, Duration};
use crate::rule::Rule;

/// The most words of a command.
pub(crate) const WORDS_MAX: usize = 256;
/// The most characters of one word of a command.
pub(crate) const WORD_MAX: usize = 4_096;

/// What `swarm-worker` does with a job; exactly one of `log`, `command` and `ping`.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    Rule::new(
        "[has(self.log), has(self.command), has(self.ping)].filter(it, it).size() == 1",
        "write exactly one of log, command and ping"
    ),
    Rule::new(
        "has(self.command) || !(has(self.workingDir) || has(self.env) || has(self.ready) || \
         has(self.restart))",
        "workingDir, env, ready and restart belong to a command; write command as well"
    ),
]))]
pub struct RunnerSpec {
    /// Runs nothing: the worker's log has a line when a job starts and one when it stops. For
    /// demonstrations and tests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<LogRunnerSpec>,
    /// Runs a program with arguments, without a shell. In the arguments `{job}`, `{token}`,
    /// `{worker}` and `{param.NAME}` stand for the name of the job, its fencing token, the name of
    /// the worker and a param of the job; `{{job}}` is the text `{job}`. Its environment has
    /// `SWARM_JOB`, `SWARM_TOKEN`, `SWARM_WORKER`, `SWARM_SESSION` and `SWARM_PARAM_NAME`.
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
    /// The directory that `command` runs in; a relative one starts at the worker's own. Default: the
    /// worker's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub working_dir: Option<String>,
    /// Variables for the environment of `command`, beside those of the worker. Values may have the
    /// same placeholders as arguments. Names do not begin with `SWARM_`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 256))]
    pub env: Option<BTreeMap<String, String>>,
    /// When `command` is ready. A job that is not ready in time is stopped, and restarted like one
    /// that failed. Default: as soon as it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<ReadySpec>,
    /// How `command` is restarted when it ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<RestartSpec>,
}

impl RunnerSpec {
    /// Runs nothing: the runner of a Swarm that names none.
    #[must_use]
    pub fn log() -> Self {
        Self { log: Some(LogRunnerSpec {}), ..Self::default() }
    }

    /// The runner on one line of JSON, as workers are told of it and
    /// [`Runner::parse`](crate::manifest::Runner::parse) reads it.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::json!(self).to_string()
    }
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

/// When a program is ready; exactly one of `exec`, `http` and `line`.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[schemars(extend("x-kubernetes-validations" = [Rule::new(
    "[has(self.exec), has(self.http), has(self.line)].filter(it, it).size() == 1",
    "write exactly one of exec, http and line"
)]))]
pub struct ReadySpec {
    /// Once this program, which is run every second with the directory and environment of the job,
    /// ends with exit code 0. It may have the same placeholders as `command`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 256),
        inner(length(max = 4096), regex(pattern = "^[^\\x00]*$"))
    )]
    #[schemars(extend("x-kubernetes-validations" = [Rule::new(
        "self[0] != ''",
        "write the program first, as in [\"pg_isready\", \"-q\"]"
    )]))]
    pub exec: Option<Vec<String>>,
    /// Once this URL, which is fetched every second, answers with a status of 200 to 299, as in
    /// `http://127.0.0.1:{param.port}/healthz`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096), regex(pattern = "^http://[!-~]+$"))]
    pub http: Option<String>,
    /// Once a line of its output contains this text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub line: Option<String>,
    /// How long it may take. Default: `60s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = [duration::bounded(), more_than_nothing()]))]
    pub timeout: Option<Duration>,
}

/// How a job that ended by itself is restarted. The pauses double from 0.1 s on; a run of 30 s or more
/// makes count and pauses start over.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestartSpec {
    /// How often in a row; then the job stays with its worker and does not run, until it moves or the
    /// worker is restarted. Default: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub limit: Option<i32>,
    /// The longest pause before a restart. Default: `30s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = [duration::bounded(), more_than_nothing()]))]
    pub max_pause: Option<Duration>,
}

fn more_than_nothing() -> Rule {
    Rule::new("duration(self) > duration('0s')", "0s is no time at all; write for example 1s")
}
