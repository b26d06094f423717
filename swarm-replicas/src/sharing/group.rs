//! Groups that a process can join.

use k8s_openapi::api::coordination::v1::Lease as Object;
use kube::{Api, Client};

use crate::machine::ReplicaTerms;

/// A group of replicas that share objects. The Leases of its members are in one namespace.
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
    /// Describes the group `name` in a namespace. The name is the value of a label.
    #[must_use]
    pub fn new(client: Client, namespace: &str, name: &str) -> Self {
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        let (id, within, terms) = (name.clone(), None, ReplicaTerms::default());
        Self { client, namespace, name, id, within, terms }
    }

    /// Sets the ID of this replica. Its share depends on the ID, so the ID should stay the same
    /// when the process restarts, like the name of a pod. The default is the name of the group,
    /// which is valid only for a single replica.
    #[must_use]
    pub fn id(self, id: &str) -> Self {
        Self { id: id.to_owned(), ..self }
    }

    /// Sets the place where this process runs. Any earlier process in the same place must have
    /// ended. A pod's UID is such a place, if exactly one of its containers runs the controller.
    /// The successor in the same place closes the Lease of its predecessor, so that others need not
    /// wait for its end.
    #[must_use]
    pub fn within(self, place: &str) -> Self {
        Self { within: Some(place.to_owned()), ..self }
    }

    /// Sets the timing of Leases, the same for all members. The default is 9 s, renewed every 2 s.
    #[must_use]
    pub fn terms(self, terms: ReplicaTerms) -> Self {
        Self { terms, ..self }
    }

    pub(crate) fn leases(&self) -> Api<Object> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}
