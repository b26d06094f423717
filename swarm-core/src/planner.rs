//! Decides where each job goes.
//!
//! Every worker gets an exact quota. A worker above its quota gives up exactly its surplus. These
//! jobs, and the jobs without a holder, fill the workers below their quota. So loads are as flat as
//! pins and maxima allow; without pins and maxima they differ by at most one. No plan with equally
//! flat loads moves fewer jobs: [`minimum_moves`] has the formula. Jobs that reserve a share of a
//! worker are placed separately, with the fewest moves that a bounded search finds. The result
//! depends on the set of jobs, on their holders and on the pool, never on the order of the input or
//! on a clock.
//!
//! The algorithm is in `engine`. It works on columns, in which a job is a number. [`plan`] and
//! [`Request`] are its interface for maps, and [`JobTable`] is its interface for millions of jobs.

mod columns;
mod engine;

mod admit;
mod canonical;
mod quota;
mod reserve;
mod roster;
mod select;

mod check;
mod enough;
mod everywhere;
mod reason;
mod rules;
mod suspended;
mod table;
mod table_plan;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

pub use check::{Violation, check};
pub use enough::{Needed, WORKERS_ENOUGH_MAX};
pub use everywhere::{Everywhere, everywhere};
pub use quota::{Load, lowest_maximum, minimum_moves};
pub use reason::{MoveReason, Unassigned};
pub use rules::{Mode, Rules};
pub use table::JobTable;
pub use table_plan::{TableMove, TablePlan};

use crate::{Assignment, JobName, Jobs, Pool, Slot};
use columns::Columns;
pub(crate) use roster::Room;
pub(crate) use suspended::active;

/// The target assignment, and the changes that lead to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
#[non_exhaustive]
pub struct Plan {
    /// The slot of every job that has one.
    pub assignment: Assignment,
    /// The jobs without a slot, with the reason. Every wanted job is either here or in
    /// `assignment`, never in both.
    pub unassigned: BTreeMap<JobName, Unassigned>,
    /// The difference between the held assignment and `assignment`, in the order of job names.
    pub moves: Vec<Move>,
    /// The jobs that balance would move, but that the budget keeps where they are for now. Empty
    /// without a budget: then the plan is the target.
    pub deferred: BTreeSet<JobName>,
    /// The fewest moves between workers that make the held assignment as flat as possible; `None`
    /// if any job has a share.
    pub minimum_moves: Option<usize>,
}

/// A change of one job's holder.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
pub struct Move {
    /// The job.
    pub job: JobName,
    /// The previous holder.
    pub from: Option<Slot>,
    /// The next holder.
    pub to: Option<Slot>,
    /// The reason of the move.
    pub reason: MoveReason,
}

/// All inputs of a plan.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The jobs and their wishes.
    pub jobs: &'a Jobs,
    /// The present assignment; it may contain jobs that are no longer wanted.
    pub held: &'a Assignment,
    /// The workers.
    pub pool: &'a Pool,
    /// The rules of planning.
    pub rules: Rules,
}

/// Finds the even assignment of `jobs` to `pool` that changes the fewest holders.
///
/// [`Request::plan`] with the default [`Rules`].
///
/// ```
/// use swarm_core::{Assignment, Pool, jobs, plan};
///
/// let plan = plan(&jobs(["a", "b", "c"])?, &Assignment::default(), &Pool::ready(3));
/// assert_eq!(plan.assignment.by_slot().len(), 3);
/// # Ok::<(), swarm_core::JobsError>(())
/// ```
pub fn plan(jobs: &Jobs, held: &Assignment, pool: &Pool) -> Plan {
    Request { jobs, held, pool, rules: Rules::default() }.plan()
}

