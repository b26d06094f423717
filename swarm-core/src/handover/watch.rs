//! One operator's watch over one session: alive, closed, or revoked and fenced.
//!
//! A lease that looks old proves nothing, since the look may be old too. Only a revocation by
//! compare-and-set certifies that no renewal followed the one that was seen; once a grace has
//! elapsed after it, the session's own deadline has certainly passed.

use std::time::Duration;

use super::{Ack, Evidence, Holder, Lease, LeaseTerms, LeaseVersion, Moment, Proof, Stopping};

/// What is known of a session's life. It is not stored: an operator that restarts counts from zero
/// and waits longer, never shorter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Watch {
    /// How far its end is known.
    pub life: Life,
    /// Its latest acknowledgement, and all that it said of jobs that it still stops.
    pub ack: Ack,
    /// The incarnation of the ledger that a view of it was found to be of, which it may have read.
    pub viewed: Option<u64>,
    /// The longest that it claimed it may act after a renewal; `None` if it claimed nothing.
    pub longest: Option<Duration>,
    /// The number of the session's write that was seen last; 0 if none was.
    pub number: u64,
}

/// The longest grace for any session. One that claims to need more is granted nothing.
pub const CLAIM_MAX: Duration = Duration::from_secs(60 * 60);

/// How far the end of a session is known. Moments are on the observer's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Life {
    /// The lease was seen held, first at `since` in this version.
    Held {
        /// The version seen.
        version: LeaseVersion,
        /// When it was first seen.
        since: Moment,
    },
    /// A revocation of `version` was sent; its answer is not known.
    Revoking {
        /// The version it replaces.
        version: LeaseVersion,
        /// When that was first seen.
        since: Moment,
        /// When the revocation was asked for. Without an answer it is asked for again, one lease
        /// duration later.
        asked: Moment,
    },
    /// The lease is revoked; the grace until the session's deadline has certainly passed is running.
    Revoked {
        /// When the grace began.
        since: Moment,
    },
    /// The session has ended.
    Ended(Proof),
}

/// What an observer learns of a session.
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
    /// same pod, its node is deleted or tainted out-of-service, or we reaped it ourselves.
    ProcessEnded,
}

/// What an observer has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WatchEffect {
    /// Revoke the lease by compare-and-set, at this version only.
    Revoke(LeaseVersion),
}

