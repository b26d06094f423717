//! Whoever may write Swarms and nothing else cannot have the operator scale a workload, also not that of
//! a managed pool, end pods or write a `ConfigMap` for him; an editor of the namespace can, since he may
//! do that himself.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::session::SOON;
use crate::scenario::Context;
use crate::until::until;

/// A tenant who may write Swarms, two who may scale one kind of workload, too, and an editor by the role
/// that every cluster has.
const TENANTS: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: swarms-only}
rules:
  - {apiGroups: ["swarm.k8slab.info"], resources: ["swarms", "swarms/scale"], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tenant}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: swarms-only}
subjects: [{kind: User, name: tenant, apiGroup: rbac.authorization.k8s.io}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: scales-deployments}
rules:
  - {apiGroups: ["swarm.k8slab.info"], resources: ["swarms", "swarms/scale"], verbs: ["*"]}
  - {apiGroups: ["apps"], resources: ["deployments/scale"], verbs: ["patch"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: deployer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: scales-deployments}
subjects: [{kind: User, name: deployer, apiGroup: rbac.authorization.k8s.io}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: scales-sets}
rules:
  - {apiGroups: ["swarm.k8slab.info"], resources: ["swarms", "swarms/scale"], verbs: ["*"]}
  - {apiGroups: ["apps"], resources: ["statefulsets/scale"], verbs: ["patch"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: setter}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: scales-sets}
subjects: [{kind: User, name: setter, apiGroup: rbac.authorization.k8s.io}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: editor}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{kind: User, name: editor, apiGroup: rbac.authorization.k8s.io}]
"#;

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    context.apply(TENANTS).await?;
    until("the rights of both", SOON, || async {
        write(&context, "tenant", &json!({}), true).await?;
        write(&context, "editor", &json!({}), true).await?;
        Ok(Some(()))
    })
    .await?;
    let borrowed = [
        (json!({"replicas": 2}), "may not scale it"),
        (json!({"autoscale": {"max": 9, "jobsPerWorker": 1}}), "may not scale it"),
        (json!({"replicas": 2, "pool": {"deployment": {"name": "w"}}}), "may not scale it"),
        (json!({"refresh": {"mode": "Delete"}}), "may not delete any in this namespace"),
        (json!({"refresh": {"mode": "Evict"}}), "may not evict any in this namespace"),
        (json!({"view": {"configMapName": "theirs"}}), "ConfigMap theirs, and tenant may not"),
        (json!({"worker": {"protocol": "Plain"}}), "ConfigMap borrowed-config, and tenant may"),
    ];
    for (spec, because) in &borrowed {
        until("the policy", SOON, || async {
            let answer = write(&context, "tenant", spec, true).await;
            let refusal = answer.err().map(|error| format!("{error:#}")).unwrap_or_default();
            ensure!(refusal.contains(because), "{spec} of a tenant: `{refusal}`");
            Ok(Some(()))
        })
        .await?;
        write(&context, "editor", spec, true).await?;
    }
    context.laps.lap(format!("{} specs were refused to a tenant", borrowed.len()));
    what_stays_is_not_asked_for(&context).await?;
    scale_is_refused_by_a_sentence_that_is_true(&context).await?;
    a_managed_pool_is_sized_by_who_may_scale_it(&context).await
}

/// A tenant who may not make a managed pool may edit its jobs, and not the number of its workers.
async fn a_managed_pool_is_sized_by_who_may_scale_it(context: &Context) -> Result<()> {
    let managed = json!({"pool": {"managed": {}}, "replicas": 0});
    let refused = write(context, "tenant", &managed, true).await;
    let refused = refused.err().map(|error| format!("{error:#}")).unwrap_or_default();
    ensure!(refused.contains("may not create any in this namespace"), "`{refused}`");
    write(context, "editor", &managed, false).await?;
    let patch = |user: &'static str, spec: &Value| {
        let (user, patch) = (format!("--as={user}"), json!({"spec": spec}).to_string());
        async move {
            let args = ["patch", "swarm", "borrowed", "--type=merge", "--dry-run=server", "-p"];
            context.kubectl(&[&args[..], &[&patch, &user]].concat()).await
        }
    };
    patch("tenant", &json!({"jobs": [{"name": "b"}]})).await?;
    let autoscale = json!({"max": 9, "jobsPerWorker": 1});
    let sizes = [
        json!({"replicas": 9}),
        json!({"replicas": null}),
        json!({"replicas": null, "autoscale": autoscale}),
    ];
    for size in &sizes {
        let refused = patch("tenant", size).await.err();
        let refused = refused.map(|error| format!("{error:#}")).unwrap_or_default();
        ensure!(refused.contains("may not scale it"), "{size} of a tenant: `{refused}`");
        patch("editor", size).await?;
    }
    context.kubectl(&["delete", "swarm", "borrowed", "--timeout=60s"]).await?;
    context.laps.lap("a managed pool is sized by who may scale it");
    Ok(())
}

