//! Everything of swarm that knows Kubernetes; also the client library of its resources.
//!
//! - [`api`]: the resources [`Swarm`](api::Swarm), [`SwarmLedger`](api::SwarmLedger) with its
//!   [parts](api::SwarmLedgerPart) and [`WorkerView`](api::WorkerView), their schemas and their names.
//! - [`client`]: how the API server is reached.
//! - [`session`]: the Lease of a session, which its worker writes and the operator reads.
//! - [`convert`]: what a `Swarm` asks for, in the terms of `swarm-core`.
//! - [`workload`] and [`slots`]: what makes the pods of a pool, and which pod fills which slot.
//! - [`controller`]: the operator; [`health`] knows whether its loop makes progress. [`observe`], [`ledger`], [`view`], [`nudge`], [`refresh`] and [`status`] are
//!   its parts: what it sees, and what it writes, in this order.
//!
//! No decision about jobs is made here: `swarm_core::decide` makes them all.

mod answer;
pub mod api;
pub mod client;
pub mod convert;
pub mod health;
pub mod rollback;
mod version;
mod watch;

pub mod controller;
pub mod ledger;
pub mod metrics;
pub mod nudge;
pub mod observe;
pub mod refresh;
pub mod session;
pub mod slots;
pub mod status;
pub mod view;
pub mod workload;
