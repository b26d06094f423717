//! The resource `SwarmLedger`: the durable record of who holds what. Only the operator writes it.

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

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
#[serde(rename_all = "camelCase")]
pub struct SwarmLedgerSpec {
    /// The Swarm that the pool is claimed for.
    pub swarm: Claimant,
    /// The workload that is the pool.
    pub pool: Claimant,
    /// Counts changes of the ledger.
    #[schemars(range(min = 0))]
    pub revision: i64,
    /// Counts publications of the view.
    #[schemars(range(min = 0))]
    pub version: i64,
    /// The fencing token that a job new to this ledger is granted under.
    #[schemars(range(min = 0))]
    pub first_token: i64,
    /// What each slot holds.
    #[serde(default)]
    #[schemars(length(max = 10_000))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub slots: Vec<LedgerSlot>,
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

/// What one slot holds.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LedgerSlot {
    /// The slot.
    #[schemars(range(min = 0))]
    pub slot: i64,
    /// The worker that fills it.
    pub worker: String,
    /// The publication that last changed the slot's set of jobs.
    #[schemars(range(min = 0))]
    pub version: i64,
    /// The jobs it holds.
    #[serde(default)]
    pub jobs: Vec<LedgerJob>,
}

/// A job and the token it was granted under.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LedgerJob {
    /// The job's name.
    pub name: String,
    /// Its fencing token.
    #[schemars(range(min = 0))]
    pub token: i64,
}
