//! A user who may write only Swarms cannot make the operator use other rights for them. The
//! policies refuse this user a Swarm that scales a workload or a managed pool, or ends pods. They
//! also refuse a Swarm that writes or reads a `ConfigMap`, sends requests to pods, or runs a
//! command in them. An editor of the namespace has the rights for all of that, so the same Swarm of
//! an editor is accepted.

mod runner;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::vault::TENANTS;
use crate::scenario::Context;
use crate::until::until;

/// The users who may also scale one kind of workload, each with the rule for it.
const SCALERS: [(&str, &str); 2] = [
    ("deployer", r#"{apiGroups: ["apps"], resources: ["deployments/scale"], verbs: ["patch"]}"#),
    ("setter", r#"{apiGroups: ["apps"], resources: ["statefulsets/scale"], verbs: ["patch"]}"#),
];

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    context.apply(TENANTS).await?;
    for (user, rule) in SCALERS {
        grant(&context, user, rule).await?;
    }
    until("the rights of both", || async {
        write(&context, "tenant", &json!({}), true).await?;
        write(&context, "editor", &json!({}), true).await?;
        Ok(Some(()))
    })
    .await?;
    runner::is_lent_to_nobody(&context).await?;
    let borrowed = [
        (json!({"replicas": 2}), "may not scale it"),
        (json!({"autoscale": {"max": 9, "jobsPerWorker": 1}}), "may not scale it"),
        (json!({"replicas": 2, "pool": {"deployment": {"name": "w"}}}), "may not scale it"),
        (json!({"refresh": {"mode": "Delete"}}), "may not delete any in this namespace"),
        (json!({"refresh": {"mode": "Evict"}}), "may not evict any in this namespace"),
        (json!({"view": {"configMapName": "theirs"}}), "ConfigMap theirs, and tenant may not"),
        (json!({"worker": {"protocol": "Plain"}}), "ConfigMap borrowed-config, and tenant may"),
        (json!({"worker": null}), "ConfigMap borrowed-config, and tenant may"),
        // The protocol follows from the runner, so that no ConfigMap has the view.
        (
            json!({"worker": {"runner": {"log": {}}}}),
            "pods of a StatefulSet obey worker.runner, and",
        ),
        (
            json!({"worker": {"protocol": "Session", "versionEndpoint": {"port": 80}}}),
            "ask for the right to get pods/proxy",
        ),
        (
            json!({"jobSources": [named("theirs"), named("a")]}),
            "may not get all of: theirs, a; ask",
        ),
        (
            json!({"jobSources": (["a", "b", "c", "d", "e"].map(named))}),
            "of: a, b, c, d and others; add at most 4 at a time",
        ),
        (
            json!({"jobSources": [{"selector": {"matchLabels": {"a": "b"}}, "key": "k"}]}),
            "ask for the right to list configmaps",
        ),
    ];
    for (spec, because) in &borrowed {
        until("the policy", || async {
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
    lists_are_read_by_name(&context).await?;
    a_managed_pool_is_sized_by_who_may_scale_it(&context).await?;
    a_managed_pool_is_deleted_by_who_may_delete_its_workload(&context).await
}

fn named(map: &str) -> Value {
    json!({"configMap": {"name": map, "key": "jobs"}})
}

/// Checks that the answer is a refusal for this reason.
fn refused<T>(what: &str, answer: Result<T>, because: &str) -> Result<()> {
    let Err(error) = answer else { anyhow::bail!("{what} was accepted") };
    let refusal = format!("{error:#}");
    ensure!(refusal.contains(because), "{what}: refused, but not because `{because}`: {refusal}");
    Ok(())
}

/// Gives a user the right to write Swarms, and the rights of one rule.
async fn grant(context: &Context, user: &str, rule: &str) -> Result<()> {
    let manifest = format!(
        r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: {user}}}
rules:
  - {{apiGroups: ["swarm.k8slab.info"], resources: ["swarms", "swarms/scale"], verbs: ["*"]}}
  - {rule}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: {user}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: {user}}}
subjects: [{{kind: User, name: {user}, apiGroup: rbac.authorization.k8s.io}}]
"#
    );
    context.apply(&manifest).await
}

