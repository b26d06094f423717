//! Everything of swarm that knows Kubernetes; also the client library of its resources.
//!
//! A worker needs these, and so does any program that reads or writes the resources:
//!
//! - [`api`]: the resources [`Swarm`](api::Swarm), [`SwarmLedger`](api::SwarmLedger) with its
//!   [parts](api::SwarmLedgerPart) and [`WorkerView`](api::WorkerView), their schemas and their names.
//! - [`client`]: how the API server is reached.
//! - [`session`]: the Lease of a session, which its worker writes and the operator reads.
//!
//! The operator is [`run`](mod@run), with the feature `controller`. Each of its concerns is a folder, with
//! the pure decisions and the requests that carry them out:
//!
//! - `reconcile`: one turn of one Swarm, in stages. It uses all others, and none of them knows it.
//! - [`managed`]: the objects of a managed pool, as they should be and as they are.
//! - `sessions`: workers that hold Leases. [`plain`]: workers that read a mounted view.
//! - [`pool`]: the workload and its pods. [`jobs`]: the lists of jobs.
//! - [`ledger`]: the durable record of who holds what.
//! - [`watch`]: watches and the caches that they fill.
//! - [`sharing`]: which Swarms are this replica's. `fairness`: whose turn is next.
//! - [`status`]: what people read.
//!
//! Modules that several concerns need, and that need no concern, are flat: [`scope`], [`annotations`], [`metrics`],
//! [`health`], and in private the requests, the clock and the context of all turns.
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
