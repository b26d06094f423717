//! The resource `WorkerView`: the jobs that one session should run. The operator writes it, and its
//! worker reads it.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};
use swarm_spec::spec::{IntOrString, RunnerSpec};

/// The refusal of the API server for a view that is older than the stored one.
pub const GOES_BACK: &str = "a view is never replaced by an older one";

/// Jobs that one session should run. It has the name of the session, like its Lease.
///
/// The operator derives it from the ledger, and writes it again after a deletion or an edit.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "swarm.k8slab.info",
    version = "v1alpha1",
    kind = "WorkerView",
    namespaced,
    shortname = "wv",
    doc = "Jobs that one session of a worker should run. Only the operator writes it, from the \
           ledger.",
    derive = "PartialEq",
    printcolumn(
        json_path = r".metadata.labels.swarm\.k8slab\.info/swarm",
        name = "Swarm",
        type_ = "string"
    ),
    printcolumn(json_path = ".spec.worker", name = "Worker", type_ = "string"),
    printcolumn(json_path = ".spec.count", name = "Jobs", type_ = "integer"),
    printcolumn(json_path = ".spec.revision", name = "Revision", type_ = "integer"),
    printcolumn(json_path = ".metadata.creationTimestamp", name = "Age", type_ = "date")
)]
#[x_kube(validation = kube::core::Rule::new(
    "oldSelf.incarnation < self.incarnation \
     || (oldSelf.incarnation == self.incarnation && oldSelf.revision <= self.revision)"
).message(GOES_BACK))]
#[serde(rename_all = "camelCase")]
pub struct WorkerViewSpec {
    /// Session of this view: the UID of its pod, a dash, and 16 hexadecimal digits.
    #[schemars(length(min = 1, max = 253))]
    pub session: String,
    /// Name of the worker, for people.
    #[serde(default)]
    pub worker: String,
    /// Incarnation of the ledger in which `revision` counts.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub incarnation: i64,
    /// Revision of the ledger that this view is derived from. A worker obeys a view only if its
    /// revision is higher than all revisions seen before.
    #[schemars(range(min = 0))]
    pub revision: i64,
    /// Number of jobs, for people.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub count: i32,
    /// Jobs to run, by name.
    #[serde(default)]
    #[schemars(schema_with = "jobs")]
    pub jobs: BTreeMap<String, GrantedJob>,
    /// Runner for workers with `--runner swarm`: `spec.worker.runner` of the Swarm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner: Option<RunnerSpec>,
    /// Runners that jobs of this view name, for the same workers: from `spec.worker.runners` of the
    /// Swarm.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "runners")]
    pub runners: BTreeMap<String, RunnerSpec>,
    /// Allows the worker to put the last output of failing jobs into its Lease:
    /// `spec.worker.showOutput` of the Swarm. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub show_output: Option<bool>,
    /// Number or percentage of its jobs that the worker restarts at a time when what starts them
    /// changes: `spec.worker.maxRestarting` of the Swarm. Default: `10%`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_restarting: Option<IntOrString>,
    /// Number of jobs that the worker starts at a time: `spec.worker.maxStarting` of the Swarm.
    /// Default: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub max_starting: Option<i32>,
}

/// A granted job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GrantedJob {
    /// Fencing token of the job: each grant raises it.
    pub token: u64,
    /// Whether the job is done once its program has ended with exit code 0.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub run_once: bool,
    /// Runner of the job, in `runners`. Default: `runner` of the view.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner: Option<String>,
    /// Parameters of the job.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, String>,
}

/// The schema of the jobs: one value, replaced as a whole, like the holdings of a ledger.
fn jobs(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "description": "Jobs to run, by name. Each has its token, and runOnce, runner and \
                        params if it uses them.",
        "x-kubernetes-map-type": "atomic",
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

/// The schema of the runners: one value, replaced as a whole. The schema of the Swarm has checked
/// them.
fn runners(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "description": "Runners that jobs of this view name, for the same workers: from \
                        spec.worker.runners of the Swarm.",
        "x-kubernetes-map-type": "atomic",
        "x-kubernetes-preserve-unknown-fields": true,
    })
}
