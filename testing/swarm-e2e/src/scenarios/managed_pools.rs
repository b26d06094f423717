//! Pools that the operator makes: a user writes only one object. The operator makes the other
//! objects, repairs them, and rolls them over once. It reports problems of the pool, and deletes
//! the pool with its Swarm.

mod fits;
mod gone;
mod kept;
mod killed;
mod made;
mod refused;
mod rolled;
mod runners;
mod secret;
mod upgraded;

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::core::DynamicObject;
use kube::{Api, ResourceExt};
use swarm_adapters_k8s::managed::wanted::ObjectKind;
use swarm_client::annotations::SWARM_LABEL;

use crate::scenario::Context;
use crate::until::until;

pub(super) use fits::run as fits;
pub(super) use gone::run as gone;
pub(super) use kept::run as kept;
pub(super) use killed::run as killed;
pub(super) use made::run as made;
pub(super) use refused::{run as refused, without_rights};
pub(super) use rolled::run as rolled;
pub(super) use runners::run as runners;
pub(super) use secret::run as secret;
pub(super) use upgraded::run as upgraded;

/// All objects of one kind in the namespace of the scenario.
pub(super) fn api(context: &Context, kind: ObjectKind) -> Api<DynamicObject> {
    Api::namespaced_with(context.client.clone(), &context.namespace, &kind.resource())
}

/// Selects the objects that were made for a Swarm.
fn made_for(swarm: &str) -> ListParams {
    ListParams::default().labels(&format!("{SWARM_LABEL}={swarm}"))
}

/// The objects that were made for a Swarm, as `Kind name`.
async fn objects(context: &Context, swarm: &str) -> Result<BTreeSet<String>> {
    let made = made_for(swarm);
    let mut found = BTreeSet::new();
    for kind in ObjectKind::ALL {
        for object in api(context, kind).list_metadata(&made).await?.items {
            found.insert(format!("{kind} {}", object.name_any()));
        }
    }
    Ok(found)
}

/// The UIDs of the pods of a Swarm.
async fn pods_of(context: &Context, swarm: &str) -> Result<BTreeSet<String>> {
    let made = made_for(swarm);
    let pods = context.api::<Pod>().list_metadata(&made).await?;
    let stay = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    Ok(stay.filter_map(ResourceExt::uid).collect())
}

/// Waits until a condition of a Swarm has this status and reason, and returns its message.
async fn condition(
    context: &Context,
    swarm: &str,
    kind: &str,
    (status, reason): (&str, &str),
) -> Result<String> {
    until(&format!("{kind} of {swarm} to be {status} {reason}"), || async {
        let path = format!(
            "-o=jsonpath={{range .status.conditions[?(@.type=='{kind}')]}}{{.status}} {{.reason}} \
             {{.message}}{{end}}"
        );
        let found = context.kubectl(&["get", "swarm", swarm, &path]).await?;
        let message = found.strip_prefix(&format!("{status} {reason} "));
        ensure!(message.is_some(), "it is: {found}");
        Ok(message.map(str::to_owned))
    })
    .await
}
