//! The number of workers as a function of the jobs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::duration::{self, Duration};
use crate::rule::Rule;

/// Scaling of the pool by its jobs. Exactly one of `jobsPerWorker` and `sharePerWorker` sets the
/// load of a worker. Workers are added until every job has a place.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [bounds_are_in_order(), one_measure_is_set()]))]
pub struct AutoscaleSpec {
    /// Minimum number of workers. With 0 the pool has no worker while the list of jobs is empty.
    /// Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100_000))]
    pub min: Option<i32>,
    /// Maximum number of workers. If the jobs need more, the condition `Degraded` reports
    /// `AutoscaleLimited`.
    #[schemars(range(min = 1, max = 100_000))]
    pub max: i32,
    /// Number of jobs that one worker should run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub jobs_per_worker: Option<i32>,
    /// Percentage of a worker that shares of jobs may use on average: 80 keeps a fifth free. Jobs
    /// without a share do not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub share_per_worker: Option<i32>,
    /// Time for which fewer workers must be enough before the pool shrinks. The pool grows at once.
    /// Default: `5m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = [duration::bounded()]))]
    pub cooldown: Option<Duration>,
}

/// Compares two fields, which a schema cannot.
fn bounds_are_in_order() -> Rule {
    Rule::new(
        "(has(self.min) ? self.min : 1) <= self.max",
        "autoscale.min is more than autoscale.max: write a min of at most max (default 1)",
    )
}

fn one_measure_is_set() -> Rule {
    Rule::new(
        "has(self.jobsPerWorker) != has(self.sharePerWorker)",
        "write exactly one of autoscale.jobsPerWorker (jobs of a worker) and \
         autoscale.sharePerWorker (percent of a worker that shares may use)",
    )
}

/// Refuses two fields that set the number of workers.
pub(super) fn one_decides() -> Rule {
    Rule::new(
        "!has(self.autoscale) || !has(self.replicas)",
        "autoscale and replicas exclude each other: with autoscale the number of workers follows the \
         jobs; leave one of them out",
    )
}

/// Refuses to scale pods that are selected by labels.
pub(super) fn nobody_scales_pods() -> Rule {
    Rule::new(
        "!has(self.autoscale) || !has(self.pool.pods)",
        "autoscale and pool.pods exclude each other: nothing scales pods that labels select; leave \
         autoscale out, or name a statefulSet or a deployment",
    )
}

/// Refuses to scale by jobs if every worker runs all jobs.
pub(super) fn more_take_nothing() -> Rule {
    Rule::new(
        "!has(self.autoscale) || !has(self.replication) || self.replication != 'All'",
        "autoscale and replication: All exclude each other: every worker runs every job, so more \
         workers do not reduce the load of a worker; write replicas instead of autoscale",
    )
}
