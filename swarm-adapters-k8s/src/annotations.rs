//! Names of all labels, annotations and finalizers that the operator writes or reads, grouped by the
//! objects that have them. [`session`](crate::session) has the names on the Lease of a session, since
//! the worker writes them.

// Swarms and their ledgers.

/// Keeps a deleted Swarm until its workers have a view without jobs.
pub const FINALIZER: &str = "swarm.k8slab.info/release";
/// Marks a ledger that became one piece, of which parts may be left.
pub const PARTS_LEFT_ANNOTATION: &str = "swarm.k8slab.info/parts-left";
/// The record of the ConfigMaps that the jobs come from; see [`swarm_spec::manifest::SourceRecord`].
pub const SOURCES_ANNOTATION: &str = "swarm.k8slab.info/sources";

// ConfigMaps with a view.

/// Marks the ConfigMaps that hold a view, so that only those are watched.
pub const VIEW_LABEL: &str = "swarm.k8slab.info/view";
/// Names the Swarm whose view a ConfigMap holds: the claim on it.
pub const OWNER_ANNOTATION: &str = "swarm.k8slab.info/owner";
/// The publication that a ConfigMap holds.
pub const VERSION_ANNOTATION: &str = "swarm.k8slab.info/version";
/// Names the key of a ConfigMap that a view was written into: what other keys hold is not ours.
pub const KEY_ANNOTATION: &str = "swarm.k8slab.info/key";

// Views of sessions.

/// A hash of a view. The watch compares it to find a stale view.
pub const CONTENT_ANNOTATION: &str = "swarm.k8slab.info/content";

// Pods.

/// Names the Swarm that has a pod, by UID. It counts as long as that Swarm exists and the pod has the
/// labels that it names.
pub const CLAIM_ANNOTATION: &str = "swarm.k8slab.info/pool";
/// The publication that a pod was nudged for, and how often: `VERSION.ATTEMPT`.
pub const NUDGE_ANNOTATION: &str = "swarm.k8slab.info/nudge";
/// Says with which publication a pod started: the newest one when it was created. Only where pods
/// are replaced.
pub const STARTED_ANNOTATION: &str = "swarm.k8slab.info/started-with";
/// Marks a cost as ours, and keeps the previous one; empty if there was none.
pub const COST_BEFORE: &str = "swarm.k8slab.info/deletion-cost-before";
/// By this annotation Kubernetes orders the pods of a Deployment: the lowest number goes first.
pub const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
/// The label of all StatefulSet pods since Kubernetes 1.28; other pods are cached only where some
/// Swarm asks for them.
pub const STATEFUL_PODS: &str = "apps.kubernetes.io/pod-index";

// Objects of managed pools.

/// The label that names the Swarm that an object was made for.
pub const SWARM_LABEL: &str = "swarm.k8slab.info/swarm";
/// The labels by which objects of managed pools are watched, as a selector.
pub const SELECTOR: &str = "app.kubernetes.io/managed-by=swarm-operator,swarm.k8slab.info/swarm";
/// The annotation of a workload that records what it was made of: [`MadeOf`](crate::managed::wanted::MadeOf).
pub const MADE_ANNOTATION: &str = "swarm.k8slab.info/made-of";
/// Tells pods to be replaced when the files change.
pub const FILES_ANNOTATION: &str = "swarm.k8slab.info/files";
/// Tells pods to be replaced when their account is another one.
pub const ACCOUNT_ANNOTATION: &str = "swarm.k8slab.info/account";
