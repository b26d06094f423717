//! The Lease of a session, as an object: how the worker writes it and how the operator reads it.
//!
//! The object is named like the session. Its holder says how the session stands: the session itself
//! while it lives, nobody once it closed, anybody else after it was revoked. Times in it are for
//! people; nobody decides by them.
//!
//! [`KubeSession`] and [`KubeSessionViews`] are the worker's side, as adapters of the core's ports.

mod follow;
mod store;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease as Object, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use serde::{Deserialize, Serialize};
use swarm_core::handover::{Ack, Holder, Lease, LeaseTerms, LeaseVersion, LeaseWrite, SessionId};
use swarm_core::{JobName, Token};

pub use follow::KubeSessionViews;
pub use store::KubeSession;

/// Marks the Leases of sessions, so that only those are watched.
pub const SESSION_LABEL: &str = "swarm.k8slab.info/session";
/// What a session tells with its Lease, as JSON: [`Told`].
pub const ACK_ANNOTATION: &str = "swarm.k8slab.info/ack";
/// Who holds a Lease that an operator took away.
const REVOKED: &str = "revoked";

/// What a session tells with every write of its Lease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Told {
    /// Counts the session's writes.
    pub write: u64,
    /// For how long it may act after it sent a renewal, in milliseconds.
    pub duration_ms: u64,
    /// The life of the ledger that `revision` counts in.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub incarnation: u64,
    /// The revision it acknowledges.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub revision: u64,
    /// Finite jobs that are finished, with the token they ran under.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub finished: BTreeMap<String, u64>,
    /// Whether it waits for its jobs to be moved.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub draining: bool,
    /// The job that it believes to have crashed its predecessor in the same pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub culprit: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// A session's Lease as the operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenLease {
    /// Whose it is.
    pub session: SessionId,
    /// What the protocol knows of it.
    pub lease: Lease,
    /// For how long the session says it may act after a renewal.
    pub duration: Duration,
    /// The job that it believes to have crashed its predecessor in the same pod.
    pub culprit: Option<JobName>,
}

/// The object after `write`; the API server compares and sets by the version it replaces.
#[must_use]
pub fn written(
    session: &SessionId,
    write: &LeaseWrite,
    terms: &LeaseTerms,
    culprit: Option<&JobName>,
) -> Object {
    let told = Told {
        write: write.number,
        duration_ms: u64::try_from(terms.duration.as_millis()).unwrap_or(u64::MAX),
        incarnation: write.ack.incarnation,
        revision: write.ack.revision,
        finished: write.ack.finished.iter().map(|(job, it)| (job.to_string(), it.0)).collect(),
        draining: write.ack.is_draining,
        culprit: culprit.map(ToString::to_string),
    };
    let told = serde_json::to_string(&told).unwrap_or_default();
    let holder = match write.holder {
        Holder::Session => session.to_string(),
        Holder::Closed => String::new(),
        Holder::Revoked => REVOKED.to_owned(),
    };
    Object {
        metadata: ObjectMeta {
            name: Some(session.to_string()),
            labels: Some([(SESSION_LABEL.to_owned(), "true".to_owned())].into()),
            annotations: Some([(ACK_ANNOTATION.to_owned(), told)].into()),
            resource_version: write.expected.map(|version| version.0.to_string()),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(holder),
            lease_duration_seconds: i32::try_from(terms.duration.as_secs().max(1)).ok(),
            renew_time: Some(MicroTime(Timestamp::now())),
            ..LeaseSpec::default()
        }),
    }
}

/// The patch by which an operator takes away the Lease that it saw at `version`, and no later one.
#[must_use]
pub fn revocation(version: LeaseVersion) -> serde_json::Value {
    serde_json::json!({
        "metadata": {"resourceVersion": version.0.to_string()},
        "spec": {"holderIdentity": REVOKED},
    })
}

/// The version that the API server gave an object.
#[must_use]
pub fn version(object: &Object) -> Option<LeaseVersion> {
    object.metadata.resource_version.as_deref()?.parse().ok().map(LeaseVersion)
}

/// What a Lease says.
///
/// # Errors
///
/// A sentence, if it is no Lease of a session, or none that this version understands.
pub fn seen(object: &Object) -> Result<SeenLease, String> {
    let name = object.name_any();
    let session = SessionId::from_stored(&name);
    if session.is_plain() {
        return Err(format!(
            "Lease `{name}` is no session's: its name is no pod UID, dash, 16 hexadecimal digits"
        ));
    }
    let version = version(object).ok_or_else(|| format!("Lease `{name}` has no version"))?;
    let text = object.annotations().get(ACK_ANNOTATION).map_or("", String::as_str);
    let told: Told = serde_json::from_str(text)
        .map_err(|error| format!("Lease `{name}` has no usable `{ACK_ANNOTATION}`: {error}"))?;
    let holder = object.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
    let holder = match holder.unwrap_or_default() {
        "" => Holder::Closed,
        holder if holder == name => Holder::Session,
        _ => Holder::Revoked,
    };
    let job = |name: &str| JobName::new(name).map_err(|error| error.to_string());
    let finished = told.finished.iter().map(|(name, token)| Ok((job(name)?, Token(*token))));
    let ack = Ack {
        incarnation: told.incarnation,
        revision: told.revision,
        finished: finished.collect::<Result<_, String>>()?,
        is_draining: told.draining,
    };
    Ok(SeenLease {
        session,
        lease: Lease { version, holder, number: told.write, ack },
        duration: Duration::from_millis(told.duration_ms),
        culprit: told.culprit.as_deref().map(job).transpose()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(holder: Holder) -> LeaseWrite {
        let finished = [(JobName::new("stream:a").unwrap(), Token(7))].into();
        let ack = Ack { incarnation: 1, revision: 12, finished, is_draining: true };
        LeaseWrite { expected: Some(LeaseVersion(41)), holder, number: 3, ack }
    }

    #[test]
    fn what_a_session_writes_the_operator_reads() {
        let session = SessionId::new("6f1c-42", 1234);
        let terms = LeaseTerms::default();
        let culprit = JobName::new("stream:b").unwrap();
        for holder in [Holder::Session, Holder::Closed, Holder::Revoked] {
            let write = write(holder);
            let mut object = written(&session, &write, &terms, Some(&culprit));
            assert_eq!(version(&object), write.expected);
            object.metadata.resource_version = Some("42".to_owned());
            let lease = Lease { version: LeaseVersion(42), holder, number: 3, ack: write.ack };
            let (session, culprit) = (session.clone(), Some(culprit.clone()));
            let expected = SeenLease { session, lease, duration: terms.duration, culprit };
            assert_eq!(seen(&object), Ok(expected));
        }
    }

    #[test]
    fn what_is_no_lease_of_a_session_is_refused_with_a_sentence() {
        let session = SessionId::new("6f1c-42", 1234);
        let mut object = written(&session, &write(Holder::Session), &LeaseTerms::default(), None);
        object.metadata.annotations = None;
        let error = seen(&object).unwrap_err();
        assert!(error.contains("has no usable `swarm.k8slab.info/ack`"), "{error}");
        object.metadata.name = Some("kube-scheduler".to_owned());
        let error = seen(&object).unwrap_err();
        assert!(error.starts_with("Lease `kube-scheduler` is no session's"), "{error}");
    }
}
