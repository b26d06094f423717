//! The operator recreates its objects of a pool when they are deleted, and reverts edits of its
//! fields. An autoscaler of Kubernetes owns the number of workers meanwhile. Fields that others add
//! stay.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use swarm_adapters_k8s::managed::wanted::ObjectKind;
use swarm_client::annotations::SWARM_LABEL;
use swarm_client::api::Swarm;

use super::{api, condition, objects};
use crate::run_log::Moment;
use crate::scenario::Context;
use crate::scenarios::session_pool::{GRACEFUL, Kind, SessionPool, TICK};
use crate::until::until;

/// The field manager of another writer of objects of the pool.
const OTHER: &str = "somebody";
/// The number of workers that the autoscaler wants.
const AUTOSCALED: usize = 3;
/// The objects of the pool below, without the workload.
const PARTS: [(ObjectKind, &str); 5] = [
    (ObjectKind::ServiceAccount, "kept"),
    (ObjectKind::RoleBinding, "kept"),
    (ObjectKind::ConfigMap, "kept-files"),
    (ObjectKind::Service, "kept-pods"),
    (ObjectKind::Budget, "kept"),
];

pub(crate) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let mut pool = SessionPool::new(&context, "kept");
    pool.kind = Kind::Managed;
    pool.managed = json!({"files": {"data": {"a.txt": "b"}}, "service": {}});
    pool.apply().await?;
    pool.at_rest().await?;
    autoscale(&pool).await?;
    let mark = Moment::now();
    let before = objects(&context, "kept").await?;
    let mut took = Vec::new();
    let parts = PARTS.into_iter().filter(|(kind, _)| *kind != ObjectKind::ServiceAccount);
    for (kind, name) in parts.chain([(ObjectKind::Service, "kept")]) {
        took.push(comes_back(&context, kind, name).await?);
    }
    for (kind, name, edit, field) in edits() {
        took.push(put_back(&context, kind, name, &edit, field).await?);
    }
    took.sort();
    let (median, worst) = (took[took.len() / 2], took[took.len() - 1]);
    let (count, median, worst) = (took.len(), median.as_millis(), worst.as_millis());
    context.laps.lap(format!("{count} repairs, p50 {median} ms, worst {worst} ms"));
    ensure!(objects(&context, "kept").await? == before, "something is missing or too much");
    pool.judge("repairs of all but the workload", mark, GRACEFUL + TICK)?;
    end_autoscale(&pool).await?;
    the_pods_are_put_back(&context).await?;
    foreign_fields_stay(&context).await?;
    a_label_that_may_not_be_put_back_is_named(&context).await?;
    the_workload_comes_back(&context, &pool).await?;
    a_contest_is_reported(&context).await
}

/// Each edit of a field: the object, the patch, and the path of the field.
fn edits() -> Vec<(ObjectKind, &'static str, Value, &'static str)> {
    let account = json!({"automountServiceAccountToken": true});
    // A port that another writer adds would stay, so this edit changes a port of the operator.
    let ports = json!({"spec": {"ports": [{"name": "http", "port": 9090, "targetPort": 1}]}});
    let surge = json!({"spec": {"strategy": {"rollingUpdate": {"maxUnavailable": 1}}}});
    let label = json!({"metadata": {"labels": {"app.kubernetes.io/name": "mine"}}});
    let node_port = json!({"spec": {"type": "NodePort"}});
    let subjects = json!({"subjects": [
        {"kind": "ServiceAccount", "name": "somebody", "namespace": "default"},
    ]});
    let mut edits = vec![
        (ObjectKind::ServiceAccount, "kept", account, "/automountServiceAccountToken"),
        (ObjectKind::RoleBinding, "kept", json!({"subjects": []}), "/subjects"),
        (ObjectKind::RoleBinding, "kept", subjects, "/subjects"),
        (ObjectKind::ConfigMap, "kept-files", json!({"data": {"a.txt": "other"}}), "/data"),
        (ObjectKind::Service, "kept-pods", ports.clone(), "/spec/ports"),
        (
            ObjectKind::Service,
            "kept",
            json!({"spec": {"selector": {"app": "other"}}}),
            "/spec/selector",
        ),
        (ObjectKind::Service, "kept", ports, "/spec/ports"),
        (ObjectKind::Service, "kept", node_port, "/spec/type"),
        (
            ObjectKind::Budget,
            "kept",
            json!({"spec": {"maxUnavailable": "50%"}}),
            "/spec/maxUnavailable",
        ),
        (ObjectKind::Deployment, "kept", surge, "/spec/strategy"),
        (ObjectKind::Deployment, "kept", label.clone(), "/metadata/labels"),
    ];
    // The operator finds its objects by this label.
    let whose = json!({"metadata": {"labels": {SWARM_LABEL: "elsewhere"}}});
    edits.push((ObjectKind::ServiceAccount, "kept", whose, "/metadata/labels"));
    edits.extend(PARTS.map(|(kind, name)| (kind, name, label.clone(), "/metadata/labels")));
    edits
}

