//! Client library of swarm on Kubernetes, for workers and for any program that reads or writes the resources.
//!
//! - [`api`]: the resources [`Swarm`](api::Swarm), [`SwarmLedger`](api::SwarmLedger) with its
//!   [parts](api::SwarmLedgerPart), [`WorkerView`](api::WorkerView) and
//!   [`SwarmHistory`](api::SwarmHistory), their schemas and their names.
//! - [`annotations`]: names of labels and annotations that other programs read.
//! - [`client`]: how the API server is reached.
//! - [`session`]: the Lease of a session, which its worker writes and the operator reads.
//! - [`pauses`]: how soon a watch that failed starts again.
//!
//! The operator is the crate `swarm-adapters-k8s`.

/// The example of the guide is compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod annotations;
pub mod api;
pub mod client;
pub mod pauses;
pub mod session;