/// Checks that a user who may get some ConfigMaps by name may use them as lists, also several keys
/// of one.
async fn lists_are_read_by_name(context: &Context) -> Result<()> {
    let rule = r#"{apiGroups: [""], resources: ["configmaps"], resourceNames: ["a", "b", "c"], verbs: ["get"]}"#;
    grant(context, "reader", rule).await?;
    let sources = |names: &[&str]| json!({"jobSources": names.iter().map(|it| named(it)).collect::<Vec<_>>()});
    let mine = sources(&["a", "b", "c", "a"]);
    until("the right to get three", || async {
        write(context, "reader", &mine, true).await?;
        Ok(Some(()))
    })
    .await?;
    write(context, "reader", &sources(&["a", "a", "a", "a"]), true).await?;
    let theirs = sources(&["a", "b", "c", "theirs"]);
    refused("one more", write(context, "reader", &theirs, true).await, "may not get all of")?;
    // A source that an editor has added may stay when the reader edits the list.
    write(context, "editor", &sources(&["theirs", "d", "e", "f"]), false).await?;
    let patch =
        json!({"spec": {"jobs": [{"name": "b"}], "jobSources": [named("theirs"), named("a")]}});
    let patch =
        ["patch", "swarm", "borrowed", "--type=merge", "-p", &patch.to_string(), "--as=reader"]
            .map(str::to_owned);
    let patch: Vec<_> = patch.iter().map(String::as_str).collect();
    context.kubectl(&patch).await?;
    context.kubectl(&["delete", "swarm", "borrowed", "--timeout=5m"]).await?;
    context.laps.lap("lists are read for those who may read them");
    Ok(())
}

/// Checks that a tenant may not delete a Swarm whose Deployment is deleted with it, alone or with
/// all others. An editor may delete it, and so may the controller that empties a namespace.
async fn a_managed_pool_is_deleted_by_who_may_delete_its_workload(context: &Context) -> Result<()> {
    let because = "ask for the right to delete deployments borrowed";
    let managed = json!({"pool": {"managed": {}}, "replicas": 0});
    write(context, "editor", &managed, false).await?;
    for args in [
        ["delete", "swarm", "borrowed", "--as=tenant"],
        ["delete", "swarms", "--all", "--as=tenant"],
    ] {
        refused(&args.join(" "), context.kubectl(&args).await, because)?;
    }
    let path = format!("/apis/swarm.k8slab.info/v1alpha1/namespaces/{}/swarms", context.namespace);
    let all = ["delete", "--raw", &path, "--as=tenant"];
    refused("a collection", context.kubectl(&all).await, because)?;
    context.kubectl(&["delete", "swarms", "--all", "--as=editor", "--timeout=5m"]).await?;
    context.laps.lap("a managed pool is deleted by who may delete its workload");

    let going = Context::new(&context.cluster, &format!("{}-going", context.namespace)).await?;
    let manifest = json!({
        "apiVersion": "swarm.k8slab.info/v1alpha1", "kind": "Swarm", "metadata": {"name": "gone"},
        "spec": {"pool": {"managed": {}}, "replicas": 1, "jobs": [{"name": "a"}]},
    });
    going.apply(&manifest.to_string()).await?;
    until("the pool to be made", || async {
        let found = going.kubectl(&["get", "deployment", "gone", "-o=name"]).await?;
        Ok(Some(found))
    })
    .await?;
    going.cluster.kubectl(&["delete", "namespace", &going.namespace, "--timeout=5m"]).await?;
    context.laps.lap("a namespace with a managed pool is emptied");
    Ok(())
}

