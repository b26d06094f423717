//! Revokes Leases and looks for missing ones, as the overseer asks.

use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease as Object;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use swarm_client::session::revocation;
use swarm_core::handover::{LeaseVersion, SessionId};
use swarm_core::overseer::{Answer, Effect, Fact, Overseer};
use swarm_core::ports::StoreError;

use super::leases::Known;
use super::{KnownSessions, Sessions};
use crate::pool::observe::unix_time_us;
use crate::requests::bounded;
use crate::status::RefusedRequest;
use crate::turn::Turn;
use crate::watch::rollback::Epoch;
use crate::{clock, version};

/// The most concurrent requests.
const AT_A_TIME: usize = 16;

impl Sessions {
    /// Carries out the overseer's orders: looks for Leases that no watch shows, and revokes the
    /// Leases of silent sessions.
    pub(crate) async fn revoke_due(
        &self,
        turn: &mut Turn<'_>,
        sessions: &mut KnownSessions,
    ) -> Result<(), StoreError> {
        let namespace = turn.namespace;
        let is_shown = |session: &SessionId| self.leases.get(namespace, session).is_some();
        let (mut missing, mut silent) = (Vec::new(), Vec::new());
        for effect in sessions.overseer.due(clock::now(), unix_time_us(), is_shown) {
            match effect {
                Effect::LookUp(session) => missing.push(session),
                Effect::Revoke(session, version) => silent.push((session, version)),
            }
        }
        // A missing Lease is proof that its session has ended. A found Lease is not proof, so it is
        // recorded first.
        self.look_up(namespace, missing, &mut sessions.overseer).await?;
        for reason in self.revoke_silent(namespace, silent, sessions).await {
            turn.refusals.add(RefusedRequest::Revocation, reason);
        }
        // The requests may have found newer Leases, so the Leases are read again.
        let leases = self.leases_of(namespace, sessions);
        sessions.learn_leases(leases);
        Ok(())
    }

    /// Revokes Leases. Returns the reasons of the API server's refusals.
    async fn revoke_silent(
        &self,
        namespace: &str,
        silent: Vec<(SessionId, LeaseVersion)>,
        sessions: &mut KnownSessions,
    ) -> Vec<String> {
        let api = &Api::namespaced(self.client.clone(), namespace);
        let requests = silent.into_iter().map(|(session, version)| async move {
            // The last renewal; the revocation is a change of the Lease, too.
            let renewed = self.leases.get(namespace, &session).map(|known| known.since);
            let result = self.revoke(api, namespace, &session, version).await;
            (session, version, renewed, result)
        });
        let mut requests = futures::stream::iter(requests).buffer_unordered(AT_A_TIME);
        let mut refused = Vec::new();
        while let Some((session, version, renewed, result)) = requests.next().await {
            let answer = match result {
                Ok(true) => {
                    if let Some(since) = renewed {
                        let pod = self.caches.pod(namespace, session.pod_uid());
                        let worker = pod.map(|pod| pod.name_any());
                        sessions.standing.begins(session.clone(), worker, since);
                    }
                    tracing::info!(namespace, %session, "the Lease of a silent session was revoked");
                    self.metrics.revocations.inc();
                    Answer::Written
                }
                Ok(false) => Answer::Failed,
                // A refusal needs a person to resolve it; the other sessions continue.
                Err(StoreError::Refused { reason, .. }) => {
                    self.metrics.count_refused(RefusedRequest::Revocation);
                    refused.push(reason);
                    Answer::Failed
                }
                // A failed request is tried again.
                Err(_) => {
                    sessions.overseer.learn(clock::now(), Fact::StoreFailed);
                    Answer::Failed
                }
            };
            sessions.overseer.learn(clock::now(), Fact::Revocation(session, version, answer));
        }
        refused
    }

    /// Revokes one Lease, if it still has this version. Otherwise reads its present content.
    async fn revoke(
        &self,
        api: &Api<Object>,
        namespace: &str,
        session: &SessionId,
        version: LeaseVersion,
    ) -> Result<bool, StoreError> {
        let name = session.to_string();
        let (patch, params) = (Patch::Merge(revocation(version)), PatchParams::default());
        let before = self.seen_lease(namespace, session);
        let revoked = bounded(format!("Lease `{name}`"), api.patch(&name, &params, &patch)).await;
        match revoked {
            Ok(object) => {
                self.compare_lease(before, &object);
                self.leases.note_read(object, clock::now());
                Ok(true)
            }
            Err(StoreError::Conflict { .. }) => {
                self.find(api, namespace, session).await?;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Looks for a Lease in the store itself, without the cache. Returns whether it exists.
    async fn find(
        &self,
        api: &Api<Object>,
        namespace: &str,
        session: &SessionId,
    ) -> Result<bool, StoreError> {
        let name = session.to_string();
        let before = self.seen_lease(namespace, session);
        match bounded(format!("Lease `{name}`"), api.get_opt(&name)).await {
            Ok(Some(object)) => {
                self.compare_lease(before, &object);
                self.leases.note_read(object, clock::now());
                Ok(true)
            }
            Ok(None) => {
                self.leases.note_missing(namespace, session);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// The last known Lease of a session before a request to the store, with the epoch of that
    /// knowledge.
    fn seen_lease(&self, namespace: &str, session: &SessionId) -> Option<(Epoch, Known)> {
        self.caches.rollbacks.listed().zip(self.leases.get(namespace, session))
    }

    /// Notices an answer of the store that is older than an earlier observation.
    fn compare_lease(&self, before: Option<(Epoch, Known)>, object: &Object) {
        let is_same = |known: &Known| object.metadata.uid.as_deref() == Some(known.uid.as_str());
        let Some((epoch, known)) = before.filter(|(_, known)| is_same(known)) else { return };
        let (seen, answered) = (known.seen.lease.version.0, version::of(object));
        let what = || format!("Lease `{}`", known.seen.session);
        self.caches.rollbacks.compare(epoch, seen, answered, what);
    }

    /// Looks in the store for Leases that no watch shows. A missing one was deleted.
    async fn look_up(
        &self,
        namespace: &str,
        sessions: Vec<SessionId>,
        overseer: &mut Overseer,
    ) -> Result<(), StoreError> {
        let api = &Api::namespaced(self.client.clone(), namespace);
        let requests = sessions.into_iter().map(|session| async move {
            let found = self.find(api, namespace, &session).await;
            (session, found)
        });
        let mut requests = futures::stream::iter(requests).buffer_unordered(AT_A_TIME);
        while let Some((session, found)) = requests.next().await {
            let failed = |overseer: &mut Overseer| overseer.learn(clock::now(), Fact::StoreFailed);
            let is_found = found.inspect_err(|_| failed(overseer))?;
            if !is_found {
                tracing::info!(namespace, %session, "the Lease of a session was removed");
                overseer.learn(clock::now(), Fact::LeaseMissing(session));
            }
        }
        Ok(())
    }
}
