//! What the operator has made comes back when it is deleted, and is put back when it is edited, while an
//! autoscaler of Kubernetes owns the number of workers; what others add to it stays theirs.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use swarm_adapters_k8s::managed::wanted::ObjectKind;
use swarm_client::annotations::SWARM_LABEL;
use swarm_client::api::Swarm;

use super::{WITHIN, api, condition, objects};
use crate::run_log::Moment;
use crate::scenario::Context;
use crate::scenarios::session_pool::{GRACEFUL, Kind, SessionPool, TICK};
use crate::until::until;

/// Somebody else who writes to objects of the pool.
const OTHER: &str = "somebody";
/// How many workers an autoscaler wants.
const AUTOSCALED: usize = 3;
/// The objects of the pool below, but for the workload.
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

/// Each field that is edited: the object, a patch, and where it is.
fn edits() -> Vec<(ObjectKind, &'static str, Value, &'static str)> {
    let account = json!({"automountServiceAccountToken": true});
    // A port that somebody adds is theirs; this is a change of ours.
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
    // By this one the operator finds what it has made.
    let whose = json!({"metadata": {"labels": {SWARM_LABEL: "elsewhere"}}});
    edits.push((ObjectKind::ServiceAccount, "kept", whose, "/metadata/labels"));
    edits.extend(PARTS.map(|(kind, name)| (kind, name, label.clone(), "/metadata/labels")));
    edits
}

/// Fields of the pods, and the history of the workload, are put back in a pool of their own: nobody is to
/// repair one object more often within a minute than the operator does. The rollouts that begin are turned
/// back, and end.
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

/// Lets an autoscaler of Kubernetes own the number of workers of `pool`. It has no metrics, and needs none
/// for its bounds.
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

/// Removes the autoscaler, whose number of workers is there.
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

/// Deletes an object; returns how long it was gone.
async fn comes_back(context: &Context, kind: ObjectKind, name: &str) -> Result<Duration> {
    let api = api(context, kind);
    let uid = api.get_metadata(name).await?.uid();
    let deleted = Instant::now();
    api.delete(name, &DeleteParams::default()).await?;
    until(&format!("{kind} {name} to come back"), WITHIN, || async {
        let found = api.get_metadata(name).await?;
        ensure!(found.uid() != uid, "it is the old one");
        Ok(Some(deleted.elapsed()))
    })
    .await
}

/// Edits a field as somebody else; returns how long the edit stayed.
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
    // Containers and variables are merged by their names.
    let patch = if kind.is_workload() { Patch::Strategic(edit) } else { Patch::Merge(edit) };
    let patched = api.patch(name, &params, &patch).await?;
    let patched = serde_json::to_value(patched)?;
    ensure!(patched.pointer(field) != Some(&before), "{kind} {name}: {edit} changes nothing");
    let edited = Instant::now();
    until(&format!("{field} of {kind} {name} to be put back"), WITHIN, || async {
        let now = value().await?;
        ensure!(now == before, "it is {now}");
        Ok(Some(edited.elapsed()))
    })
    .await
}

/// Labels, annotations and containers of others, and the number of replicas where the Swarm does not say
/// it, are left alone, also while fields of ours are put back.
async fn foreign_fields_stay(context: &Context) -> Result<()> {
    let theirs = json!({"metadata": {"annotations": {"team": "x"}, "labels": {"team": "x"}}});
    let params = PatchParams { field_manager: Some(OTHER.into()), ..PatchParams::default() };
    let api = api(context, ObjectKind::Deployment);
    api.patch("kept", &params, &Patch::Merge(&theirs)).await?;
    let no_replicas = json!({"spec": {"replicas": null}});
    context
        .kubectl(&["patch", "swarm", "kept", "--type=merge", "--patch", &no_replicas.to_string()])
        .await?;
    // As an autoscaler does.
    context.kubectl(&["scale", "deployment", "kept", "--replicas=3"]).await?;
    let surge = json!({"spec": {"strategy": {"rollingUpdate": {"maxUnavailable": 1}}}});
    put_back(context, ObjectKind::Deployment, "kept", &surge, "/spec/strategy").await?;
    let found = context.api::<Deployment>().get("kept").await?;
    let replicas = found.spec.as_ref().and_then(|spec| spec.replicas);
    ensure!(replicas == Some(3), "the autoscaler's replicas became {replicas:?}");
    let (label, note) = (found.labels().get("team"), found.annotations().get("team"));
    ensure!(label.is_some() && note.is_some(), "what others wrote is gone: {:?}", found.metadata);
    context.kubectl(&["wait", "--for=condition=Ready", "swarm/kept", "--timeout=30s"]).await?;
    Ok(())
}

/// What is not labelled to be managed by the operator, the operator may not write, by its own fence.
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

/// A Deployment that somebody deletes comes back with as many workers as there were asked for, and the
/// jobs run again.
async fn the_workload_comes_back(context: &Context, pool: &SessionPool) -> Result<()> {
    let replicas = json!({"spec": {"replicas": 2}});
    context
        .kubectl(&["patch", "swarm", "kept", "--type=merge", "--patch", &replicas.to_string()])
        .await?;
    pool.at_rest().await?;
    // With the account the tokens of its pods are void, some seconds later. New pods have those of the new
    // account.
    comes_back(context, ObjectKind::ServiceAccount, "kept").await?;
    let gone = comes_back(context, ObjectKind::Deployment, "kept").await?;
    pool.at_rest().await?;
    context.laps.lap(format!("the Deployment was gone for {} ms", gone.as_millis()));
    let overlaps = pool.history()?.overlaps()?;
    context.laps.lap(format!("{} overlaps under AtLeastOnce", overlaps.len()));
    Ok(())
}

/// Somebody who writes the same field again and again wins for a while, and is named.
async fn a_contest_is_reported(context: &Context) -> Result<()> {
    let api = api(context, ObjectKind::Budget);
    let params = PatchParams { field_manager: Some(OTHER.into()), ..PatchParams::default() };
    let edit = json!({"spec": {"maxUnavailable": "50%"}});
    let message = until("a contest", WITHIN, || async {
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