/// Reverts edits of the pods' fields and of the workload's history, in a separate pool. In a shared
/// pool one object would be repaired too often within a minute. The rollouts that begin are
/// reverted, and end.
async fn the_pods_are_put_back(context: &Context) -> Result<()> {
    let mut pool = SessionPool::new(context, "edited");
    pool.kind = Kind::Managed;
    pool.apply().await?;
    pool.at_rest().await?;
    autoscale(&pool).await?;
    let worker = |mut fields: Value| {
        fields["name"] = "worker".into();
        json!({"spec": {"template": {"spec": {"containers": [fields]}}}})
    };
    let env = json!({"env": [{"name": "RUN_LOG", "value": "/tmp/other"}]});
    let probe = json!({"readinessProbe": {"periodSeconds": 77}});
    for (edit, field) in [
        (worker(json!({"image": "other:1"})), "/spec/template/spec/containers/0/image"),
        (worker(env), "/spec/template/spec/containers/0/env"),
        (worker(probe), "/spec/template/spec/containers/0/readinessProbe"),
        (json!({"spec": {"revisionHistoryLimit": 1}}), "/spec/revisionHistoryLimit"),
    ] {
        put_back(context, ObjectKind::Deployment, "edited", &edit, field).await?;
    }
    pool.at_rest_on(AUTOSCALED).await?;
    condition(context, "edited", "Ready", ("True", "Settled")).await?;
    end_autoscale(&pool).await?;
    context.kubectl(&["delete", "swarm", "edited"]).await.map(drop)
}

/// Makes an autoscaler of Kubernetes the owner of the number of workers of `pool`. The autoscaler
/// has no metrics, and needs none for its bounds.
async fn autoscale(pool: &SessionPool) -> Result<()> {
    let target =
        json!({"apiVersion": "swarm.k8slab.info/v1alpha1", "kind": "Swarm", "name": pool.name});
    let autoscaler = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": pool.name},
        "spec": {"minReplicas": AUTOSCALED, "maxReplicas": AUTOSCALED, "scaleTargetRef": target},
    });
    pool.context.apply(&autoscaler.to_string()).await?;
    pool.at_rest_on(AUTOSCALED).await.map(drop)
}

/// Removes the autoscaler, and checks that its number of workers is still in force.
async fn end_autoscale(pool: &SessionPool) -> Result<()> {
    let found = pool.context.api::<Deployment>().get(&pool.name).await?;
    let replicas = found.spec.and_then(|spec| spec.replicas);
    ensure!(replicas == i32::try_from(AUTOSCALED).ok(), "its number became {replicas:?}");
    let swarm = pool.context.api::<Swarm>().get(&pool.name).await?;
    ensure!(
        swarm.spec.replicas.map(usize::try_from) == Some(Ok(AUTOSCALED)),
        "the Swarm says {:?}",
        swarm.spec.replicas
    );
    pool.context.kubectl(&["delete", "hpa", &pool.name]).await.map(drop)
}

/// Deletes an object, and returns the time for which it was missing.
async fn comes_back(context: &Context, kind: ObjectKind, name: &str) -> Result<Duration> {
    let api = api(context, kind);
    let uid = api.get_metadata(name).await?.uid();
    let deleted = Instant::now();
    api.delete(name, &DeleteParams::default()).await?;
    until(&format!("{kind} {name} to come back"), || async {
        let found = api.get_metadata(name).await?;
        ensure!(found.uid() != uid, "it is the old one");
        Ok(Some(deleted.elapsed()))
    })
    .await
}

/// Edits a field as another writer, and returns the time for which the edit stayed.
async fn put_back(
    context: &Context,
    kind: ObjectKind,
    name: &str,
    edit: &Value,
    field: &str,
) -> Result<Duration> {
    let api = api(context, kind);
    let value = async || -> Result<Value> {
        let object = serde_json::to_value(api.get(name).await?)?;
        object.pointer(field).cloned().with_context(|| format!("{kind} {name} has no {field}"))
    };
    let before = value().await?;
    let params = PatchParams { field_manager: Some(OTHER.into()), ..PatchParams::default() };
    // A strategic merge patch merges containers and variables by their names.
    let patch = if kind.is_workload() { Patch::Strategic(edit) } else { Patch::Merge(edit) };
    let patched = api.patch(name, &params, &patch).await?;
    let patched = serde_json::to_value(patched)?;
    ensure!(patched.pointer(field) != Some(&before), "{kind} {name}: {edit} changes nothing");
    let edited = Instant::now();
    until(&format!("{field} of {kind} {name} to be put back"), || async {
        let now = value().await?;
        ensure!(now == before, "it is {now}");
        Ok(Some(edited.elapsed()))
    })
    .await
}

