//! Removes objects of managed pools: single surplus objects, all objects of a released Swarm, and
//! the rest of Swarms that no longer exist. Objects that the operator did not create are never
//! removed.

use std::fmt::Debug;
use std::time::Duration;

use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use kube::core::{DynamicObject, PartialObjectMeta};
use serde::de::DeserializeOwned;
use serde_json::json;
use swarm_client::annotations::{KEY_ANNOTATION, OWNER_ANNOTATION, SWARM_LABEL, VIEW_LABEL};
use swarm_client::api::{FIELD_MANAGER, Swarm};
use swarm_core::ports::StoreError;

use super::ManagedPools;
use super::wanted::{self, ObjectKind};
use crate::requests::bounded;
use crate::status::{EventReason, RefusedRequest};
use crate::turn::Turn;
use crate::watch::streams;

/// The kinds of objects that make pods.
const WORKLOADS: [ObjectKind; 2] = [ObjectKind::Deployment, ObjectKind::StatefulSet];

/// The time in which workers end after the removal of their workload: the kubelet asks their pods to
/// end, and they close their Leases.
const END_MAX: Duration = Duration::from_secs(15);

/// The extent of the sweep of one pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Swept {
    /// No object is left that the sweep may remove.
    Entirely,
    /// The workload was removed, and the other objects are left.
    Workload,
}

/// The effect of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Removed {
    /// No object was deleted: none exists, or each one is being deleted already.
    Nothing,
    /// At least one object was deleted.
    Some,
}

/// The end of the ConfigMap with the view of a deleted Swarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndOfView {
    /// The ConfigMap stays: it is not this Swarm's, or is being deleted already.
    Stays,
    /// The ConfigMap stays without the view: it has other content.
    Released,
    /// The ConfigMap is deleted: it holds only the view.
    Deleted,
}

fn end_of_view(found: &ConfigMap, swarm: &str) -> EndOfView {
    let (labels, annotations) = (found.labels(), found.annotations());
    let is_ours = labels.contains_key(VIEW_LABEL)
        && annotations.get(OWNER_ANNOTATION).is_some_and(|owner| owner == swarm);
    if !is_ours || found.metadata.deletion_timestamp.is_some() {
        return EndOfView::Stays;
    }
    let key = annotations.get(KEY_ANNOTATION);
    let mut texts = found.data.iter().flatten();
    let has_others = texts.any(|(name, _)| Some(name) != key)
        || found.binary_data.iter().flatten().next().is_some();
    if has_others { EndOfView::Released } else { EndOfView::Deleted }
}

