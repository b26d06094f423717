//! The resource `SwarmLedger`: the durable record of who holds what. Only the operator writes it.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};
use swarm_core::stored::{StoredHolder, Waits};

use super::PartName;

/// The record. One per pool, named after the workload: creating it is the claim on the pool.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "swarm.k8slab.info",
    version = "v1alpha1",
    kind = "SwarmLedger",
    namespaced,
    doc = "Who holds which job of a pool. Written by the operator alone; views are derived from it.",
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
    /// The Swarm that the pool is claimed for.
    pub swarm: Claimant,
    /// The workload that is the pool.
    pub pool: Claimant,
    /// Which operator writes it; none in a ledger of before there were several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writer: Option<Writer>,
    /// Counts changes of the ledger.
    #[schemars(range(min = 0))]
    pub revision: i64,
    /// Counts publications of the view.
    #[schemars(range(min = 0))]
    pub version: i64,
    /// The fencing token that a job new to this ledger begins with.
    #[schemars(range(min = 0))]
    pub first_token: i64,
    /// Who fills which slot and holds which jobs, grouped by holder.
    #[serde(default)]
    #[schemars(schema_with = "holdings")]
    pub holdings: Holdings,
}

/// Who holds what: [`Stored`](swarm_core::stored::Stored) without its counters, which stand beside
/// it where rules can see them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Holdings {
    /// The life of the ledger.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub incarnation: u64,
    /// The longest Lease by which a session may live that is not seen, in milliseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub longest_lease_ms: u64,
    /// Whether a job that stands here may have a share.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_shares: bool,
    /// The objects in which the jobs stand, in the order of their hashes, if there are too many for
    /// this one. An operator that knows of no parts does not read such a ledger.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PartName>,
    /// Sessions, with what they hold.
    #[serde(default)]
    pub holders: Vec<StoredHolder>,
    /// The jobs that nobody holds.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub waits: BTreeMap<String, Waits>,
    /// How many crashes a job is blamed for, where it is any.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub strikes: BTreeMap<String, u32>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// One value, replaced as a whole: an entry in the schema for every job would make the server
/// note a manager for every job. The operator, its only writer, reads it strictly.
fn holdings(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "description": "Who fills which slot and holds which jobs, grouped by holder.",
        "x-kubernetes-map-type": "atomic",
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

/// An operator that writes a ledger.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Writer {
    /// The operator: the name of its Lease, if it shares the Swarms with others.
    #[schemars(length(min = 1, max = 253))]
    pub member: String,
    /// Higher each time another operator takes over.
    #[schemars(range(min = 0))]
    pub epoch: i64,
}

/// An object the ledger is bound to.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claimant {
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}
