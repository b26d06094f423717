//! Takes the Leases of silent sessions away, and looks for Leases that are missing.

use std::collections::BTreeMap;

use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease as Object;
use kube::Api;
use kube::api::{Patch, PatchParams};
use swarm_core::Slot;
use swarm_core::handover::{LeaseTerms, LeaseVersion, SessionId, WatchEvent};
use swarm_core::ports::StoreError;

use super::super::clock;
use super::super::context::Context;
use super::Sessions;
use super::leases::Known;
use crate::ledger::bounded;
use crate::rollback::Epoch;
use crate::session::revocation;
use crate::status::RefusedRequest;
use crate::version;

/// How many requests are under way at a time.
const AT_A_TIME: usize = 16;

impl Context {
    /// Revokes the sessions that are silent, as far as the brake allows; returns how many it holds
    /// back, and why the API server refuses to revoke others.
    pub(super) async fn revoke_silent(
        &self,
        namespace: &str,
        sessions: &mut Sessions,
        lease: &LeaseTerms,
    ) -> (usize, Vec<String>) {
        let (now, terms) = (clock::now(), sessions.terms(lease));
        let health = sessions.health(self.leases.failed_at(), now, &terms);
        let mut due = sessions.watches.due(now, health, &terms);
        // Whoever was told of the ledger's present life closes; who does not is revoked, so that its
        // jobs do not wait for it.
        if let Some(incarnation) = sessions.noted.as_ref().map(|noted| noted.incarnation) {
            let foreign_sessions = sessions.watches.of_other_incarnations(incarnation);
            let was_told =
                |it: &SessionId| self.views.incarnation(namespace, it) == Some(incarnation);
            let foreign_sessions = foreign_sessions.filter(|(session, _)| was_told(session));
            due.extend(foreign_sessions.map(|(session, version)| (session.clone(), version)));
        }
        let is_braking = sessions.watches.is_braking();
        let api = &Api::namespaced(self.client.clone(), namespace);
        let requests = due.into_iter().map(|(session, version)| async move {
            let result = self.revoke(api, namespace, &session, version).await;
            (session, version, result)
        });
        let mut requests = futures::stream::iter(requests).buffer_unordered(AT_A_TIME);
        let mut refused = Vec::new();
        while let Some((session, version, result)) = requests.next().await {
            let event = match result {
                Ok(true) => {
                    tracing::info!(namespace, %session, "the Lease of a silent session was revoked");
                    self.metrics.revocations.inc();
                    WatchEvent::RevocationWritten(version)
                }
                Ok(false) => WatchEvent::RevocationFailed,
                // What is refused takes a person; the other sessions go on.
                Err(StoreError::Refused { reason, .. }) => {
                    self.count_refused(RefusedRequest::Revocation);
                    refused.push(reason);
                    WatchEvent::RevocationFailed
                }
                // What cannot be reached is tried again.
                Err(_) => {
                    sessions.failed = Some(clock::now());
                    WatchEvent::RevocationFailed
                }
            };
            sessions.watches.learn(clock::now(), &session, &event, &terms);
        }
        let silent = sessions.silent(clock::now(), &terms);
        (if is_braking { silent } else { 0 }, refused)
    }

    /// Revokes one Lease, if it is still at this version. If it is not, what it says now is read.
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

    /// Looks in the store itself for a Lease; returns whether it is there.
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

    /// The Lease of a session as it is known before the store is asked about it, and in which epoch.
    fn seen_lease(&self, namespace: &str, session: &SessionId) -> Option<(Epoch, Known)> {
        self.caches.rollbacks.listed().zip(self.leases.get(namespace, session))
    }

    /// Notices that the store answered with an older Lease than was seen before.
    fn compare_lease(&self, before: Option<(Epoch, Known)>, object: &Object) {
        let is_same = |known: &Known| object.metadata.uid.as_deref() == Some(known.uid.as_str());
        let Some((epoch, known)) = before.filter(|(_, known)| is_same(known)) else { return };
        let (seen, answered) = (known.seen.lease.version.0, version::of(object));
        let what = || format!("Lease `{}`", known.seen.session);
        self.caches.rollbacks.compare(epoch, seen, answered, what);
    }

    /// Looks for the Leases of sessions that the ledger names and the watch does not show. One that
    /// is missing was deleted; its session is waited out from now on.
    pub(super) async fn find_missing(
        &self,
        namespace: &str,
        sessions: &mut Sessions,
        named: &BTreeMap<SessionId, Slot>,
        lease: &LeaseTerms,
    ) -> Result<(), StoreError> {
        let api = &Api::namespaced(self.client.clone(), namespace);
        let is_open = |session: &SessionId| {
            sessions.watches.get(session).is_none_or(swarm_core::handover::Watch::may_renew)
        };
        let is_unseen = |session: &&SessionId| {
            !session.is_plain() && self.leases.get(namespace, session).is_none() && is_open(session)
        };
        let unseen: Vec<_> = named.keys().filter(is_unseen).cloned().collect();
        let requests = unseen.into_iter().map(|session| async move {
            let found = self.find(api, namespace, &session).await;
            (session, found)
        });
        let mut requests = futures::stream::iter(requests).buffer_unordered(AT_A_TIME);
        let terms = sessions.terms(lease);
        while let Some((session, found)) = requests.next().await {
            let is_found = found.inspect_err(|_| sessions.failed = Some(clock::now()))?;
            if !is_found {
                tracing::info!(namespace, %session, "the Lease of a session is gone");
                sessions.watches.learn(clock::now(), &session, &WatchEvent::Missing, &terms);
            }
        }
        Ok(())
    }
}
