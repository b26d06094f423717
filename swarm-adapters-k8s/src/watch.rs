//! Watches and the caches that they fill.
//!
//! - `streams`: watches that never end, and lists that come in pages.
//! - `strip`: the fields that are kept of objects by other writers.
//! - `cached`: one cache. `caches`: all caches that turns read.
//! - `foreign_swarms`: the records of Swarms of other replicas.
//! - `non_statefulset` and `on_demand`: watches that begin on demand.
//! - `node_health`: lost nodes, and deleted namespaces and ledgers.
//! - [`refused`]: the watches without the right for them.
//! - `followed`: the progress of a watch, for tasks that wait for it.
//! - [`rollback`]: whether the store was rolled back to an older copy.

pub(crate) mod cached;
pub(crate) mod caches;
pub(crate) mod followed;
pub(crate) mod foreign_swarms;
pub(crate) mod node_health;
pub(crate) mod non_statefulset;
pub(crate) mod on_demand;
pub mod refused;
pub mod rollback;
pub(crate) mod streams;
pub(crate) mod strip;
