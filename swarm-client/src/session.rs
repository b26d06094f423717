//! The Lease of a session as an object, which the worker writes and the operator reads.
//!
//! The object has the name of the session. Its holder shows the state of the session: the session
//! itself while it is live, empty after it closed, any other name after it was revoked. Times in
//! the object are for people; no decision uses them.
//!
//! [`KubeSession`] and [`KubeSessionViews`] are the worker's side, as adapters of the core's ports.

mod follow;
mod labels;
mod stopping;
mod store;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease as Object, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use serde::{Deserialize, Serialize};
use swarm_core::handover::{Ack, Holder, Lease, LeaseTerms, LeaseVersion, LeaseWrite, SessionId};
use swarm_core::life::Lives;
use swarm_core::session::Former;
use swarm_core::{Failing, JobName, Token};

pub use follow::KubeSessionViews;
pub use stopping::{STOPPING_ANNOTATION, StoredStopping};
pub use store::KubeSession;

/// Marks the Leases of sessions, so that only those are watched.
pub const SESSION_LABEL: &str = "swarm.k8slab.info/session";
/// The acknowledgement of a session in its Lease, as JSON: [`StoredAck`].
pub const ACK_ANNOTATION: &str = "swarm.k8slab.info/ack";
/// Names the previous session in the same place. Its processes have certainly ended.
pub const PREDECESSOR_ANNOTATION: &str = "swarm.k8slab.info/predecessor";
/// The failing jobs of the session, as JSON: [`Failing`]. It is for people, and missing while no
/// job fails.
pub const FAILING_ANNOTATION: &str = "swarm.k8slab.info/failing";
/// The lives of the session's jobs since its begin, as JSON: [`Lives`]. It is for people, and missing
/// while nothing has happened to a job.
pub const LIVES_ANNOTATION: &str = "swarm.k8slab.info/lives";
/// The features of the protocol that the session has, with commas in between.
pub const FEATURES_ANNOTATION: &str = "swarm.k8slab.info/features";
/// Says `missing` if the API server would let the session write the Leases of others.
pub const POLICY_ANNOTATION: &str = "swarm.k8slab.info/policy";
/// All annotations that a session writes.
pub const ANNOTATIONS: [&str; 7] = [
    ACK_ANNOTATION,
    STOPPING_ANNOTATION,
    PREDECESSOR_ANNOTATION,
    FAILING_ANNOTATION,
    LIVES_ANNOTATION,
    FEATURES_ANNOTATION,
    POLICY_ANNOTATION,
];
/// The feature of a session that knows the runners that jobs name.
const RUNNERS: &str = "runners";
/// The value of that annotation.
const POLICY_MISSING: &str = "missing";
/// The most failing jobs that are reported one by one.
const FAILING_MAX: usize = 3;
/// The most bytes of that annotation that are read: three jobs with the longest names and texts.
const FAILING_BYTES_MAX: usize = 64 << 10;
/// The most bytes of the lives that are read and written: 32 KiB.
const LIVES_BYTES_MAX: usize = 32 << 10;
/// The most jobs with a life that are read.
const LIVES_MAX: usize = 200;
/// The most bytes of an acknowledgement that are read. The API server takes 256 KiB of annotations.
pub const ACK_BYTES_MAX: usize = 160 << 10;
/// The most finished jobs in one acknowledgement. A session that has more names the others once
/// these were released.
pub const FINISHED_MAX: usize = 1_000;
/// The most bytes that a session writes about finished jobs, which leaves room for all other
/// content.
const FINISHED_BYTES_MAX: usize = 128 << 10;
/// The holder of a Lease that an operator revoked.
const REVOKED: &str = "revoked";

