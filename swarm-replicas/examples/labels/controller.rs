//! A controller that writes the labels of each ConfigMap into one of its annotations.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::runtime::{Controller, WatchStreamExt as _, reflector, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use swarm_replicas::{ControllerError, Member, Permit, PermitError, Weight};

/// The annotation with the labels, as in `app=web,team=x`.
pub(crate) const LABELS: &str = "example.com/labels";

type Error = PermitError<kube::Error>;

/// The labels of an object as one text.
pub(crate) fn labels(map: &ConfigMap) -> String {
    let labels = map.labels().iter().map(|(key, value)| format!("{key}={value}"));
    labels.collect::<Vec<_>>().join(",")
}

async fn reconcile(
    map: Arc<ConfigMap>,
    client: Arc<Client>,
    permit: Arc<Permit>,
) -> Result<Action, Error> {
    let wanted = labels(&map);
    if map.annotations().get(LABELS) != Some(&wanted) {
        let api: Api<ConfigMap> =
            Api::namespaced((*client).clone(), &map.namespace().unwrap_or_default());
        // The patch names the version that it was decided on, so a late request changes nothing.
        let patch = Patch::Merge(json!({"metadata": {
            "resourceVersion": map.resource_version(), "annotations": {LABELS: wanted},
        }}));
        permit.run(api.patch(&map.name_any(), &PatchParams::default(), &patch)).await?;
    }
    Ok(Action::await_change())
}

/// Runs the controller in a namespace, for the share of one member, until its membership ends.
pub(crate) async fn run(
    client: Client,
    namespace: &str,
    member: &Member,
) -> Result<(), ControllerError> {
    let mut share = member.host::<ConfigMap>("labels", Weight::default())?;
    let (store, writer) = reflector::store();
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let maps = watcher(maps, watcher::Config::default());
    let again =
        |_: Arc<ConfigMap>, _: &Error, _: Arc<Client>| Action::requeue(Duration::from_secs(1));
    Controller::for_stream(share.track(writer, maps.default_backoff()), store)
        .reconcile_on(share.gained())
        .graceful_shutdown_on(member.ended())
        .run(share.guard(reconcile), share.guard_errors(again), Arc::new(client))
        .for_each(|_| std::future::ready(()))
        .await;
    Ok(())
}
