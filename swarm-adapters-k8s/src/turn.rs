//! The data of one turn that concerns share.

use swarm_client::api::Swarm;

/// The namespace and the name of `swarm`. An object of the API server has both.
pub(crate) fn named(swarm: &Swarm) -> (&str, &str) {
    let (namespace, name) = (&swarm.metadata.namespace, &swarm.metadata.name);
    (namespace.as_deref().unwrap_or_default(), name.as_deref().unwrap_or_default())
}
