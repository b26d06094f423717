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
        "has(self.command) || !(has(self.workingDir) || has(self.env) || has(self.inheritEnv) || \
         has(self.paramsFrom) || has(self.ready) || has(self.restart))",
        "workingDir, env, inheritEnv, paramsFrom, ready and restart belong to a command; write \
         command as well"
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
    /// `SWARM_JOB`, `SWARM_TOKEN`, `SWARM_WORKER`, `SWARM_SESSION` and `SWARM_PARAM_NAME`, and of that
    /// of the worker `PATH`, `LD_LIBRARY_PATH`, `HOME`, `USER`, `LOGNAME`, `SHELL`, `LANG`, `LANGUAGE`,
    /// `LC_*`, `TZ` and `TMPDIR`.
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
    /// Variables for the environment of `command`. Values may have the same placeholders as arguments,
    /// and those of `paramsFrom`. Names do not begin with `SWARM_`. Whoever may read the Swarm can read
    /// them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 256))]
    pub env: Option<BTreeMap<String, String>>,
    /// Further variables that `command` gets from the environment of its worker if that has them, by
    /// their names, such as `HTTPS_PROXY`. Names do not begin with `SWARM_`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 256),
        inner(length(min = 1, max = 253), regex(pattern = "^[a-zA-Z_][a-zA-Z0-9_]*$"))
    )]
    #[schemars(extend("x-kubernetes-validations" = [Rule::new(
        "self.all(it, !it.startsWith('SWARM_'))",
        "a name that begins with SWARM_ is the worker's; remove it"
    )]))]
    pub inherit_env: Option<Vec<String>>,
    /// Params of all jobs whose values are in Secrets. A job finds each in its environment as
    /// `SWARM_PARAM_NAME`, and only there: arguments of a program can be read by others. In a managed
    /// pool a pod gets the values when it starts; any other worker, also that of `local`, needs
    /// `SWARM_PARAM_NAME` in its own environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 32),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub params_from: Option<Vec<ParamFromSpec>>,
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

/// A param whose value is in a Secret.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ParamFromSpec {
    /// The name of the param. It takes the place of one that a job has of the same name.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-zA-Z_][a-zA-Z0-9_]*$"))]
    pub name: String,
    /// Where its value is.
    pub secret_key_ref: SecretKeyRefSpec,
}

/// A key of a Secret in the namespace of the Swarm. Without it the pods of a managed pool do not start.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretKeyRefSpec {
    /// The name of the Secret.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[a-z0-9][-.a-z0-9]*$"))]
    pub name: String,
    /// The key.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[-._a-zA-Z0-9]+$"))]
    pub key: String,
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
