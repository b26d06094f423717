//! The lease of a session: its writers, the precondition of each write, and its timing.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Stopping;
use crate::{JobName, Position, Token};

/// A reading of one process's monotonic clock: the time since a start that only the process knows.
///
/// On a worker the clock also counts the time the machine was suspended (`CLOCK_BOOTTIME`).
/// Moments of different processes cannot be compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub Duration);

impl Moment {
    /// Returns the moment `span` later, or the end of time if it would overflow.
    ///
    /// ```
    /// use std::time::Duration;
    /// use swarm_core::handover::Moment;
    ///
    /// let later = Moment::default().after(Duration::from_secs(3));
    /// assert_eq!(later, Moment(Duration::from_secs(3)));
    /// assert_eq!(later.after(Duration::MAX), Moment(Duration::MAX));
    /// ```
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span))
    }

    /// Returns the moment `span` earlier, or the clock's start if it would underflow.
    ///
    /// ```
    /// use std::time::Duration;
    /// use swarm_core::handover::Moment;
    ///
    /// let now = Moment(Duration::from_secs(3));
    /// assert_eq!(now.before(Duration::from_secs(1)), Moment(Duration::from_secs(2)));
    /// assert_eq!(now.before(Duration::from_secs(4)), Moment::default());
    /// ```
    #[must_use]
    pub fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(span))
    }

    /// Returns the time since `earlier`; zero if the clock went back.
    ///
    /// ```
    /// use std::time::Duration;
    /// use swarm_core::handover::Moment;
    ///
    /// let (earlier, now) = (Moment(Duration::from_secs(1)), Moment(Duration::from_secs(3)));
    /// assert_eq!(now.since(earlier), Duration::from_secs(2));
    /// assert_eq!(earlier.since(now), Duration::ZERO);
    /// ```
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// One instance of one worker: the UID of its pod, and a random number drawn at its start.
///
/// A restarted container is another session; so is a pod that got the name of an older one. A
/// program that does not implement the protocol has only its pod's UID. Identities are never
/// reused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId {
    pod_uid: Arc<str>,
    nonce: Option<u64>,
}

impl SessionId {
    /// Creates the identity of a worker that implements the protocol. `nonce` is a random number,
    /// drawn at its start.
    ///
    /// ```
    /// use swarm_core::handover::SessionId;
    ///
    /// let session = SessionId::new("6f1c", 1234);
    /// assert_eq!(session.to_string(), "6f1c-00000000000004d2"); // the name of its Lease
    /// assert_ne!(session, SessionId::new("6f1c", 1235)); // the container was started again
    /// ```
    #[must_use]
    pub fn new(pod_uid: &str, nonce: u64) -> Self {
        Self { pod_uid: pod_uid.into(), nonce: Some(nonce) }
    }

    /// Creates the stand-in for a plain worker, which never acknowledges anything by itself.
    ///
    /// ```
    /// use swarm_core::handover::SessionId;
    ///
    /// assert_eq!(SessionId::plain("6f1c").to_string(), "6f1c");
    /// ```
    #[must_use]
    pub fn plain(pod_uid: &str) -> Self {
        Self { pod_uid: pod_uid.into(), nonce: None }
    }

    /// Returns the UID of the pod.
    ///
    /// ```
    /// use swarm_core::handover::SessionId;
    ///
    /// assert_eq!(SessionId::new("6f1c", 1).pod_uid(), SessionId::plain("6f1c").pod_uid());
    /// ```
    #[must_use]
    pub fn pod_uid(&self) -> &str {
        &self.pod_uid
    }

    /// Returns the identity that sorts before every other session of the same pod. O(1).
    pub(crate) fn first_of_pod(&self) -> Self {
        Self { pod_uid: Arc::clone(&self.pod_uid), nonce: None }
    }

    /// Returns the number that was drawn at its start; `None` if the worker is plain.
    pub(crate) fn nonce(&self) -> Option<u64> {
        self.nonce
    }

    /// Returns the identity as stores keep it: the text of [`Display`](fmt::Display), with the
    /// prefix `plain/` for a plain worker.
    ///
    /// ```
    /// use swarm_core::handover::SessionId;
    ///
    /// assert_eq!(SessionId::new("6f1c", 1).to_stored(), "6f1c-0000000000000001");
    /// assert_eq!(SessionId::plain("6f1c").to_stored(), "plain/6f1c");
    /// ```
    #[must_use]
    pub fn to_stored(&self) -> String {
        if self.is_plain() { format!("{PLAIN}{self}") } else { self.to_string() }
    }

