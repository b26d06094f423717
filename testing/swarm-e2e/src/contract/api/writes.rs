//! The contract of writes.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Status;
use serde_json::{Value, json};
use swarm_client::api::Swarm;

use super::{Place, applied, is_later, manager, map, refused, text, version};

pub(super) async fn versions_are_compared(place: &Place<'_>) -> Result<()> {
    let (maps, post, patch) = (place.maps(), PostParams::default(), PatchParams::default());
    let first = maps.create(&post, &map("versions", "1")).await?;
    refused(409, "a second creation", maps.create(&post, &map("versions", "1")).await)?;
    let mut next = first.clone();
    next.data = map("", "2").data;
    let second = maps.replace("versions", &post, &next).await?;
    is_later(&version(&first), &version(&second))?;
    refused(409, "a replacement of what is past", maps.replace("versions", &post, &next).await)?;
    let same = maps.replace("versions", &post, &second).await?;
    ensure!(version(&same) == version(&second), "a replacement by the same made a version");
    let merge = |version: &str, text: &str| {
        let metadata = json!({"resourceVersion": version});
        Patch::Merge(json!({"metadata": metadata, "data": {"text": text}}))
    };
    let late = maps.patch("versions", &patch, &merge(&version(&first), "3")).await;
    refused(409, "a patch of what is past", late)?;
    let third = maps.patch("versions", &patch, &merge(&version(&second), "3")).await?;
    ensure!(text(&third) == "3", "a patch of what is there");
    let free = Patch::Merge(json!({"data": {"text": null, "other": "4"}}));
    let fourth = maps.patch("versions", &patch, &free).await?;
    ensure!(fourth.data == Some([("other".to_owned(), "4".to_owned())].into()), "{fourth:?}");
    refused(404, "a patch of nothing", maps.patch("nothing", &patch, &free).await)?;
    refused(
        404,
        "a replacement of nothing",
        maps.replace("nothing", &post, &map("nothing", "")).await,
    )
}

pub(super) async fn a_dry_run_makes_nothing(place: &Place<'_>) -> Result<()> {
    let (maps, post) = (place.maps(), PostParams::default());
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let shown = maps.create(&dry, &map("dry", "1")).await?;
    ensure!(text(&shown) == "1", "a dry run shows what would be made");
    refused(404, "what was made by a dry run", maps.get("dry").await)?;
    maps.create(&post, &map("dry", "1")).await?;
    refused(409, "a dry run of what is there", maps.create(&dry, &map("dry", "1")).await)?;
    let dry = PatchParams { dry_run: true, ..PatchParams::apply("dry").force() };
    let shown = maps.patch("dry", &dry, &Patch::Apply(&map("dry", "2"))).await?;
    ensure!(text(&shown) == "2", "a dry apply shows what would be written");
    ensure!(text(&maps.get("dry").await?) == "1", "a dry apply has written");
    maps.patch("dry2", &dry, &Patch::Apply(&map("dry2", "1"))).await?;
    refused(404, "what was made by a dry apply", maps.get("dry2").await)
}

pub(super) async fn deletions_have_preconditions(place: &Place<'_>) -> Result<()> {
    let (maps, post) = (place.maps(), PostParams::default());
    let first = maps.create(&post, &map("deleted", "1")).await?;
    let with = |uid: Option<String>, resource_version: Option<String>| {
        DeleteParams::default().preconditions(Preconditions { uid, resource_version })
    };
    let other = with(Some("another".to_owned()), None);
    refused(409, "another object", maps.delete("deleted", &other).await)?;
    let mut next = first.clone();
    next.data = map("", "2").data;
    let second = maps.replace("deleted", &post, &next).await?;
    let outdated = with(first.uid(), Some(version(&first)));
    refused(409, "a state that is past", maps.delete("deleted", &outdated).await)?;
    maps.delete("deleted", &with(first.uid(), Some(version(&second)))).await?;
    refused(404, "what is gone", maps.delete("deleted", &DeleteParams::default()).await)?;
    refused(404, "what is gone", maps.get("deleted").await)?;
    let another = maps.create(&post, &map("deleted", "1")).await?;
    ensure!(another.uid() != first.uid(), "another object has a UID of its own");
    Ok(())
}

pub(super) async fn a_lease_is_made_by_a_put_unless_it_names_a_uid(
    place: &Place<'_>,
) -> Result<()> {
    let leases: Api<Lease> = Api::namespaced(place.client.clone(), place.namespace);
    let lease = |uid: Option<&str>| -> Result<Lease> {
        let metadata = json!({"name": "put", "uid": uid});
        Ok(serde_json::from_value(json!({"metadata": metadata, "spec": {"holderIdentity": "a"}}))?)
    };
    let post = PostParams::default();
    let named = leases.replace("put", &post, &lease(Some("gone"))?).await;
    refused(409, "a Lease that is gone", named)?;
    let made = leases.replace("put", &post, &lease(None)?).await?;
    let mut next = made.clone();
    next.spec.get_or_insert_default().holder_identity = Some("b".to_owned());
    is_later(&version(&made), &version(&leases.replace("put", &post, &next).await?))?;
    let other = leases.replace("put", &post, &lease(Some("gone"))?).await;
    refused(409, "another Lease", other)
}

