//! The plan of a job table: arrays with an entry for every job. Moves are computed on demand.

use std::borrow::Cow;

use super::columns::{Columns, number};
use super::engine::{Outcome, solve};
use super::roster::Roster;
use super::{JobTable, MoveReason, Rules, Unassigned};
use crate::{Pool, Slot};

/// The plan of a [`JobTable`], by number of the job.
#[derive(Clone, Debug)]
#[must_use]
pub struct TablePlan<'a> {
    /// The holder of every job, [`Slot::NOBODY`] for none. If nothing moves, it is the array of
    /// present holders, borrowed.
    pub holders: Cow<'a, [Slot]>,
    /// The jobs without a holder, ascending, with the reason.
    pub unassigned: Vec<(u32, Unassigned)>,
    /// The jobs that balance would move, but that the budget keeps where they are, ascending.
    pub deferred: Vec<u32>,
    /// The fewest moves between workers that make the held assignment as flat as possible; `None`
    /// if any job has a share.
    pub minimum_moves: Option<usize>,
    evicted: Vec<u32>,
    leveled: Vec<u32>,
    held: &'a [Slot],
    columns: &'a Columns,
    roster: Roster,
}

/// A change of one job's holder, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableMove {
    /// The job's number.
    pub job: u32,
    /// The previous holder.
    pub from: Option<Slot>,
    /// The next holder.
    pub to: Option<Slot>,
    /// The reason of the move.
    pub reason: MoveReason,
}

impl JobTable {
    /// Finds the assignment that [`Request::plan`](super::Request::plan) finds, on columns.
    ///
    /// `held` is the holder of every job by number, [`Slot::NOBODY`] for none. If it is shorter
    /// than the table, the remaining jobs have no holder. Time: O(jobs + workers + moves · log
    /// moves). If most slots between the lowest and the highest one do not exist, a job that needs
    /// its [`home`](crate::home) costs up to O(workers) instead of O(1). Memory beyond the result:
    /// 4 bytes for each job that moves, 16 if it is chosen among others.
    ///
    /// ```
    /// use swarm_core::{JobTable, Pool, Rules, Slot};
    ///
    /// let table = JobTable::new(["a", "b", "c"])?;
    /// let plan = table.plan(&[Slot(0)], &Pool::ready(3), Rules::default());
    /// assert_eq!(plan.holders[0], Slot(0)); // `a` stays, and the other two had no holder
    /// # Ok::<(), swarm_core::JobsError>(())
    /// ```
    pub fn plan<'a>(&'a self, held: &'a [Slot], pool: &Pool, rules: Rules) -> TablePlan<'a> {
        TablePlan::new(&self.columns, held, pool, rules)
    }
}

impl<'a> TablePlan<'a> {
    pub(super) fn new(columns: &'a Columns, held: &'a [Slot], pool: &Pool, rules: Rules) -> Self {
        let mut roster = Roster::new(pool);
        let held = &held[..held.len().min(columns.len())];
        let mut column = Cow::Borrowed(held);
        if held.len() < columns.len() {
            column = vec![Slot::NOBODY; columns.len()].into();
            column.to_mut()[..held.len()].copy_from_slice(held);
        }
        let Outcome { holders, unassigned, evicted, leveled, deferred, minimum_moves } =
            solve(columns, &mut roster, column, rules);
        let minimum_moves = columns.shares.is_empty().then_some(minimum_moves);
        Self {
            holders,
            unassigned,
            deferred,
            minimum_moves,
            evicted,
            leveled,
            held,
            columns,
            roster,
        }
    }

    /// Returns the changes of holders, in the order of jobs, each with its reason. O(jobs).
    ///
    /// ```
    /// use swarm_core::{JobTable, MoveReason, Pool, Rules, Slot};
    ///
    /// let table = JobTable::new(["a", "b"])?;
    /// let plan = table.plan(&[Slot(0), Slot(9)], &Pool::ready(2), Rules::default());
    /// let moves: Vec<_> = plan.moves().map(|step| (step.job, step.reason)).collect();
    /// assert_eq!(moves, [(1, MoveReason::WorkerGone)]); // there is no slot 9
    /// # Ok::<(), swarm_core::JobsError>(())
    /// ```
    pub fn moves(&self) -> impl Iterator<Item = TableMove> {
        let before = self.held.iter().copied().chain(std::iter::repeat(Slot::NOBODY));
        let changed =
            before.zip(self.holders.iter()).enumerate().filter(|(_, (from, to))| from != *to);
        changed.map(|(job, (from, to))| {
            let job = number(job);
            let (from, to) = (from.some(), to.some());
            TableMove { job, from, to, reason: self.reason(job, from, to) }
        })
    }

    /// Returns the reason why the holder of this job changes.
    fn reason(&self, job: u32, from: Option<Slot>, to: Option<Slot>) -> MoveReason {
        let Some(from) = from else { return MoveReason::New };
        if to.is_none() {
            let at = self.unassigned.binary_search_by_key(&job, |(job, _)| *job);
            let reason = at.map_or(Unassigned::NoWorkers, |at| self.unassigned[at].1);
            return MoveReason::Unassigned(reason);
        }
        if self.roster.at(from) == self.roster.gone() {
            MoveReason::WorkerGone
        } else if self.columns.pin(job).is_some() {
            MoveReason::Pin
        } else if self.leveled.binary_search(&job).is_ok() {
            MoveReason::Balance
        } else if self.evicted.binary_search(&job).is_ok() || self.columns.has_share(job) {
            MoveReason::Capacity
        } else {
            MoveReason::Balance
        }
    }
}