    /// Returns the identity that [`to_stored`](Self::to_stored) wrote. A text that it never wrote
    /// means a plain worker of that name.
    ///
    /// ```
    /// use swarm_core::handover::SessionId;
    ///
    /// for session in [SessionId::new("6f1c", 1), SessionId::plain("6f1c")] {
    ///     assert_eq!(SessionId::from_stored(&session.to_stored()), session);
    /// }
    /// assert_eq!(SessionId::from_stored("worker-0"), SessionId::plain("worker-0"));
    /// ```
    #[must_use]
    pub fn from_stored(text: &str) -> Self {
        if let Some(pod_uid) = text.strip_prefix(PLAIN) {
            return Self::plain(pod_uid);
        }
        let nonce = |digits: &str| {
            let is_hex = digits.len() == 16 && digits.bytes().all(|b| b.is_ascii_hexdigit());
            u64::from_str_radix(digits, 16).ok().filter(|_| is_hex)
        };
        let parts = text.rsplit_once('-').and_then(|(uid, digits)| Some((uid, nonce(digits)?)));
        parts.map_or_else(|| Self::plain(text), |(pod_uid, nonce)| Self::new(pod_uid, nonce))
    }

    /// Returns whether the worker is plain: it does not implement the protocol.
    ///
    /// ```
    /// use swarm_core::handover::SessionId;
    ///
    /// assert!(SessionId::plain("6f1c").is_plain() && !SessionId::new("6f1c", 1).is_plain());
    /// ```
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.nonce.is_none()
    }
}

/// The prefix of the identity of a plain worker in a store.
const PLAIN: &str = "plain/";

/// Formats it as in `6f1c…-00000000000004d2`, which is a valid name of an object.
impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.nonce {
            Some(nonce) => write!(f, "{}-{nonce:016x}", self.pod_uid),
            None => f.write_str(&self.pod_uid),
        }
    }
}

/// Names one stored state of a lease. Only equality has a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct LeaseVersion(pub u64);

/// The holder of a lease. `Closed` and `Revoked` are final.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
pub enum Holder {
    /// Its session.
    Session,
    /// No holder: the session released all its jobs and closed the lease.
    Closed,
    /// No holder: an operator revoked the lease.
    Revoked,
}

/// The acknowledgement in every write of a session to its lease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
pub struct Ack {
    /// The incarnation of the ledger that `revision` counts in.
    pub incarnation: u64,
    /// The session runs only jobs that the ledger granted it at this revision or later, and will
    /// never again start a job from an earlier one.
    pub revision: u64,
    /// A later view that the session has carried out except for the listed jobs.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::wire::is_default"))]
    pub stopping: Stopping,
    /// Run-to-completion jobs that finished, with the tokens under which they ran.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::wire::is_default"))]
    pub finished: BTreeMap<JobName, Token>,
    /// The worker has to end, and waits for its jobs to be moved.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "draining", default, skip_serializing_if = "crate::wire::is_default")
    )]
    pub is_draining: bool,
}

impl Ack {
    /// Returns the latest position of the ledger that it acknowledges, in whole or in part.
    ///
    /// ```
    /// use swarm_core::Position;
    /// use swarm_core::handover::Ack;
    ///
    /// let ack = Ack { incarnation: 7, revision: 3, ..Ack::default() };
    /// assert_eq!(ack.position(), Position { incarnation: 7, revision: 3 });
    /// ```
    #[must_use]
    pub fn position(&self) -> Position {
        let revision = self.revision.max(self.stopping.reads);
        Position { incarnation: self.incarnation, revision }
    }

    /// Merges a copy of an acknowledgement of the same session, which may be older. Jobs only ever
    /// leave the list of jobs that still stop, so a copy without a list does not clear it.
    pub(crate) fn take_in(&mut self, copy: &Self) {
        if copy.incarnation < self.incarnation {
            return;
        }
        let stopping = if copy.incarnation == self.incarnation {
            std::mem::take(&mut self.stopping).and(&copy.stopping)
        } else {
            copy.stopping.clone()
        };
        if (self.incarnation, self.revision) <= (copy.incarnation, copy.revision) {
            let Self { incarnation, revision, stopping: _, finished, is_draining } = copy;
            let (incarnation, revision) = (*incarnation, *revision);
            let (finished, is_draining) = (finished.clone(), *is_draining);
            *self = Self {
                incarnation,
                revision,
                stopping: Stopping::default(),
                finished,
                is_draining,
            };
        }
        if self.revision < stopping.reads {
            self.stopping = stopping;
        }
    }
}