/// The acknowledgement in every write of a Lease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StoredAck {
    /// Counts the session's writes.
    pub write: u64,
    /// For how long it may act after it sent a renewal, in milliseconds.
    pub duration_ms: u64,
    /// The incarnation of the ledger that `revision` counts in.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub incarnation: u64,
    /// The revision it acknowledges.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub revision: u64,
    /// Run-to-completion jobs that finished, with the token they ran under.
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
    /// The Lease as the protocol sees it.
    pub lease: Lease,
    /// For how long the session says it may act after a renewal.
    pub duration: Duration,
    /// The session's report about the previous session in the same place.
    pub former: Former,
    /// The session's report about failing jobs.
    pub failing: Failing,
    /// The session's report about the lives of its jobs.
    pub lives: Arc<Lives>,
    /// Whether it knows the runners that jobs name. No other session may get such a job, since it
    /// would run it in another way.
    pub knows_runners: bool,
    /// Whether it says that nothing keeps it from the Leases of others.
    pub is_unprotected: bool,
}

/// The object after `write`; the API server compares and sets by the version it replaces.
#[must_use]
pub fn written(
    session: &SessionId,
    write: &LeaseWrite,
    terms: &LeaseTerms,
    former: &Former,
) -> Object {
    let stored = StoredAck {
        write: write.number,
        duration_ms: u64::try_from(terms.duration.as_millis()).unwrap_or(u64::MAX),
        incarnation: write.ack.incarnation,
        revision: write.ack.revision,
        finished: reported(&write.ack.finished),
        draining: write.ack.is_draining,
        culprit: former.culprit.as_ref().map(ToString::to_string),
    };
    let stored = serde_json::to_string(&stored).unwrap_or_default();
    let mut annotations = BTreeMap::from([
        (ACK_ANNOTATION.to_owned(), stored),
        (FEATURES_ANNOTATION.to_owned(), RUNNERS.to_owned()),
    ]);
    annotations.extend(stopping::written(write).map(|it| (STOPPING_ANNOTATION.to_owned(), it)));
    let predecessor = former.session.as_ref();
    annotations.extend(predecessor.map(|it| (PREDECESSOR_ANNOTATION.to_owned(), it.to_string())));
    let holder = match write.holder {
        Holder::Session => session.to_string(),
        Holder::Closed => String::new(),
        Holder::Revoked => REVOKED.to_owned(),
    };
    Object {
        metadata: ObjectMeta {
            name: Some(session.to_string()),
            labels: Some([(SESSION_LABEL.to_owned(), "true".to_owned())].into()),
            annotations: Some(annotations),
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

/// Adds the report about failing jobs to the object, if any job fails.
#[must_use]
pub fn with_failing(mut object: Object, failing: &Failing) -> Object {
    if 0 < failing.count {
        let report = Failing::sum([failing], FAILING_MAX);
        let report = serde_json::to_string(&report).unwrap_or_default();
        object.annotations_mut().insert(FAILING_ANNOTATION.to_owned(), report);
    }
    object
}

/// Adds the lives of the session's jobs to the object, if anything has happened to a job. Lives that need
/// more than 32 KiB are left out.
#[must_use]
pub fn with_lives(mut object: Object, lives: &Lives) -> Object {
    if lives.iter().next().is_some()
        && let Ok(report) = serde_json::to_string(lives)
        && report.len() <= LIVES_BYTES_MAX
    {
        object.annotations_mut().insert(LIVES_ANNOTATION.to_owned(), report);
    }
    object
}

/// The same object, which says that nothing keeps its session from the Leases of others.
#[must_use]
pub fn unprotected(mut object: Object) -> Object {
    object.annotations_mut().insert(POLICY_ANNOTATION.to_owned(), POLICY_MISSING.to_owned());
    object
}

/// A Lease that no pod may write: a dry run of it shows whether the policy is in force.
#[must_use]
pub fn foreign() -> Object {
    let name = SessionId::new("00000000-0000-0000-0000-000000000000", 0).to_string();
    Object {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            labels: Some([(SESSION_LABEL.to_owned(), "true".to_owned())].into()),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec { holder_identity: Some(name), ..LeaseSpec::default() }),
    }
}

/// Reads the session's report about failing jobs. An invalid report counts as empty: it is for
/// people, and no session loses its lease over it.
fn read_failing(object: &Object) -> Failing {
    let text = object.annotations().get(FAILING_ANNOTATION);
    let text = text.filter(|text| text.len() <= FAILING_BYTES_MAX);
    let report: Option<Failing> = text.and_then(|text| serde_json::from_str(text).ok());
    report.unwrap_or_default().limited(usize::MAX, FAILING_MAX)
}

/// Reads the session's report about the lives of its jobs, within bounds. An invalid report counts as
/// empty: it is for people, and no session loses its lease over it.
fn read_lives(object: &Object) -> Arc<Lives> {
    let text = object.annotations().get(LIVES_ANNOTATION);
    let text = text.filter(|text| text.len() <= LIVES_BYTES_MAX);
    let mut lives: Lives =
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    lives.limit(0, LIVES_MAX, usize::MAX);
    Arc::new(lives)
}

/// As many finished jobs as one acknowledgement holds, in the order of their names.
fn reported(finished: &BTreeMap<JobName, Token>) -> BTreeMap<String, u64> {
    /// Quotes, colon and comma, and the longest token.
    const AROUND: usize = 24;
    let mut bytes = 0;
    let fits = |(job, _): &(&JobName, &Token)| {
        // Each character may be escaped.
        bytes += 2 * job.as_str().len() + AROUND;
        bytes <= FINISHED_BYTES_MAX
    };
    let first = finished.iter().take(FINISHED_MAX).take_while(fits);
    first.map(|(job, token)| (job.to_string(), token.0)).collect()
}

/// The patch with which an operator revokes the Lease at exactly this `version`.
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

/// The holder of the Lease `object`, found by its name.
#[must_use]
pub fn holder(object: &Object) -> Holder {
    let holder = object.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
    match holder.unwrap_or_default() {
        "" => Holder::Closed,
        holder if Some(holder) == object.metadata.name.as_deref() => Holder::Session,
        _ => Holder::Revoked,
    }
}

/// Reads a Lease.
///
/// # Errors
///
/// A sentence, if the object is not a session's Lease, or this version cannot read it.
pub fn seen(object: &Object) -> Result<SeenLease, String> {
    let name = object.name_any();
    let session = SessionId::from_stored(&name);
    if session.is_plain() {
        return Err(format!(
            "Lease `{name}` is not a session's: its name is not a pod UID, a dash and 16 \
             hexadecimal digits"
        ));
    }
    let version = version(object).ok_or_else(|| format!("Lease `{name}` has no version"))?;
    let text = object.annotations().get(ACK_ANNOTATION).map_or("", String::as_str);
    if ACK_BYTES_MAX < text.len() {
        return Err(format!(
            "Lease `{name}` has {} bytes in `{ACK_ANNOTATION}`, and {ACK_BYTES_MAX} are read at most",
            text.len()
        ));
    }
    let stored: StoredAck = serde_json::from_str(text)
        .map_err(|error| format!("Lease `{name}` has no usable `{ACK_ANNOTATION}`: {error}"))?;
    if FINISHED_MAX < stored.finished.len() {
        return Err(format!(
            "Lease `{name}` names {} finished jobs, and {FINISHED_MAX} are read at most",
            stored.finished.len()
        ));
    }
    let holder = holder(object);
    let job = |name: &str| JobName::new(name).map_err(|error| error.to_string());
    let finished = stored.finished.iter().map(|(name, token)| Ok((job(name)?, Token(*token))));
    let ack = Ack {
        incarnation: stored.incarnation,
        revision: stored.revision,
        stopping: stopping::seen(object, stored.write),
        finished: finished.collect::<Result<_, String>>()?,
        is_draining: stored.draining,
    };
    let predecessor = object.annotations().get(PREDECESSOR_ANNOTATION);
    let predecessor = predecessor.map(|text| SessionId::from_stored(text));
    // A session may only make statements about its own pod.
    let is_its_own = |it: &SessionId| it.pod_uid() == session.pod_uid() && *it != session;
    let former = Former {
        session: predecessor.filter(|it| !it.is_plain() && is_its_own(it)),
        culprit: stored.culprit.as_deref().map(job).transpose()?,
    };
    Ok(SeenLease {
        session,
        lease: Lease { version, holder, number: stored.write, ack },
        duration: Duration::from_millis(stored.duration_ms),
        former,
        failing: read_failing(object),
        lives: read_lives(object),
        knows_runners: object
            .annotations()
            .get(FEATURES_ANNOTATION)
            .is_some_and(|all| all.split(',').any(|feature| feature.trim() == RUNNERS)),
        is_unprotected: object
            .annotations()
            .get(POLICY_ANNOTATION)
            .is_some_and(|it| it == POLICY_MISSING),
    })
}

#[cfg(test)]
mod tests {
    use swarm_core::life::{Cause, News};
    use swarm_core::{FailingJob, FailingState};

    use super::*;

    fn write(holder: Holder) -> LeaseWrite {
        let finished = [(JobName::new("stream:a").unwrap(), Token(7))].into();
        let ack =
            Ack { incarnation: 1, revision: 12, finished, is_draining: true, ..Ack::default() };
        LeaseWrite { expected: Some(LeaseVersion(41)), holder, number: 3, ack }
    }

    #[test]
    fn what_a_session_writes_the_operator_reads() {
        let session = SessionId::new("6f1c-42", 1234);
        let terms = LeaseTerms::default();
        let culprit = Some(JobName::new("stream:b").unwrap());
        let former = Former { session: Some(SessionId::new("6f1c-42", 1233)), culprit };
        for holder in [Holder::Session, Holder::Closed, Holder::Revoked] {
            let write = write(holder);
            let mut object = written(&session, &write, &terms, &former);
            assert_eq!(version(&object), write.expected);
            object.metadata.resource_version = Some("42".to_owned());
            let lease = Lease { version: LeaseVersion(42), holder, number: 3, ack: write.ack };
            let (session, former) = (session.clone(), former.clone());
            let (duration, failing) = (terms.duration, Failing::default());
            let (knows_runners, is_unprotected) = (true, false);
            let expected = SeenLease {
                session,
                lease,
                duration,
                former,
                failing,
                lives: Arc::default(),
                knows_runners,
                is_unprotected,
            };
            assert_eq!(seen(&object), Ok(expected));
            for (features, knows) in [("fast, runners", true), ("runners2", false), ("", false)] {
                let features = features.to_owned();
                object.annotations_mut().insert(FEATURES_ANNOTATION.to_owned(), features);
                assert_eq!(seen(&object).unwrap().knows_runners, knows);
            }
            object.annotations_mut().remove(FEATURES_ANNOTATION);
            assert!(!seen(&object).unwrap().knows_runners, "an older worker");
            assert!(seen(&unprotected(object)).unwrap().is_unprotected);
        }
    }

    #[test]
    fn what_a_session_reports_of_failing_jobs_is_read_and_nonsense_is_ignored() {
        let job = |n: usize| FailingJob {
            job: format!("job-{n}").parse().unwrap(),
            state: FailingState::Restarting,
            restarts: 9,
            since_unix_s: 7,
            last_exit: "ended with exit code 3".into(),
            last_output: vec!["no such camera".into()],
        };
        let session = SessionId::new("6f1c-42", 1234);
        let (terms, former) = (LeaseTerms::default(), Former::default());
        let plain = || written(&session, &write(Holder::Session), &terms, &former);
        let failing = Failing::of(&(0..9).map(job).collect::<Vec<_>>(), 100);
        let mut object = with_failing(plain(), &failing);
        assert_eq!(read_failing(&object), Failing { count: 9, worst: (0..3).map(job).collect() });
        assert_eq!(read_failing(&with_failing(plain(), &Failing::default())), Failing::default());
        object.metadata.resource_version = Some("42".to_owned());
        for nonsense in ["", "{}", "{\"count\": -1}", &"x".repeat(FAILING_BYTES_MAX + 1)] {
            let annotations = object.annotations_mut();
            annotations.insert(FAILING_ANNOTATION.to_owned(), nonsense.to_owned());
            assert_eq!(seen(&object).unwrap().failing, Failing::default());
        }
    }

    #[test]
    fn the_lives_that_a_session_reports_are_read_within_bounds_and_nonsense_is_ignored() {
        let session = SessionId::new("6f1c-42", 1234);
        let (terms, former) = (LeaseTerms::default(), Former::default());
        let plain = || written(&session, &write(Holder::Session), &terms, &former);
        let mut lives = Lives::begin(7);
        let is_left_out = |lives: &Lives| {
            !with_lives(plain(), lives).annotations().contains_key(LIVES_ANNOTATION)
        };
        assert!(is_left_out(&lives), "nothing has happened");
        lives.learn(8, &"a".parse().unwrap(), "", News::Failed("ended with exit code 3"));
        let mut object = with_lives(plain(), &lives);
        assert_eq!(*read_lives(&object), serde_json::from_value(serde_json::json!(lives)).unwrap());
        for n in 0..2_000 {
            let job = format!("job-{n}").parse().unwrap();
            lives.learn(9, &job, "", News::Event(Cause::Killed, ""));
        }
        assert!(is_left_out(&lives), "it is too much");
        for nonsense in ["", "[]", "{\"jobs\": 7}", &"x".repeat(LIVES_BYTES_MAX + 1)] {
            let annotations = object.annotations_mut();
            annotations.insert(LIVES_ANNOTATION.to_owned(), nonsense.to_owned());
            assert_eq!(read_lives(&object).iter().count(), 0);
        }
    }

    #[test]
    fn an_acknowledgement_is_bounded_where_it_is_written_and_where_it_is_read() {
        let session = SessionId::new("6f1c-42", 1234);
        let name = |n: usize, len: usize| format!("{n:06}{}", "\"".repeat(len - 6));
        for len in [10, 253] {
            let finished = (0..2 * FINISHED_MAX).map(|n| (name(n, len).parse().unwrap(), Token(7)));
            let mut write = write(Holder::Session);
            write.ack.finished = finished.collect();
            let object = written(&session, &write, &LeaseTerms::default(), &Former::default());
            let read = seen(&object).unwrap().lease.ack.finished;
            assert!(!read.is_empty() && read.len() <= FINISHED_MAX, "{}", read.len());
            assert!(read.keys().eq(write.ack.finished.keys().take(read.len())), "the first ones");
        }
        let refused = |finished: &[String]| {
            let mut object = written(
                &session,
                &write(Holder::Session),
                &LeaseTerms::default(),
                &Former::default(),
            );
            let finished: BTreeMap<_, _> = finished.iter().map(|name| (name.clone(), 7)).collect();
            let stored = StoredAck { write: 1, duration_ms: 1, finished, ..StoredAck::default() };
            let stored = serde_json::to_string(&stored).unwrap();
            object.annotations_mut().insert(ACK_ANNOTATION.to_owned(), stored);
            seen(&object).unwrap_err()
        };
        let many: Vec<_> = (0..=FINISHED_MAX).map(|n| name(n, 10)).collect();
        let error = refused(&many);
        assert!(error.contains("names 1001 finished jobs, and 1000 are read"), "{error}");
        let error = refused(&["x".repeat(ACK_BYTES_MAX)]);
        assert!(error.contains("163840 are read at most"), "{error}");
    }

    #[test]
    fn only_another_session_of_the_same_pod_can_be_a_predecessor() {
        let session = SessionId::new("6f1c-42", 1234);
        let named = |name: &str| {
            let write = write(Holder::Session);
            let terms = LeaseTerms::default();
            let mut object = written(&session, &write, &terms, &Former::default());
            object.annotations_mut().insert(PREDECESSOR_ANNOTATION.to_owned(), name.to_owned());
            seen(&object).unwrap().former.session
        };
        let before = SessionId::new("6f1c-42", 7);
        assert_eq!(named(&before.to_string()), Some(before));
        for other in [SessionId::new("6f1c-43", 7).to_string(), session.to_string(), "x".into()] {
            assert_eq!(named(&other), None, "{other}");
        }
    }

    #[test]
    fn what_is_no_lease_of_a_session_is_refused_with_a_sentence() {
        let session = SessionId::new("6f1c-42", 1234);
        let mut object =
            written(&session, &write(Holder::Session), &LeaseTerms::default(), &Former::default());
        object.metadata.annotations = None;
        let error = seen(&object).unwrap_err();
        assert!(error.contains("has no usable `swarm.k8slab.info/ack`"), "{error}");
        object.metadata.name = Some("kube-scheduler".to_owned());
        let error = seen(&object).unwrap_err();
        assert!(error.starts_with("Lease `kube-scheduler` is not a session's"), "{error}");
    }
}
