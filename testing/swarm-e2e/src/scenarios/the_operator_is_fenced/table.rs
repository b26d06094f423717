//! Single writes: the writes that the operator never makes, next to the writes that it makes.

use anyhow::Result;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::RoleBinding;
use serde_json::{Value, json};
use swarm_client::api::Swarm;

use super::write::{Account, Try, Write};
use crate::operator;
use crate::scenario::Context;
use crate::until::until;

use Write::{Create, Delete, Evict, Merge, Scale, Strategic};

/// The result of a write that the operator makes itself: it is allowed.
pub(super) const DONE: Option<&str> = None;
/// The labels of the objects that the operator makes for managed pools.
const MADE: [(&str, &str); 2] =
    [("swarm.k8slab.info/swarm", "made"), ("app.kubernetes.io/managed-by", "swarm-operator")];
const NOT_MADE: Option<&str> = Some("was not made for a managed pool");
const OF_CLUSTER: Option<&str> = Some("writes nothing in a namespace of the cluster");

fn finalizer() -> Write {
    Merge(json!({"metadata": {"finalizers": ["example.com/kept"]}}))
}

/// An owner that does not exist: garbage collection deletes an object with such an owner.
fn owner() -> Write {
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "0"});
    Merge(json!({"metadata": {"ownerReferences": [owner]}}))
}

fn annotation(key: &str, value: &Value) -> Write {
    Merge(json!({"metadata": {"annotations": {key: value}}}))
}

fn image() -> Value {
    json!({"containers": [{"name": "c", "image": "example.com/evil"}]})
}

pub(super) async fn pods(context: &Context, account: &Account) -> Result<()> {
    let notes = Some("changes no annotations of a pod but those");
    let but = Some("changes nothing of a pod but annotations");
    let one = json!("1");
    let tries: [Try; 9] = [
        ("a nudge", annotation("swarm.k8slab.info/nudge", &one), DONE),
        ("its cost", annotation("controller.kubernetes.io/pod-deletion-cost", &one), DONE),
        ("its eviction", Evict, DONE),
        ("its deletion", Delete, DONE),
        ("another note", annotation("example.com/note", &json!("2")), notes),
        ("no note", annotation("example.com/note", &Value::Null), notes),
        ("an image", Strategic(json!({"spec": image()})), but),
        ("a finalizer", finalizer(), but),
        ("an owner", owner(), but),
    ];
    account.tries::<Pod>("theirs", tries).await?;
    let cluster = Some("changes no pod in a namespace of the cluster itself");
    let tries = [("deletion", Delete, cluster), ("eviction", Evict, cluster)];
    account.tries_in::<Pod>("kube-system", "fenced", tries).await?;
    context.laps.lap("of a pod, the operator's account writes annotations of its own only");
    Ok(())
}

pub(super) async fn leases(context: &Context, account: &Account) -> Result<()> {
    let holder = |holder: &str| json!({"holderIdentity": holder});
    let revoked = |metadata: Value| Merge(json!({"metadata": metadata, "spec": holder("revoked")}));
    let no_other = Some("is neither of a session nor");
    let label = json!({"labels": {"swarm.k8slab.info/session": "true"}});
    let tries = [
        ("taken", revoked(json!({})), no_other),
        ("taken with a label", revoked(label), no_other),
        ("deleted", Delete, no_other),
    ];
    account.tries::<Lease>("election", tries).await?;
    let only = Some("revokes the Lease of a session or deletes it");
    let answer = json!({"annotations": {"swarm.k8slab.info/ack": "{}"}});
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "gone", "uid": "0"});
    let tries = [
        ("revoked", revoked(json!({})), DONE),
        ("deleted", Delete, DONE),
        ("another holder", Merge(json!({"spec": holder("me")})), only),
        ("another's answer", revoked(answer), only),
        ("a finalizer", revoked(json!({"finalizers": ["example.com/kept"]})), only),
        ("an owner", revoked(json!({"ownerReferences": [owner]})), only),
    ];
    account.tries::<Lease>("session", tries).await?;
    let member = json!({"metadata": {"labels": {"replicas.k8slab.info/group": "g"}}});
    let tries = [
        ("of a replica", Create(member), DONE),
        ("of nobody", Create(json!({"metadata": {}})), no_other),
    ];
    account.tries_in::<Lease>(operator::NAMESPACE, "member", tries).await?;
    context.laps.lap("it revokes and deletes Leases of sessions, and writes no other");
    Ok(())
}

