//! Shares keys among several replicas of an operator, so that no two replicas ever act on one key
//! at the same time.
//!
//! A key is the UID of an object. It falls into a [`Bucket`]. The [`Members`] of a set that host a
//! controller share the buckets of that controller. [`Owners`] finds the owner of a bucket, the
//! buckets of a member, and the difference between two sets. [`Keys`] finds the objects of the
//! buckets that change their owner.
//!
//! No member leads. Every member has one Lease, in which it also declares the set that it acts by.
//! A [`Replica`] is the pure machine of one member. Members may see others come and go at different
//! times, so two of them may act by different sets. These rules, each with its name in [`Rule`],
//! keep them apart:
//!
//! - Before a member declares another set, it stops the keys that it loses by that set. One write
//!   of the Lease then acknowledges all keys at once.
//! - The keys that the member gains are *locked* until its watch has returned its own write. The
//!   watch covers all Leases, in the order of the store. So the member has then seen every set that
//!   others declared before.
//! - After that, the member acts on a key as soon as no other member's declared set gives the key
//!   to that other member. The sets of all members count, not only the set of the previous owner.
//! - A Lease that is revoked or deleted counts in full until its member has been waited out.
//!
//! Of two members that act on one key, one declared its set after the other. When it saw its own
//! write, it had also seen the other's set, which claims the key. So it did not begin.
//!
//! ```
//! use swarm_replicas::machine::{Bucket, Controller, Hosts, MemberId, Members, Owners, Weight};
//!
//! let labels: Controller = "labels".parse()?;
//! let hosts: Hosts = [(labels.clone(), Weight::default())].into();
//! let (a, b) = (MemberId::new("a", 1)?, MemberId::new("b", 2)?);
//! let one = Owners::of(&Members::new([(a.clone(), hosts.clone())]));
//! let two = one.next(&Members::new([(a.clone(), hosts.clone()), (b.clone(), hosts)]));
//! assert_eq!(one.owner(&labels, Bucket::of("6f1c")), Some(&a));
//! assert!(one.changes(&two).all(|change| change.to == Some(&b))); // the new one takes only its share
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The machine has no access to clocks (a [`Moment`](swarm_core::handover::Moment) is an argument),
//! stores or Kubernetes.

mod bucket;
mod keys;
mod member;
mod owners;
mod portion;

mod draw;
mod mix;

mod lease;
mod rules;

mod replica;

#[cfg(test)]
mod tests;

pub use bucket::{Bucket, Buckets};
pub use keys::Keys;
pub use lease::{Card, MemberLease, MemberWrite, ProtocolRange, ReplicaTerms};
pub use member::{
    Controller, ControllerError, Hosts, MemberId, MemberIdError, Members, Weight, WeightError,
};
pub use owners::{OwnerChange, Owners};
pub use portion::Portion;
pub use replica::{ControllerStatus, Replica, ReplicaEffect, ReplicaEvent, ReplicaStatus};
pub use rules::{Rule, Rules};
