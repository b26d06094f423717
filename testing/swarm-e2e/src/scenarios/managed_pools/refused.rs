//! A managed pool that cannot be made as requested reports why, and what to do about it. Running
//! jobs keep running.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use swarm_client::annotations::SWARM_LABEL;

use super::{condition, objects};
use crate::cluster::FOLDER;
use crate::operator;
use crate::scenario::Context;
use crate::scenarios::session_pool::{Kind, SessionPool};
use crate::until::until;

pub(crate) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    a_taken_name_is_left_alone(&context).await?;
    a_wrong_template_changes_nothing(&context).await?;
    what_kind_of_pool_it_is_stays(&context).await?;
    a_missing_image_is_named(&context).await?;
    a_quota_is_named(&context).await?;
    who_may_not_make_workloads_cannot_ask_for_them(&context).await
}

/// A minimal managed Swarm.
fn swarm(name: &str, managed: &Value) -> String {
    json!({
        "apiVersion": "swarm.k8slab.info/v1alpha1", "kind": "Swarm", "metadata": {"name": name},
        "spec": {"replicas": 2, "pool": {"managed": managed}, "jobs": [{"name": "a"}, {"name": "b"}],
                 "worker": {"protocol": "Session"}},
    })
    .to_string()
}

async fn a_taken_name_is_left_alone(context: &Context) -> Result<()> {
    context.kubectl(&["create", "serviceaccount", "taken"]).await?;
    context.kubectl(&["create", "deployment", "theirs", "--image=x:1", "--replicas=0"]).await?;
    context.apply(&swarm("taken", &json!({}))).await?;
    let message = condition(context, "taken", "Ready", ("False", "NameTaken")).await?;
    ensure!(message.contains("ServiceAccount `taken` exists"), "{message}");
    ensure!(!objects(context, "taken").await?.contains("Deployment taken"), "pods would be others");
    context.apply(&swarm("theirs", &json!({}))).await?;
    let message = condition(context, "theirs", "Ready", ("False", "NameTaken")).await?;
    ensure!(message.contains("Deployment `theirs` exists"), "{message}");
    // Once the name is free, the pool is made.
    context.kubectl(&["delete", "serviceaccount", "taken"]).await?;
    condition(context, "taken", "Ready", ("True", "Settled")).await?;
    for name in ["taken", "theirs"] {
        context.kubectl(&["delete", "swarm", name]).await?;
    }
    let theirs = context.kubectl(&["get", "deployment", "theirs", "-o=name"]).await?;
    ensure!(theirs.contains("theirs"), "it was not made for the Swarm, and is gone");
    Ok(())
}

