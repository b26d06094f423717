//! How many workers would be enough.

use std::borrow::Cow;

use super::columns::{Columns, number};
use super::engine::solve;
use super::roster::Roster;
use super::{Request, Unassigned};
use crate::{Slot, Standing};

/// The largest number of workers that [`Request::workers_enough`] tries.
pub const WORKERS_ENOUGH_MAX: u32 = 100_000;

impl Request<'_> {
    /// How many workers in the slots 0, 1, 2, … would leave no job unassigned; `None` if no number
    /// up to [`WORKERS_ENOUGH_MAX`] is enough, for example because more jobs are pinned to one slot
    /// than it may have.
    ///
    /// All of these workers are assumed to take jobs, with the greatest maximum of the existing ones,
    /// and jobs that are held by one of them to be where they are. The answer is verified: a plan
    /// with that many workers left no job out. It is the least such number unless adding a worker
    /// can leave more jobs out. If all workers take jobs and some job finds no room, it is more than
    /// there are. Time: that of two plans if the workers that the pins, the sum of the shares and the
    /// maxima need at least are enough, else of up to about 30.
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
        let columns = Columns::from(self.jobs);
        let held = self.held.holders_of(self.jobs).map(|(_, slot)| slot.unwrap_or(Slot::NOBODY));
        let held: Vec<_> = held.collect();
        let max = self.pool.0.values().map(|member| member.max_jobs);
        let max = max.max_by_key(|max| max.map_or(u64::MAX, u64::from)).flatten();
        let out =
            |mut roster| solve(&columns, &mut roster, Cow::Borrowed(&held), self.rules).unassigned;
        let is_enough = |workers: u32| out(Roster::ready(workers, max)).is_empty();

        let pinned = columns.pins.iter().map(|(_, slot)| slot.0.saturating_add(1)).max();
        let pinned = pinned.unwrap_or(0);
        let jobs = number(self.jobs.len());
        let mut low = pinned.max(least(&columns, max));
        if self.pool.0.values().all(|member| member.standing == Standing::Takes) {
            let lacks_room = |(_, why): &(u32, Unassigned)| *why == Unassigned::Capacity;
            if out(Roster::new(self.pool)).iter().any(lacks_room) {
                low = low.max(number(self.pool.0.len()).saturating_add(1));
            }
        }
        // With one worker for each job, no job takes a place that another one needs, pins apart.
        let high = jobs.saturating_add(pinned).max(low).min(WORKERS_ENOUGH_MAX);
        if low > high {
            return None;
        }
        if is_enough(low) {
            return Some(low);
        }
        is_enough(high).then(|| between(low, high, is_enough))
    }
}

/// The fewest workers on which the jobs could fit, by their sum.
fn least(columns: &Columns, max: Option<u32>) -> u32 {
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

/// The least number above `low` that is enough, if all from some number on are; `high` is. Numbers
/// near `low` are tried first.
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