/// A tenant who may not make a managed pool may edit its jobs, but not the number of its workers.
async fn a_managed_pool_is_sized_by_who_may_scale_it(context: &Context) -> Result<()> {
    let managed = json!({"pool": {"managed": {}}, "replicas": 0});
    // An absent pool is a managed one.
    for pool in [managed.clone(), json!({"pool": null, "replicas": 0})] {
        let refused = write(context, "tenant", &pool, true).await;
        let refused = refused.err().map(|error| format!("{error:#}")).unwrap_or_default();
        ensure!(refused.contains("may not create any in this namespace"), "{pool}: `{refused}`");
    }
    // Workers of a managed pool have sessions, so no ConfigMap has their view.
    grant(context, "maker", MAKER).await?;
    let made = json!({"pool": {"managed": {}}, "jobs": [{"name": "a"}]});
    until("the right to make Deployments to suffice", || async {
        write(context, "maker", &made, true).await?;
        Ok(Some(()))
    })
    .await?;
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
    let shapes = [
        (json!({"spec": {"view": {"configMapName": "other"}}}), "may not create any"),
        (json!({"metadata": {"ownerReferences": [gone_owner()]}}), "a Swarm goes with its owners"),
    ];
    // This user may write the ConfigMap of the view, but may not make pods that mount it.
    let rule = r#"{apiGroups: [""], resources: ["configmaps"], verbs: ["patch"]}"#;
    grant(context, "writer", rule).await?;
    for (patch, because) in &shapes {
        let patch = patch.to_string();
        let args = ["patch", "swarm", "borrowed", "--type=merge", "--dry-run=server", "-p", &patch];
        until(because, || async {
            let answer = context.kubectl(&[&args[..], &["--as=writer"]].concat()).await;
            Ok(self::refused(&patch, answer, because).is_ok().then_some(()))
        })
        .await?;
        context.kubectl(&[&args[..], &["--as=editor"]].concat()).await?;
    }
    context.kubectl(&["delete", "swarm", "borrowed", "--timeout=5m"]).await?;
    let set = json!({
        "pool": {"managed": {"kind": "StatefulSet"}}, "replicas": 0, "worker": {"protocol": "Plain"},
    });
    write(context, "editor", &set, false).await?;
    let refresh = json!({"refresh": {"mode": "Delete"}});
    let because = "may not delete any in this namespace";
    self::refused("the end of pods", patch("tenant", &refresh).await, because)?;
    patch("editor", &refresh).await?;
    context.kubectl(&["delete", "swarm", "borrowed", "--timeout=5m"]).await?;
    context.laps.lap("a managed pool is sized and shaped by who may do that to its workload");
    Ok(())
}

/// The right that a managed pool requires.
const MAKER: &str = r#"{apiGroups: ["apps"], resources: ["deployments"], verbs: ["create"]}"#;

/// An owner that does not exist: the garbage collector deletes an object that has no other owner.
fn gone_owner() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "1-2-3"})
}

/// A tenant may change the jobs of a Swarm that scales its pool, but not the number of its workers.
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
    // The scale of a Swarm without replicas shows 0. Scaling to 0 seems to change nothing, and
    // would store a number.
    let removal = r#"[{"op": "remove", "path": "/spec/replicas"}]"#;
    context.kubectl(&["patch", "swarm", "borrowed", "--type=json", "-p", removal]).await?;
    let scaled = tenant(["scale", "swarm", "borrowed", "--replicas=0"].into()).await;
    ensure!(
        scaled.is_err_and(|it| format!("{it:#}").contains("may not scale StatefulSets")),
        "to zero, where the Swarm had no replicas"
    );
    context.kubectl(&["delete", "swarm", "borrowed", "--timeout=5m"]).await?;
    context.laps.lap("a tenant edits jobs and scales nothing; an editor scales the Swarm");
    Ok(())
}

/// Checks the refusal for a user who may scale only one kind of workload. A request of `kubectl
/// scale swarm` does not show the kind that the Swarm scales, so the refusal is true for both
/// kinds. The command that the refusal names works if the user may scale the kind of this pool.
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
        let which = "does not show whether Swarm borrowed scales a StatefulSet or a Deployment";
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
        context.kubectl(&["delete", "swarm", "borrowed", "--timeout=5m"]).await?;
    }
    // A Swarm without a number of workers is refused because of its spec, and not for lack of
    // rights.
    let pods = json!({"pool": {"pods": {"matchLabels": {"app": "w"}}}});
    let autoscale = json!({"autoscale": {"max": 9, "jobsPerWorker": 1}});
    for (spec, because) in [
        (pods, "replicas and pool.pods exclude each"),
        (autoscale, "autoscale and replicas exclude each"),
    ] {
        write(context, "editor", &spec, false).await?;
        for user in ["deployer", "editor"] {
            let said = refusal(scale(user).await);
            ensure!(said.contains(because), "{spec}, {user}: `{said}`");
        }
        context.kubectl(&["delete", "swarm", "borrowed", "--timeout=5m"]).await?;
    }
    context.laps.lap("`kubectl scale swarm` is refused by a sentence that is true for every pool");
    Ok(())
}

/// Writes a Swarm of sessions with these fields replaced.
async fn write(context: &Context, user: &str, fields: &Value, is_dry: bool) -> Result<()> {
    let mut spec = json!({
        "jobs": [{"name": "a"}],
        "worker": {"protocol": "Session"},
        "pool": {"statefulSet": {"name": "w"}},
    });
    for (field, value) in fields.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    // A field without a value is left out, so that its default counts.
    if let Some(fields) = spec.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
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