/// A stored lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
pub struct Lease {
    /// The stored state.
    pub version: LeaseVersion,
    /// The holder.
    pub holder: Holder,
    /// The number of the session's last write that reached the store.
    pub number: u64,
    /// The acknowledgement in that write.
    pub ack: Ack,
}

/// A write of a session to its own lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
pub struct LeaseWrite {
    /// The version it replaces; `None` creates the lease.
    pub expected: Option<LeaseVersion>,
    /// [`Holder::Session`] to renew, [`Holder::Closed`] to close.
    pub holder: Holder,
    /// The number of the session's writes so far, so that the session recognises its own write.
    pub number: u64,
    /// The acknowledgement of the session.
    pub ack: Ack,
}

/// Another writer was faster, or the object is final. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lease changed since it was seen; read it again")]
pub struct LeaseConflict;

impl LeaseWrite {
    /// Returns the lease that a store holds after this write, if the precondition is met. Stores
    /// without a compare-and-set of their own use this under their lock.
    ///
    /// # Errors
    ///
    /// [`LeaseConflict`] if `stored` is not the lease that the session saw.
    ///
    /// ```
    /// use swarm_core::handover::{Ack, Holder, LeaseVersion, LeaseWrite};
    ///
    /// let (holder, ack) = (Holder::Session, Ack::default());
    /// let first = LeaseWrite { expected: None, holder, number: 1, ack: ack.clone() };
    /// let lease = first.onto(None, LeaseVersion(1))?;
    /// let next = LeaseWrite { expected: Some(lease.version), holder, number: 2, ack };
    /// let renewed = next.onto(Some(&lease), LeaseVersion(2))?;
    /// assert!(next.onto(Some(&renewed), LeaseVersion(3)).is_err()); // it was renewed in between
    /// # Ok::<(), swarm_core::handover::LeaseConflict>(())
    /// ```
    pub fn onto(
        &self,
        stored: Option<&Lease>,
        version: LeaseVersion,
    ) -> Result<Lease, LeaseConflict> {
        if stored.map(|lease| lease.version) != self.expected {
            return Err(LeaseConflict);
        }
        Ok(Lease { version, holder: self.holder, number: self.number, ack: self.ack.clone() })
    }
}

impl Lease {
    /// Returns the lease that a store holds after an operator, which saw version `seen`, revoked
    /// it. Success certifies that the session wrote nothing after `seen`.
    ///
    /// # Errors
    ///
    /// [`LeaseConflict`] if the version is no longer `seen`, or if the lease has no holder.
    ///
    /// ```
    /// use swarm_core::handover::{Ack, Holder, Lease, LeaseVersion};
    ///
    /// let (version, ack) = (LeaseVersion(2), Ack::default());
    /// let lease = Lease { version, holder: Holder::Session, number: 2, ack };
    /// assert!(lease.revoke(LeaseVersion(1), LeaseVersion(3)).is_err()); // it was renewed since
    /// let revoked = lease.revoke(version, LeaseVersion(3))?;
    /// assert_eq!((revoked.version, revoked.holder), (LeaseVersion(3), Holder::Revoked));
    /// # Ok::<(), swarm_core::handover::LeaseConflict>(())
    /// ```
    pub fn revoke(&self, seen: LeaseVersion, version: LeaseVersion) -> Result<Self, LeaseConflict> {
        if self.holder != Holder::Session || self.version != seen {
            return Err(LeaseConflict);
        }
        Ok(Self { version, holder: Holder::Revoked, ..self.clone() })
    }
}

/// The time added to three renewals before a session is [silent](LeaseTerms::silent_after), if its
/// worker and the observer share a clock. It covers timers that fire late.
pub const ONE_CLOCK_MARGIN: Duration = Duration::from_secs(1);

/// The same time if the worker and the observer have two clocks. It also covers the way of a renewal
/// through the API server, and clocks that differ.
pub const TWO_CLOCKS_MARGIN: Duration = Duration::from_secs(5);

