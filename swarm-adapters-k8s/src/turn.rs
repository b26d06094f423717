//! The data of one turn that concerns share: its Swarm with its name, and the refused writes.
//!
//! A turn does not contain the memory of earlier turns. Each concern gets its own memory as another argument,
//! so that it imports no other concern for that.

use swarm_client::api::Swarm;

use crate::status::Refusals;

/// One turn of one Swarm.
pub(crate) struct Turn<'a> {
    /// The Swarm as the cache had it when the turn began.
    pub(crate) swarm: &'a Swarm,
    /// The namespace of the Swarm.
    pub(crate) namespace: &'a str,
    /// The name of the Swarm.
    pub(crate) name: &'a str,
    /// The writes that the API server refused while the turn went on.
    pub(crate) refusals: Refusals,
}

impl<'a> Turn<'a> {
    /// Begins a turn of `swarm`.
    pub(crate) fn of(swarm: &'a Swarm) -> Self {
        let (namespace, name) = named(swarm);
        Self { swarm, namespace, name, refusals: Refusals::default() }
    }
}

/// The namespace and the name of `swarm`. An object of the API server has both.
pub(crate) fn named(swarm: &Swarm) -> (&str, &str) {
    let (namespace, name) = (&swarm.metadata.namespace, &swarm.metadata.name);
    (namespace.as_deref().unwrap_or_default(), name.as_deref().unwrap_or_default())
}
