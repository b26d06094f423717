//! The runner: the action of `swarm-worker` for a job.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{AliveSpec, StopSpec};
use crate::duration::{self, Duration};
use crate::rule::Rule;

/// The most words of a command.
pub(crate) const WORDS_MAX: usize = 256;
/// The most characters of one word of a command.
pub(crate) const WORD_MAX: usize = 4_096;

/// Action of `swarm-worker` for a job: exactly one of `log`, `command` and `ping`.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    Rule::new(
        "[has(self.log), has(self.command), has(self.ping)].filter(it, it).size() == 1",
        "write exactly one of log, command and ping"
    ),
    Rule::new(
        "has(self.command) || !(has(self.workingDir) || has(self.env) || has(self.inheritEnv) || \
         has(self.paramsFrom) || has(self.files) || has(self.ready) || has(self.alive) || \
         has(self.stop) || has(self.restart) || has(self.nice) || has(self.openFiles))",
        "workingDir, env, inheritEnv, paramsFrom, files, ready, alive, stop, restart, nice and \
         openFiles belong to a command; write command as well"
    ),
]))]
pub struct RunnerSpec {
    /// Runs nothing: the worker's log has a line when a job starts and one when it stops. For
    /// demonstrations and tests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<LogRunnerSpec>,
    /// Runs a program with arguments, without a shell. In arguments `{job}`, `{token}`, `{worker}`
    /// and `{param.NAME}` become the job's name, its fencing token, the worker's name and a param.
    /// `{files}` becomes the directory of `files`. `{{job}}` gives the text `{job}`. The environment
    /// has `SWARM_JOB`, `SWARM_TOKEN`, `SWARM_WORKER`, `SWARM_SESSION`, `SWARM_FILES` and
    /// `SWARM_PARAM_NAME`. It also has the worker's `PATH`, `LD_LIBRARY_PATH`, `HOME`, `USER`,
    /// `LOGNAME`, `SHELL`, `LANG`, `LANGUAGE`, `LC_*`, `TZ` and `TMPDIR`.
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
    /// Sends HTTP requests to the name of the job, which is `host:port`, at a fixed interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ping: Option<PingRunnerSpec>,
    /// Directory of `command`, relative to the worker's directory. Default: the worker's directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub working_dir: Option<String>,
    /// Environment variables of `command`. Values may have the placeholders of arguments, and
    /// params of `paramsFrom`. Names must not begin with `SWARM_`. Users who may read the Swarm can
    /// read them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 256))]
    pub env: Option<BTreeMap<String, String>>,
    /// Names of more variables that `command` inherits from its worker, such as `HTTPS_PROXY`.
    /// Names must not begin with `SWARM_`.
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
    /// Params with values from Secrets. A job gets each as the variable `SWARM_PARAM_NAME`, and in
    /// `files`. Pods of a managed pool get the values from the operator's template. Any other worker
    /// needs `SWARM_PARAM_NAME` in its own environment. For a value of each job it needs
    /// `SWARM_PARAM_NAME_DIR`, a directory with a file for each job, or `SWARM_PARAM_NAME_FILE`, a
    /// YAML map from jobs to values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 32),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub params_from: Option<Vec<ParamFromSpec>>,
    /// Files that each job gets in a private directory, as `{files}` and `SWARM_FILES`: MiniJinja
    /// templates by file name. They have the variables `job`, `token`, `worker` and `params`, with
    /// the params of `paramsFrom`. The directory is removed when the job has ended. Names have `a-z`,
    /// `A-Z`, `0-9`, `.`, `_` and `-`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 16))]
    pub files: Option<BTreeMap<String, String>>,
    /// Readiness check of `command`. A job that is not ready in time is stopped and restarted.
    /// Default: ready at its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<ReadySpec>,
    /// Liveness check of `command`. A job that fails it is stopped and restarted. Default: alive
    /// while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alive: Option<AliveSpec>,
    /// Stop of a job, step by step: the signal or `stop.command` first; SIGTERM once the main process
    /// has ended, at the latest after half of `timeout`; SIGKILL after `timeout`. SIGTERM goes to the
    /// remaining processes, to each of them once. An edit restarts no job, and applies to running
    /// jobs. Default: SIGTERM to all processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<StopSpec>,
    /// Restarts of `command` after it ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<RestartSpec>,
    /// Niceness of `command`: 19 is the lowest priority, and -20 the highest. A value below the
    /// worker's own needs the right `CAP_SYS_NICE`; without it the job keeps the worker's, with a
    /// warning. Default: the worker's niceness.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = -20, max = 19))]
    pub nice: Option<i32>,
    /// Number of files that a process of `command` may have open (the soft limit), at most the hard
    /// limit of its worker. Default: the limit that the worker was started with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub open_files: Option<i32>,
}