/// A patch that makes a key of a `ConfigMap` the view, with this text.
pub(super) fn view(key: &str, text: &str) -> Value {
    json!({
        "metadata": {
            "labels": {"swarm.k8slab.info/view": "true"},
            "annotations": {"swarm.k8slab.info/key": key},
        },
        "data": {key: text},
    })
}

pub(super) async fn config_maps(context: &Context, account: &Account) -> Result<()> {
    let empty = "workloads: {}\n";
    let with = |field: &str, value: Value| {
        let mut patch = view("view", empty);
        patch[field] = value;
        Merge(patch)
    };
    let (over, others) = (
        Some("writes over nothing in a ConfigMap but views"),
        Some("changes no key of a ConfigMap but that of its view"),
    );
    let fields = Some("changes no labels, annotations, finalizers and owners of a ConfigMap");
    let no_view = Some("writes nothing into a ConfigMap but views");
    let neither = Some("is neither a view nor the files of a managed pool");
    let mut more = view("view", empty);
    more["data"]["new"] = "evil".into();
    let mut kept = view("view", empty);
    kept["metadata"]["finalizers"] = json!(["example.com/kept"]);
    let mut owned = view("view", empty);
    owned["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Pod", "name": "gone", "uid": "0"}]);
    let tries: [Try; 17] = [
        ("a new key", Merge(view("new", empty)), DONE),
        ("an empty key", Merge(view("empty", empty)), DONE),
        ("a previous view", Merge(view("view", empty)), DONE),
        ("addresses", Merge(view("lines", "a,1\n::1,2\n")), DONE),
        ("a file", Merge(view("nginx.conf", empty)), over),
        ("a file with a version", Merge(view("logging.yml", empty)), over),
        ("a file that speaks of workloads", Merge(view("text", empty)), over),
        ("what is no view", Merge(view("new", "listen 8080;")), no_view),
        ("two keys", Merge(more), others),
        ("another key", with("data", json!({"nginx.conf": "evil"})), others),
        ("the loss of a key", with("data", json!({"nginx.conf": null})), others),
        ("bytes", with("binaryData", json!({"evil": "AA=="})), others),
        ("permanently", with("immutable", json!(true)), others),
        ("a finalizer", Merge(kept), fields),
        ("an owner", Merge(owned), fields),
        ("without the label", Merge(json!({"data": {"new": empty}})), neither),
        ("its deletion", Delete, neither),
    ];
    account.tries::<ConfigMap>("theirs", tries).await?;
    let cluster = Some("writes no ConfigMap of the cluster");
    let tries = [("one of the cluster", Merge(view("new", empty)), cluster)];
    account.tries::<ConfigMap>("kube-root-ca.crt", tries).await?;
    let tries = [("one of the cluster", Create(view("new", empty)), cluster)];
    account.tries_in::<ConfigMap>("kube-system", "new", tries).await?;
    let mut evil = view("new", empty);
    evil["data"]["more"] = "evil".into();
    let tries = [
        ("a view", Create(view("new", empty)), DONE),
        ("more than a view", Create(evil), Some("makes no ConfigMap that holds anything")),
    ];
    account.tries::<ConfigMap>("new", tries).await?;
    context.laps.lap("it writes no ConfigMap but views, and over nothing in them but views");
    Ok(())
}

pub(super) async fn workloads(context: &Context, account: &Account) -> Result<()> {
    let other_image = || Strategic(json!({"spec": {"template": {"spec": image()}}}));
    let label = || Merge(json!({"metadata": {"labels": labels()}}));
    let tries = || {
        [
            ("its size", Scale(0), DONE),
            ("an image", other_image(), NOT_MADE),
            ("the labels", label(), NOT_MADE),
            ("its deletion", Delete, NOT_MADE),
        ]
    };
    account.tries::<Deployment>("theirs", tries()).await?;
    account.tries::<StatefulSet>("theirs", tries()).await?;
    let tries = [
        ("a pool", Create(deployment("made")), DONE),
        ("a pool without labels", Create(unlabelled(deployment("made"))), NOT_MADE),
    ];
    account.tries::<Deployment>("made", tries).await?;
    let tries = [
        ("its size", Scale(0), OF_CLUSTER),
        ("its image", other_image(), OF_CLUSTER),
        ("its deletion", Delete, OF_CLUSTER),
    ];
    account.tries_in::<Deployment>("kube-system", "fenced", tries).await?;
    let tries = [("a pool of the cluster", Create(deployment("made")), OF_CLUSTER)];
    account.tries_in::<Deployment>("kube-system", "made", tries).await?;
    let itself = Some("no pool runs with the account");
    let tries = [("a pool with its account", Create(deployment("swarm-operator")), itself)];
    account.tries_in::<Deployment>(operator::NAMESPACE, "made", tries).await?;
    until("the rights of another account", || async {
        let everywhere = Some("may read the Secrets of all namespaces");
        let tries = [("a pool with it", Create(deployment("steward")), everywhere)];
        account.tries::<Deployment>("made", tries).await?;
        Ok(Some(()))
    })
    .await?;
    context.laps.lap("it makes managed pools, scales others, and writes nothing else of them");
    Ok(())
}

