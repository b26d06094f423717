//! The Lease of one session, as its worker writes and reads it.
//!
//! A POST creates the Lease. A PUT renews it, and names the version and the UID that it replaces.
//! Without these, a PUT would recreate a Lease that was deleted. Every request is sent once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::coordination::v1::Lease as Object;
use kube::api::PostParams;
use kube::{Api, ResourceExt as _};
use swarm_core::handover::{Lease, LeaseTerms, LeaseVersion, LeaseWrite, SessionId};
use swarm_core::life::Lives;
use swarm_core::ports::{SessionStore, StoreError};
use swarm_core::session::Former;
use swarm_core::{Failing, Position};

use super::labels::Labels;
use super::{seen, unprotected, version, with_failing, with_lives, written};
use crate::api::WorkerView;
use crate::client::Clients;

/// Text of deploy/base/policy.yaml in each refusal of another session's Lease.
const POLICY_SAYS: &str = "of a session";
/// Text of the API server when the worker lacks rights, before it evaluates any policy.
const NO_RIGHT: &str = "cannot create resource";

/// One session's place in the API server.
#[derive(Debug)]
pub struct KubeSession {
    pub(super) session: SessionId,
    terms: LeaseTerms,
    former: Former,
    leases: Api<Object>,
    views: Api<WorkerView>,
    /// The UID of our Lease, once it was seen.
    uid: Mutex<Option<String>>,
    /// The report about failing jobs, part of every write.
    failing: Mutex<Arc<Failing>>,
    /// The lives of the jobs, part of every write.
    lives: Mutex<Arc<Lives>>,
    /// Whether nothing keeps this worker from the Leases of others.
    is_unprotected: AtomicBool,
    /// Labels for people, part of every write.
    pub(super) labels: Labels,
}

impl KubeSession {
    /// A session in `namespace` with these lease `terms`. Every write contains its report about the
    /// `former` session in its place.
    #[must_use]
    pub fn new(
        clients: &Clients,
        namespace: &str,
        session: SessionId,
        terms: LeaseTerms,
        former: Former,
    ) -> Self {
        let client = clients.control();
        let leases = Api::namespaced(client.clone(), namespace);
        let views = Api::namespaced(client.clone(), namespace);
        let (uid, failing, lives, is_unprotected, labels) = Default::default();
        Self { session, terms, former, leases, views, uid, failing, lives, is_unprotected, labels }
    }

    /// Finds out whether a policy keeps this worker to its own Lease: a dry run of another pod's is
    /// refused by it then. If it is not, every write of the Lease says so from now on. What has no answer
    /// within `limit` is not known, and nothing is said.
    pub async fn probe_policy(&self, limit: Duration) {
        let params = PostParams { dry_run: true, ..PostParams::default() };
        let foreign = super::foreign();
        let answer = tokio::time::timeout(limit, self.leases.create(&params, &foreign)).await;
        let is_unprotected = answer.is_ok_and(|answer| has_passed_policy(answer.map(drop)));
        if is_unprotected {
            tracing::warn!(
                "nothing keeps this worker from the Leases of others: an administrator applies \
                 deploy/base/policy.yaml"
            );
        }
        self.is_unprotected.store(is_unprotected, Ordering::Relaxed);
    }

    fn what(&self) -> String {
        format!("Lease `{}`", self.session)
    }

    fn uid(&self) -> Option<String> {
        self.uid.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Remembers which object it is.
    fn keep(&self, object: &Object) {
        let mut uid = self.uid.lock().unwrap_or_else(PoisonError::into_inner);
        uid.clone_from(&object.metadata.uid);
    }
}

#[async_trait]
impl SessionStore for KubeSession {
    async fn write(&self, write: &LeaseWrite) -> Result<LeaseVersion, StoreError> {
        let failing = Arc::clone(&self.failing.lock().unwrap_or_else(PoisonError::into_inner));
        let object = written(&self.session, write, &self.terms, &self.former);
        let lives = Arc::clone(&self.lives.lock().unwrap_or_else(PoisonError::into_inner));
        let mut object = with_lives(with_failing(object, &failing), &lives);
        object.labels_mut().extend(self.labels.get());
        if self.is_unprotected.load(Ordering::Relaxed) {
            object = unprotected(object);
        }
        let params = PostParams::default();
        let answer = if write.expected.is_some() {
            // An expected version implies that the object was seen. Without its UID, this PUT could
            // recreate a deleted Lease.
            let Some(uid) = self.uid() else {
                return Err(StoreError::Conflict { what: self.what() });
            };
            object.metadata.uid = Some(uid);
            self.leases.replace(&self.session.to_string(), &params, &object).await
        } else {
            self.leases.create(&params, &object).await
        };
        let object = answer.map_err(|error| classify_error(self.what(), error))?;
        self.keep(&object);
        version(&object).ok_or_else(|| no_answer(self.what(), "the answer has no version"))
    }

    async fn read(&self) -> Result<Option<Lease>, StoreError> {
        let name = self.session.to_string();
        let found = self.leases.get_opt(&name).await;
        let found = found.map_err(|error| classify_error(self.what(), error))?;
        let Some(object) = found else { return Ok(None) };
        let seen = seen(&object).map_err(|reason| no_answer(self.what(), &reason))?;
        self.keep(&object);
        Ok(Some(seen.lease))
    }