impl Watch {
    /// Begins to watch a session whose lease was read at `now`.
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
            life: Life::Held { version: lease.version, since: now },
            ack: lease.ack.clone(),
            viewed: None,
            longest: None,
            number: lease.number,
        };
        watch.seen(now, lease);
        watch
    }

    /// The session claims that it may act for so long after a renewal. The longest claim counts: a
    /// copy that is read may be old.
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

    /// How long the session is waited for: as it claims, but for no less than one renewal and no more
    /// than [`CLAIM_MAX`]. Of one that claimed nothing, as the Swarm asks.
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

    /// The terms that the grace of this session follows from.
    fn own(&self, terms: &LeaseTerms) -> LeaseTerms {
        LeaseTerms { duration: self.claimed(terms), ..*terms }
    }

    /// Begins to watch a session whose lease was found missing at `now`. Whoever was granted
    /// anything had a lease; it was deleted, and from which renewal on is not known.
    ///
    /// ```
    /// use swarm_core::handover::{LeaseTerms, Life, Moment, Proof, Watch, WatchEvent};
    ///
    /// let terms = LeaseTerms::default();
    /// let mut watch = Watch::missing(Moment::default());
    /// assert!(!watch.may_renew());
    /// watch.step(Moment(terms.fence_wait()), &WatchEvent::Tick, &terms);
    /// assert_eq!(watch.life, Life::Ended(Proof::Fenced));
    /// ```
    #[must_use]
    pub fn missing(now: Moment) -> Self {
        let life = Life::Revoked { since: now };
        Self { life, ack: Ack::default(), viewed: None, longest: None, number: 0 }
    }

    /// Whether the lease was not seen to change for its whole duration.
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
        match self.life {
            Life::Held { since, .. } | Life::Revoking { since, .. } => {
                self.claimed(terms) <= now.since(since)
            }
            Life::Revoked { .. } | Life::Ended(_) => true,
        }
    }

    /// Whether the session could still renew its lease, by what is known.
    ///
    /// ```
    /// use swarm_core::handover::{Moment, Watch};
    ///
    /// assert!(!Watch::missing(Moment::default()).may_renew()); // it was deleted
    /// ```
    #[must_use]
    pub fn may_renew(&self) -> bool {
        match self.life {
            Life::Held { .. } | Life::Revoking { .. } => true,
            Life::Revoked { .. } | Life::Ended(_) => false,
        }
    }

    /// The version at which the lease was seen held, and when first.
    pub(crate) fn held(&self) -> Option<(LeaseVersion, Moment)> {
        match self.life {
            Life::Held { version, since } | Life::Revoking { version, since, .. } => {
                Some((version, since))
            }
            Life::Revoked { .. } | Life::Ended(_) => None,
        }
    }

    /// Whether the session has ended, by what is known.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.life, Life::Ended(_))
    }

    /// When the mere passing of time next changes something; `None` if it never does. A session that is
    /// silent can be revoked from that moment on, so it lies in the past for as long as nobody
    /// [suspects](WatchEvent::Suspect) it.
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
        match self.life {
            Life::Held { since, .. } => Some(since.after(self.claimed(terms))),
            Life::Revoking { asked, .. } => Some(asked.after(terms.duration)),
            Life::Revoked { since } => Some(since.after(self.own(terms).fence_wait())),
            Life::Ended(_) => None,
        }
    }

    /// Takes in what was learned at `now` and says what to do about it.
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
    /// assert_eq!(watch.evidence(0).ended, None); // clocks differ: a little longer
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
                if let Life::Revoking { version, since, .. } = self.life {
                    self.life = Life::Held { version, since };
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
        match self.life {
            Life::Revoked { since } if waited(since) => self.end(Proof::Fenced),
            Life::Held { .. } | Life::Revoking { .. } | Life::Revoked { .. } | Life::Ended(_) => (),
        }
    }

    fn seen(&mut self, now: Moment, lease: &Lease) {
        self.ack.take_in(&lease.ack);
        match lease.holder {
            Holder::Closed => self.end(Proof::Closed),
            // A revocation keeps the number: nothing was renewed since that write was first seen. So a
            // revocation of our own whose answer was lost costs no second wait.
            Holder::Revoked => {
                let seen = self.held().filter(|_| lease.number == self.number);
                self.revoked(seen.map_or(now, |(_, since)| since));
                self.number = self.number.max(lease.number);
            }
            Holder::Session => match self.life {
                Life::Held { version, .. } | Life::Revoking { version, .. }
                    if version != lease.version =>
                {
                    self.holds(now, lease);
                }
                // No write follows a revocation, so the store was rolled back behind the revocation.
                Life::Revoked { .. } | Life::Ended(Proof::Fenced) if self.number < lease.number => {
                    self.holds(now, lease);
                }
                Life::Held { .. }
                | Life::Revoking { .. }
                | Life::Revoked { .. }
                | Life::Ended(_) => (),
            },
        }
    }

    fn holds(&mut self, now: Moment, lease: &Lease) {
        self.life = Life::Held { version: lease.version, since: now };
        self.number = lease.number;
    }

    /// Doubts an end that rests on the store, since the store was rolled back: the session is fenced
    /// again from `now` on, unless its Lease is found held. Returns whether there is such a doubt.
    ///
    /// ```
    /// use swarm_core::handover::{Ack, Holder, Lease, LeaseVersion, Life, Moment, Watch};
    ///
    /// let (version, ack) = (LeaseVersion(1), Ack::default());
    /// let held = Lease { version, holder: Holder::Session, number: 1, ack };
    /// let mut watch = Watch::begin(Moment::default(), &Lease { holder: Holder::Closed, ..held });
    /// let since = Moment::default();
    /// assert!(watch.doubt_stored_end(since));
    /// assert_eq!(watch.life, Life::Revoked { since });
    /// ```
    pub fn doubt_stored_end(&mut self, now: Moment) -> bool {
        match self.life {
            Life::Held { .. } | Life::Revoking { .. } | Life::Ended(Proof::ProcessEnded) => false,
            Life::Revoked { .. } | Life::Ended(_) => {
                self.life = Life::Revoked { since: now };
                true
            }
        }
    }

    /// Takes in the first look at a Lease after [a doubt](Self::doubt_stored_end): whatever its number,
    /// a Lease that is held may be renewed.
    pub(crate) fn found_again(&mut self, now: Moment, lease: &Lease) {
        if lease.holder == Holder::Session && !self.may_renew() {
            self.holds(now, lease);
        }
    }

    /// The lease is revoked, or missing. The wait begins when the last renewal was first seen; `since`
    /// is now where it is not known which that was.
    fn revoked(&mut self, since: Moment) {
        match self.life {
            Life::Held { .. } | Life::Revoking { .. } => self.life = Life::Revoked { since },
            Life::Revoked { .. } | Life::Ended(_) => (),
        }
    }

    fn suspect(&mut self, now: Moment, terms: &LeaseTerms) -> Option<WatchEffect> {
        // What is sent twice at one version is written once.
        let is_asked = match self.life {
            Life::Revoking { asked, .. } => now.since(asked) < terms.duration,
            Life::Held { .. } | Life::Revoked { .. } | Life::Ended(_) => false,
        };
        let (version, since) = self.held().filter(|_| !is_asked && self.is_silent(now, terms))?;
        self.life = Life::Revoking { version, since, asked: now };
        Some(WatchEffect::Revoke(version))
    }

    fn end(&mut self, proof: Proof) {
        match self.life {
            Life::Held { .. } | Life::Revoking { .. } | Life::Revoked { .. } => {
                self.life = Life::Ended(proof);
            }
            Life::Ended(_) => (),
        }
    }

    /// What the watch proves about the session, for a ledger of this incarnation.
    ///
    /// ```
    /// use swarm_core::handover::{Ack, Holder, Lease, LeaseVersion, Moment, Watch};
    ///
    /// let ack = Ack { incarnation: 7, revision: 3, ..Ack::default() };
    /// let lease = Lease { version: LeaseVersion(1), holder: Holder::Session, number: 1, ack };
    /// let watch = Watch::begin(Moment::default(), &lease);
    /// assert_eq!(watch.evidence(7).acked, 3);
    /// assert_eq!(watch.evidence(8).acked, 0); // it counts the revisions of another
    /// ```
    #[must_use]
    pub fn evidence(&self, incarnation: u64) -> Evidence {
        let ended = match self.life {
            Life::Ended(proof) => Some(proof),
            Life::Held { .. } | Life::Revoking { .. } | Life::Revoked { .. } => None,
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
