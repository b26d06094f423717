//! Checks the handover protocol by exploring all its states, up to bounds.
//!
//! The [`World`] holds a ledger with its history, leases, workers and operators. Its [`Step`]s are
//! everything the environment may do and everything the protocol does. The environment may lose,
//! delay, duplicate and reorder messages, crash or pause processes, and let clocks run apart. The
//! decisions themselves are not modelled. The steps call the shipped functions of
//! `swarm_core::handover` and `swarm_core::session`.
//!
//! - [`check`] looks for a state that breaks an [`Invariant`], with the model checker Stateright.
//! - [`dead_ends`] looks for a state from which no path leads to all jobs running. It walks
//!   backwards over the whole graph.
//! - A [`Fleet`] is a whole pool with [`decide`](swarm_core::decide), its ledger and its watches.
//!   It is too large to explore, so random [`Act`]s drive it. Afterwards the pool must recover
//!   completely.
//! - A [`Group`] has members that share keys, and [`check_group`] looks for a key with two owners.
//! - A [`PlainPool`] is a pool of workers that read the view that they share and answer nothing.
//! - [`variants`] breaks one [`Rule`](swarm_core::handover::Rule) at a time on purpose. The check
//!   must notice each broken rule, or it is worthless.
//!
//! Some things are left out of the [`World`], to keep it small. None of them hides a defect:
//!
//! - A session that the ledger does not name renews in one step, and all see it. It runs no job, so
//!   its messages matter only once the ledger names it.
//! - An operator's own requests take effect at once, or their answers are lost. A request that is
//!   long in flight equals the same request made later, since the store checks its precondition.
//! - Timers have no length: at any turn every one may have expired.
//! - Once the last version is written, operators rest. They could only revoke, which makes sessions
//!   stop.
//! - The brake on revocations only delays them. The [`Fleet`] includes it.

mod bounds;
mod broken;
mod world;

mod beginning;
mod invariant;
mod step;
mod worker;

mod fleet;
mod plain;
mod wanted;
mod written;

mod check;
mod liveness;
mod variants;

mod replicas;

pub use bounds::{Bounds, Fault};
pub use check::{Checked, Found, Milestone, check, check_within};
pub use fleet::{Act, Delay, Edge, Extent, Fleet, FleetTerms, Lie, Numbers, Stop, Stuck};
pub use invariant::Invariant;
pub use liveness::{Liveness, dead_ends};
pub use plain::{PlainAct, PlainPool};
pub use replicas::{
    Group, GroupBounds, GroupChecked, GroupStep, GroupVariant, Node, check_group, group_dead_ends,
    group_variants,
};
pub use step::{Answer, Copied, Goal, Step, Waited};
pub use variants::{Variant, searches, variants};
pub use worker::{ProcessState, Worker};
pub use world::World;
