//! Several replicas of a Kubernetes controller that all work: each object is one replica's at a time.
//!
//! kube-rs has no leader election, and a leader leaves all other replicas idle. With this crate every
//! replica is active. The objects of a kind are shared among the replicas that host its controller, by
//! rendezvous hashing of their UIDs; when replicas come and go, only what changes hands pauses, until
//! the one from before has let go of it, or is certainly gone. There is nothing but one Lease for each
//! replica: no leader, no store, no supervisor.
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
//! let owned = share.track(writer, maps); // an object of somebody else is as good as deleted
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
//! # What holds
//!
//! At any time at most one replica begins a turn on an object, or sends a request by its [`Permit`],
//! whatever crashes, stands still or is cut off. The protocol is [`swarm_core::replicas`], which a model
//! checker has walked through; this crate carries it out.
//!
//! A request that was sent may be carried out late. So what it changes should name the version it was
//! decided on (`resourceVersion`), as with any other controller.
//!
//! # What a member needs
//!
//! `create`, `get`, `list`, `watch`, `update`, `patch` and `delete` of `leases` of `coordination.k8s.io` in the
//! namespace of the group.

mod clock;
mod driver;
mod group;
mod held;
mod lease;
mod member;
mod registry;
mod share;

pub use group::Group;
pub use held::{Permit, PermitError};
pub use lease::{CARD_ANNOTATION, GROUP_LABEL};
pub use member::{End, JoinError, Member};
pub use registry::{Listed, STATUS_ANNOTATION};
pub use share::Share;
pub use swarm_core::replicas::{
    Bucket, Buckets, Controller, ControllerError, ControllerStatus, MemberId, ReplicaStatus,
    ReplicaTerms, Weight,
};