impl Request<'_> {
    /// Finds the flattest assignment that wishes and workers allow, with the fewest moves.
    ///
    /// - A suspended job is unassigned, even if it had a holder, and takes no room.
    /// - Workers that [keep](crate::Standing::Keeps) retain exactly their jobs and take no part.
    /// - A pinned job goes to its slot, or is unassigned if no worker takes jobs there.
    /// - Jobs with a share are placed before all others: pinned jobs first, then by priority. A job
    ///   that fits where it is stays. The largest of the others go to the least reserved worker. If
    ///   a job fits nowhere, a bounded search moves as few other jobs as it finds, none of them
    ///   more important, or displaces less important jobs. If a job is still out, the planner packs
    ///   some workers from scratch, as few workers as possible. Then at most 26 jobs move for each
    ///   job that gains a place, within the budget. Jobs without a share go to the workers that are
    ///   not fully reserved, and only these jobs count for an even load. Jobs with a share leave
    ///   room for pinned jobs without a share, if no job with a share is left out for this. With a
    ///   [tolerance](Rules::share_tolerance), few jobs with a share move to level the reserved
    ///   parts.
    /// - No worker has more than its maximum. If all are full, exactly the surplus is unassigned.
    ///   Jobs of lower priority are left out first, then jobs without a holder, then jobs of a
    ///   worker with too many, then the last ones by (hash, name).
    /// - Over the workers that [take](crate::Standing::Takes), loads are as flat as that allows.
    /// - [`Mode::Sticky`]: moves between these workers are exactly [`minimum_moves`], apart from
    ///   shares. Compare all assignments with equally flat loads, and with as many held and other
    ///   jobs of each priority: none of them moves fewer jobs. A job without a holder goes to its
    ///   [`home`](crate::home) if its home has room. A second plan moves nothing.
    /// - [`Mode::Canonical`]: every job goes to its home if its home has room, whichever worker
    ///   held it.
    /// - Under a [budget](Rules::moves_max), all forced moves are made. Voluntary moves start with
    ///   the fullest worker, so that the highest load is [`lowest_maximum`] (in sticky mode). A
    ///   plan from the result spends the next budget, until the pool is settled. In canonical mode,
    ///   jobs of full workers that can only be swapped are swapped in one plan.
    ///
    /// Time: O(jobs + workers + moves · log moves); memory: O(jobs).
    ///
    /// ```
    /// use swarm_core::{Assignment, Job, MoveReason, Pool, Request, Rules, Slot, Unassigned, jobs};
    ///
    /// let mut jobs = jobs(["a", "b", "c"])?;
    /// jobs.insert("nowhere".parse()?, Job { pin: Some(Slot(7)), ..Job::default() });
    /// let held = Assignment::from_iter(jobs.keys().map(|job| (job.clone(), Slot(0))));
    /// let rules = Rules { moves_max: Some(0), ..Rules::default() };
    /// let plan = Request { jobs: &jobs, held: &held, pool: &Pool::ready(2), rules }.plan();
    /// assert_eq!(plan.unassigned["nowhere"], Unassigned::Pin);
    /// assert_eq!((plan.moves.len(), plan.deferred.len()), (1, 1)); // one job waits for the budget
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn plan(&self) -> Plan {
        suspended::plan(self)
    }

    /// Plans jobs without suspended ones.
    fn plan_active(&self) -> Plan {
        let names: Vec<_> = self.jobs.keys().collect();
        let columns = Columns::from(self.jobs);
        let held = self.held.holders_of(self.jobs).map(|(_, slot)| slot.unwrap_or(Slot::NOBODY));
        let held: Vec<_> = held.collect();
        let plan = TablePlan::new(&columns, &held, self.pool, self.rules);
        let name = |job: u32| names[job as usize].clone();
        let holders = names.iter().zip(plan.holders.iter());
        let assigned = holders.filter_map(|(job, slot)| Some(((*job).clone(), slot.some()?)));
        let step =
            |m: TableMove| Move { job: name(m.job), from: m.from, to: m.to, reason: m.reason };
        let mut moves: Vec<_> = plan.moves().map(step).chain(self.removed()).collect();
        moves.sort_by(|a, b| a.job.cmp(&b.job));
        Plan {
            assignment: assigned.collect(),
            unassigned: plan.unassigned.iter().map(|(job, why)| (name(*job), *why)).collect(),
            moves,
            deferred: plan.deferred.iter().map(|job| name(*job)).collect(),
            minimum_moves: plan.minimum_moves,
        }
    }

    /// Returns the moves of jobs that are no longer wanted.
    fn removed(&self) -> impl Iterator<Item = Move> {
        self.held.without(self.jobs).map(|(job, slot)| Move {
            job: job.clone(),
            from: Some(slot),
            to: None,
            reason: MoveReason::Removed,
        })
    }
}
