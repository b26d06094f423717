//! Names of the labels and annotations that other programs read on objects of swarm.
//! [`session`](crate::session) has the names on the Lease of a session.

// ConfigMaps with a view.

/// Marks the ConfigMaps that hold a view, so that only those are watched.
pub const VIEW_LABEL: &str = "swarm.k8slab.info/view";
/// Names the Swarm whose view a ConfigMap holds: the claim on it.
pub const OWNER_ANNOTATION: &str = "swarm.k8slab.info/owner";
/// The publication that a ConfigMap holds.
pub const VERSION_ANNOTATION: &str = "swarm.k8slab.info/version";
/// Names the key of a ConfigMap that a view was written into: what other keys hold is not ours.
pub const KEY_ANNOTATION: &str = "swarm.k8slab.info/key";

// Pods.

/// Names the Swarm that has a pod, by UID. It counts as long as that Swarm exists and the pod has the
/// labels that it names.
pub const CLAIM_ANNOTATION: &str = "swarm.k8slab.info/pool";

// Objects of managed pools.

/// The label that names the Swarm that an object was made for.
pub const SWARM_LABEL: &str = "swarm.k8slab.info/swarm";
/// The label that names the worker of a session. It is for people: the session writes it.
pub const WORKER_LABEL: &str = "swarm.k8slab.info/worker";
/// The label selector of the watches for objects of managed pools.
pub const SELECTOR: &str = "app.kubernetes.io/managed-by=swarm-operator,swarm.k8slab.info/swarm";
