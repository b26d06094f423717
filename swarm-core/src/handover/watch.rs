//! One operator's watch over one session: alive, closed, or revoked and fenced.
//!
//! A lease that looks old proves nothing, since the look itself may be old. Only a revocation by
//! compare-and-set certifies that no renewal followed the observed one. Once a grace has elapsed
//! after that renewal was seen, the session's own deadline has certainly passed.

use std::time::Duration;

use super::{Ack, Evidence, Holder, Lease, LeaseTerms, LeaseVersion, Moment, Proof, Stopping};

/// The state of one observed session. It is not stored: an operator that restarts counts from zero
/// and waits longer, never shorter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Watch {
    /// The known stage of its end.
    pub stage: WatchStage,
    /// Its latest acknowledgement, including the jobs that it still stops.
    pub ack: Ack,
    /// The incarnation of the ledger in a view that was found for it, and which it may have read.
    pub viewed: Option<u64>,
    /// The longest time after a renewal for which it claimed that it may act; `None` without a
    /// claim.
    pub longest: Option<Duration>,
    /// The number of the session's write that was seen last; 0 if none was seen.
    pub number: u64,
    /// The version of that write; `None` if it is not known.
    pub numbered: Option<LeaseVersion>,
    /// The writes that were seen since then and that have no higher number, at most
    /// [`REPEATS_MAX`]. An edit of the Lease by a user counts as well. Another read of that write
    /// shows that the reads in between were old, and sets the count to 0.
    pub repeats: u32,
}

/// The writes in a row without a higher number from which a session does not count its writes.
pub const REPEATS_MAX: u32 = 3;

/// The longest grace for any session. A session that claims more receives no jobs.
pub const CLAIM_MAX: Duration = Duration::from_secs(60 * 60);

/// The known stage of a session's end. Moments are on the observer's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WatchStage {
    /// The lease was seen held, in this version.
    Held {
        /// The version seen.
        version: LeaseVersion,
        /// The moment when the session's last write was first seen, by its number.
        since: Moment,
    },
    /// A revocation of `version` was sent; its answer is not known.
    Revoking {
        /// The version it replaces.
        version: LeaseVersion,
        /// The moment when the session's last write was first seen, by its number.
        since: Moment,
        /// The moment when the revocation was requested. Without an answer it is requested again,
        /// one lease duration later.
        asked: Moment,
    },
    /// The lease is revoked, and the grace runs until the session's deadline has certainly passed.
    Revoked {
        /// The moment when the grace began.
        since: Moment,
    },
    /// The session has ended.
    Ended(Proof),
}

/// A fact about a session that an observer notices.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum WatchEvent {
    /// Time passes.
    Tick,
    /// The lease was read, perhaps from a stale copy.
    Seen(Lease),
    /// The lease of a session that the ledger names is missing in the store itself. Names are never
    /// used again, so it was deleted and cannot be renewed.
    Missing,
    /// The session may be revoked if it is silent. The [brake](super::Brake) decides when.
    Suspect,
    /// Our revocation of this version was written.
    RevocationWritten(LeaseVersion),
    /// Our revocation was refused, or there was no answer.
    RevocationFailed,
    /// The process is known to have ended: its containers terminated, a successor started in the
    /// same pod, its node is deleted or tainted out-of-service, or this process reaped it.
    ProcessEnded,
}

/// An action that an observer has to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WatchEffect {
    /// Revoke the lease by compare-and-set, at this version only.
    Revoke(LeaseVersion),
}

impl Watch {
    /// Starts to watch a session whose lease was read at `now`.
    ///
    /// ```
    /// use swarm_core::handover::{Ack, Holder, Lease, LeaseVersion, Moment, Watch};
    ///
    /// let (version, ack) = (LeaseVersion(1), Ack::default());
    /// let lease = Lease { version, holder: Holder::Session, number: 1, ack };
    /// assert!(Watch::begin(Moment::default(), &lease).may_renew());
    /// let closed = Lease { holder: Holder::Closed, ..lease };
    /// assert!(!Watch::begin(Moment::default(), &closed).may_renew());
    /// ```
    #[must_use]
    pub fn begin(now: Moment, lease: &Lease) -> Self {
        let mut watch = Self {
            stage: WatchStage::Held { version: lease.version, since: now },
            ack: lease.ack.clone(),
            viewed: None,
            longest: None,
            number: lease.number,
            numbered: Some(lease.version),
            repeats: 0,
        };
        watch.seen(now, lease);
        watch
    }

