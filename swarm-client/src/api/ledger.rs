//! The resource `SwarmLedger`: the durable record of the holder of each job. Only the operator
//! writes it.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};
use swarm_core::stored::{StoredHolder, Waits};

use super::PartName;

/// Record of the holders of jobs, one per pool. It is named after the workload: creating it claims
/// the pool.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "swarm.k8slab.info",
    version = "v1alpha1",
    kind = "SwarmLedger",
    namespaced,
    doc = "Record of the holder of each job of a pool. Only the operator writes it, and derives \
           views from it.",
    derive = "PartialEq",
    printcolumn(json_path = ".spec.swarm.name", name = "Swarm", type_ = "string"),
    printcolumn(json_path = ".spec.pool.name", name = "Pool", type_ = "string"),
    printcolumn(json_path = ".spec.revision", name = "Revision", type_ = "integer"),
    printcolumn(json_path = ".spec.version", name = "Version", type_ = "integer"),
    printcolumn(json_path = ".metadata.creationTimestamp", name = "Age", type_ = "date")
)]
#[x_kube(validation = kube::core::Rule::new(
    "self.revision >= oldSelf.revision && self.version >= oldSelf.version \
     && self.firstToken >= oldSelf.firstToken"
).message("a ledger only goes forward: revision, version and firstToken never fall"))]
#[x_kube(validation = kube::core::Rule::new(
    "!has(oldSelf.writer) || (has(self.writer) && (oldSelf.writer.epoch < self.writer.epoch \
     || (oldSelf.writer.epoch == self.writer.epoch && oldSelf.writer.member == self.writer.member)))"
).message("a ledger has a writer, and another writer has a higher epoch"))]
#[serde(rename_all = "camelCase")]
pub struct SwarmLedgerSpec {
    /// Swarm that claims the pool.
    pub swarm: Claimant,
    /// Workload that is the pool.
    pub pool: Claimant,
    /// Operator that writes this ledger; missing in ledgers of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writer: Option<Writer>,
    /// Number of changes of the ledger.
    #[schemars(range(min = 0))]
    pub revision: i64,
    /// Number of publications of the view.
    #[schemars(range(min = 0))]
    pub version: i64,
    /// First fencing token of a job that is new to this ledger.
    #[schemars(range(min = 0))]
    pub first_token: i64,
    /// Workers of the slots and the jobs that they hold, grouped by holder.
    #[serde(default)]
    #[schemars(schema_with = "holdings")]
    pub holdings: Holdings,
}

/// The holders of jobs: [`Stored`](swarm_core::stored::Stored) without its counters. The counters
/// are fields of the spec, where CEL rules can read them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Holdings {
    /// The incarnation of the ledger.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub incarnation: u64,
    /// The longest Lease, in milliseconds, that a session outside this record may still have.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub longest_lease_ms: u64,
    /// Whether a job of this record may have a share.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_shares: bool,
    /// Objects that hold the jobs, in the order of their hashes, if the jobs do not fit into this
    /// object. An operator of a version without parts refuses such a ledger.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PartName>,
    /// Sessions and the jobs that they hold.
    #[serde(default)]
    pub holders: Vec<StoredHolder>,
    /// Jobs without a holder.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub waits: BTreeMap<String, Waits>,
    /// Number of crashes that a job is blamed for, if any.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub strikes: BTreeMap<String, u32>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// The schema of the holdings: one value that is replaced as a whole. With a schema for each job
/// the API server would record a manager for each job. The operator is the only writer and reads
/// the value strictly.
fn holdings(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "description": "Workers of the slots and the jobs that they hold, grouped by holder.",
        "x-kubernetes-map-type": "atomic",
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

/// Operator that writes a ledger.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Writer {
    /// Name of the operator's Lease, if several operators share the Swarms.
    #[schemars(length(min = 1, max = 253))]
    pub member: String,
    /// Number that rises each time another operator takes over.
    #[schemars(range(min = 0))]
    pub epoch: i64,
}

/// Object that the ledger is bound to.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claimant {
    /// Kind of the object.
    pub kind: String,
    /// Name of the object.
    pub name: String,
    /// UID of the object.
    pub uid: String,
}