    /// A worker may not read ledgers; its own view, read from the store, has the same position.
    async fn position(&self) -> Result<Option<Position>, StoreError> {
        let what = || format!("WorkerView `{}`", self.session);
        let found = self.views.get_opt(&self.session.to_string()).await;
        let found = found.map_err(|error| classify_error(what(), error))?;
        let Some(spec) = found.map(|view| view.spec) else { return Ok(None) };
        let number = |value: i64| {
            u64::try_from(value)
                .map_err(|_| no_answer(what(), &format!("{value} is not a counter")))
        };
        let (incarnation, revision) = (number(spec.incarnation)?, number(spec.revision)?);
        Ok(Some(Position { incarnation, revision }))
    }

    fn report_failing(&self, failing: Arc<Failing>) {
        *self.failing.lock().unwrap_or_else(PoisonError::into_inner) = failing;
    }

    fn report_lives(&self, lives: Arc<Lives>) {
        *self.lives.lock().unwrap_or_else(PoisonError::into_inner) = lives;
    }
}

/// Whether a dry run of another pod's Lease has shown that the policy is not in force. The API
/// server evaluates policies before quotas, and before it looks for an existing Lease. So an
/// existing Lease cannot hide a missing policy.
fn has_passed_policy(answer: kube::Result<()>) -> bool {
    match answer {
        Ok(()) => true,
        Err(kube::Error::Api(status)) if status.is_already_exists() => true,
        Err(kube::Error::Api(status)) if status.is_forbidden() || status.is_invalid() => {
            let is_asked = !status.message.contains(NO_RIGHT);
            is_asked && !status.message.contains(POLICY_SAYS)
        }
        // It has too much to do, or fails.
        Err(_) => false,
    }
}

fn no_answer(what: String, reason: &str) -> StoreError {
    StoreError::Unavailable { what, source: reason.into() }
}

/// Classifies a failure by the possible reactions of a worker. A failure that is neither a change
/// nor a refusal is temporary, such as an overloaded API server.
fn classify_error(what: String, error: kube::Error) -> StoreError {
    let refused = |advice: &str, message: &str| StoreError::Refused {
        code: "SessionRefused",
        reason: format!("{what} is refused: {message}{advice}"),
    };
    let advice = "; bind ClusterRole `swarm-session-worker` to the service account of this pod";
    match &error {
        // 404 for a Lease that was there is a change like any other.
        kube::Error::Api(status)
            if status.is_conflict() || status.is_already_exists() || status.is_not_found() =>
        {
            StoreError::Conflict { what }
        }
        kube::Error::Api(status) if status.is_forbidden() => refused(advice, &status.message),
        kube::Error::Api(status) if status.is_invalid() => refused("", &status.message),
        _ => StoreError::Unavailable { what, source: error.into() },
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn classified(code: u16, reason: &str) -> StoreError {
        let status = Status::failure("it says why", reason).with_code(code);
        classify_error("Lease `x`".to_owned(), kube::Error::Api(status.boxed()))
    }

    #[test]
    fn only_what_the_policy_itself_says_shows_that_it_is_in_force() {
        let passed = |code: u16, reason: &str, message: &str| {
            let status = Status::failure(message, reason).with_code(code);
            has_passed_policy(Err(kube::Error::Api(status.boxed())))
        };
        assert!(has_passed_policy(Ok(())));
        assert!(passed(409, "AlreadyExists", "leases.coordination.k8s.io \"x\" already exists"));
        assert!(passed(403, "Forbidden", "\"x\" is forbidden: exceeded quota: few"));
        let policy = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/base/policy.yaml");
        let policy = std::fs::read_to_string(policy).unwrap();
        for says in
            ["is not of a session of pod", "is of a session, and only the worker in its pod"]
        {
            assert!(policy.contains(says), "{says}");
            let says = format!("ValidatingAdmissionPolicy 'x' denied request: Lease x {says}");
            assert!(!passed(422, "Invalid", &says) && !passed(403, "Forbidden", &says));
        }
        let message = "leases is forbidden: User \"u\" cannot create resource \"leases\"";
        assert!(!passed(403, "Forbidden", message), "no policy was asked");
        assert!(!passed(500, "InternalError", "x") && !passed(429, "TooManyRequests", "x"));
    }

    #[test]
    fn a_change_a_refusal_and_a_temporary_failure_are_distinguished() {
        for (code, reason) in [(409, "Conflict"), (409, "AlreadyExists"), (404, "NotFound")] {
            assert!(matches!(classified(code, reason), StoreError::Conflict { .. }), "{reason}");
        }
        let forbidden = classified(403, "Forbidden").to_string();
        assert!(forbidden.starts_with("Lease `x` is refused: it says why; bind"), "{forbidden}");
        assert_eq!(classified(422, "Invalid").to_string(), "Lease `x` is refused: it says why");
        for (code, reason) in [(500, "InternalError"), (429, "TooManyRequests"), (401, "No")] {
            assert!(matches!(classified(code, reason), StoreError::Unavailable { .. }), "{reason}");
        }
    }
}