    /// Records the session's claim that it may act for `duration` after a renewal. The longest
    /// claim counts, since a copy that is read may be old.
    ///
    /// ```
    /// use std::time::Duration;
    /// use swarm_core::handover::{Moment, Watch};
    ///
    /// let mut watch = Watch::missing(Moment::default());
    /// [5, 60, 20].map(|secs| watch.claims(Duration::from_secs(secs)));
    /// assert_eq!(watch.longest, Some(Duration::from_secs(60)));
    /// ```
    pub fn claims(&mut self, duration: Duration) {
        self.longest = self.longest.max(Some(duration));
    }

    /// Returns the time for which the session is waited for. This is its longest claim, but at
    /// least one renewal interval and at most [`CLAIM_MAX`]. Without a claim, it is the duration in
    /// `terms`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use swarm_core::handover::{CLAIM_MAX, LeaseTerms, Moment, Watch};
    ///
    /// let terms = LeaseTerms::default();
    /// let mut watch = Watch::missing(Moment::default());
    /// assert_eq!(watch.claimed(&terms), terms.duration);
    /// watch.claims(Duration::ZERO);
    /// assert_eq!(watch.claimed(&terms), terms.renew);
    /// watch.claims(Duration::MAX);
    /// assert_eq!(watch.claimed(&terms), CLAIM_MAX);
    /// ```
    #[must_use]
    pub fn claimed(&self, terms: &LeaseTerms) -> Duration {
        let least = terms.renew.min(CLAIM_MAX);
        self.longest.map_or(terms.duration, |longest| longest.clamp(least, CLAIM_MAX))
    }

    /// Returns the terms from which the grace of this session follows.
    fn own(&self, terms: &LeaseTerms) -> LeaseTerms {
        LeaseTerms { duration: self.claimed(terms), ..*terms }
    }

    /// Starts to watch a session whose lease was found missing at `now`. Every session with a grant
    /// had a lease, so the lease was deleted. The last renewal is unknown.
    ///
    /// ```
    /// use swarm_core::handover::{LeaseTerms, Moment, Proof, Watch, WatchEvent, WatchStage};
    ///
    /// let terms = LeaseTerms::default();
    /// let mut watch = Watch::missing(Moment::default());
    /// assert!(!watch.may_renew());
    /// watch.step(Moment(terms.fence_wait()), &WatchEvent::Tick, &terms);
    /// assert_eq!(watch.stage, WatchStage::Ended(Proof::Fenced));
    /// ```
    #[must_use]
    pub fn missing(now: Moment) -> Self {
        let stage = WatchStage::Revoked { since: now };
        Self {
            stage,
            ack: Ack::default(),
            viewed: None,
            longest: None,
            number: 0,
            numbered: None,
            repeats: 0,
        }
    }

    /// Returns whether the lease was not seen to change for its whole duration.
    ///
    /// ```
    /// use swarm_core::handover::{Ack, Holder, Lease, LeaseTerms, LeaseVersion, Moment, Watch};
    ///
    /// let (version, ack) = (LeaseVersion(1), Ack::default());
    /// let lease = Lease { version, holder: Holder::Session, number: 1, ack };
    /// let (terms, seen) = (LeaseTerms::default(), Moment::default());
    /// let watch = Watch::begin(seen, &lease);
    /// assert!(!watch.is_silent(seen.after(terms.renew), &terms));
    /// assert!(watch.is_silent(seen.after(terms.duration), &terms));
    /// ```
    #[must_use]
    pub fn is_silent(&self, now: Moment, terms: &LeaseTerms) -> bool {
        match self.stage {
            WatchStage::Held { since, .. } | WatchStage::Revoking { since, .. } => {
                self.claimed(terms) <= now.since(since)
            }
            WatchStage::Revoked { .. } | WatchStage::Ended(_) => true,
        }
    }

