//! The events that a member takes in, and the effects that it asks for.

use std::collections::BTreeMap;

use swarm_core::handover::LeaseVersion;

use crate::machine::{Hosts, MemberId, MemberLease, MemberWrite, Portion};

/// An event that a member takes in. Answers carry the number of their request; the machine ignores
/// late answers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ReplicaEvent {
    /// Time has passed.
    Tick,
    /// The watch of the Leases of all members returned a list: all Leases at one state of the
    /// store. This state is not older than anything that the watch returned before.
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
    /// No answer arrived in time. The write may have happened, or may still happen.
    Lost {
        /// The number of the write.
        number: u64,
    },
    /// The member's own Lease was read from the store itself. `None` if it does not exist, or if
    /// another object has its name.
    LeaseRead(Option<MemberLease>),
    /// All buckets of a stop request have stopped. Their turns have ended, and the requests of
    /// these turns were answered or will never be carried out.
    Stopped {
        /// The number that came with [`ReplicaEffect::Stop`].
        number: u64,
    },
    /// The member hosts these controllers from now on, with these weights.
    Host(Hosts),
    /// The member was asked to end (SIGTERM).
    Leave,
    /// This member's revocation of this version was written.
    RevocationWritten(MemberId, LeaseVersion),
    /// This member's revocation was refused, or got no answer.
    RevocationFailed(MemberId),
    /// Another member's process is known to have ended, as its successor in the same container
    /// knows.
    ProcessEnded(MemberId),
}

/// An effect that a member asks for. The driver carries out all effects, in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ReplicaEffect {
    /// Write to the member's own Lease. The answer is [`ReplicaEvent::Written`],
    /// [`ReplicaEvent::Conflict`] or [`ReplicaEvent::Lost`], within the time that
    /// [`Patience`](swarm_core::handover::Patience) allows.
    Write(MemberWrite),
    /// Read the member's own Lease from the store itself, not from a cache, and report
    /// [`ReplicaEvent::LeaseRead`].
    ReadLease,
    /// Reconcile the objects of these buckets: the member owns them now.
    Start(Portion),
    /// Begin no more turns for these buckets, wait for the turns that have begun, and report
    /// [`ReplicaEvent::Stopped`].
    Stop {
        /// The number of this request.
        number: u64,
        /// The buckets to stop.
        buckets: Portion,
    },
    /// Revoke the Lease of a member by compare-and-set, at this version only. The answer is
    /// [`ReplicaEvent::RevocationWritten`] or [`ReplicaEvent::RevocationFailed`].
    Revoke(MemberId, LeaseVersion),
    /// [Confirm](crate::machine::MemberLease::confirm) this revoked Lease by compare-and-set, at
    /// this version only. Its member has been waited out, and members that came later then need not
    /// wait for it. The machine expects no answer.
    Confirm(MemberId, LeaseVersion),
    /// Stop everything at once: the Lease was lost. The member may not act any more.
    Abort,
    /// The member has left: it acts on nothing, and its Lease is closed.
    Over,
}
