//! Writes that would be allowed one by one if the fence looked only at labels. They are stored, and
//! are deleted with the namespace of the scenario.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};

use super::table::{DONE, view};
use super::write::{Account, Write};
use crate::scenario::Context;
use crate::until::until;

use Write::{Create, Delete, Merge};

/// The objects of others. The binding is the result of an earlier gap in the fence, through which
/// an attacker bound the role.
const THEIRS: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: steps}
data: {nginx.conf: "listen 8080;"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: beside}
data: {nginx.conf: "listen 8080;"}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: bound}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: bound}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: swarm-operator-managed-pools
subjects: [{kind: ServiceAccount, name: bound}]
"#;

pub(super) async fn run(context: &Context, account: &Account) -> Result<()> {
    let file = THEIRS
        .replace("name: bound}]", &format!("name: bound, namespace: {}}}]", account.namespace));
    context.apply(&file).await?;
    a_file_is_marked_as_a_view(context, account).await?;
    a_view_comes_and_goes_next_to_a_file(context, account).await?;
    rights_are_bound_to_another(context).await
}

/// Marks a key as the view in one request, and tries to write it in the next.
async fn a_file_is_marked_as_a_view(context: &Context, account: &Account) -> Result<()> {
    let over = Some("writes over nothing in a ConfigMap but views");
    let others = Some("changes no key of a ConfigMap but that of its view");
    let marked = |key: &str| {
        let mut patch = view(key, "");
        patch["data"] = json!({});
        Merge(patch)
    };
    let text = |key: &str, text: Value| Merge(json!({"data": {key: text}}));
    let steps = [
        ("to mark a file", marked("nginx.conf"), over),
        ("to mark a key that is not there", marked("absent"), DONE),
        ("to write the file", text("nginx.conf", json!("evil")), others),
        ("to remove the file", text("nginx.conf", Value::Null), others),
        ("to add another file", text("new", json!("evil")), others),
        ("to mark the file then", marked("nginx.conf"), over),
        (
            "to write what is no view",
            text("absent", json!("evil")),
            Some("writes nothing into a ConfigMap but views"),
        ),
        ("to delete it", Delete, Some("deletes no ConfigMap that holds anything but a view")),
        ("to write a view", text("absent", json!("workloads: {}\n")), DONE),
    ];
    for step in steps {
        account.does::<ConfigMap>("steps", step).await?;
    }
    holds(context, "steps", &json!({"nginx.conf": "listen 8080;", "absent": "workloads: {}\n"}))
        .await?;
    context.laps.lap("a ConfigMap that is marked as a view keeps its files");
    Ok(())
}

/// Adds a view next to a file and removes it, like the operator does for a Swarm with a managed
/// pool.
async fn a_view_comes_and_goes_next_to_a_file(context: &Context, account: &Account) -> Result<()> {
    let moved = json!({"data": {"b": "workloads: {}\n", "a": null}, "metadata": {
        "annotations": {"swarm.k8slab.info/key": "b"},
    }});
    let released = json!({"data": {"b": null}, "metadata": {
        "labels": {"swarm.k8slab.info/view": null},
        "annotations": {"swarm.k8slab.info/key": null},
    }});
    let steps = [
        ("a view", Merge(view("a", "workloads: {}\n")), DONE),
        ("it moves to another key", Merge(moved), DONE),
        ("it is released", Merge(released), DONE),
    ];
    for step in steps {
        account.does::<ConfigMap>("beside", step).await?;
    }
    holds(context, "beside", &json!({"nginx.conf": "listen 8080;"})).await?;
    account.does::<ConfigMap>("alone", ("a view", Create(view("a", "")), DONE)).await?;
    account.does::<ConfigMap>("alone", ("the end of it", Delete, DONE)).await?;
    context.laps.lap("a view comes and goes next to a file of others in its ConfigMap");
    Ok(())
}

/// Checks that an account with the rights of an operator's role is behind the fence as well.
async fn rights_are_bound_to_another(context: &Context) -> Result<()> {
    let account = format!("--as=system:serviceaccount:{}:bound", context.namespace);
    let create = ["create", "deployment", "evil", "--image=example.com/evil", "--dry-run=server"];
    until("the rights of another account", || async {
        let answer = context.kubectl(&[&[account.as_str()][..], &create].concat()).await;
        let said = answer.err().map(|error| format!("{error:#}")).unwrap_or_default();
        ensure!(said.contains("was not made for a managed pool"), "`{said}`");
        Ok(Some(()))
    })
    .await?;
    context.laps.lap("an account that was bound to a role of the operator is fenced");
    Ok(())
}

async fn holds(context: &Context, name: &str, texts: &Value) -> Result<()> {
    let found = context.api::<ConfigMap>().get(name).await?;
    let found = serde_json::to_value(found.data)?;
    ensure!(found == *texts, "{name}: {found}");
    Ok(())
}