impl RunnerSpec {
    /// The default runner, which runs nothing.
    #[must_use]
    pub fn log() -> Self {
        Self { log: Some(LogRunnerSpec {}), ..Self::default() }
    }

    /// The runner as one line of JSON, the form in which workers get it and
    /// [`Runner::parse`](crate::manifest::Runner::parse) reads it.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut runner = self.clone();
        // Only the operator uses it, and workers of an earlier version refuse fields that they do
        // not know.
        if let Some(restart) = &mut runner.restart {
            restart.failover = None;
        }
        serde_json::json!(runner).to_string()
    }
}

/// The path of the runner for jobs that name none.
pub const RUNNER_PLACE: &str = "spec.worker.runner";

/// The path of the runner `name` in `worker.runners`.
#[must_use]
pub fn runner_place(name: &str) -> String {
    format!("spec.worker.runners.{name}")
}

/// Param with a value from a Secret.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ParamFromSpec {
    /// Name of the param. It replaces a param of the same name in a job.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-zA-Z_][a-zA-Z0-9_]*$"))]
    pub name: String,
    /// Source of the value.
    pub secret_key_ref: SecretKeyRefSpec,
}

/// Key of a Secret in the namespace of the Swarm. Without the Secret, pods of a managed pool do not
/// start.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretKeyRefSpec {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[a-z0-9][-.a-z0-9]*$"))]
    pub name: String,
    /// Key in the Secret. `{job}` is the name of each job, so that each job has a value of its own.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^([-._a-zA-Z0-9]+|\\{job\\})$"))]
    pub key: String,
}

/// The `log` runner has no settings.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LogRunnerSpec {}

/// Timing of the requests of the `ping` runner.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PingRunnerSpec {
    /// Time from one request to the next. Default: `30s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = [duration::bounded(), more_than_nothing()]))]
    pub interval: Option<Duration>,
    /// Time to wait for an answer. Default: `5s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = [duration::bounded(), more_than_nothing()]))]
    pub timeout: Option<Duration>,
}

/// Readiness check of a program: exactly one of `exec`, `http` and `line`.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[schemars(extend("x-kubernetes-validations" = [Rule::new(
    "[has(self.exec), has(self.http), has(self.line)].filter(it, it).size() == 1",
    "write exactly one of exec, http and line"
)]))]
pub struct ReadySpec {
    /// Program that ends with exit code 0 when the job is ready. It runs every second in the
    /// directory and environment of the job, and may have the placeholders of `command`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 256),
        inner(length(max = 4096), regex(pattern = "^[^\\x00]*$"))
    )]
    #[schemars(extend("x-kubernetes-validations" = [probe_names_a_program()]))]
    pub exec: Option<Vec<String>>,
    /// URL that answers with a status of 200 to 299 when the job is ready, such as
    /// `http://127.0.0.1:{param.port}/healthz`. It is fetched every second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096), regex(pattern = "^http://[!-~]+$"))]
    pub http: Option<String>,
    /// Text in the output of the job when the job is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub line: Option<String>,
    /// Time from the start of the job until it must be ready. Default: `60s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = [duration::bounded(), more_than_nothing()]))]
    pub timeout: Option<Duration>,
}

/// Restarts of a job that ended by itself. Pauses double, from 0.1 s. A run of 30 s or more resets
/// the count and the pauses.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestartSpec {
    /// Number of restarts in a row. After the last one the job stays stopped on its worker, until
    /// it moves or the worker restarts. Default: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub limit: Option<i32>,
    /// Longest pause before a restart. Default: `30s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = [duration::bounded(), more_than_nothing()]))]
    pub max_pause: Option<Duration>,
    /// Exit codes of a success: a `runOnce` job is done, and another job waits for
    /// `minPause`. Default: `[0]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 256),
        inner(range(min = 0, max = 255)),
        extend("x-kubernetes-list-type" = "set")
    )]
    pub success_codes: Option<Vec<i32>>,
    /// Least pause after such an exit code, in which the job does not fail. Default: `maxPause` if
    /// `successCodes` is written. Without both, a job that ends with 0 fails, unless it has `runOnce`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = [duration::bounded(), more_than_nothing()]))]
    pub min_pause: Option<Duration>,
    /// Number of failures in a row on one worker after which the job moves to another worker with
    /// room, on which it has not failed within the last hour. Default: it never moves for this
    /// reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub failover: Option<i32>,
}

/// The rule that a probe begins with its program.
pub(super) fn probe_names_a_program() -> Rule {
    Rule::new("self[0] != ''", "write the program first, as in [\"pg_isready\", \"-q\"]")
}

pub(super) fn more_than_nothing() -> Rule {
    Rule::new("duration(self) > duration('0s')", "0s is too short; write for example 1s")
}
