//! What workers are told of themselves, and how they are asked.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use swarm_core::Slot;

use super::{ProtocolSpec, RunnerSpec, VersionEndpoint};
use crate::rule::Rule;

/// How workers are configured and addressed.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerSpec {
    /// How workers are spoken to. Default: `Plain`; `Session` for `pool.managed` without an image of
    /// your own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<ProtocolSpec>,
    /// What `swarm-worker` does with a job: in `swarm local`, in managed pools, and in any
    /// other worker of sessions that runs with `--runner swarm`. When it changes, every worker stops its
    /// jobs and begins them again, at once; no pod is replaced. (With `protocol: Plain` a managed pool
    /// replaces them.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner: Option<RunnerSpec>,
    /// Whether the last lines of a job that fails are shown where it is said that it fails: in the status,
    /// which all who may view Swarms can read, in Events and in the Lease of its worker; under
    /// `swarm local` on the screen, in its answers and in its own log. With false the log of the
    /// worker alone has them. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub show_output: Option<bool>,
    /// Where workers report which jobs they run. With it the operator knows when a worker has
    /// released a job and when all of them have the newest view; without it, it can only wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version_endpoint: Option<VersionEndpoint>,
    /// The most jobs that one worker may have. Default: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub max_jobs: Option<i32>,
    /// Workers that are unlike the others, by their slots or by the labels of their pods. Of several
    /// entries that fit a worker, the first one counts. Default: all workers are alike.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub capacity: Option<Vec<CapacitySpec>>,
}

/// How much some workers can take. Exactly one of `slots` and `matchLabels` says which ones.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    Rule::new(
        "has(self.slots) != has(self.matchLabels)",
        "write which workers are meant: either slots: [0, 1], or matchLabels: {LABEL: VALUE}"
    ),
    Rule::new(
        "has(self.percent) || has(self.maxJobs)",
        "write what they can take: percent, maxJobs or both"
    ),
]))]
pub struct CapacitySpec {
    /// The slots, as the 2 of pod `swarm-worker-2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 256),
        inner(range(min = 0, max = 2_147_483_647)),
        extend("x-kubernetes-list-type" = "set")
    )]
    pub slots: Option<Vec<i32>>,
    /// Labels, all of which their pods have. Whoever may change the pods decides on it; a worker may
    /// not. In `swarm local` there are no pods, and it fits nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minProperties" = 1, "maxProperties" = 16))]
    pub match_labels: Option<BTreeMap<String, String>>,
    /// How much of them jobs with a `share` can reserve, in percent of the largest workers, of which a
    /// share is a percentage. Default: 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub percent: Option<i32>,
    /// The most jobs that each of them may have, in place of `worker.maxJobs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub max_jobs: Option<i32>,
}

impl CapacitySpec {
    /// Whether it is about the worker in `slot`, whose pod has these labels.
    pub(crate) fn fits(&self, slot: Slot, labels: Option<&BTreeMap<String, String>>) -> bool {
        let has = |(key, value)| labels.is_some_and(|labels| labels.get(key) == Some(value));
        let is_listed =
            |slots: &Vec<i32>| slots.iter().any(|it| i64::from(*it) == i64::from(slot.0));
        self.slots.as_ref().is_some_and(is_listed)
            || self.match_labels.as_ref().is_some_and(|labels| labels.iter().all(has))
    }
}
