//! Attempts of users, with the rights that they have.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt as _;
use kube::api::ListParams;
use serde_json::{Value, json};
use swarm_client::session::SESSION_LABEL;

use super::refused;
use crate::scenario::Context;
use crate::scenarios::vault::{self, VAULT};
use crate::until::until;

/// A Role of this name with one rule.
fn role(name: &str, group: &str, resource: &str, verb: &str) -> String {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name},
        "rules": [{"apiGroups": [group], "resources": [resource], "verbs": [verb]}],
    })
    .to_string()
}

/// Applies a manifest as this user.
async fn applied(context: &Context, user: &str, manifest: &str) -> Result<String> {
    let file = tempfile::NamedTempFile::new_in(crate::cluster::FOLDER)?;
    std::fs::write(file.path(), manifest)?;
    let (user, file) = (format!("--as={user}"), format!("--filename={}", file.path().display()));
    context.kubectl(&["apply", &user, &file]).await
}

async fn patched(context: &Context, user: &str, what: &[&str], patch: &Value) -> Result<String> {
    let (user, patch) = (format!("--as={user}"), patch.to_string());
    context.kubectl(&[&["patch"], what, &["--type=merge", "-p", &patch, &user]].concat()).await
}

/// Checks that only the operator writes ledgers, views and statuses, and that users grant only
/// rights that they have.
pub(super) async fn refused_by_rights(context: &Context) -> Result<()> {
    let status = json!({"status": {"ready": "9/9"}});
    let view = context.kubectl(&["get", "workerviews", "-o=name"]).await?;
    let ledger = "swarmledger/statefulset.vault";
    for user in ["tenant", "editor", "admin"] {
        let of_status = ["swarm", VAULT, "--subresource=status"];
        let answer = patched(context, user, &of_status, &status).await;
        refused("a status", answer, "resource \"swarms/status\"")?;
        let answer = patched(context, user, &[ledger], &json!({"spec": {"revision": 1}})).await;
        refused("a ledger", answer, "cannot")?;
        let runner = json!({"spec": {"runner": {"command": vault::LEAK}}});
        let answer = patched(context, user, &[view.trim()], &runner).await;
        refused("the view of a session", answer, "cannot")?;
        let answer = context.kubectl(&["delete", ledger, &format!("--as={user}")]).await;
        refused("a ledger that goes", answer, "cannot delete resource \"swarmledgers\"")?;
    }
    let group = "swarm.k8slab.info";
    let rights = [
        ("operator", group, "operators", "act"),
        ("worker", group, "sessions", "open"),
        ("writer", group, "swarmledgers", "update"),
        ("unfenced", group, "operators", "unfenced"),
    ];
    for (name, group, resource, verb) in rights {
        let answer = applied(context, "admin", &role(name, group, resource, verb)).await;
        refused(name, answer, "attempting to grant RBAC permissions not currently held")?;
    }
    for name in ["swarm-operator", "swarm-session-worker"] {
        let (role, user) = (format!("--clusterrole={name}"), "--user=admin");
        let bind = ["create", "rolebinding", "mine", &role, user, "--as=admin"];
        refused(name, context.kubectl(&bind).await, "attempting to grant RBAC permissions")?;
    }
    context.laps.lap("status, ledger, views and roles: 18 attempts were refused by rights");
    Ok(())
}

/// Checks that an editor, who may write Leases, may not write the Leases of sessions.
pub(super) async fn refused_by_policies(context: &Context) -> Result<()> {
    let leases = context.api::<Lease>();
    let session = leases.list(&ListParams::default().labels(SESSION_LABEL)).await?;
    let session = session.items.first().context("the worker has a Lease")?.name_any();
    let lease = ["lease", session.as_str()];
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "gone",
        "uid": "6f1c2a34-0000-4000-8000-0123456789ab"}]);
    let edits = [
        json!({"metadata": {"annotations": {"swarm.k8slab.info/ack": "{}"}}}),
        json!({"metadata": {"labels": {SESSION_LABEL: null}}}),
        json!({"metadata": {"ownerReferences": owner}}),
        json!({"metadata": {"finalizers": ["example.com/kept"]}}),
        json!({"spec": {"holderIdentity": "revoked"}}),
        json!({"spec": {"renewTime": "2099-01-01T00:00:00.000000Z"}}),
    ];
    for edit in &edits {
        let answer = patched(context, "editor", &lease, edit).await;
        refused(&edit.to_string(), answer, "only the worker in its pod writes it")?;
    }
    let pod = session.rsplit_once('-').context("a pod and a number")?.0;
    let made = |name: &str| {
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name, "labels": {SESSION_LABEL: "true"}},
            "spec": {"holderIdentity": name},
        })
        .to_string()
    };
    for name in [format!("{pod}-00000000000000ff"), "anything".to_owned()] {
        let answer = applied(context, "editor", &made(&name)).await;
        refused(&name, answer, "only the worker in its pod writes it")?;
    }
    context.laps.lap("Leases of sessions: 8 attempts of an editor were refused by the policy");
    Ok(())
}

