//! Paths of an API server.

/// The group and version of swarm's own kinds.
pub(super) const GROUP: &str = "/apis/swarm.k8slab.info/v1alpha1";

/// The definition of Swarms.
pub(super) const SWARM_CRD: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/swarms.swarm.k8slab.info";
/// The roles of the whole cluster.
pub(super) const CLUSTER_ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
/// The admission policies of the cluster.
pub(super) const POLICIES: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
/// The bindings of these policies.
pub(super) const POLICY_BINDINGS: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";

/// A flow schema.
pub(super) fn flow_schema(name: &str) -> String {
    format!("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/{name}")
}

/// The Deployments of operators in a namespace.
pub(super) fn operators(namespace: &str) -> String {
    format!("/apis/apps/v1/namespaces/{namespace}/deployments?labelSelector=app%3Dswarm-controller")
}

/// The Swarms of a namespace.
pub(super) fn swarms(namespace: &str) -> String {
    format!("{GROUP}/namespaces/{namespace}/swarms")
}

/// The Swarms of all namespaces.
pub(super) fn all_swarms() -> String {
    format!("{GROUP}/swarms")
}

/// The ledgers of a namespace.
pub(super) fn ledgers(namespace: &str) -> String {
    format!("{GROUP}/namespaces/{namespace}/swarmledgers")
}

/// The parts of the ledgers of a namespace.
pub(super) fn ledger_parts(namespace: &str) -> String {
    format!("{GROUP}/namespaces/{namespace}/swarmledgerparts")
}

/// The views of the sessions of a namespace.
pub(super) fn views(namespace: &str) -> String {
    format!("{GROUP}/namespaces/{namespace}/workerviews")
}

/// The histories of the Swarms of a namespace.
pub(super) fn histories(namespace: &str) -> String {
    format!("{GROUP}/namespaces/{namespace}/swarmhistories")
}

/// The ConfigMaps of a namespace.
pub(super) fn config_maps(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps")
}

/// The pods of a namespace.
pub(super) fn pods(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods")
}

/// The view of a session.
pub(super) fn view(namespace: &str, session: &str) -> String {
    format!("{}/{session}", views(namespace))
}

/// The Lease of a session.
pub(super) fn lease(namespace: &str, session: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{session}")
}

/// The Leases of the sessions of a namespace.
pub(super) fn session_leases(namespace: &str) -> String {
    format!(
        "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases\
         ?labelSelector=swarm.k8slab.info%2Fsession%3Dtrue"
    )
}