/// The timing of sessions, the same for workers and operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeaseTerms {
    /// The time for which a session may act after it sent a renewal that succeeded.
    pub duration: Duration,
    /// The interval between two renewals.
    pub renew: Duration,
    /// The time before the end of its lease at which a session begins to stop its jobs.
    pub stop_timeout: Duration,
    /// The largest drift, in thousandths, of the clock of a worker or an operator, fast or slow.
    pub drift_permille: u32,
    /// The time to wait in addition, for rounding and for timers that fire late.
    pub slack: Duration,
}

impl Default for LeaseTerms {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(20),
            renew: Duration::from_secs(4),
            stop_timeout: Duration::from_secs(5),
            drift_permille: 10,
            slack: Duration::from_secs(1),
        }
    }
}

/// The rule that invalid terms break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaseTermsError {
    /// The lease ends before a late renewal could have saved it.
    #[error("a lease of {duration:?} is too short: at least 3 × renew + stop timeout = {least:?}")]
    TooShort {
        /// The duration given.
        duration: Duration,
        /// The shortest duration that works.
        least: Duration,
    },
    /// No grace would be long enough.
    #[error("no grace is long enough for a clock drift of {permille} ‰; allow at most 500 ‰")]
    Drift {
        /// The drift given.
        permille: u32,
    },
}

impl LeaseTerms {
    /// Returns terms whose interval follows from the duration and the stop timeout. It is a fifth of
    /// the duration, at most 4 s, and less if jobs need the time to stop, but at least `renew_min`. So a
    /// long lease does not delay the news that a worker is silent.
    ///
    /// The terms pass the [check](Self::check) if the duration is at least 3 × `renew_min` + stop
    /// timeout.
    ///
    /// ```
    /// use std::time::Duration;
    /// use swarm_core::handover::LeaseTerms;
    ///
    /// let renew_min = Duration::from_millis(500);
    /// let of = |duration, stop_timeout| {
    ///     let [duration, stop_timeout] = [duration, stop_timeout].map(Duration::from_secs);
    ///     LeaseTerms::derived(duration, stop_timeout, renew_min)
    /// };
    /// assert_eq!(of(20, 5), LeaseTerms::default());
    /// assert_eq!(of(60, 5).renew, Duration::from_secs(4));
    /// assert_eq!(of(60, 45).renew, Duration::from_secs(4));
    /// assert_eq!(of(3, 1).renew, Duration::from_millis(533));
    /// ```
    #[must_use]
    pub fn derived(duration: Duration, stop_timeout: Duration, renew_min: Duration) -> Self {
        // Of the default terms, these are 4 s of 15 s. Three renewals leave a fifth of the time.
        let left = duration.saturating_sub(stop_timeout).saturating_mul(4) / 15;
        let renew = (duration / 5).min(left).min(Self::default().renew).max(renew_min);
        // Arguments and environment variables have whole milliseconds.
        let renew = Duration::from_secs(renew.as_secs())
            + Duration::from_millis(renew.subsec_millis().into());
        Self { duration, renew, stop_timeout, ..Self::default() }
    }

    /// Checks whether a session can work under these terms.
    ///
    /// # Errors
    ///
    /// [`LeaseTermsError`] for the first rule that the terms break.
    ///
    /// ```
    /// use std::time::Duration;
    /// use swarm_core::handover::LeaseTerms;
    ///
    /// let terms = LeaseTerms::default();
    /// assert!(terms.check().is_ok());
    /// assert!(LeaseTerms { duration: Duration::from_secs(16), ..terms }.check().is_err());
    /// ```
    pub fn check(&self) -> Result<(), LeaseTermsError> {
        let least = self.renew.saturating_mul(3).saturating_add(self.stop_timeout);
        if self.duration < least {
            return Err(LeaseTermsError::TooShort { duration: self.duration, least });
        }
        if self.drift_permille > 500 {
            return Err(LeaseTermsError::Drift { permille: self.drift_permille });
        }
        Ok(())
    }

