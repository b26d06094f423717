//! Gives every **job** exactly one **worker** out of a **pool**: deterministically, evenly, and
//! with the fewest moves when anything changes.
//!
//! This crate is the pure heart of swarm. It reads no clock, does no I/O, starts no thread and does
//! not depend on Kubernetes. The same input gives the same answer on every machine. The words:
//!
//! - A [`JobName`] names a unit of work that gains nothing from being done twice.
//! - A [`Slot`] is the place that a worker fills; StatefulSet pod *n* fills slot *n*. A [`Pool`]
//!   describes the workers as they were observed.
//! - If workers have names without numbers, [`bind`] decides which worker fills which slot.
//! - An [`Assignment`] maps jobs to slots. [`plan`] finds the next one, with a reason for every
//!   move.
//! - The [`Ledger`] is the durable record of the holder of each job, with a fencing [`Token`] per
//!   job.
//! - A [`View`] is the text that workers read. It is derived from the ledger and can be recreated.
//! - A [`Worker`] turns views into "stop these jobs, start those".
//! - [`handover`] moves a job from one worker to the next so that they never both run it. A
//!   [`session`] is the worker's side of a handover.
//! - [`decide`] computes one turn of the operator as a pure function; [`turn`](fn@turn) carries it
//!   out through the [`ports`].
//!
//! ```
//! use swarm_core::{Assignment, Pool, plan, jobs};
//!
//! let five = jobs(["a", "b", "c", "d", "e"])?;
//! let first = plan(&five, &Assignment::default(), &Pool::ready(2));
//! assert_eq!(first.assignment.len(), 5); // each job exactly once, although 5 / 2 leaves a rest
//!
//! let third_worker = plan(&five, &first.assignment, &Pool::ready(3));
//! assert_eq!(third_worker.moves.len(), 1); // the fewest moves that make it even
//! # Ok::<(), swarm_core::JobsError>(())
//! ```
//!
//! The feature `ports`, on by default, adds the traits of stores and [`turn`](fn@turn), and with
//! them the dependency on `async-trait`. The feature `serde` reads and writes jobs, plans,
//! [`Desired`], ledgers, views and leases:
#![cfg_attr(
    feature = "serde",
    doc = r##"
```
use swarm_core::{Assignment, Pool, jobs, plan};

let plan = plan(&jobs(["a", "b"])?, &Assignment::default(), &Pool::ready(1));
let text = serde_json::to_string(&plan.assignment)?;
assert_eq!(text, r#"{"a":0,"b":0}"#);
assert_eq!(serde_json::from_str::<Assignment>(&text)?, plan.assignment);
assert!(serde_json::from_str::<Assignment>(r#"{"two words":0}"#).is_err()); // not a valid job name
# Ok::<(), Box<dyn std::error::Error>>(())
```
"##
)]

mod job;
mod pool;
mod relocation;
mod runner_name;
mod slot;
mod title;
mod token;

mod binding;

mod assignment;
mod hash;
mod merge;
mod planner;
mod shared;

mod autoscale;
mod failing;
mod failover;
mod ledger;
mod phases;
mod view;
mod worker;

#[cfg(feature = "serde")]
mod wire;

#[cfg(feature = "ports")]
pub mod ports;
mod turn;

pub mod handover;
pub mod history;
pub mod life;
pub mod overseer;
pub mod session;
pub mod verdict;

pub use assignment::{Assignment, Change, diff};
pub use autoscale::{Autoscale, Autoscaler, Need, Needs, PerWorker, Scale};
pub use binding::{Binding, Candidate, bind};
pub use failing::{Failing, FailingJob, FailingState};
pub use failover::Failover;
pub use hash::{digest_jobs, hash_job, home};
pub use job::{Job, JobName, JobNameError, Jobs, JobsError, Params, Share, ShareError, jobs};
pub use ledger::{Filled, Ledger, LedgerStep, SlotRecord, parts, stored};
pub use phases::{JobPhase, Phases, Unacknowledged};
pub use planner::{
    Everywhere, JobTable, Load, Mode, Move, MoveReason, Needed, Plan, Request, Rules, TableMove,
    TablePlan, Unassigned, Violation, WORKERS_ENOUGH_MAX, check, everywhere, lowest_maximum,
    minimum_moves, plan,
};
pub use pool::{Member, Pool, Presence, Standing, Timing};
pub use relocation::Relocation;
pub use runner_name::{RunnerName, RunnerNameError};
pub use shared::SharedMap;
pub use slot::Slot;
pub use title::{Title, TitleError};
pub use token::{Position, Token};
pub use turn::{
    Adoption, Decider, Decision, Desired, JobCounts, Observed, Overdue, PLAIN_HANDOVER, Progress,
    Replication, Reservations, ShareClass, Waiting, WorkerSeen, decide,
};
#[cfg(feature = "ports")]
pub use turn::{Turn, turn};
pub use view::{View, ViewEntry};
pub use worker::{OLDER_VIEW_GRACE, Worker, WorkerEffect};

/// Compiles and runs the examples of the guide.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
