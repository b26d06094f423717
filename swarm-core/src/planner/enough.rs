//! The number of workers that would be enough.

use std::borrow::Cow;

use super::columns::{Columns, number};
use super::engine::solve;
use super::roster::{Room, Roster};
use super::suspended::active;
use super::{Request, Unassigned};
use crate::{Job, Slot, Standing};

/// The largest number of workers that [`Request::workers_enough`] tries.
pub const WORKERS_ENOUGH_MAX: u32 = 100_000;

impl Request<'_> {
    /// Returns the number of workers, in the slots 0, 1, 2, …, that would leave out no job except
    /// suspended jobs. Returns `None` if no number up to [`WORKERS_ENOUGH_MAX`] is enough, for
    /// example because more jobs are pinned to one slot than it may have.
    ///
    /// All of these workers are assumed to take jobs. Each has the maximum and the capacity of the
    /// worker in its slot; a slot without a worker gets the greatest maximum and capacity in the
    /// pool. Jobs that one of them holds are assumed to be where they are.
    ///
    /// The answer is verified: a plan with that many workers left no job out. It is the least such
    /// number, unless adding a worker can leave more jobs out. If all workers take jobs and some
    /// job finds no room, the answer is more than the present number. Time: that of two plans if
    /// the lower bound is enough, which follows from the pins, the sum of the shares and the
    /// maxima. Otherwise up to about 30 plans.
    ///
    /// ```
    /// use swarm_core::{Assignment, Job, Jobs, Pool, Request, Rules, Share};
    ///
    /// let half = |name: &str| Some((name.parse().ok()?, Job { share: Share::new(60).ok(), ..Job::default() }));
    /// let jobs: Jobs = ["a", "b", "c"].into_iter().filter_map(half).collect();
    /// let (held, pool) = (Assignment::default(), Pool::ready(2));
    /// let request = Request { jobs: &jobs, held: &held, pool: &pool, rules: Rules::default() };
    /// assert_eq!(request.plan().unassigned.len(), 1);
    /// assert_eq!(request.workers_enough(), Some(3));
    /// ```
    #[must_use]
    pub fn workers_enough(&self) -> Option<u32> {
        let jobs = active(self.jobs);
        let columns = Columns::from(&*jobs);
        let held = self.held.holders_of(&jobs).map(|(_, slot)| slot.unwrap_or(Slot::NOBODY));
        let held: Vec<_> = held.collect();
        let more = Room::greatest(self.pool);
        let out =
            |mut roster| solve(&columns, &mut roster, Cow::Borrowed(&held), self.rules).unassigned;
        let is_enough = |workers: u32| out(Roster::ready(workers, self.pool, more)).is_empty();

        let pinned = columns.pins.iter().map(|(_, slot)| slot.0.saturating_add(1)).max();
        let pinned = pinned.unwrap_or(0);
        let jobs = number(jobs.len());
        let mut low = pinned.max(fewest(&columns, more.max_jobs));
        if self.pool.0.values().all(|member| member.standing == Standing::Takes) {
            let lacks_room = |(_, why): &(u32, Unassigned)| *why == Unassigned::Capacity;
            if out(Roster::new(self.pool)).iter().any(lacks_room) {
                low = low.max(number(self.pool.0.len()).saturating_add(1));
            }
        }
        // With one worker for each job, no job takes a place that another one needs, apart from
        // pins and workers with less room.
        let known = number(self.pool.0.len());
        let high = jobs.saturating_add(pinned).saturating_add(known);
        let high = high.max(low).min(WORKERS_ENOUGH_MAX);
        if low > high {
            return None;
        }
        if is_enough(low) {
            return Some(low);
        }
        is_enough(high).then(|| between(low, high, is_enough))
    }

    /// Returns the least number of workers from `least` to `most`, in the slots 0, 1, 2, …, that
    /// leaves out no more jobs than `most` workers do. Also returns how many jobs are left out.
    ///
    /// The workers are assumed as by [`workers_enough`](Self::workers_enough). A job that fits on
    /// no number of workers, such as a job with a pin beyond `most`, does not count. The answer is
    /// verified, and it is the least unless adding a worker can leave more jobs out. The largest
    /// number that is tried is one worker for each job, each slot with a pin and each member of the
    /// pool, and at most [`WORKERS_ENOUGH_MAX`]. Time: O(jobs) without shares, pins and maxima.
    /// Otherwise the time of one plan if the lower bound from the sums is enough, else of up to
    /// about 30 plans.
    ///
    /// ```
    /// use swarm_core::{Assignment, Job, Jobs, Needed, Pool, Request, Rules, Share, Slot};
    ///
    /// let job = |share, pin| Job { share: Share::new(share).ok(), pin, ..Job::default() };
    /// let jobs: Jobs = [("a", job(60, None)), ("b", job(60, None)), ("c", job(1, Some(Slot(70))))]
    ///     .into_iter()
    ///     .filter_map(|(name, job)| Some((name.parse().ok()?, job)))
    ///     .collect();
    /// let (held, pool) = (Assignment::default(), Pool::ready(1));
    /// let request = Request { jobs: &jobs, held: &held, pool: &pool, rules: Rules::default() };
    /// assert_eq!(request.workers_needed(0, 10), Needed { workers: 2, left_out: 1 });
    /// assert_eq!(request.workers_needed(5, 10), Needed { workers: 5, left_out: 1 });
    /// assert_eq!(request.workers_needed(0, 100), Needed { workers: 71, left_out: 0 });
    /// ```
    #[must_use]
    pub fn workers_needed(&self, least: u32, most: u32) -> Needed {
        self.workers_needed_with(Room::greatest(self.pool), least, most)
    }

    /// Like [`workers_needed`](Self::workers_needed), if a worker outside the pool has the room
    /// `more`.
    pub(crate) fn workers_needed_with(&self, more: Room, least: u32, most: u32) -> Needed {
        let most = most.min(WORKERS_ENOUGH_MAX);
        let least = least.min(most);
        let maxima = self.pool.0.values().map(|member| member.max_jobs);
        let has_maxima = maxima.chain([more.max_jobs]).any(|max| max.is_some());
        let asks = |job: &Job| job.share.is_some() || job.pin.is_some();
        if !has_maxima && !self.jobs.values().any(asks) {
            // Any worker has room for all jobs.
            let workers = least.max(number(self.jobs.len()).min(1)).min(most);
            let left_out = if workers == 0 { self.jobs.len() } else { 0 };
            return Needed { workers, left_out };
        }
        let columns = Columns::from(self.jobs);
        let held = self.held.holders_of(self.jobs).map(|(_, slot)| slot.unwrap_or(Slot::NOBODY));
        let held: Vec<_> = held.collect();
        let out = |workers: u32| {
            let mut roster = Roster::ready(workers, self.pool, more);
            solve(&columns, &mut roster, Cow::Borrowed(&held), self.rules).unassigned.len()
        };
        let pins = || columns.pins.iter().map(|(_, slot)| slot.0.saturating_add(1));
        let greatest = more.or_of(self.pool);
        let low = fewest(&columns, greatest.max_jobs).max(pins().max().unwrap_or(0)).max(least);
        if low <= most && out(low) == 0 {
            return Needed { workers: low, left_out: 0 };
        }
        let pinned = pins().filter(|end| *end <= most).max().unwrap_or(0);
        let known = number(self.pool.0.len());
        let high = number(self.jobs.len()).saturating_add(pinned).saturating_add(known);
        let high = high.max(least).min(most);
        let left_out = out(high);
        let is_enough = |workers: u32| out(workers) <= left_out;
        if is_enough(least) {
            return Needed { workers: least, left_out };
        }
        Needed { workers: between(least, high, is_enough), left_out }
    }
}