    /// Returns the moment from which the session is [silent](LeaseTerms::silent_after) unless it
    /// renews before; `None` if it cannot renew any more.
    ///
    /// A session that claims another duration than `terms` has follows earlier terms. Its renewal
    /// interval is not known, so its whole claim counts.
    ///
    /// ```
    /// use std::time::Duration;
    /// use swarm_core::handover::*;
    ///
    /// let (version, ack) = (LeaseVersion(1), Ack::default());
    /// let lease = Lease { version, holder: Holder::Session, number: 1, ack };
    /// let (terms, seen) = (LeaseTerms::default(), Moment::default());
    /// let mut watch = Watch::begin(seen, &lease);
    /// let bound = terms.silent_after(ONE_CLOCK_MARGIN);
    /// assert_eq!(watch.heard_until(&terms, ONE_CLOCK_MARGIN), Some(seen.after(bound)));
    /// watch.claims(Duration::from_secs(60));
    /// let claim = seen.after(Duration::from_secs(60));
    /// assert_eq!(watch.heard_until(&terms, ONE_CLOCK_MARGIN), Some(claim));
    /// assert_eq!(Watch::missing(seen).heard_until(&terms, ONE_CLOCK_MARGIN), None);
    /// ```
    #[must_use]
    pub fn heard_until(&self, terms: &LeaseTerms, margin: Duration) -> Option<Moment> {
        let claimed = self.claimed(terms);
        let is_of_terms = claimed == terms.duration;
        let bound = if is_of_terms { terms.silent_after(margin) } else { claimed };
        self.held().map(|(_, since)| since.after(bound))
    }

    /// Returns whether the session could still renew its lease, as far as the watch knows.
    ///
    /// ```
    /// use swarm_core::handover::{Moment, Watch};
    ///
    /// assert!(!Watch::missing(Moment::default()).may_renew()); // it was deleted
    /// ```
    #[must_use]
    pub fn may_renew(&self) -> bool {
        match self.stage {
            WatchStage::Held { .. } | WatchStage::Revoking { .. } => true,
            WatchStage::Revoked { .. } | WatchStage::Ended(_) => false,
        }
    }

    /// Returns the version at which the lease was seen held, and when it was first seen.
    pub(crate) fn held(&self) -> Option<(LeaseVersion, Moment)> {
        match self.stage {
            WatchStage::Held { version, since } | WatchStage::Revoking { version, since, .. } => {
                Some((version, since))
            }
            WatchStage::Revoked { .. } | WatchStage::Ended(_) => None,
        }
    }

