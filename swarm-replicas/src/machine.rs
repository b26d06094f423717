//! Keys shared among several replicas of an operator, so that no two ever act on one at a time.
//!
//! A key is the UID of an object. It falls into a [`Bucket`], and buckets are shared among the
//! [`Members`] of a set, for each controller among those that host it: [`Owners`] has both
//! directions, and the difference of two sets. [`Keys`] finds the objects of the buckets that change
//! hands.
//!
//! There is no leader. Every member has one Lease, in which it also says by which set it acts; a
//! [`Replica`] is the pure machine of one member. Members may see others come and go at different
//! times, so two of them may act by different sets. These rules, each with its name in [`Rule`], keep
//! them apart:
//!
//! - Before a member declares another set, it stops what it loses by it. That one write acknowledges
//!   all keys at once.
//! - What it gains is *locked* until its watch of all Leases, which is in the order of the store, has
//!   returned its own write, so that it sees what everybody else declared before.
//! - Then it acts on a key as soon as nobody else's declared set gives the key to that member itself:
//!   not only the former owner's.
//! - A Lease that is revoked or deleted counts for nothing less until its member has been waited out.
//!
//! Of two members that act on one key, one declared its set after the other. When it saw its own write,
//! it saw the other's set as well, and that set claims the key; so it did not begin.
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
//! It has no access to clocks (a [`Moment`](swarm_core::handover::Moment) is an argument), stores or
//! Kubernetes.

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