/// Tries writes of the objects of a managed pool other than its workload.
pub(super) async fn other_than_workloads(context: &Context, account: &Account) -> Result<()> {
    let made = |field: &str, value: Value| json!({"metadata": {"labels": labels()}, field: value});
    let service = |more: Value| {
        let mut spec = json!({"clusterIP": "None", "ports": [{"port": 80}]});
        spec.as_object_mut().into_iter().for_each(|spec| {
            spec.extend(more.as_object().cloned().unwrap_or_default());
        });
        made("spec", spec)
    };
    let addresses = json!({"clusterIP": null, "externalIPs": ["192.0.2.1"]});
    let tries = [
        ("a Service", Create(service(json!({}))), DONE),
        ("one without labels", Create(unlabelled(service(json!({})))), NOT_MADE),
        ("one with addresses", Create(service(addresses)), Some("no Service external addresses")),
    ];
    account.tries::<Service>("made", tries).await?;
    let selector = json!({"spec": {"selector": {"app": "evil"}}});
    let tries = [("another's", Merge(selector), NOT_MADE), ("its deletion", Delete, NOT_MADE)];
    account.tries::<Service>("theirs", tries).await?;
    let most = json!({"maxUnavailable": 1, "selector": {"matchLabels": {"app": "made"}}});
    let budget = made("spec", most);
    let tries = [
        ("a budget", Create(budget.clone()), DONE),
        ("one without labels", Create(unlabelled(budget)), NOT_MADE),
    ];
    account.tries::<PodDisruptionBudget>("made", tries).await?;
    let most = json!({"spec": {"maxUnavailable": 0}});
    let tries = [("another's", Merge(most), NOT_MADE), ("its deletion", Delete, NOT_MADE)];
    account.tries::<PodDisruptionBudget>("theirs", tries).await?;
    let tries = [("an account", Create(json!({"metadata": {}})), NOT_MADE)];
    account.tries::<ServiceAccount>("made", tries).await?;
    let own = account.namespace.as_str();
    let binding = |kind: &str, role: &str, namespace: &str| {
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role});
        let subject = json!({"kind": "ServiceAccount", "name": "made", "namespace": namespace});
        json!({"metadata": {"labels": labels()}, "roleRef": role, "subjects": [subject]})
    };
    let workers = "swarm-session-worker";
    let no_other = Some("binds no role but that of session workers");
    let same = Some("gives rights to nobody but accounts of the same");
    let tries = [
        ("rights of workers", Create(binding("ClusterRole", workers, own)), DONE),
        ("for others", Create(binding("ClusterRole", workers, "default")), same),
        // The operator has the rights of this role, so only the fence keeps it from binding the
        // role.
        (
            "of its own",
            Create(binding("ClusterRole", "swarm-operator-managed-pools", own)),
            no_other,
        ),
    ];
    account.tries::<RoleBinding>("made", tries).await?;
    context.laps.lap("it gives pools what they need, and no rights but those of workers");
    Ok(())
}

pub(super) async fn swarms(context: &Context, account: &Account) -> Result<()> {
    let but = Some("changes nothing of a Swarm but its finalizers");
    let tries = [
        ("a finalizer", finalizer(), DONE),
        ("its jobs", Merge(json!({"spec": {"jobs": []}})), but),
        ("a label", Merge(json!({"metadata": {"labels": {"a": "b"}}})), but),
        ("an annotation", annotation("a", &json!("b")), but),
        ("an owner", owner(), but),
    ];
    account.tries::<Swarm>("theirs", tries).await?;
    context.laps.lap("no Swarm is edited");
    Ok(())
}

fn labels() -> Value {
    MADE.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect()
}

fn unlabelled(mut object: Value) -> Value {
    object["metadata"]["labels"] = json!({});
    object
}

fn deployment(account: &str) -> Value {
    let pod = json!({
        "serviceAccountName": account,
        "containers": [{"name": "c", "image": "example.com/made"}],
    });
    json!({
        "metadata": {"labels": labels()},
        "spec": {
            "selector": {"matchLabels": {"app": "made"}},
            "template": {"metadata": {"labels": {"app": "made"}}, "spec": pod},
        },
    })
}
