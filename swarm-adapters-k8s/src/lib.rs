//! Everything of swarm that knows Kubernetes; also the client library of its resources.
//!
//! - [`api`]: the resources [`Swarm`](api::Swarm), [`SwarmLedger`](api::SwarmLedger) with its
//!   [parts](api::SwarmLedgerPart) and [`WorkerView`](api::WorkerView), their schemas and their names.
//! - [`client`]: how the API server is reached.
//! - [`session`]: the Lease of a session, which its worker writes and the operator reads.
//! - [`convert`]: what a `Swarm` asks for, in the terms of `swarm-core`.
//! - [`workload`] and [`slots`]: what makes the pods of a pool, and which pod fills which slot.
//! - [`managed`]: what a managed pool is made of; [`trouble`]: why a pod of any pool does not run;
//!   [`rollout`]: how far its pods are with the newest template.
//! - [`controller`]: the operator; [`health`] knows whether its loop makes progress. [`observe`], [`ledger`], [`view`], [`nudge`], [`refresh`] and [`status`] are
//!   its parts: what it sees, and what it writes, in this order.
//! - [`scope`]: where the operator looks for Swarms; [`annotations`]: the names of its labels and annotations.
//! - [`sharing`]: which Swarms are this operator's, where several share them; [`types`]: which
//!   controllers each of those hosts.
//!
//! No decision about jobs is made here: `swarm_core::decide` makes them all.

/// The example of the guide is compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod api;
pub mod client;
mod pauses;
pub mod session;

#[cfg(feature = "controller")]
pub mod annotations;
#[cfg(feature = "controller")]
mod clock;
#[cfg(feature = "controller")]
mod context;
#[cfg(feature = "controller")]
mod fairness;
#[cfg(feature = "controller")]
pub mod health;
#[cfg(feature = "controller")]
pub mod jobs;
#[cfg(feature = "controller")]
pub mod ledger;
#[cfg(feature = "controller")]
mod locks;
#[cfg(feature = "controller")]
pub mod managed;
#[cfg(feature = "controller")]
pub mod metrics;
#[cfg(feature = "controller")]
pub mod plain;
#[cfg(feature = "controller")]
pub mod pool;
#[cfg(feature = "controller")]
mod reconcile;
#[cfg(feature = "controller")]
mod requests;
#[cfg(feature = "controller")]
pub mod run;
#[cfg(feature = "controller")]
pub mod scope;
#[cfg(feature = "controller")]
mod sessions;
#[cfg(feature = "controller")]
pub mod sharing;
#[cfg(feature = "controller")]
pub mod status;
#[cfg(feature = "controller")]
#[cfg(test)]
mod testing;
#[cfg(feature = "controller")]
mod version;
#[cfg(feature = "controller")]
pub mod watch;
#[cfg(feature = "controller")]
mod watches;
