//! The resource `WorkerView`: what one session is to run. The operator writes it, its worker reads it.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};
use swarm_spec::spec::RunnerSpec;

/// What the API server says of a view that is older than the one it would replace.
pub const GOES_BACK: &str = "a view is never replaced by an older one";

/// What one session is to run. Named like the session, and like its Lease.
///
/// It is derived from the ledger: one that is deleted or edited is written again, the same.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "swarm.k8slab.info",
    version = "v1alpha1",
    kind = "WorkerView",
    namespaced,
    shortname = "wv",
    doc = "What one session of a worker is to run. Written by the operator alone, from the ledger.",
    derive = "PartialEq",
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
    /// The session it is for: the UID of its pod, a dash, and 16 hexadecimal digits.
    #[schemars(length(min = 1, max = 253))]
    pub session: String,
    /// The worker's name, for people.
    #[serde(default)]
    pub worker: String,
    /// The life of the ledger that `revision` counts in.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub incarnation: i64,
    /// The ledger's revision that this view follows from. A worker acts on one that is higher than
    /// all it has seen, and on no other.
    #[schemars(range(min = 0))]
    pub revision: i64,
    /// How many jobs there are, for people.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub count: i32,
    /// The jobs to run, by name.
    #[serde(default)]
    #[schemars(schema_with = "jobs")]
    pub jobs: BTreeMap<String, GrantedJob>,
    /// How to run them, for workers that were started with `--runner swarm`: `spec.worker.runner` of the
    /// Swarm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner: Option<RunnerSpec>,
    /// Whether the worker says in its Lease what jobs that fail have printed: `spec.worker.showOutput` of
    /// the Swarm. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub show_output: Option<bool>,
}

/// One granted job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GrantedJob {
    /// The fencing token to run it under: higher at every grant of the job.
    pub token: u64,
    /// Whether it is done once it has ended well.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub run_once: bool,
    /// What its user gave it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, String>,
}

/// One value, replaced as a whole, like the holdings of a ledger.
fn jobs(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "description": "The jobs to run, by name: each with its token, and runOnce and params if it has them.",
        "x-kubernetes-map-type": "atomic",
        "x-kubernetes-preserve-unknown-fields": true,
    })
}
