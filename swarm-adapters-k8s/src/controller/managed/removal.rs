//! Removes what was made for managed pools: one object that is not wanted any more, all of a Swarm that was
//! released, and what is left of Swarms that are gone. What somebody else made is never removed.

use std::fmt::Debug;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Preconditions};
use kube::core::{DynamicObject, PartialObjectMeta};
use kube::runtime::events::EventType;
use serde::de::DeserializeOwned;
use swarm_core::ports::StoreError;

use super::Context;
use crate::api::Swarm;
use crate::ledger::bounded;
use crate::managed::{self, ObjectKind, SWARM_LABEL};
use crate::status::RefusedRequest;
use crate::view::VIEW_LABEL;

impl Context {
    /// Removes one object that was made for the Swarm of this name, if it still is that.
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
        match found.filter(|it| managed::missing_labels(it.labels(), swarm).is_empty()) {
            Some(found) => self.delete_made(&api, &found, swarm, what).await,
            None => Ok(()),
        }
    }

    /// Deletes the very object that was found, unless it is going already, or was made for another Swarm
    /// than the labels say by now.
    async fn delete_made<K>(
        &self,
        api: &Api<K>,
        found: &PartialObjectMeta<K>,
        swarm: &str,
        what: String,
    ) -> Result<(), StoreError>
    where
        K: Clone + Debug + DeserializeOwned,
        PartialObjectMeta<K>: ResourceExt,
    {
        let is_of_another = managed::made_for(&found.metadata).is_some_and(|of| of != swarm);
        if is_of_another || found.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let (uid, resource_version) = (found.uid(), None);
        let params = DeleteParams {
            preconditions: Some(Preconditions { uid, resource_version }),
            ..DeleteParams::background()
        };
        tracing::info!(what, namespace = found.namespace(), "removed from a managed pool");
        match bounded(what, api.delete(&found.name_any(), &params)).await {
            // It is gone, or another one has its name.
            Ok(_) | Err(StoreError::Conflict { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Removes all that was made for the Swarm of this name, workloads first.
    async fn remove_pool(&self, namespace: &str, swarm: &str) -> Result<(), StoreError> {
        let of_swarm = ListParams::default().labels(&managed::selector_of(swarm));
        for kind in ObjectKind::ALL.into_iter().rev() {
            let api: Api<DynamicObject> =
                Api::namespaced_with(self.client.clone(), namespace, &kind.resource());
            let what = format!("each {kind} of Swarm `{swarm}`");
            let found = bounded(what, api.list_metadata(&of_swarm)).await?;
            for object in found.items {
                let what = format!("{kind} `{}`", object.name_any());
                self.delete_made(&api, &object, swarm, what).await?;
            }
        }
        Ok(())
    }

    /// Removes all that was made for a Swarm that was released. What may not be removed is left, and said
    /// so: the Swarm does not stay for it.
    pub(in crate::controller) async fn remove_managed_pool(
        &self,
        swarm: &Swarm,
    ) -> Result<(), StoreError> {
        if swarm.spec.pool.managed.is_none() {
            return Ok(());
        }
        let (namespace, name) = (swarm.namespace().unwrap_or_default(), swarm.name_any());
        let mut removed = self.remove_pool(&namespace, &name).await;
        if removed.is_ok() {
            removed = self.remove_view(swarm, &namespace).await;
        }
        let Err(StoreError::Refused { reason, .. }) = removed else { return removed };
        self.count_refused(RefusedRequest::Cleanup);
        let note = format!(
            "the pool is left, since {reason}; remove it with `kubectl delete \
             deployments,statefulsets,services,serviceaccounts,rolebindings,configmaps,\
             poddisruptionbudgets -l {SWARM_LABEL}={name}`"
        );
        tracing::warn!(namespace, swarm = name, note, "a managed pool is left");
        self.publish_event(swarm, EventType::Warning, "PoolLeft", note).await;
        Ok(())
    }

    /// Removes the view that was made for the pods of a managed pool.
    async fn remove_view(&self, swarm: &Swarm, namespace: &str) -> Result<(), StoreError> {
        if swarm.spec.view.as_ref().is_some_and(|view| view.config_map_name.is_some()) {
            return Ok(());
        }
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        let name = swarm.view_config_map();
        let what = format!("ConfigMap `{name}`");
        let found = bounded(what.clone(), api.get_metadata_opt(&name)).await?;
        let Some(found) = found.filter(|it| it.labels().contains_key(VIEW_LABEL)) else {
            return Ok(());
        };
        self.delete_made(&api, &found, &swarm.name_any(), what).await
    }

    /// Removes what was made for Swarms that do not exist any more.
    pub(in crate::controller) async fn sweep_pools(&self) {
        let swarms = &self.caches.swarms;
        if !swarms.is_filled() || !self.made.is_filled() {
            return;
        }
        for (namespace, swarm) in self.made.owners() {
            let is_managed = |it: &Swarm| it.spec.pool.managed.is_some();
            if swarms.get(&namespace, &swarm).is_some_and(|it| is_managed(&it)) {
                continue;
            }
            if let Err(error) = self.sweep_pool(&namespace, &swarm).await {
                tracing::warn!(namespace, swarm, %error, "what is left of a managed pool stays");
            }
        }
    }

    async fn sweep_pool(&self, namespace: &str, swarm: &str) -> Result<(), StoreError> {
        let api: Api<Swarm> = Api::namespaced(self.client.clone(), namespace);
        let named = ListParams::default().fields(&format!("metadata.name={swarm}"));
        // The cache may be late: a Swarm that is there keeps what was made for one of its name.
        let found = bounded(format!("Swarm `{swarm}`"), api.list(&named)).await?;
        if found.items.iter().any(|it| it.spec.pool.managed.is_some()) {
            return Ok(());
        }
        tracing::info!(namespace, swarm, "a managed pool is left of a Swarm that is gone");
        self.remove_pool(namespace, swarm).await
    }
}
