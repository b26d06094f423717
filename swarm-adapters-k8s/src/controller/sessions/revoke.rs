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
use crate::ledger::bounded;
use crate::session::revocation;

/// How many requests are under way at a time.
const AT_A_TIME: usize = 16;

impl Context {
    /// Revokes the sessions that are silent, as far as the brake allows; returns how many it holds
    /// back.
    pub(super) async fn revoke_silent(
        &self,
        namespace: &str,
        sessions: &mut Sessions,
        lease: &LeaseTerms,
    ) -> Result<usize, StoreError> {
        let (now, terms) = (clock::now(), sessions.terms(lease));
        let health = self.health(now, &terms);
        let mut due = sessions.watches.due(now, health, &terms);
        // Whoever was told of the ledger's present life closes; who does not is revoked, so that its
        // jobs do not wait for it.
        if let Some(incarnation) = sessions.noted.as_ref().map(|noted| noted.incarnation) {
            let strangers = sessions.watches.strangers(incarnation);
            let was_told =
                |it: &SessionId| self.views.incarnation(namespace, it) == Some(incarnation);
            let strangers = strangers.filter(|(session, _)| was_told(session));
            due.extend(strangers.map(|(session, version)| (session.clone(), version)));
        }
        let is_braking = sessions.watches.is_braking();
        let api = &Api::namespaced(self.client.clone(), namespace);
        let requests = due.into_iter().map(|(session, version)| async move {
            let result = self.revoke(api, namespace, &session, version).await;
            (session, version, result)
        });
        let mut requests = futures::stream::iter(requests).buffer_unordered(AT_A_TIME);
        let mut failure = None;
        while let Some((session, version, result)) = requests.next().await {
            let event = match result {
                Ok(true) => {
                    tracing::info!(namespace, %session, "the Lease of a silent session was revoked");
                    self.metrics.revocations.inc();
                    WatchEvent::RevocationWritten(version)
                }
                Ok(false) => WatchEvent::RevocationFailed,
                Err(error) => {
                    failure = Some(error);
                    WatchEvent::RevocationFailed
                }
            };
            sessions.watches.learn(clock::now(), &session, &event, &terms);
        }
        let silent = sessions.silent(clock::now(), &terms);
        match failure {
            // What cannot be reached is tried again; what is refused takes a person.
            Some(error @ StoreError::Refused { .. }) => Err(error),
            Some(_) | None => Ok(if is_braking { silent } else { 0 }),
        }
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
        let revoked = bounded(format!("Lease `{name}`"), api.patch(&name, &params, &patch)).await;
        match revoked {
            Ok(object) => {
                self.leases.note_read(object, clock::now());
                Ok(true)
            }
            Err(StoreError::Conflict { .. }) => {
                self.find(api, namespace, session).await?;
                Ok(false)
            }
            Err(error) => {
                self.leases.failed(clock::now());
                Err(error)
            }
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
        match bounded(format!("Lease `{name}`"), api.get_opt(&name)).await {
            Ok(Some(object)) => {
                self.leases.note_read(object, clock::now());
                Ok(true)
            }
            Ok(None) => {
                self.leases.note_missing(namespace, session);
                Ok(false)
            }
            Err(error) => {
                self.leases.failed(clock::now());
                Err(error)
            }
        }
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
            if !found? {
                tracing::info!(namespace, %session, "the Lease of a session is gone");
                sessions.watches.learn(clock::now(), &session, &WatchEvent::Missing, &terms);
            }
        }
        Ok(())
    }
}