pub(super) async fn managers_own_what_they_apply(place: &Place<'_>) -> Result<()> {
    let maps = place.maps();
    let apply = async |who: PatchParams, data: Value| {
        maps.patch("applied", &who, &applied("applied", &data)).await
    };
    let data =
        |map: &k8s_openapi::api::core::v1::ConfigMap| json!(map.data.clone().unwrap_or_default());
    let first = apply(manager("one"), json!({"a": "1", "b": "2"})).await?;
    let same = apply(manager("one"), json!({"a": "1", "b": "2"})).await?;
    ensure!(version(&first) == version(&same), "the same patch again made a version");
    let both = apply(manager("two"), json!({"b": "2", "c": "3"})).await?;
    ensure!(data(&both) == json!({"a": "1", "b": "2", "c": "3"}), "{both:?}");
    refused(409, "what another owns", apply(manager("two"), json!({"a": "9"})).await)?;
    let less = apply(manager("one"), json!({})).await?;
    ensure!(data(&less) == json!({"b": "2", "c": "3"}), "a field of both managers stays: {less:?}");
    let forced = apply(manager("one").force(), json!({"c": "4"})).await?;
    ensure!(data(&forced) == json!({"b": "2", "c": "4"}), "{forced:?}");
    refused(409, "what was taken", apply(manager("two"), json!({"b": "2", "c": "3"})).await)?;
    let edit = Patch::Merge(json!({"data": {"b": "5"}}));
    let editor = PatchParams { field_manager: Some("editor".to_owned()), ..PatchParams::default() };
    let edited = maps.patch("applied", &editor, &edit).await?;
    let managers = edited.managed_fields().iter().filter_map(|it| it.manager.clone());
    let mut managers: Vec<_> = managers.collect();
    managers.sort();
    ensure!(managers == ["editor", "one"], "who owns nothing is not named: {managers:?}");
    refused(409, "what was edited", apply(manager("two"), json!({"b": "2"})).await)
}

pub(super) async fn an_apply_of_another_object_is_refused(place: &Place<'_>) -> Result<()> {
    let maps = place.maps();
    let with_uid = |name: &str| {
        let metadata = json!({"name": name, "uid": "another"});
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        Patch::Apply(object)
    };
    let gone = maps.patch("never", &manager("one").force(), &with_uid("never")).await;
    refused(409, "an apply of what is gone", gone)?;
    maps.create(&PostParams::default(), &map("there", "1")).await?;
    let other = maps.patch("there", &manager("one").force(), &with_uid("there")).await;
    is_about_the_uid("an apply of another object", other)?;
    let merge = Patch::Merge(json!({"metadata": {"uid": "another"}, "data": {"text": "2"}}));
    let other = maps.patch("there", &PatchParams::default(), &merge).await;
    is_about_the_uid("a patch of another object", other)
}

/// Checks that a change with another UID is refused, so that it only changes the intended object.
/// The API server refuses the UID as an invalid field, with 422 instead of a conflict.
fn is_about_the_uid<T: std::fmt::Debug>(what: &str, answer: kube::Result<T>) -> Result<()> {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 422 => {
            let causes = status.details.iter().flat_map(|details| &details.causes);
            let fields: Vec<_> = causes.map(|cause| cause.field.as_str()).collect();
            ensure!(fields.contains(&"metadata.uid"), "{what}: {fields:?}");
            Ok(())
        }
        other => refused(422, what, other),
    }
}

pub(super) async fn json_patches_test(place: &Place<'_>) -> Result<()> {
    let (maps, params) = (place.maps(), PatchParams::default());
    maps.create(&PostParams::default(), &map("tested", "1")).await?;
    let patch = |value: &Value, finalizers: &Value| -> Result<Patch<()>> {
        let path = "/metadata/finalizers";
        Ok(Patch::Json(serde_json::from_value(json!([
            {"op": "test", "path": path, "value": value},
            {"op": "add", "path": path, "value": finalizers},
        ]))?))
    };
    let names = json!(["swarm.k8slab.info/tested"]);
    let added = maps.patch("tested", &params, &patch(&Value::Null, &names)?).await?;
    ensure!(added.finalizers() == ["swarm.k8slab.info/tested"], "{added:?}");
    let again = maps.patch("tested", &params, &patch(&Value::Null, &names)?).await;
    refused(422, "a test that fails", again)?;
    maps.patch("tested", &params, &patch(&names, &json!([]))?).await?;
    Ok(())
}