    /// Returns whether the session is known to have ended.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.stage, WatchStage::Ended(_))
    }

    /// Returns when time alone next changes the state; `None` if it never does. A silent session
    /// can be revoked from that moment on. So the moment is in the past until the session is
    /// [suspected](WatchEvent::Suspect).
    ///
    /// ```
    /// use swarm_core::handover::{LeaseTerms, Moment, Watch};
    ///
    /// let terms = LeaseTerms::default();
    /// let watch = Watch::missing(Moment::default());
    /// assert_eq!(watch.wakes_at(&terms), Some(Moment(terms.fence_wait())));
    /// ```
    #[must_use]
    pub fn wakes_at(&self, terms: &LeaseTerms) -> Option<Moment> {
        match self.stage {
            WatchStage::Held { since, .. } => Some(since.after(self.claimed(terms))),
            WatchStage::Revoking { asked, .. } => Some(asked.after(terms.duration)),
            WatchStage::Revoked { since } => Some(since.after(self.own(terms).fence_wait())),
            WatchStage::Ended(_) => None,
        }
    }

    /// Processes an event at `now` and returns the resulting action, if any.
    ///
    /// ```
    /// use swarm_core::handover::*;
    ///
    /// let (version, ack) = (LeaseVersion(1), Ack::default());
    /// let lease = Lease { version, holder: Holder::Session, number: 1, ack };
    /// let (terms, seen) = (LeaseTerms::default(), Moment::default());
    /// let silent = seen.after(terms.duration);
    /// let mut watch = Watch::begin(seen, &lease);
    /// let asked = watch.step(silent, &WatchEvent::Suspect, &terms);
    /// assert_eq!(asked, Some(WatchEffect::Revoke(version)));
    /// watch.step(silent, &WatchEvent::RevocationWritten(version), &terms);
    /// assert_eq!(watch.evidence(0).ended, None); // clocks differ: wait a little longer
    /// watch.step(seen.after(terms.fence_wait()), &WatchEvent::Tick, &terms);
    /// assert!(watch.evidence(0).ended.is_some());
    /// ```
    pub fn step(
        &mut self,
        now: Moment,
        event: &WatchEvent,
        terms: &LeaseTerms,
    ) -> Option<WatchEffect> {
        match event {
            WatchEvent::Tick => (),
            WatchEvent::Seen(lease) => self.seen(now, lease),
            WatchEvent::Missing => self.revoked(now),
            WatchEvent::Suspect => return self.suspect(now, terms),
            WatchEvent::RevocationWritten(revoked) => {
                let seen = self.held().filter(|(version, _)| version == revoked);
                self.revoked(seen.map_or(now, |(_, since)| since));
            }
            WatchEvent::RevocationFailed => {
                if let WatchStage::Revoking { version, since, .. } = self.stage {
                    self.stage = WatchStage::Held { version, since };
                }
            }
            WatchEvent::ProcessEnded => self.end(Proof::ProcessEnded),
        }
        self.wait_out(now, terms);
        None
    }

    fn wait_out(&mut self, now: Moment, terms: &LeaseTerms) {
        let wait = self.own(terms).fence_wait();
        let waited = |since| wait <= now.since(since);
        match self.stage {
            WatchStage::Revoked { since } if waited(since) => self.end(Proof::Fenced),
            WatchStage::Held { .. }
            | WatchStage::Revoking { .. }
            | WatchStage::Revoked { .. }
            | WatchStage::Ended(_) => (),
        }
    }

    fn seen(&mut self, now: Moment, lease: &Lease) {
        self.ack.take_in(&lease.ack);
        match lease.holder {
            Holder::Closed => self.end(Proof::Closed),
            // A revocation keeps the number, so no renewal followed the write that was first seen.
            // If the answer to our own revocation was lost, this saves a second wait.
            Holder::Revoked => {
                let seen = self.held().filter(|_| lease.number == self.number);
                self.revoked(seen.map_or(now, |(_, since)| since));
                if self.number < lease.number {
                    (self.number, self.numbered) = (lease.number, None);
                }
            }
            Holder::Session => match self.stage {
                // Only a higher number is a renewal. Another version under the same number may be an
                // edit of the Lease by a user, or the write of a worker that does not count.
                WatchStage::Held { version, since }
                | WatchStage::Revoking { version, since, .. }
                    if version != lease.version =>
                {
                    let is_renewal = self.number < lease.number;
                    let since = if is_renewal { now } else { since };
                    let repeats = self.repeats.saturating_add(1).min(REPEATS_MAX);
                    let is_again = self.numbered == Some(lease.version);
                    self.repeats = if is_renewal || is_again { 0 } else { repeats };
                    self.stage = WatchStage::Held { version: lease.version, since };
                    if is_renewal {
                        (self.number, self.numbered) = (lease.number, Some(lease.version));
                    }
                }
                // No write follows a revocation, so the store was rolled back to a time before the
                // revocation.
                WatchStage::Revoked { .. } | WatchStage::Ended(Proof::Fenced)
                    if self.number < lease.number =>
                {
                    self.holds(now, lease);
                }
                WatchStage::Held { .. }
                | WatchStage::Revoking { .. }
                | WatchStage::Revoked { .. }
                | WatchStage::Ended(_) => (),
            },
        }
    }

    fn holds(&mut self, now: Moment, lease: &Lease) {
        self.stage = WatchStage::Held { version: lease.version, since: now };
        (self.number, self.numbered) = (lease.number, Some(lease.version));
    }

    /// Reopens an end that rests on the store, since the store was rolled back. The session is
    /// fenced again from `now` on, unless its Lease is found held. Returns whether the end was
    /// reopened.
    ///
    /// The time of a held lease counts from `now` on, too. Its session may have renewed it in the
    /// history that was lost, after the last renewal that was seen.
    ///
    /// ```
    /// use swarm_core::handover::{Ack, Holder, Lease, LeaseVersion, Moment, Watch, WatchStage};
    ///
    /// let (version, ack) = (LeaseVersion(1), Ack::default());
    /// let held = Lease { version, holder: Holder::Session, number: 1, ack };
    /// let mut watch = Watch::begin(Moment::default(), &Lease { holder: Holder::Closed, ..held });
    /// let since = Moment::default();
    /// assert!(watch.doubt_stored_end(since));
    /// assert_eq!(watch.stage, WatchStage::Revoked { since });
    /// ```
    pub fn doubt_stored_end(&mut self, now: Moment) -> bool {
        match self.stage {
            WatchStage::Held { version, .. } | WatchStage::Revoking { version, .. } => {
                self.stage = WatchStage::Held { version, since: now };
                // The restored Lease may have a write that was not seen before, and that renews nothing.
                (self.number, self.numbered) = (0, None);
                false
            }
            WatchStage::Ended(Proof::ProcessEnded) => false,
            WatchStage::Revoked { .. } | WatchStage::Ended(_) => {
                self.stage = WatchStage::Revoked { since: now };
                true
            }
        }
    }

    /// Processes the first read of a Lease after [`doubt_stored_end`](Self::doubt_stored_end). A
    /// held Lease may be renewed, even under an older number.
    pub(crate) fn found_again(&mut self, now: Moment, lease: &Lease) {
        if lease.holder == Holder::Session && !self.may_renew() {
            self.holds(now, lease);
        }
    }

    /// Records that the lease is revoked or missing. The wait begins when the last renewal was
    /// first seen; `since` is now if that renewal is unknown.
    fn revoked(&mut self, since: Moment) {
        match self.stage {
            WatchStage::Held { .. } | WatchStage::Revoking { .. } => {
                self.stage = WatchStage::Revoked { since };
            }
            WatchStage::Revoked { .. } | WatchStage::Ended(_) => (),
        }
    }

    fn suspect(&mut self, now: Moment, terms: &LeaseTerms) -> Option<WatchEffect> {
        // A repeated revocation at one version is written once.
        let is_asked = match self.stage {
            WatchStage::Revoking { asked, .. } => now.since(asked) < terms.duration,
            WatchStage::Held { .. } | WatchStage::Revoked { .. } | WatchStage::Ended(_) => false,
        };
        let (version, since) = self.held().filter(|_| !is_asked && self.is_silent(now, terms))?;
        self.stage = WatchStage::Revoking { version, since, asked: now };
        Some(WatchEffect::Revoke(version))
    }

    fn end(&mut self, proof: Proof) {
        match self.stage {
            WatchStage::Held { .. } | WatchStage::Revoking { .. } | WatchStage::Revoked { .. } => {
                self.stage = WatchStage::Ended(proof);
            }
            WatchStage::Ended(_) => (),
        }
    }

    /// Returns the proofs of the watch about the session, for a ledger of this incarnation.
    ///
    /// ```
    /// use swarm_core::handover::{Ack, Holder, Lease, LeaseVersion, Moment, Watch};
    ///
    /// let ack = Ack { incarnation: 7, revision: 3, ..Ack::default() };
    /// let lease = Lease { version: LeaseVersion(1), holder: Holder::Session, number: 1, ack };
    /// let watch = Watch::begin(Moment::default(), &lease);
    /// assert_eq!(watch.evidence(7).acked, 3);
    /// assert_eq!(watch.evidence(8).acked, 0); // it counts revisions of another incarnation
    /// ```
    #[must_use]
    pub fn evidence(&self, incarnation: u64) -> Evidence {
        let ended = match self.stage {
            WatchStage::Ended(proof) => Some(proof),
            WatchStage::Held { .. } | WatchStage::Revoking { .. } | WatchStage::Revoked { .. } => {
                None
            }
        };
        let same_life = self.ack.incarnation == incarnation;
        let stopping = self.ack.stopping.clone();
        Evidence {
            acked: if same_life { self.ack.revision } else { 0 },
            stopping: if same_life { stopping } else { Stopping::default() },
            finished: self.ack.finished.clone(),
            ended,
            lease: self.longest,
            ..Evidence::default()
        }
    }
}