/// Leaves labels and annotations of others alone while fields of the operator are reverted. The
/// number of replicas stays, too, if the Swarm has none.
async fn foreign_fields_stay(context: &Context) -> Result<()> {
    let theirs = json!({"metadata": {"annotations": {"team": "x"}, "labels": {"team": "x"}}});
    let params = PatchParams { field_manager: Some(OTHER.into()), ..PatchParams::default() };
    let api = api(context, ObjectKind::Deployment);
    api.patch("kept", &params, &Patch::Merge(&theirs)).await?;
    let no_replicas = json!({"spec": {"replicas": null}});
    context
        .kubectl(&["patch", "swarm", "kept", "--type=merge", "--patch", &no_replicas.to_string()])
        .await?;
    // An autoscaler scales in the same way.
    context.kubectl(&["scale", "deployment", "kept", "--replicas=3"]).await?;
    let surge = json!({"spec": {"strategy": {"rollingUpdate": {"maxUnavailable": 1}}}});
    put_back(context, ObjectKind::Deployment, "kept", &surge, "/spec/strategy").await?;
    let found = context.api::<Deployment>().get("kept").await?;
    let replicas = found.spec.as_ref().and_then(|spec| spec.replicas);
    ensure!(replicas == Some(3), "the autoscaler's replicas became {replicas:?}");
    let (label, note) = (found.labels().get("team"), found.annotations().get("team"));
    ensure!(label.is_some() && note.is_some(), "what others wrote is gone: {:?}", found.metadata);
    context.kubectl(&["wait", "--for=condition=Ready", "swarm/kept", "--timeout=5m"]).await?;
    Ok(())
}

/// The operator's own fence forbids writes of objects that are not labelled as managed by the
/// operator.
async fn a_label_that_may_not_be_put_back_is_named(context: &Context) -> Result<()> {
    let label = ["label", "--overwrite", "service", "kept-pods"];
    let theirs = ["app.kubernetes.io/managed-by=somebody"];
    context.kubectl(&[&label[..], &theirs].concat()).await?;
    let message = condition(context, "kept", "Ready", ("False", "WriteRefused")).await?;
    let ours = "app.kubernetes.io/managed-by=swarm-operator";
    let command = format!("-n {} Service kept-pods {ours}`", context.namespace);
    ensure!(message.contains("kubectl label --overwrite"), "{message}");
    ensure!(message.contains(&command), "{message}, not: {command}");
    context.kubectl(&[&label[..], &[ours]].concat()).await?;
    condition(context, "kept", "Ready", ("True", "Settled")).await.map(drop)
}

/// Deletes the Deployment. It comes back with the number of workers that the Swarm asks for, and
/// the jobs run again.
async fn the_workload_comes_back(context: &Context, pool: &SessionPool) -> Result<()> {
    let replicas = json!({"spec": {"replicas": 2}});
    context
        .kubectl(&["patch", "swarm", "kept", "--type=merge", "--patch", &replicas.to_string()])
        .await?;
    pool.at_rest().await?;
    // Deletes the account first: some seconds later, Kubernetes refuses the tokens of its pods. New
    // pods have tokens of the new account.
    comes_back(context, ObjectKind::ServiceAccount, "kept").await?;
    let gone = comes_back(context, ObjectKind::Deployment, "kept").await?;
    pool.at_rest().await?;
    context.laps.lap(format!("the Deployment was gone for {} ms", gone.as_millis()));
    let overlaps = pool.history()?.overlaps()?;
    context.laps.lap(format!("{} overlaps under AtLeastOnce", overlaps.len()));
    Ok(())
}

/// Edits the same field again and again. The edits win for a while, and the Swarm names the writer.
async fn a_contest_is_reported(context: &Context) -> Result<()> {
    let api = api(context, ObjectKind::Budget);
    let params = PatchParams { field_manager: Some(OTHER.into()), ..PatchParams::default() };
    let edit = json!({"spec": {"maxUnavailable": "50%"}});
    let message = until("a contest", || async {
        api.patch("kept", &params, &Patch::Merge(&edit)).await?;
        let path = "-o=jsonpath={.status.conditions[?(@.reason=='Contested')].message}";
        let found = context.kubectl(&["get", "swarm", "kept", path]).await?;
        ensure!(!found.is_empty(), "none is reported");
        Ok(Some(found))
    })
    .await?;
    ensure!(message.contains(&format!("`{OTHER}` changes fields")), "{message}");
    condition(context, "kept", "Stalled", ("True", "Contested")).await?;
    Ok(())
}
