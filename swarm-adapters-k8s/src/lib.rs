//! The operator on Kubernetes: all parts of swarm's controller that depend on Kubernetes.
//!
//! The operator is [`run`](mod@run). Each of its concerns is a folder, with the pure decisions and the
//! requests that carry them out:
//!
//! - `reconcile`: one turn of one Swarm, in stages. It uses all other concerns, and none of them
//!   depends on it.
//! - [`managed`]: the objects of a managed pool, as they should be and as they are.
//! - `sessions`: workers that hold Leases. [`plain`]: workers that read a mounted view.
//! - [`pool`]: the workload and its pods. [`jobs`]: the lists of jobs.
//! - [`ledger`]: the durable record of the jobs that each worker holds.
//! - [`watch`]: watches and the caches that they fill.
//! - [`sharing`]: the Swarms that this replica owns. `fairness`: the order of turns.
//! - [`status`]: the reports for people. `history`: the moves that people may ask about later.
//!
//! Modules that several concerns need, and that need no concern, are flat: [`scope`], [`annotations`], [`metrics`],
//! [`health`], and in private the requests, the clock and the data of a turn.
//!
//! Each concern has one service, with only what it needs; `services` makes one of each for all turns.
//!
//! The resources and the Lease of a session, which other programs need too, are in [`swarm_client`].
//!
//! No decision about jobs is made here: `swarm_core::decide` makes them all.

pub mod annotations;
mod clock;
mod fairness;
pub mod health;
mod history;
pub mod jobs;
pub mod ledger;
mod locks;
pub mod managed;
pub mod metrics;
mod outages;
pub mod plain;
pub mod pool;
mod readiness;
mod reconcile;
mod requests;
pub mod run;
pub mod scope;
mod services;
mod sessions;
pub mod sharing;
pub mod status;
#[cfg(test)]
mod testing;
mod turn;
mod version;
pub mod watch;
mod watches;
