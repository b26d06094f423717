//! The Lease of a member: its content, its writers and its timing.

use std::fmt;
use std::time::Duration;

use swarm_core::handover::{Ack, Holder, Lease, LeaseTerms, LeaseVersion};

use super::{Hosts, Members};

/// The versions of this protocol that a member speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct ProtocolRange {
    /// The lowest version.
    pub least: u32,
    /// The highest version.
    pub most: u32,
}

impl ProtocolRange {
    /// The versions that this version of the crate speaks.
    pub const OURS: Self = Self { least: 1, most: 1 };

    /// The range of a member whose card cannot be read.
    pub const UNKNOWN: Self = Self { least: 0, most: 0 };

    /// Whether two members understand each other.
    ///
    /// ```
    /// use swarm_replicas::machine::ProtocolRange;
    ///
    /// let newer = ProtocolRange { least: 1, most: 3 };
    /// assert!(newer.overlaps(ProtocolRange::OURS));
    /// assert!(!newer.overlaps(ProtocolRange::UNKNOWN));
    /// ```
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        self.least <= other.most && other.least <= self.most
    }
}

/// Writes the range as in `1 to 3`.
impl fmt::Display for ProtocolRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.least, self.most)
    }
}

/// The card of a member: the part of its Lease in which it describes itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Card {
    /// The versions of the protocol that it speaks.
    pub protocol: ProtocolRange,
    /// The controllers that it hosts.
    pub hosts: Hosts,
    /// Whether it is about to end and takes no more buckets.
    #[serde(rename = "leaving", default)]
    pub is_leaving: bool,
    /// The set that the member acts by. It acts only on the buckets that this set gives to it.
    #[serde(default)]
    pub acts_by: Members,
}

impl Card {
    /// The card of a member that has just started and acts on nothing.
    ///
    /// ```
    /// use swarm_replicas::machine::{Card, Hosts};
    ///
    /// assert!(Card::new(Hosts::new()).acts_by.is_empty());
    /// ```
    #[must_use]
    pub fn new(hosts: Hosts) -> Self {
        let protocol = ProtocolRange::OURS;
        Self { protocol, hosts, is_leaving: false, acts_by: Members::default() }
    }

    /// The substitute for a card that is missing or cannot be read. No other member takes anything
    /// over while the member of such a card may act.
    ///
    /// ```
    /// use swarm_replicas::machine::{Card, ProtocolRange};
    ///
    /// assert!(!Card::unreadable().protocol.overlaps(ProtocolRange::OURS));
    /// ```
    #[must_use]
    pub fn unreadable() -> Self {
        Self { protocol: ProtocolRange::UNKNOWN, ..Self::new(Hosts::new()) }
    }
}

/// A stored Lease of a member. [`Holder::Session`] is the member itself; [`Holder::Closed`] and
/// [`Holder::Revoked`] are final.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MemberLease {
    /// The version of the stored Lease.
    pub version: LeaseVersion,
    /// The holder of the Lease.
    pub holder: Holder,
    /// The number of the member's last write that landed.
    pub number: u64,
    /// The time for which the member may act after a renewal.
    pub duration: Duration,
    /// The member's card.
    pub card: Card,
}

impl MemberLease {
    /// The part of the Lease that a [`Watch`](swarm_core::handover::Watch) compares.
    pub(super) fn lease(&self) -> Lease {
        let Self { version, holder, number, duration: _, card: _ } = self;
        Lease { version: *version, holder: *holder, number: *number, ack: Ack::default() }
    }

    /// The Lease that a store holds after a revocation by a member that saw version `seen`. `None`
    /// if the Lease has changed since, or has no holder.
    ///
    /// ```
    /// use std::time::Duration;
    /// use swarm_core::handover::{Holder, LeaseVersion};
    /// use swarm_replicas::machine::{Card, Hosts, MemberLease};
    ///
    /// let (version, card) = (LeaseVersion(2), Card::new(Hosts::new()));
    /// let duration = Duration::from_secs(9);
    /// let lease = MemberLease { version, holder: Holder::Session, number: 2, duration, card };
    /// assert_eq!(lease.revoke(LeaseVersion(1), LeaseVersion(3)), None); // it was renewed since
    /// let revoked = lease.revoke(version, LeaseVersion(3));
    /// assert_eq!(revoked.map(|lease| lease.holder), Some(Holder::Revoked));
    /// ```
    #[must_use]
    pub fn revoke(&self, seen: LeaseVersion, version: LeaseVersion) -> Option<Self> {
        let revoked = self.lease().revoke(seen, version).ok()?;
        Some(Self { version, holder: revoked.holder, ..self.clone() })
    }
}

