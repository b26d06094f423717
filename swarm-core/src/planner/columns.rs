//! The properties of the jobs that the planner needs, column by column. It needs no names: jobs
//! are numbered in the order of their names, so a number breaks ties exactly as the name would.

use std::ops::Range;

use crate::{Job, Slot};

/// The jobs by number. Pins, priorities and shares are rare, so only the existing ones are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Columns {
    /// The frozen hash of every job's name.
    pub(crate) hashes: Vec<u64>,
    /// Pinned jobs, ascending.
    pub(crate) pins: Vec<(u32, Slot)>,
    /// Jobs with a priority other than 0, ascending.
    pub(crate) priorities: Vec<(u32, i32)>,
    /// Jobs with a share, in percent, ascending.
    pub(crate) shares: Vec<(u32, u8)>,
}

impl Columns {
    /// Reserves capacity for exactly `jobs` more jobs.
    pub(crate) fn reserve(&mut self, jobs: usize) {
        self.hashes.reserve_exact(jobs);
    }

    /// Appends the next job in the order of names.
    pub(crate) fn push(&mut self, hash: u64, job: &Job) {
        let Job { pin, priority, share, run_once: _, suspend: _, title: _, runner: _, params: _ } =
            job;
        let number = number(self.hashes.len());
        self.hashes.push(hash);
        self.pins.extend(pin.map(|slot| (number, slot)));
        self.shares.extend(share.map(|share| (number, share.percent())));
        self.priorities.extend((*priority != 0).then_some((number, *priority)));
    }

    /// Returns the number of jobs.
    pub(crate) fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Returns the slot to which a job is pinned.
    pub(crate) fn pin(&self, job: u32) -> Option<Slot> {
        find(&self.pins, job)
    }

    /// Returns whether a job wants a share.
    pub(crate) fn has_share(&self, job: u32) -> bool {
        find(&self.shares, job).is_some()
    }

    /// Returns the priority of a job.
    pub(crate) fn priority(&self, job: u32) -> i32 {
        find(&self.priorities, job).unwrap_or_default()
    }
}

/// Returns the entry of `job` in a list that is ascending by job.
pub(super) fn find<T: Copy>(list: &[(u32, T)], job: u32) -> Option<T> {
    list.binary_search_by_key(&job, |(job, _)| *job).ok().map(|at| list[at].1)
}

/// Converts a position to a job's number. A table holds fewer jobs than `u32::MAX` (see
/// `JobTable`).
pub(crate) fn number(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(u32::MAX)
}

/// Returns the runs of jobs in `0..len` between the jobs in `apart`, which are ascending.
pub(super) fn runs_between<T: Copy>(apart: &[(u32, T)], len: usize) -> Vec<Range<u32>> {
    let ends = apart.iter().map(|(job, _)| *job).chain([number(len)]);
    let starts = std::iter::once(0).chain(apart.iter().map(|(job, _)| *job + 1));
    starts.zip(ends).map(|(start, end)| start..end).filter(|run| !run.is_empty()).collect()
}

/// Returns the part of a column that belongs to a run of jobs.
pub(super) fn of<'a, T>(run: &Range<u32>, column: &'a [T]) -> &'a [T] {
    &column[run.start as usize..run.end as usize]
}