    /// Returns the time from the last renewal that an operator saw until the session has certainly
    /// stopped, on the operator's clock: duration · (1 + drift) / (1 − drift) + slack. About 21.4 s
    /// by default.
    ///
    /// ```
    /// use std::time::Duration;
    /// use swarm_core::handover::LeaseTerms;
    ///
    /// let terms = LeaseTerms { drift_permille: 0, ..LeaseTerms::default() };
    /// assert_eq!(terms.fence_wait(), terms.duration + terms.slack);
    /// ```
    #[must_use]
    pub fn fence_wait(&self) -> Duration {
        let drift = self.drift_permille.min(500);
        let stretched = self.duration.saturating_mul(1000 + drift) / (1000 - drift);
        stretched.saturating_add(self.slack)
    }

    /// Returns the time since its last renewal from which a session is silent: 3 × renew + margin,
    /// and at most the duration. By default, this is 13 s with [`ONE_CLOCK_MARGIN`] and 17 s with
    /// [`TWO_CLOCKS_MARGIN`].
    ///
    /// A job of a silent session never counts as running. Its worker may still run it.
    ///
    /// The state does not flap. One late renewal changes nothing. Only [the second renewal] that was
    /// seen ends a silence, never the passing of time. The next silence is a whole bound away then.
    ///
    /// [the second renewal]: super::Renewals
    ///
    /// ```
    /// use std::time::Duration;
    /// use swarm_core::handover::{LeaseTerms, ONE_CLOCK_MARGIN, TWO_CLOCKS_MARGIN};
    ///
    /// let terms = LeaseTerms::default();
    /// assert_eq!(terms.silent_after(ONE_CLOCK_MARGIN), Duration::from_secs(13));
    /// assert_eq!(terms.silent_after(TWO_CLOCKS_MARGIN), Duration::from_secs(17));
    /// // After its whole lease a session has stopped its jobs.
    /// let short = LeaseTerms { duration: Duration::from_secs(6), ..terms };
    /// assert_eq!(short.silent_after(ONE_CLOCK_MARGIN), short.duration);
    /// ```
    #[must_use]
    pub fn silent_after(&self, margin: Duration) -> Duration {
        self.renew.saturating_mul(3).saturating_add(margin).min(self.duration)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_covers_a_fast_operator_and_a_slow_worker() {
        let terms = LeaseTerms::default();
        assert_eq!(terms.check(), Ok(()));
        assert_eq!(terms.fence_wait().as_millis(), 21_404);
    }

    #[test]
    fn terms_that_cannot_work_are_refused_with_a_number() {
        let short = LeaseTerms { duration: Duration::from_secs(16), ..LeaseTerms::default() };
        let error = short.check().unwrap_err().to_string();
        assert!(error.contains(" 16s ") && error.ends_with(" = 17s"), "{error}");
    }

    #[test]
    fn terms_at_their_limits_are_good() {
        let terms = LeaseTerms::default();
        let least = terms.renew * 3 + terms.stop_timeout;
        assert_eq!(LeaseTerms { duration: least, ..terms }.check(), Ok(()));
        assert_eq!(LeaseTerms { drift_permille: 500, ..terms }.check(), Ok(()));
        let error = LeaseTerms { drift_permille: 501, ..terms }.check();
        assert_eq!(error, Err(LeaseTermsError::Drift { permille: 501 }));
    }

    #[test]
    fn only_sixteen_hexadecimal_digits_make_a_session_of_a_name() {
        for plain in ["worker-0", "worker-00000000000000000", "worker-000000000000000g", "w", ""] {
            assert_eq!(SessionId::from_stored(plain), SessionId::plain(plain));
        }
        let session = SessionId::from_stored("worker-000000000000000a");
        assert_eq!(session, SessionId::new("worker", 10));
    }

    #[test]
    fn a_lease_without_holder_is_final() {
        let held = Lease {
            version: LeaseVersion(1),
            holder: Holder::Session,
            number: 1,
            ack: Ack::default(),
        };
        let revoked = held.revoke(LeaseVersion(1), LeaseVersion(2)).unwrap();
        assert!(revoked.revoke(LeaseVersion(2), LeaseVersion(3)).is_err());
        let renewal = LeaseWrite {
            expected: Some(LeaseVersion(1)),
            holder: Holder::Session,
            number: 2,
            ack: Ack::default(),
        };
        assert!(renewal.onto(Some(&revoked), LeaseVersion(3)).is_err());
        assert!(renewal.onto(None, LeaseVersion(3)).is_err(), "a vanished lease is never re-made");
    }
}