/// A tenant may change the jobs of a Swarm that scales its pool, and not the number of its workers.
async fn what_stays_is_not_asked_for(context: &Context) -> Result<()> {
    write(context, "editor", &json!({"replicas": 2}), false).await?;
    let patch = |patch: &'static str| ["patch", "swarm", "borrowed", "--type=merge", "-p", patch];
    let tenant = |args: Vec<&'static str>| async move {
        let args = [&["--as=tenant"][..], &args].concat();
        context.kubectl(&args).await
    };
    tenant(patch(r#"{"spec": {"jobs": [{"name": "b"}]}}"#).into()).await?;
    let scaled = tenant(patch(r#"{"spec": {"replicas": 3}}"#).into()).await;
    ensure!(scaled.is_err_and(|it| format!("{it:#}").contains("may not scale it")), "by the spec");
    let scale = ["scale", "swarm", "borrowed", "--replicas=3"];
    let scaled = tenant(scale.into()).await;
    ensure!(
        scaled.is_err_and(|it| format!("{it:#}").contains("may not scale StatefulSets")),
        "by `scale`"
    );
    context.kubectl(&[&["--as=editor"][..], &scale].concat()).await?;
    context.kubectl(&["delete", "swarm", "borrowed", "--timeout=30s"]).await?;
    context.laps.lap("a tenant edits jobs and scales nothing; an editor scales the Swarm");
    Ok(())
}

/// A tenant may scale the workload of a pool and no other kind. `kubectl scale swarm` does not tell which
/// kind that is; what he reads is true for each kind, and the way that it names is open.
async fn scale_is_refused_by_a_sentence_that_is_true(context: &Context) -> Result<()> {
    let scale = |user: &'static str| async move {
        let user = format!("--as={user}");
        context.kubectl(&["scale", "swarm", "borrowed", "--replicas=4", &user]).await
    };
    let refusal =
        |answer: Result<String>| answer.err().map(|error| format!("{error:#}")).unwrap_or_default();
    let pools = [
        (json!({"deployment": {"name": "w"}}), "deployer", "StatefulSets", true),
        (json!({"statefulSet": {"name": "w"}}), "deployer", "StatefulSets", false),
        (json!({"managed": {}}), "deployer", "StatefulSets", true),
        (json!({"managed": {"kind": "StatefulSet"}}), "deployer", "StatefulSets", false),
        (json!({"statefulSet": {"name": "w"}}), "setter", "Deployments", true),
        (json!({"managed": {"kind": "StatefulSet"}}), "setter", "Deployments", true),
    ];
    for (pool, user, other, may_write_it) in pools {
        write(context, "editor", &json!({"pool": pool, "replicas": 0}), false).await?;
        let said = refusal(scale(user).await);
        let which = "does not tell whether Swarm borrowed scales a StatefulSet or a Deployment";
        let lacks = format!("{user} may not scale {other}: ask for the right to patch");
        ensure!(said.contains(which) && said.contains(&lacks), "{pool}, {user}: `{said}`");
        ensure!(said.contains("kubectl patch swarm borrowed --type=merge -p"), "{said}");
        let patch = r#"--patch={"spec": {"replicas": 1}}"#;
        let user = format!("--as={user}");
        let patch =
            ["patch", "swarm", "borrowed", "--type=merge", "--dry-run=server", &user, patch];
        let patched = context.kubectl(&patch).await;
        ensure!(patched.is_ok() == may_write_it, "{pool}: {patched:?}");
        scale("editor").await?;
        context.kubectl(&["delete", "swarm", "borrowed", "--timeout=60s"]).await?;
    }
    // Where no number is, nobody is asked for rights.
    let pods = json!({"pool": {"pods": {"matchLabels": {"app": "w"}}}});
    let autoscale = json!({"autoscale": {"max": 9, "jobsPerWorker": 1}});
    for (spec, because) in [
        (pods, "replicas and pool.pods exclude each other: nothing scales pods that go by labels"),
        (autoscale, "autoscale and replicas exclude each other"),
    ] {
        write(context, "editor", &spec, false).await?;
        for user in ["deployer", "editor"] {
            let said = refusal(scale(user).await);
            ensure!(said.contains(because), "{spec}, {user}: `{said}`");
        }
        context.kubectl(&["delete", "swarm", "borrowed", "--timeout=60s"]).await?;
    }
    context.laps.lap("`kubectl scale swarm` is refused by a sentence that is true for every pool");
    Ok(())
}

/// Writes a Swarm of sessions with these fields laid over it.
async fn write(context: &Context, user: &str, fields: &Value, is_dry: bool) -> Result<()> {
    let mut spec = json!({
        "jobs": [{"name": "a"}],
        "worker": {"protocol": "Session"},
        "pool": {"statefulSet": {"name": "w"}},
    });
    for (field, value) in fields.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    let swarm = json!({
        "apiVersion": "swarm.k8slab.info/v1alpha1",
        "kind": "Swarm",
        "metadata": {"name": "borrowed"},
        "spec": spec,
    });
    let file = tempfile::NamedTempFile::new_in(crate::cluster::FOLDER)?;
    std::fs::write(file.path(), swarm.to_string())?;
    let (user, file) = (format!("--as={user}"), format!("--filename={}", file.path().display()));
    let dry = if is_dry { "--dry-run=server" } else { "--dry-run=none" };
    context.kubectl(&["apply", &user, dry, &file]).await.map(drop)
}