/// The number of workers that jobs need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needed {
    /// The number of workers.
    pub workers: u32,
    /// The number of jobs that are left out, as on any other number of workers in the range.
    pub left_out: usize,
}

/// Returns a lower bound on the workers for these jobs, from the sums of shares and jobs.
fn fewest(columns: &Columns, max: Option<u32>) -> u32 {
    let percent: u64 = columns.shares.iter().map(|(_, share)| u64::from(*share)).sum();
    let by_share = percent.div_ceil(100);
    let jobs = columns.len() as u64;
    let by_number = match max {
        Some(0) => 0, // No number is enough.
        Some(max) => jobs.div_ceil(u64::from(max)),
        None => jobs.min(1),
    };
    u32::try_from(by_share.max(by_number)).unwrap_or(u32::MAX)
}

/// Returns the least number above `low` that is enough. `high` is enough, and so are all numbers
/// from some number on. Numbers near `low` are tried first.
fn between(mut low: u32, mut high: u32, is_enough: impl Fn(u32) -> bool) -> u32 {
    let mut step = 1;
    while low + 1 < high {
        let middle = low + step.min((high - low) / 2);
        if is_enough(middle) {
            (high, step) = (middle, u32::MAX);
        } else {
            low = middle;
            step = step.saturating_mul(2);
        }
    }
    high
}