impl MemberLease {
    /// The Lease that a store holds after a member that waited out this Lease's member has closed
    /// it. `None` if the Lease is not revoked, or has another version than `seen`. A closed Lease
    /// proves to all members that its member can act no more.
    ///
    /// ```
    /// use std::time::Duration;
    /// use swarm_core::handover::{Holder, LeaseVersion};
    /// use swarm_replicas::machine::{Card, Hosts, MemberLease};
    ///
    /// let (version, card) = (LeaseVersion(2), Card::new(Hosts::new()));
    /// let duration = Duration::from_secs(9);
    /// let held = MemberLease { version, holder: Holder::Session, number: 2, duration, card };
    /// assert_eq!(held.confirm(version, LeaseVersion(3)), None);
    /// let revoked = MemberLease { holder: Holder::Revoked, ..held };
    /// let closed = revoked.confirm(version, LeaseVersion(3));
    /// assert_eq!(closed.map(|lease| lease.holder), Some(Holder::Closed));
    /// ```
    #[must_use]
    pub fn confirm(&self, seen: LeaseVersion, version: LeaseVersion) -> Option<Self> {
        let is_seen = self.holder == Holder::Revoked && self.version == seen;
        is_seen.then(|| Self { version, holder: Holder::Closed, ..self.clone() })
    }
}

/// A write of a member to its own Lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MemberWrite {
    /// The version that the write replaces; `None` creates the Lease.
    pub expected: Option<LeaseVersion>,
    /// [`Holder::Session`] to renew, [`Holder::Closed`] to close.
    pub holder: Holder,
    /// The number of the write. It counts the member's writes, so that the member recognises its
    /// own.
    pub number: u64,
    /// The time for which the member may act after this write.
    pub duration: Duration,
    /// The member's card.
    pub card: Card,
}

impl MemberWrite {
    /// The Lease that a store holds after this write; `None` if `stored` is not the state that the
    /// member saw.
    ///
    /// ```
    /// use swarm_core::handover::{LeaseVersion, Moment};
    /// use swarm_replicas::machine::{Hosts, MemberId, Replica, ReplicaEffect, ReplicaTerms};
    ///
    /// let (id, terms) = (MemberId::new("a", 1)?, ReplicaTerms::default());
    /// let (_, effects) = Replica::open(id, Hosts::new(), terms, Moment::default());
    /// let [ReplicaEffect::Write(write)] = &effects[..] else { panic!("{effects:?}") };
    /// let lease = write.onto(None, LeaseVersion(1));
    /// assert!(lease.is_some());
    /// assert_eq!(write.onto(lease.as_ref(), LeaseVersion(2)), None); // it exists already
    /// # Ok::<(), swarm_replicas::machine::MemberIdError>(())
    /// ```
    #[must_use]
    pub fn onto(&self, stored: Option<&MemberLease>, version: LeaseVersion) -> Option<MemberLease> {
        let Self { expected, holder, number, duration, card } = self;
        let is_seen = stored.map(|lease| lease.version) == *expected;
        is_seen.then(|| MemberLease {
            version,
            holder: *holder,
            number: *number,
            duration: *duration,
            card: card.clone(),
        })
    }
}

/// The timing of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReplicaTerms {
    /// The timing of their Leases. No turn begins within one stop timeout of a Lease's end.
    pub lease: LeaseTerms,
    /// The number of renewals of its Lease after which a member counts. A member counts earlier if
    /// a set that some member acts by contains it, or if no other member counts.
    ///
    /// Every write that is sent after the first, which creates the Lease, is a renewal. This
    /// includes a write with news, and a write that gets no answer. So with two renewals a member
    /// counts from its third write on. If requests succeed, it sends that write two intervals after
    /// the first at the latest.
    pub join_renewals: u64,
    /// The time for which members that come are collected, so that many at once are one change.
    pub join_window: Duration,
}

impl ReplicaTerms {
    /// Whether the member whose Lease has write `number` has renewed it often enough to count.
    pub(super) fn has_joined(&self, number: u64) -> bool {
        // The first write creates the Lease, so it does not count as a renewal.
        self.join_renewals <= number.saturating_sub(1)
    }
}

impl Default for ReplicaTerms {
    fn default() -> Self {
        let lease = LeaseTerms {
            duration: Duration::from_secs(9),
            renew: Duration::from_secs(2),
            stop_timeout: Duration::from_secs(2),
            ..LeaseTerms::default()
        };
        Self { lease, join_renewals: 2, join_window: Duration::from_secs(1) }
    }
}
