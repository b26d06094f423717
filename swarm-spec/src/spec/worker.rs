//! Settings of workers: protocol, runner and limits.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use swarm_core::Slot;

use super::{IntOrString, LogsSpec, ProtocolSpec, RunnerSpec, VersionEndpoint};
use crate::rule::Rule;

/// Protocol, runner and limits of the workers.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerSpec {
    /// Protocol of the workers. Default: `Session` for `pool.managed` without `image`, and with
    /// `runner` or `runners` and without `view`; otherwise `Plain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<ProtocolSpec>,
    /// Action of `swarm-worker` for a job that names no other in `runners`: on one machine, in managed pools, and in sessions that
    /// run with `--runner swarm`. A change restarts the jobs in steps of `maxRestarting`, and no
    /// pod. (With `protocol: Plain` a managed pool replaces its pods.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner: Option<RunnerSpec>,
    /// More runners by name, for jobs that write `runner: NAME`. At most 16. Everything about
    /// `runner` holds for them, too. A change of one restarts only its jobs. They need `protocol:
    /// Session`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 16))]
    pub runners: Option<BTreeMap<String, RunnerSpec>>,
    /// Number or percentage of its jobs that a worker restarts at a time when what starts them
    /// changes: the runner, or their params. The next one follows when one is ready, or has run for
    /// a second without a check. If one fails, the others keep running the previous version until
    /// it has run well for 30 s or changes again. Percentages are rounded down, and 1 is the
    /// least. Changing this field itself restarts no job. Default: `10%`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = [Rule::new(
        "type(self) == int ? self >= 1 : self.matches('^([1-9][0-9]?|100)%$')",
        "write a number of jobs such as 3, or a part of them such as 10%"
    )]))]
    pub max_restarting: Option<IntOrString>,
    /// Number of jobs that a worker starts at a time, in the order of their grants. A start counts
    /// until the job is ready, or has run for a second without a check. Changing this field itself
    /// restarts no job. Default: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub max_starting: Option<i32>,
    /// Shows the last lines of a failing job in the status, in Events and in the Lease of its
    /// worker; on one machine also on the screen. Users who may view Swarms can read them. With
    /// false only the worker's log has them. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub show_output: Option<bool>,
    /// Limits of the files with the output of jobs, on one machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logs: Option<LogsSpec>,
    /// Endpoint at which workers report their running jobs. With it the operator knows when a
    /// worker released a job or has its newest view. Default: none; the operator waits fixed times
    /// instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version_endpoint: Option<VersionEndpoint>,
    /// Maximum number of jobs of a worker. Default: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub max_jobs: Option<i32>,
    /// Workers with a different capacity, by slot or by labels of their pods. The first entry that
    /// fits a worker applies. Default: all workers are equal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub capacity: Option<Vec<CapacitySpec>>,
}

/// Capacity of some workers. Exactly one of `slots` and `matchLabels` selects them.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    Rule::new(
        "has(self.slots) != has(self.matchLabels)",
        "select the workers: write either slots: [0, 1], or matchLabels: {LABEL: VALUE}"
    ),
    Rule::new(
        "has(self.percent) || has(self.maxJobs)",
        "write the capacity of the workers: percent, maxJobs or both"
    ),
]))]
pub struct CapacitySpec {
    /// Slots of the workers, such as 2 for pod `swarm-worker-2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 256),
        inner(range(min = 0, max = 2_147_483_647)),
        extend("x-kubernetes-list-type" = "set")
    )]
    pub slots: Option<Vec<i32>>,
    /// Labels that a pod must have, all of them. Users who may change pods can change the capacity;
    /// workers cannot. Workers on one machine have no labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minProperties" = 1, "maxProperties" = 16))]
    pub match_labels: Option<BTreeMap<String, String>>,
    /// Part of each worker that jobs with a `share` can reserve, in percent of the largest workers.
    /// Default: 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub percent: Option<i32>,
    /// Maximum number of jobs of each worker, instead of `worker.maxJobs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub max_jobs: Option<i32>,
}

impl CapacitySpec {
    /// Whether the entry selects the worker in `slot`, whose pod has these labels.
    pub(crate) fn fits(&self, slot: Slot, labels: Option<&BTreeMap<String, String>>) -> bool {
        let has = |(key, value)| labels.is_some_and(|labels| labels.get(key) == Some(value));
        let is_listed =
            |slots: &Vec<i32>| slots.iter().any(|it| i64::from(*it) == i64::from(slot.0));
        self.slots.as_ref().is_some_and(is_listed)
            || self.match_labels.as_ref().is_some_and(|labels| labels.iter().all(has))
    }
}