/// Checks that no name leads to another namespace or kind, and that the pool of a Swarm cannot
/// change.
pub(super) async fn refused_by_the_schema(context: &Context) -> Result<()> {
    let outside = "../../kube-system/configmaps/extension-apiserver-authentication";
    let named = |name: &str| json!({"configMap": {"name": name, "key": "a"}});
    let swarms = [
        (json!({"pool": {"statefulSet": {"name": "../../kube-system/w"}}}), "should match"),
        (json!({"pool": {"statefulSet": {"name": "w?force=true"}}}), "should match"),
        (json!({"pool": {"statefulSet": {"name": "w", "namespace": "x"}}}), "unknown field"),
        (json!({"view": {"configMapName": "../secrets/vault"}}), "should match"),
        (json!({"jobSources": [named(outside)]}), "should match"),
        (json!({"jobs": [{"name": "a\nb"}]}), "should match"),
        (json!({"jobs": [{"name": "x".repeat(254)}]}), " than 253"),
    ];
    for (fields, because) in &swarms {
        let mut swarm = vault::swarm();
        swarm["metadata"]["name"] = "outside".into();
        for (field, value) in fields.as_object().into_iter().flatten() {
            swarm["spec"][field] = value.clone();
        }
        let answer = applied(context, "admin", &swarm.to_string()).await;
        refused(&fields.to_string(), answer, because)?;
    }
    let other = json!({"spec": {"pool": {"statefulSet": {"name": "other"}}}});
    let answer = patched(context, "tenant", &["swarm", VAULT], &other).await;
    refused("another pool", answer, "spec.pool cannot be changed")?;
    context.laps.lap("names and pools: 8 attempts were refused by the schema");
    Ok(())
}

/// Makes writes that are open to every user of Swarms, and checks that they have no effect.
pub(super) async fn without_effect(context: &Context) -> Result<()> {
    let of = |path: &str| {
        let path = format!("-o=jsonpath={{{path}}}");
        let context = context.clone();
        async move { context.kubectl(&["get", "swarm", VAULT, &path]).await }
    };
    // The status is written through its subresource alone.
    patched(context, "tenant", &["swarm", VAULT], &json!({"status": {"ready": "9/9"}})).await?;
    ensure!(of(".status.ready").await? == "1/1", "a tenant wrote the status");
    // The operator puts its finalizer back.
    let bare = json!({"metadata": {"finalizers": null}});
    patched(context, "tenant", &["swarm", VAULT], &bare).await?;
    until("the finalizer to be back", || async {
        let finalizers = of(".metadata.finalizers").await?;
        ensure!(finalizers.contains("swarm.k8slab.info/release"), "{finalizers}");
        Ok(Some(()))
    })
    .await?;
    // The operator trusts these labels on other objects, and ignores them on a Swarm.
    let forged = json!({"metadata": {
        "labels": {
            "app.kubernetes.io/managed-by": "swarm-operator", "swarm.k8slab.info/swarm": VAULT,
            "swarm.k8slab.info/view": "true", "swarm.k8slab.info/session": "true",
        },
        "annotations": {
            "swarm.k8slab.info/owner": VAULT, "swarm.k8slab.info/made-of": "x",
            "swarm.k8slab.info/pool": "x", "swarm.k8slab.info/content": "x",
        },
    }});
    patched(context, "tenant", &["swarm", VAULT], &forged).await?;
    // A pod with a name and the labels of the pool does not become a worker of the StatefulSet.
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "vault-1", "labels": {"app": VAULT}},
        "spec": {
            "schedulingGates": [{"name": "example.com/never"}],
            "containers": [{"name": "worker", "image": crate::images::SHELL}],
        },
    });
    applied(context, "editor", &pod.to_string()).await?;
    // Another Swarm for the same pool waits until the first is deleted, and takes nothing from it.
    let mut second = vault::swarm();
    second["metadata"]["name"] = "second".into();
    second["spec"]["worker"] = json!({"protocol": "Session"});
    applied(context, "tenant", &second.to_string()).await?;
    until("the second Swarm to be refused", || async {
        let reason = "-o=jsonpath={.status.conditions[?(@.type=='Ready')].reason}";
        let reason = context.kubectl(&["get", "swarm", "second", reason]).await?;
        ensure!(reason == "PoolClaimed", "{reason}");
        Ok(Some(()))
    })
    .await?;
    let counts = [of(".status.ready").await?, of(".status.assigned").await?];
    ensure!(counts == ["1/1", "1"], "ready and assigned: {counts:?}");
    let set = ["get", "statefulset", VAULT, "-o=jsonpath={.spec.replicas}"];
    ensure!(context.kubectl(&set).await? == "1", "the workload was changed");
    // The StatefulSet takes the pod for surplus and removes it.
    let gone = ["delete", "pod", "vault-1", "--wait=false", "--ignore-not-found"];
    context.kubectl(&gone).await?;
    context.kubectl(&["delete", "swarm", "second", "--wait=false"]).await?;
    context.laps.lap("status, finalizer, labels, a pod and a second Swarm: 5 had no effect");
    Ok(())
}
