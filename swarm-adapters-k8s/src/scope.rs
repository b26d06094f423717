//! The namespaces in which the operator looks for Swarms.

use kube::{Api, Client, Resource};

/// The namespaces that the operator watches for Swarms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In all namespaces.
    Cluster,
    /// In one namespace.
    Namespace(String),
}

impl Scope {
    /// The objects of one kind in the scope.
    pub(crate) fn api<K>(&self, client: &Client) -> Api<K>
    where
        K: Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    {
        match self {
            Self::Cluster => Api::all(client.clone()),
            Self::Namespace(namespace) => Api::namespaced(client.clone(), namespace),
        }
    }
}
