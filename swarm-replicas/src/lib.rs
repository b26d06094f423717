//! Runs several active replicas of a Kubernetes controller: at any time, each object belongs to one
//! replica.
//!
//! kube-rs has no leader election, and a leader leaves all other replicas idle. With this crate
//! every replica is active. The replicas that host a controller share its objects by rendezvous
//! hashing of their UIDs. When replicas come and go, only the objects that change their replica
//! pause. They wait until the previous replica has released them, or has certainly ended. The only
//! state is one Lease for each replica. No leader, store or supervisor is needed.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use futures::StreamExt as _;
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube::runtime::controller::Action;
//! use kube::runtime::{Controller, reflector, watcher};
//! use kube::{Api, Client};
//! use swarm_replicas::{Group, Permit, Weight};
//!
//! # async fn patch_at_version(_: &ConfigMap) -> kube::Result<()> { Ok(()) }
//! type Error = swarm_replicas::PermitError<kube::Error>;
//!
//! async fn reconcile(map: Arc<ConfigMap>, _: Arc<()>, permit: Arc<Permit>) -> Result<Action, Error> {
//!     permit.run(patch_at_version(&map)).await?; // checked right before it is sent
//!     Ok(Action::await_change())
//! }
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::try_default().await?;
//! let member = Group::new(client.clone(), "default", "labels").id("pod-0").join().await?;
//! let mut share = member.host::<ConfigMap>("labels", Weight::default())?;
//! let (store, writer) = reflector::store();
//! let maps = watcher(Api::<ConfigMap>::all(client), watcher::Config::default());
//! let owned = share.track(writer, maps); // an object of another replica counts as deleted
//! Controller::for_stream(owned, store)
//!     .reconcile_on(share.gained())
//!     .graceful_shutdown_on(member.ended())
//!     .run(share.guard(reconcile), share.guard_errors(|_, _: &Error, _| Action::await_change()), Arc::new(()))
//!     .for_each(|_| std::future::ready(()))
//!     .await;
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//!
//! At any time at most one replica begins a turn on an object, or sends a request by its
//! [`Permit`]. This holds if replicas crash, freeze or are cut off. The protocol is
//! [`machine`], which a model checker has explored; the rest of this crate carries it out.
//!
//! A request that was sent may be carried out late. So it should name the version of the object on
//! which it was decided (`resourceVersion`), as with any other controller.
//!
//! # Permissions of a member
//!
//! A member needs `create`, `get`, `list`, `watch`, `update`, `patch` and `delete` of `leases` of
//! `coordination.k8s.io` in the namespace of the group.

/// The example of the guide is compiled.
#[cfg(all(doctest, feature = "kube"))]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod machine;
#[cfg(feature = "kube")]
mod sharing;

pub use machine::{
    Bucket, Buckets, Controller, ControllerError, ControllerStatus, MemberId, ReplicaStatus,
    ReplicaTerms, Weight,
};
#[cfg(feature = "kube")]
pub use sharing::{
    CARD_ANNOTATION, End, GROUP_LABEL, Group, JoinError, Listed, Member, Permit, PermitError,
    STATUS_ANNOTATION, Share,
};