pub(super) async fn status_and_spec_have_endpoints_of_their_own(place: &Place<'_>) -> Result<()> {
    let swarms: Api<Swarm> = Api::namespaced(place.client.clone(), place.namespace);
    let object = |jobs: &Value, status: &Value| {
        let pool = json!({"statefulSet": {"name": "nobody"}});
        json!({
            "apiVersion": "swarm.k8slab.info/v1alpha1", "kind": "Swarm",
            "metadata": {"name": "endpoints"},
            "spec": {"pool": pool, "jobs": jobs, "rebalance": {"paused": true}}, "status": status,
        })
    };
    let one = manager("one").force();
    let generation = |swarm: &Swarm| swarm.metadata.generation.unwrap_or_default();
    let whole = Patch::Apply(object(&json!([{"name": "a"}]), &json!({"jobs": 7})));
    let made = swarms.patch("endpoints", &one, &whole).await?;
    ensure!(made.status.is_none() && generation(&made) == 1, "{made:?}");
    let found = swarms.patch_status("endpoints", &one, &whole).await?;
    let jobs = found.status.as_ref().map(|status| status.jobs);
    ensure!(jobs == Some(7), "{found:?}");
    ensure!(generation(&found) == 1, "a status is no other generation");
    let other = Patch::Apply(object(&json!([{"name": "b"}]), &Value::Null));
    let changed = swarms.patch("endpoints", &one, &other).await?;
    ensure!(generation(&changed) == 2 && changed.status == found.status, "{changed:?}");
    let label = Patch::Merge(json!({"metadata": {"labels": {"x": "y"}}}));
    let labelled = swarms.patch("endpoints", &PatchParams::default(), &label).await?;
    ensure!(generation(&labelled) == 2, "a label is no other generation");
    let mut unnamed = labelled;
    unnamed.metadata.resource_version = None;
    let unnamed = swarms.replace("endpoints", &PostParams::default(), &unnamed).await;
    refused(422, "a replacement without a version", unnamed)?;
    // An operator may hold the Swarm by a finalizer, so its end is not awaited.
    swarms.delete("endpoints", &DeleteParams::default()).await?;
    Ok(())
}

pub(super) async fn finalizers_keep_what_is_deleted(place: &Place<'_>) -> Result<()> {
    let (maps, params) = (place.maps(), PatchParams::default());
    let mut held = map("held", "1");
    held.finalizers_mut().push("swarm.k8slab.info/held".to_owned());
    maps.create(&PostParams::default(), &held).await?;
    maps.delete("held", &DeleteParams::default()).await?;
    let leaving = maps.get("held").await?;
    ensure!(leaving.metadata.deletion_timestamp.is_some(), "{leaving:?}");
    let finalizers = |names: Value| Patch::Merge(json!({"metadata": {"finalizers": names}}));
    let more = finalizers(json!(["swarm.k8slab.info/held", "swarm.k8slab.info/more"]));
    refused(422, "a finalizer that comes late", maps.patch("held", &params, &more).await)?;
    maps.patch("held", &params, &Patch::Merge(json!({"data": {"text": "2"}}))).await?;
    maps.patch("held", &params, &finalizers(Value::Null)).await?;
    refused(404, "what nothing holds any more", maps.get("held").await)
}

pub(super) async fn pods_are_evicted_as_they_were_seen(place: &Place<'_>) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(place.client.clone(), place.namespace);
    // No node matches the selector, so no kubelet takes part.
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "evicted"},
        "spec": {
            "nodeSelector": {"swarm.k8slab.info/nowhere": "true"},
            "containers": [{"name": "c", "image": "none"}],
        },
    }))?;
    let made = pods.create(&PostParams::default(), &pod).await?;
    // The request is built as in our adapter, because kube's own request loses the preconditions.
    let evict = async |uid: Option<String>| {
        let eviction = json!({
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "evicted"},
            "deleteOptions": {"preconditions": {"uid": uid}},
        });
        let post = PostParams::default();
        pods.create_subresource::<_, Status>("eviction", "evicted", &post, &eviction).await
    };
    refused(409, "another pod", evict(Some("another".to_owned())).await)?;
    evict(made.uid()).await?;
    refused(404, "an evicted pod", pods.get("evicted").await)
}

pub(super) async fn workloads_are_scaled_as_they_were_seen(place: &Place<'_>) -> Result<()> {
    let sets: Api<StatefulSet> = Api::namespaced(place.client.clone(), place.namespace);
    let labels = json!({"app": "scaled"});
    let container = json!({"name": "c", "image": "none"});
    let spec = json!({
        "nodeSelector": {"swarm.k8slab.info/nowhere": "true"}, "containers": [container],
    });
    let set: StatefulSet = serde_json::from_value(json!({
        "metadata": {"name": "scaled"},
        "spec": {
            "replicas": 0, "serviceName": "scaled", "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }))?;
    sets.create(&PostParams::default(), &set).await?;
    let scale = |version: Option<&str>| {
        Patch::Merge(json!({"metadata": {"resourceVersion": version}, "spec": {"replicas": 1}}))
    };
    let params = PatchParams::default();
    let past = sets.patch_scale("scaled", &params, &scale(Some("1"))).await;
    refused(409, "a workload that is past", past)?;
    let scaled = sets.patch_scale("scaled", &params, &scale(None)).await?;
    let replicas = scaled.spec.context("a scale has a spec")?.replicas;
    ensure!(replicas == Some(1), "{replicas:?}");
    let after = sets.get("scaled").await?.spec.and_then(|spec| spec.replicas);
    ensure!(after == Some(1), "{after:?}");
    sets.delete("scaled", &DeleteParams::default()).await?;
    Ok(())
}
