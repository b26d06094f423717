//! The events that a member takes in, and the effects that it asks for.

use std::collections::BTreeMap;

use swarm_core::handover::LeaseVersion;

use crate::machine::{Hosts, MemberId, MemberLease, MemberWrite, Portion};

/// What happened. Answers carry the number of the request they belong to; late answers are ignored.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ReplicaEvent {
    /// Time passed.
    Tick,
    /// The watch of the Leases of all members returned a list: all there were at one state of the
    /// store, no older than anything that it returned before.
    Listed(BTreeMap<MemberId, MemberLease>),
    /// The watch returned a Lease that was created or has changed, in the order of the store.
    Seen(MemberId, MemberLease),
    /// The watch returned that a Lease was deleted.
    Gone(MemberId),
    /// A write to the member's own Lease succeeded.
    Written {
        /// The number of the write.
        number: u64,
        /// The Lease's version after the write.
        version: LeaseVersion,
    },
    /// A write was refused, since the Lease has changed since the member read it.
    Conflict {
        /// The number of the write.
        number: u64,
    },
    /// No answer arrived in time; the write may have happened, or may still happen.
    Lost {
        /// The number of the write.
        number: u64,
    },
    /// The member's own Lease was read from the store itself; `None` if there is none, or another
    /// object under its name.
    LeaseRead(Option<MemberLease>),
    /// Everything that was to be stopped has been: its turns have ended, and their requests were
    /// answered or will never be carried out.
    Stopped {
        /// The number that came with [`ReplicaEffect::Stop`].
        number: u64,
    },
    /// The member hosts these controllers from now on, with these weights.
    Host(Hosts),
    /// The member was asked to end (SIGTERM).
    Leave,
    /// Our revocation of this version was written.
    RevocationWritten(MemberId, LeaseVersion),
    /// Our revocation was refused, or there was no answer.
    RevocationFailed(MemberId),
    /// The process of another member is known to have ended, as by its successor in the same container.
    ProcessEnded(MemberId),
}

/// What to do. The driver carries out effects in order, and leaves none out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ReplicaEffect {
    /// Write to the member's own Lease. The answer is [`ReplicaEvent::Written`],
    /// [`ReplicaEvent::Conflict`] or [`ReplicaEvent::Lost`], within half a renewal interval.
    Write(MemberWrite),
    /// Read the member's own Lease from the store itself, not from a cache, and report
    /// [`ReplicaEvent::LeaseRead`].
    ReadLease,
    /// These buckets are owned now: reconcile their objects.
    Start(Portion),
    /// Begin no more turns for these buckets, wait for those that have begun, and report
    /// [`ReplicaEvent::Stopped`].
    Stop {
        /// The number of this request.
        number: u64,
        /// Which buckets.
        buckets: Portion,
    },
    /// Revoke the Lease of a member by compare-and-set, at this version only. The answer is
    /// [`ReplicaEvent::RevocationWritten`] or [`ReplicaEvent::RevocationFailed`].
    Revoke(MemberId, LeaseVersion),
    /// The member of this revoked Lease has been waited out: [confirm](crate::machine::MemberLease::confirm)
    /// it by compare-and-set, at this version only, so that those who came later need not wait for it.
    /// Nobody waits for an answer.
    Confirm(MemberId, LeaseVersion),
    /// The Lease was lost: stop everything at once. The member may not act any more.
    Abort,
    /// The member has left: nothing of it acts, and its Lease is closed.
    Over,
}
