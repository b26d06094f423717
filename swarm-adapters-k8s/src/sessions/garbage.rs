//! Removes leftovers of ended sessions that no ledger names: the view first, then the Lease. So a
//! missing Lease implies a missing view.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease as Object;
use kube::Api;
use kube::api::{DeleteParams, Preconditions};
use swarm_client::api::WorkerView;
use swarm_core::Ledger;
use swarm_core::handover::{Holder, SessionId};
use swarm_core::ports::StoreError;

use super::leases::Known;
use super::{KnownSessions, Sessions};
use crate::clock;
use crate::requests::bounded;
use crate::status::RefusedRequest;
use crate::turn::Turn;

/// Age that a leftover Lease must reach before the sweep deletes it.
const LEFT_FOR: Duration = Duration::from_secs(30);
/// The most surplus Leases that one sweep deletes.
const SURPLUS_AT_ONCE: usize = 256;
/// The most objects that one turn removes: it is housekeeping, and others wait.
const AT_ONCE: usize = 32;

impl Sessions {
    /// Removes the leftovers of this Swarm's ended sessions that `ledger` does not name. Returns
    /// whether more are left.
    pub(crate) async fn collect_garbage(
        &self,
        turn: &mut Turn<'_>,
        ledger: &Ledger,
        sessions: &KnownSessions,
    ) -> bool {
        let namespace = turn.namespace;
        let named = ledger.sessions();
        let mut over = sessions.overseer.garbage(ledger);
        // The views include leftovers of earlier operators.
        let views = self.views.of_swarm(namespace, turn.name).into_iter();
        let is_left = |it: &SessionId| !named.contains_key(it) && self.is_left(namespace, it);
        over.extend(views.filter(is_left));
        let is_more = AT_ONCE < over.len();
        for session in over.into_iter().take(AT_ONCE) {
            let known = self.leases.get(namespace, &session);
            match self.remove(namespace, &session, known.as_ref()).await {
                Ok(()) => {}
                Err(StoreError::Refused { reason, .. }) => {
                    self.metrics.count_refused(RefusedRequest::Cleanup);
                    turn.refusals.add(RefusedRequest::Cleanup, reason);
                }
                Err(error) => {
                    tracing::warn!(%session, %error, "the leftovers of a session were not removed");
                }
            }
        }
        is_more
    }

    /// Whether the session can no longer act: it closed its Lease, or its Lease expired long ago
    /// and its pod was deleted.
    fn is_left(&self, namespace: &str, session: &SessionId) -> bool {
        let Some(known) = self.leases.get(namespace, session) else { return true };
        let is_silent = known.is_silent(clock::now());
        match known.seen.lease.holder {
            Holder::Closed => true,
            Holder::Revoked => is_silent,
            Holder::Session => is_silent && !self.caches.has_pod(namespace, session.pod_uid()),
        }
    }

