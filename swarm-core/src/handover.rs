//! The handover of a job from one session to the next: the operator's side, as pure steps.
//!
//! A job's holder changes only by a compare-and-set of the ledger, and only after a proof that the
//! old holder has released it. [`Cell::step`] changes one job, and [`advance`] changes all jobs in
//! one turn. A [`Watch`] finds the proofs about one session. The worker's side is
//! [`session`](crate::session).
//!
//! ```
//! use std::collections::BTreeMap;
//! use swarm_core::{Jobs, Slot};
//! use swarm_core::handover::*;
//!
//! let (old, new) = (SessionId::new("pod-a", 1), SessionId::new("pod-b", 2));
//! let terms = HandoverTerms { policy: Policy::Exclusive, ..HandoverTerms::default() };
//! let go = |cells: &Cells, to: &SessionId, evidence: &BTreeMap<SessionId, Evidence>| {
//!     let goal = [("job".parse().unwrap(), Place::Session(Slot(0), to.clone()))].into();
//!     let (ages, jobs, seats) = (&BTreeMap::new(), &Jobs::new(), &BTreeMap::new());
//!     advance(cells, &StepInputs { goal: &goal, evidence, ages, jobs, seats }, &terms)
//! };
//!
//! let granted = go(&Cells::new(0), &old, &BTreeMap::new()).unwrap().next;
//! let releasing = go(&granted, &new, &BTreeMap::new()).unwrap().next;
//! assert!(go(&releasing, &new, &BTreeMap::new()).is_none()); // waits for the old holder
//!
//! let acked = [(old, Evidence::acked(releasing.revision))].into();
//! let moved = go(&releasing, &new, &acked).unwrap().next;
//! assert_eq!(moved.view(&new).jobs.len(), 1);
//! ```
//!
//! This module knows no clocks (a [`Moment`] is an argument), no stores, no Kubernetes, and not how
//! jobs are planned.

mod advance;
mod cell;
mod cells;
mod check;

mod lease;
mod patience;
mod renewals;
pub(crate) mod room;
mod stopping;
mod watch;

mod ages;

mod brake;
mod rules;
mod strikes;

#[cfg(test)]
mod tests;

pub use advance::{Evidence, HandoverTerms, Place, Seat, StepInputs, advance};
pub use ages::Ages;
pub(crate) use brake::few;
pub use brake::{Brake, Health};
pub use cell::{Cell, CellEvent, Policy, Proof, Refusal, StepContext, Then};
use cells::Change;
pub use cells::{Cells, CellsConflict, Grants, Record, Save, SessionView};
pub use check::{StepViolation, check_step};
pub use lease::{
    Ack, Holder, Lease, LeaseConflict, LeaseTerms, LeaseTermsError, LeaseVersion, LeaseWrite,
    Moment, ONE_CLOCK_MARGIN, SessionId, TWO_CLOCKS_MARGIN,
};
pub use patience::Patience;
pub use renewals::Renewals;
pub use rules::{Rule, Rules};
pub use stopping::Stopping;
pub use strikes::{STRIKES_MAX, backoff};
pub use watch::{CLAIM_MAX, REPEATS_MAX, Watch, WatchEffect, WatchEvent, WatchStage};
