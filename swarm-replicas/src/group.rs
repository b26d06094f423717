//! The group that a process can become a member of.

use k8s_openapi::api::coordination::v1::Lease as Object;
use kube::{Api, Client};
use swarm_core::replicas::ReplicaTerms;

/// A group of replicas, which share objects. It is in one namespace, where its members have their
/// Leases.
#[derive(Clone)]
pub struct Group {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) id: String,
    pub(crate) within: Option<String>,
    pub(crate) terms: ReplicaTerms,
}

impl Group {
    /// The group `name` in a namespace. The name is the value of a label.
    #[must_use]
    pub fn new(client: Client, namespace: &str, name: &str) -> Self {
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        let (id, within, terms) = (name.clone(), None, ReplicaTerms::default());
        Self { client, namespace, name, id, within, terms }
    }

    /// The ID of this replica: what it owns depends on it, so it should stay the same when the process
    /// starts again, as the name of a pod does. It is the name of the group unless it is set here, which
    /// is only right where there is one replica.
    #[must_use]
    pub fn id(self, id: &str) -> Self {
        Self { id: id.to_owned(), ..self }
    }

    /// Where this process runs, such that whoever ran there before has certainly ended: the UID of a pod,
    /// if one of its containers runs the controller and none beside it. Then its successor in the same
    /// place closes its Lease, and nobody has to wait until that is over.
    #[must_use]
    pub fn within(self, place: &str) -> Self {
        Self { within: Some(place.to_owned()), ..self }
    }

    /// The timing of Leases, the same for all members; 9 s, renewed every 2 s, unless it is set here.
    #[must_use]
    pub fn terms(self, terms: ReplicaTerms) -> Self {
        Self { terms, ..self }
    }

    pub(crate) fn leases(&self) -> Api<Object> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}
