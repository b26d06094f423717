//! Paths of an API server.

use swarm_adapters_host::http::escaped;

/// The group and version of swarm's own kinds.
pub(super) const GROUP: &str = "/apis/swarm.k8slab.info/v1alpha1";

/// The version of the API server.
pub(super) const VERSION: &str = "/version";

/// The definition of Swarms.
pub(super) const SWARM_CRD: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/swarms.swarm.k8slab.info";
/// The roles of the whole cluster.
pub(super) const CLUSTER_ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
/// The binding that gives an operator its rights in all namespaces.
pub(super) const OPERATOR_BINDING: &str =
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/swarm-operator";
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

/// The histories of all Swarms.
pub(super) fn all_histories() -> String {
    format!("{GROUP}/swarmhistories")
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
    format!("{}/{session}", leases(namespace))
}

/// The Leases of a namespace.
pub(super) fn leases(namespace: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")
}

/// The views of the sessions of one Swarm.
pub(super) fn views_of(namespace: &str, swarm: &str) -> String {
    format!("{}?labelSelector=swarm.k8slab.info%2Fswarm%3D{swarm}", views(namespace))
}

/// The workload of a pool, by its kind.
pub(super) fn workload(namespace: &str, kind: &str, name: &str) -> String {
    let kind = if kind == "Deployment" { "deployments" } else { "statefulsets" };
    format!("/apis/apps/v1/namespaces/{namespace}/{kind}/{name}")
}

/// The pods of a namespace with these labels, in the form of a selector.
pub(super) fn pods_with(namespace: &str, labels: &str) -> String {
    format!("{}?labelSelector={}", pods(namespace), escaped(labels))
}

/// The pods of operators in a namespace.
pub(super) fn operator_pods(namespace: &str) -> String {
    pods_with(namespace, "app=swarm-controller")
}

/// The Events about objects with this name.
pub(super) fn events_about(namespace: &str, name: &str) -> String {
    let selector = escaped(&format!("involvedObject.name={name}"));
    format!("/api/v1/namespaces/{namespace}/events?fieldSelector={selector}")
}

/// The Leases of operators in a namespace, or in all namespaces.
pub(super) fn operator_leases(namespace: Option<&str>) -> String {
    let all = || "/apis/coordination.k8s.io/v1/leases".to_owned();
    format!(
        "{}?labelSelector=replicas.k8slab.info%2Fgroup%3Dswarm-operator",
        namespace.map_or_else(all, leases)
    )
}

/// The Leases of the sessions of a namespace.
pub(super) fn session_leases(namespace: &str) -> String {
    format!(
        "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases\
         ?labelSelector=swarm.k8slab.info%2Fsession%3Dtrue"
    )
}