async fn a_wrong_template_changes_nothing(context: &Context) -> Result<()> {
    let mut pool = SessionPool::new(context, "wrong");
    pool.kind = Kind::Managed;
    pool.apply().await?;
    let runs = pool.at_rest().await?;
    let resources = json!({"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}});
    let with = |template: Value| json!({"podTemplate": template});
    let cases = [
        (with(json!({"spec": {"nodeSelektor": {}, "x": 1}})), "InvalidSpec", "podTemplate.spec.x"),
        (
            with(json!({"spec": {"volumes": [{"name": "state"}, {"name": "A b"}]}})),
            "PoolRefused",
            "A b",
        ),
        (json!({"resources": resources}), "PoolRefused", "must be less than"),
        (json!({"serviceAccountName": "Not A Name"}), "PoolRefused", "serviceAccountName"),
    ];
    for (managed, reason, part) in cases {
        pool.managed = managed;
        pool.apply().await?;
        // The previous case may have had the same reason.
        until(&format!("`{part}` to be named"), || async {
            let message = condition(context, "wrong", "Stalled", ("True", reason)).await?;
            ensure!(message.contains(part), "{message}");
            Ok(Some(()))
        })
        .await?;
        ensure!(pool.at_rest().await? == runs, "{part}: jobs moved");
    }
    pool.managed = json!({});
    pool.apply().await?;
    condition(context, "wrong", "Ready", ("True", "Settled")).await?;
    ensure!(pool.at_rest().await? == runs, "jobs moved");
    context.kubectl(&["delete", "swarm", "wrong"]).await.map(drop)
}

/// Reports an image that cannot be pulled. One of its two pull secrets exists, so only the other is
/// named as missing.
async fn a_missing_image_is_named(context: &Context) -> Result<()> {
    let secret = ["create", "secret", "docker-registry", "ours", "--docker-server=127.0.0.1:1"];
    let login = ["--docker-username=u", "--docker-password=p"];
    context.kubectl(&[&secret[..], &login].concat()).await?;
    let secrets = json!([{"name": "ours"}, {"name": "registry"}]);
    let template = json!({"spec": {"imagePullSecrets": secrets}});
    let image = json!({"image": "127.0.0.1:1/none:1", "podTemplate": template});
    context.apply(&swarm("missing", &image)).await?;
    let expected = ["image `127.0.0.1:1/none:1` cannot be pulled", " `ours`, `registry`"];
    let message = until("the image to be named", || async {
        let message =
            condition(context, "missing", "PoolReady", ("False", "WorkersMissing")).await?;
        ensure!(expected.iter().all(|part| message.contains(part)), "{message}");
        let missing = "Unable to retrieve some image pull secrets (registry)";
        ensure!(message.contains(missing), "the missing one is not named: {message}");
        Ok(Some(message))
    })
    .await?;
    context.laps.lap(message);
    context.kubectl(&["delete", "swarm", "missing"]).await.map(drop)
}

/// Refuses to change the kind of a managed pool, or to make it another pool.
async fn what_kind_of_pool_it_is_stays(context: &Context) -> Result<()> {
    context.apply(&swarm("stays", &json!({}))).await?;
    condition(context, "stays", "Ready", ("True", "Settled")).await?;
    let other_kind = json!({"managed": {"kind": "StatefulSet"}});
    let not_managed = json!({"managed": null, "deployment": {"name": "stays"}});
    for (pool, part) in [(other_kind, "kind"), (not_managed, "pool")] {
        let patch = json!({"spec": {"pool": pool}}).to_string();
        let refused =
            context.kubectl(&["patch", "swarm", "stays", "--type=merge", "--patch", &patch]).await;
        let refused = refused.err().with_context(|| format!("{patch} was accepted"))?;
        let refused = format!("{refused:#}");
        ensure!(refused.contains("cannot be changed"), "{part}: {refused}");
    }
    ensure!(objects(context, "stays").await?.contains("Deployment stays"), "it is another now");
    context.kubectl(&["delete", "swarm", "stays"]).await.map(drop)
}

/// Reports a quota that refuses pods. A Deployment reports the refusal itself. For a StatefulSet
/// the operator counts the missing pods, and Events say why.
async fn a_quota_is_named(context: &Context) -> Result<()> {
    context.kubectl(&["create", "quota", "few", "--hard=pods=1"]).await?;
    for managed in [json!({}), json!({"kind": "StatefulSet"})] {
        context.apply(&swarm("bounded", &managed)).await?;
        let message = until("the quota to be named", || async {
            let missing = ("False", "WorkersMissing");
            let message = condition(context, "bounded", "PoolReady", missing).await?;
            ensure!(message.contains("exceeded quota: few"), "{message}");
            Ok(Some(message))
        })
        .await?;
        context.laps.lap(message);
        context.kubectl(&["delete", "swarm", "bounded"]).await?;
        no_pods_are_left(context, "bounded").await?;
    }
    context.kubectl(&["delete", "quota", "few"]).await.map(drop)
}

/// Waits until no pods are left, since they would count for the quota. A worker that was about to open
/// its session when its pool was removed cannot create its Lease. It takes its grace of 30 seconds.
async fn no_pods_are_left(context: &Context, swarm: &str) -> Result<()> {
    let selector = format!("{SWARM_LABEL}={swarm}");
    until("the pods to be gone", || async {
        let pods = context.kubectl(&["get", "pods", "-l", &selector, "-o=name"]).await?;
        ensure!(pods.is_empty(), "there are {pods}");
        Ok(Some(()))
    })
    .await
}

/// The operator makes pods with its own rights, so a user who asks for pods needs the same rights.
async fn who_may_not_make_workloads_cannot_ask_for_them(context: &Context) -> Result<()> {
    let role = ["create", "role", "swarms", "--verb=*", "--resource=swarms.swarm.k8slab.info"];
    context.kubectl(&role).await?;
    context.kubectl(&["create", "rolebinding", "swarms", "--role=swarms", "--user=writer"]).await?;
    context
        .kubectl(&["create", "rolebinding", "both", "--clusterrole=edit", "--user=maker"])
        .await?;
    context.kubectl(&["create", "rolebinding", "both2", "--role=swarms", "--user=maker"]).await?;
    let folder = tempfile::tempdir_in(FOLDER)?;
    let file = folder.path().join("asked.yaml");
    std::fs::write(&file, swarm("asked", &json!({"service": {}})))?;
    let file = file.display().to_string();
    let apply = ["apply", "--server-side", "-f", &file];
    until("the policy to be in force", || async {
        let refused = context.kubectl(&[&apply[..], &["--as=writer"]].concat()).await;
        let refused = format!("{:#}", refused.err().context("writer may ask for pods")?);
        ensure!(refused.contains("a managed pool is made of deployments, and writer"), "{refused}");
        Ok(Some(()))
    })
    .await?;
    context.kubectl(&[&apply[..], &["--as=maker"]].concat()).await?;
    // An edit of the jobs changes no pods and needs no right. A change of the number of pods needs
    // one.
    let jobs = r#"{"spec":{"jobs":[{"name":"a"},{"name":"c"}]}}"#;
    let jobs = ["patch", "swarm", "asked", "--type=merge", "-p", jobs, "--as=writer"];
    context.kubectl(&jobs).await?;
    let replicas = ["patch", "swarm", "asked", "--type=merge", "-p", r#"{"spec":{"replicas":1}}"#];
    let refused = context.kubectl(&[&replicas[..], &["--as=writer"]].concat()).await;
    ensure!(refused.is_err(), "writer may change how many pods there are");
    context.kubectl(&[&replicas[..], &["--as=maker"]].concat()).await?;
    let image = r#"{"spec":{"pool":{"managed":{"image":"other:1"}}}}"#;
    let image = ["patch", "swarm", "asked", "--type=merge", "-p", image, "--as=writer"];
    ensure!(context.kubectl(&image).await.is_err(), "writer may change what pods run");
    context.kubectl(&["delete", "swarm", "asked"]).await.map(drop)
}

/// Removes the component with the rights for managed pools. A new Swarm reports that, and goes on
/// when the component is back. So does a Swarm whose pool exists, and it follows an edit of its jobs
/// meanwhile.
pub(in crate::scenarios) async fn without_rights(context: Context) -> Result<()> {
    context.operator().await?;
    let cluster = &context.cluster;
    context.apply(&swarm("kept", &json!({}))).await?;
    condition(&context, "kept", "Ready", ("True", "Settled")).await?;
    let binding = ["clusterrolebinding", "swarm-operator-managed-pools"];
    cluster.kubectl(&[&["delete"], &binding[..]].concat()).await?;
    operator::stop(cluster).await?;
    operator::go_on(cluster).await?;
    context.apply(&swarm("forbidden", &json!({}))).await?;
    let message = condition(&context, "forbidden", "Ready", ("False", "ManagedForbidden")).await;
    let goes_on = goes_on(&context).await;
    operator::install(cluster).await?;
    let message = message?;
    goes_on?;
    for part in ["managedPools.enabled=true", "deploy/components/managed-pools"] {
        ensure!(message.contains(part), "{message}");
    }
    for name in ["forbidden", "kept"] {
        until("the pool to be kept", || async {
            condition(&context, name, "Ready", ("True", "Settled")).await.map(Some)
        })
        .await?;
    }
    context.kubectl(&["delete", "swarm", "forbidden", "kept"]).await.map(drop)
}

/// Adds a job to the Swarm whose pool exists, and waits until it runs.
async fn goes_on(context: &Context) -> Result<()> {
    condition(context, "kept", "Ready", ("False", "ManagedForbidden")).await?;
    let jobs = r#"{"spec":{"jobs":[{"name":"a"},{"name":"b"},{"name":"c"}]}}"#;
    context.kubectl(&["patch", "swarm", "kept", "--type=merge", "-p", jobs]).await?;
    until("three jobs to run", || async {
        let running = ["get", "swarm", "kept", "-o=jsonpath={.status.running}"];
        let running = context.kubectl(&running).await?;
        ensure!(running == "3", "it is: {running}");
        Ok(Some(()))
    })
    .await
}
