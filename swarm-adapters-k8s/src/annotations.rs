//! Names of labels, annotations and finalizers that only the operator reads. Names that other programs
//! read are in [`swarm_client::annotations`], and names on the Lease of a session in
//! [`swarm_client::session`].

// Swarms and their ledgers.

/// Keeps a deleted Swarm until its workers have a view without jobs.
pub const FINALIZER: &str = "swarm.k8slab.info/release";
/// Marks a ledger that no longer has parts, but whose old parts may still exist.
pub const PARTS_LEFT_ANNOTATION: &str = "swarm.k8slab.info/parts-left";
/// The record of the ConfigMaps that the jobs come from; see [`swarm_spec::manifest::SourceRecord`].
pub const SOURCES_ANNOTATION: &str = "swarm.k8slab.info/sources";

// Views of sessions.

/// A hash of a view. The watch compares it to find a stale view.
pub const CONTENT_ANNOTATION: &str = "swarm.k8slab.info/content";

// Pods.

/// The publication that a pod was nudged for, and how often: `VERSION.ATTEMPT`.
pub const NUDGE_ANNOTATION: &str = "swarm.k8slab.info/nudge";
/// The publication with which a pod started, which is the newest one at its creation. Only pods
/// that are replaced for new views have it.
pub const STARTED_ANNOTATION: &str = "swarm.k8slab.info/started-with";
/// Marks a cost as ours, and keeps the previous one; empty if there was none.
pub const COST_BEFORE: &str = "swarm.k8slab.info/deletion-cost-before";
/// The annotation with which Kubernetes orders the pods of a Deployment: the pod with the lowest
/// number is removed first.
pub const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
/// The label of all StatefulSet pods since Kubernetes 1.28; other pods are cached only where some
/// Swarm asks for them.
pub const STATEFUL_PODS: &str = "apps.kubernetes.io/pod-index";

// Objects of managed pools.

/// The annotation of a workload that records what it was made of: [`MadeOf`](crate::managed::wanted::MadeOf).
pub const MADE_ANNOTATION: &str = "swarm.k8slab.info/made-of";
/// Digest of the files. Its change makes the workload replace the pods.
pub const FILES_ANNOTATION: &str = "swarm.k8slab.info/files";
/// Name of the pods' account. Its change makes the workload replace the pods.
pub const ACCOUNT_ANNOTATION: &str = "swarm.k8slab.info/account";