    /// Removes the view of a session if the view still has its known version. Returns whether the
    /// view no longer exists. A view that was written since, perhaps by another replica, is checked
    /// again later.
    pub(crate) async fn remove_view_of(
        &self,
        namespace: &str,
        session: &str,
    ) -> Result<bool, StoreError> {
        let Some(preconditions) = self.views.as_known(namespace, session) else { return Ok(true) };
        let api: Api<WorkerView> = Api::namespaced(self.client.clone(), namespace);
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let removed = api.delete(session, &params);
        match bounded(format!("WorkerView `{session}`"), removed).await {
            Ok(_) => {
                self.views.expect_gone(namespace, session);
                Ok(true)
            }
            Err(StoreError::Conflict { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes view and Lease, if they still have their known versions.
    async fn remove(
        &self,
        namespace: &str,
        session: &SessionId,
        known: Option<&Known>,
    ) -> Result<(), StoreError> {
        let name = session.to_string();
        if !self.remove_view_of(namespace, &name).await? {
            return Ok(());
        }
        let Some(known) = known else { return Ok(()) };
        let api: Api<Object> = Api::namespaced(self.client.clone(), namespace);
        let preconditions = Preconditions {
            uid: Some(known.uid.clone()),
            resource_version: Some(known.seen.lease.version.0.to_string()),
        };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let removed = api.delete(&name, &params);
        is_gone(bounded(format!("Lease `{name}`"), removed).await)
    }

    /// Removes the Leases of deleted pods that no Swarm knows, and the surplus Leases of existing
    /// pods.
    pub(crate) async fn sweep(&self) {
        self.sweep_surplus().await;
        let now = clock::now();
        for (namespace, known) in self.leases.all() {
            let session = &known.seen.session;
            let is_left = LEFT_FOR < now.since(known.since)
                && self.is_left(&namespace, session)
                && !self.caches.has_pod(&namespace, session.pod_uid())
                && !self.views.is_there(&namespace, &session.to_string());
            if is_left && let Err(error) = self.remove(&namespace, session, Some(&known)).await {
                if matches!(error, StoreError::Refused { .. }) {
                    self.metrics.count_refused(RefusedRequest::Cleanup);
                }
                tracing::warn!(%session, %error, "a leftover Lease was not removed");
            }
        }
    }

    /// Deletes the surplus Leases of pods, a bounded number at a time.
    async fn sweep_surplus(&self) {
        for (namespace, name, uid) in self.leases.surplus().into_iter().take(SURPLUS_AT_ONCE) {
            let api: Api<Object> = Api::namespaced(self.client.clone(), &namespace);
            // The UID alone is the precondition, since the pod may still write into the Lease.
            let preconditions = Some(Preconditions { uid: Some(uid), resource_version: None });
            let params = DeleteParams { preconditions, ..DeleteParams::default() };
            let removed = api.delete(&name, &params);
            match is_gone(bounded(format!("Lease `{name}`"), removed).await) {
                Ok(()) => self.leases.note_swept(&namespace, &name),
                Err(error) => tracing::warn!(name, %error, "a surplus Lease was not removed"),
            }
        }
    }
}

/// Treats a conflict as success: another replica removed the object, or it changed and is checked
/// again.
fn is_gone<T>(removed: Result<T, StoreError>) -> Result<(), StoreError> {
    match removed {
        Ok(_) | Err(StoreError::Conflict { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use swarm_core::overseer::ViewMark;

    use crate::testing::{World, conflict, failure};

    /// Removes the view of session `pod-1` while the API server answers with `code`. Returns the
    /// deletion that was requested, and whether the view counts as removed.
    async fn removed(code: u16) -> (serde_json::Value, bool) {
        let scene = World::default().with(move |_| match code {
            200 => (200, json!({"kind": "Status", "status": "Success"})),
            404 => failure(404, "NotFound", "no"),
            _ => conflict(),
        });
        let view = serde_json::from_value(json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": {"name": "pod-1", "namespace": "n", "uid": "u", "resourceVersion": "7"},
        }));
        let (views, content) =
            (&scene.services.sessions.views, ViewMark { incarnation: 1, revision: 1, digest: 1 });
        views.writing("n", "pod-1", content);
        assert!(views.wrote("n", "pod-1", Some(&view.unwrap())));
        let is_gone = scene.services.sessions.remove_view_of("n", "pod-1").await.unwrap();
        assert_eq!(is_gone, !views.is_there("n", "pod-1"));
        let asked = scene.asked();
        assert!(asked.len() == 1 && asked[0].is("DELETE", "/workerviews/pod-1"), "{asked:?}");
        (asked[0].body["preconditions"].clone(), is_gone)
    }

    #[tokio::test]
    async fn a_view_is_removed_as_it_was_seen_and_one_that_has_changed_is_no_error() {
        let as_seen = json!({"uid": "u", "resourceVersion": "7"});
        assert_eq!(removed(200).await, (as_seen.clone(), true));
        assert_eq!(removed(409).await, (as_seen.clone(), false));
        assert_eq!(removed(404).await, (as_seen, false));
    }
}