impl ManagedPools {
    /// Removes one object, if it is still labelled as created for the Swarm of this name.
    pub(super) async fn remove_made(
        &self,
        kind: ObjectKind,
        namespace: &str,
        name: &str,
        swarm: &str,
    ) -> Result<(), StoreError> {
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), namespace, &kind.resource());
        let what = format!("{kind} `{name}`");
        let found = bounded(what.clone(), api.get_metadata_opt(name)).await?;
        match found.filter(|it| wanted::missing_labels(it.labels(), swarm).is_empty()) {
            Some(found) => self.delete_made(&api, &found, swarm, what).await.map(drop),
            None => Ok(()),
        }
    }

    /// Deletes exactly the object `found`. Keeps it if it is being deleted already, or was created
    /// for another Swarm than its labels say.
    async fn delete_made<K>(
        &self,
        api: &Api<K>,
        found: &PartialObjectMeta<K>,
        swarm: &str,
        what: String,
    ) -> Result<Removed, StoreError>
    where
        K: Clone + Debug + DeserializeOwned,
        PartialObjectMeta<K>: ResourceExt,
    {
        let is_of_another = wanted::made_for(&found.metadata).is_some_and(|of| of != swarm);
        if is_of_another || found.metadata.deletion_timestamp.is_some() {
            return Ok(Removed::Nothing);
        }
        let (uid, resource_version) = (found.uid(), None);
        let params = DeleteParams {
            preconditions: Some(Preconditions { uid, resource_version }),
            ..DeleteParams::background()
        };
        tracing::info!(what, namespace = found.namespace(), "removed from a managed pool");
        match bounded(what, api.delete(&found.name_any(), &params)).await {
            // The object no longer exists, or another one has its name.
            Ok(_) | Err(StoreError::Conflict { .. }) => Ok(Removed::Some),
            Err(error) => Err(error),
        }
    }

    /// Removes all objects that were created for the Swarm of this name, workloads first.
    async fn remove_pool(&self, namespace: &str, swarm: &str) -> Result<(), StoreError> {
        self.remove_kinds(ObjectKind::ALL.into_iter().rev(), namespace, swarm).await.map(drop)
    }

    /// Removes the workload of a managed pool. Keeps all other objects, which its pods need to end.
    pub(crate) async fn remove_workloads(&self, turn: &Turn<'_>) -> Result<(), StoreError> {
        if turn.swarm.spec.pool.managed.is_none() {
            return Ok(());
        }
        self.remove_kinds(WORKLOADS.into_iter(), turn.namespace, turn.name).await.map(drop)
    }

    /// Removes the objects of these kinds that were created for the Swarm of this name, in the
    /// order of the kinds.
    async fn remove_kinds(
        &self,
        kinds: impl Iterator<Item = ObjectKind>,
        namespace: &str,
        swarm: &str,
    ) -> Result<Removed, StoreError> {
        let mut removed = Removed::Nothing;
        let selected = ListParams::default().labels(&wanted::selector_of(swarm));
        let of_swarm = selected.limit(streams::PAGE_OF_METADATA);
        for kind in kinds {
            let api: Api<DynamicObject> =
                Api::namespaced_with(self.client.clone(), namespace, &kind.resource());
            let pages = streams::pages(of_swarm.clone(), |page| {
                let (api, what) = (&api, format!("each {kind} of Swarm `{swarm}`"));
                async move { bounded(what, api.list_metadata(&page)).await }
            });
            let mut pages = std::pin::pin!(pages);
            while let Some(found) = pages.try_next().await? {
                for object in found {
                    let what = format!("{kind} `{}`", object.name_any());
                    if self.delete_made(&api, &object, swarm, what).await? == Removed::Some {
                        removed = Removed::Some;
                    }
                }
            }
        }
        Ok(removed)
    }

    /// Removes all objects that were created for a released Swarm. If the API server refuses, it
    /// leaves them and reports that. The Swarm does not wait for them.
    pub(crate) async fn remove(&self, turn: &Turn<'_>) -> Result<(), StoreError> {
        let Turn { swarm, namespace, name, .. } = *turn;
        if swarm.spec.pool.managed.is_none() {
            return Ok(());
        }
        let mut removed = self.remove_pool(namespace, name).await;
        if removed.is_ok() {
            removed = self.remove_view(turn).await;
        }
        let Err(StoreError::Refused { reason, .. }) = removed else { return removed };
        self.metrics.count_refused(RefusedRequest::Cleanup);
        let note = format!(
            "the pool is left, since {reason}; remove it with `kubectl delete \
             deployments,statefulsets,services,serviceaccounts,rolebindings,configmaps,\
             poddisruptionbudgets -l {SWARM_LABEL}={name}`"
        );
        tracing::warn!(namespace, swarm = name, note, "a managed pool was not removed");
        self.events.publish(swarm, EventReason::PoolLeft, note).await;
        Ok(())
    }

    /// Removes the view of a managed pool. If the ConfigMap has another owner or other content, it
    /// removes only the operator's fields. A user with the right to delete a Swarm may lack the
    /// right to delete a ConfigMap.
    async fn remove_view(&self, turn: &Turn<'_>) -> Result<(), StoreError> {
        let Turn { swarm, namespace, .. } = *turn;
        if swarm.spec.view.as_ref().is_some_and(|view| view.config_map_name.is_some()) {
            return Ok(());
        }
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        let name = swarm.view_config_map();
        let what = format!("ConfigMap `{name}`");
        let Some(found) = bounded(what.clone(), api.get_opt(&name)).await? else { return Ok(()) };
        let (uid, resource_version) = (found.uid(), found.resource_version());
        match end_of_view(&found, turn.name) {
            EndOfView::Stays => Ok(()),
            EndOfView::Released => {
                tracing::info!(what, namespace, "kept without the view, since it has other keys");
                let nothing = json!({
                    "apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {"name": name, "uid": uid, "resourceVersion": resource_version},
                });
                let params = PatchParams::apply(FIELD_MANAGER).force();
                bounded(what, api.patch(&name, &params, &Patch::Apply(nothing))).await.map(drop)
            }
            EndOfView::Deleted => {
                tracing::info!(what, namespace, "removed from a managed pool");
                // The precondition requires the version that was read: another client may have
                // added a key since.
                let preconditions = Some(Preconditions { uid, resource_version });
                let params = DeleteParams { preconditions, ..DeleteParams::background() };
                bounded(what, api.delete(&name, &params)).await.map(drop)
            }
        }
    }

    /// Removes objects that were created for Swarms that no longer exist. Returns the time until
    /// another sweep has to remove the rest of them, if any.
    pub(crate) async fn sweep(&self) -> Option<Duration> {
        let swarms = &self.caches.swarms;
        if !swarms.is_filled() || !self.made.is_filled() {
            return None;
        }
        let mut again_in = None;
        for (namespace, swarm) in self.made.owners() {
            let is_managed = |it: &Swarm| it.spec.pool.managed.is_some();
            if swarms.get(&namespace, &swarm).is_some_and(|it| is_managed(&it)) {
                continue;
            }
            match self.sweep_pool(&namespace, &swarm).await {
                Ok(Swept::Entirely) => {}
                Ok(Swept::Workload) => again_in = Some(END_MAX),
                Err(error) => {
                    tracing::warn!(namespace, swarm, %error, "a managed pool was not swept");
                }
            }
        }
        again_in
    }

    /// Removes the pool of a Swarm that does not exist: the workload in one sweep, and all else in
    /// the next one. Between the two the workers end, and close their Leases with the rights of
    /// their account.
    async fn sweep_pool(&self, namespace: &str, swarm: &str) -> Result<Swept, StoreError> {
        let api: Api<Swarm> = Api::namespaced(self.client.clone(), namespace);
        let named = ListParams::default().fields(&format!("metadata.name={swarm}"));
        // The cache may be stale: an existing Swarm keeps the objects of its name. The request is a
        // list of one Swarm, since a `get` also returns "not found" for Swarms that are temporarily
        // not served.
        let found = bounded(format!("Swarm `{swarm}`"), api.list(&named)).await?;
        if found.items.iter().any(|it| it.spec.pool.managed.is_some()) {
            return Ok(Swept::Entirely);
        }
        tracing::info!(namespace, swarm, "removing a managed pool whose Swarm no longer exists");
        match self.remove_kinds(WORKLOADS.into_iter(), namespace, swarm).await? {
            Removed::Some => Ok(Swept::Workload),
            Removed::Nothing => {
                self.remove_pool(namespace, swarm).await?;
                Ok(Swept::Entirely)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use serde_json::Value;

    use super::*;
    use crate::testing::{Asked, World, swarm};

    /// A ConfigMap that holds the view of Swarm `owner` in `key`, with the texts `data`.
    fn view(owner: &str, key: &str, data: &Value) -> Value {
        let annotations = json!({OWNER_ANNOTATION: owner, KEY_ANNOTATION: key});
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": data,
            "metadata": {
                "name": "a-config", "namespace": "n", "uid": "u", "resourceVersion": "7",
                "labels": {VIEW_LABEL: "true"}, "annotations": annotations,
            },
        })
    }

    /// The requests about `a-config`, without reads, when the managed Swarm `a` is deleted.
    async fn removing(map: Value) -> Vec<Asked> {
        let spec = json!({"pool": {"managed": {}}, "jobs": []});
        let world = World { swarms: vec![swarm("a", &spec)], ..World::default() };
        let scene = world.with(move |asked| {
            let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": []});
            (200, if asked.path.ends_with("/a-config") { map.clone() } else { list })
        });
        scene.services.managed.remove(&Turn::of(&scene.swarm("a"))).await.unwrap();
        let mut asked = scene.asked();
        asked.retain(|it| it.method != Method::GET);
        asked
    }

    /// A user who may create and delete a managed Swarm, but no ConfigMap, cannot use that to
    /// remove other content.
    #[tokio::test]
    async fn of_a_view_that_is_anothers_nothing_is_removed() {
        let key = "config.yml";
        let mut unlabelled = view("a", key, &json!({key: "workloads:"}));
        unlabelled["metadata"]["labels"] = json!({});
        let mut unclaimed = view("a", key, &json!({key: "workloads:"}));
        unclaimed["metadata"]["annotations"] = json!({});
        let anothers = view("b", key, &json!({key: "workloads:"}));
        for map in [unlabelled, unclaimed, anothers] {
            let asked = removing(map.clone()).await;
            assert!(asked.is_empty(), "{map}: {asked:?}");
        }
    }

    #[tokio::test]
    async fn a_view_next_to_other_keys_is_released_and_they_stay() {
        let key = "config.yml";
        let text = view("a", key, &json!({key: "workloads:", "nginx.conf": "listen 8080;"}));
        let mut binary = view("a", key, &json!({key: "workloads:"}));
        binary["binaryData"] = json!({"logo": "AA=="});
        for map in [text, binary] {
            let asked = removing(map.clone()).await;
            let [patch] = &asked[..] else { panic!("{map}: {asked:?}") };
            assert!(patch.is("PATCH", "/configmaps/a-config"), "{map}: {patch:?}");
            let version = json!({"name": "a-config", "uid": "u", "resourceVersion": "7"});
            assert_eq!(patch.body["metadata"], version, "applied, it drops all that was ours");
            assert_eq!(patch.body["data"], Value::Null);
        }
    }

    #[tokio::test]
    async fn a_view_that_is_alone_is_removed_as_it_was_seen() {
        let asked = removing(view("a", "config.yml", &json!({"config.yml": "workloads:"}))).await;
        let [delete] = &asked[..] else { panic!("{asked:?}") };
        assert!(delete.is("DELETE", "/configmaps/a-config"), "{delete:?}");
        assert_eq!(delete.body["preconditions"], json!({"uid": "u", "resourceVersion": "7"}));
    }
}
