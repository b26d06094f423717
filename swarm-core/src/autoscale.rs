//! The number of workers of a pool, if it follows the jobs.
//!
//! [`Need::of`] computes how many workers the jobs need, from the jobs and their places alone. The
//! number of existing or ready workers does not matter. So a decision does not change the need, and
//! a cluster without room for more workers does not lower it. From the need an [`Autoscaler`]
//! derives, turn after turn, the number of workers that the pool should have. The number grows at
//! once, and shrinks when a lower need has lasted. So at least a cooldown lies between growing and
//! shrinking, however the jobs change.
//!
//! The result is [`Desired::replicas`], and [`decide`](crate::decide) empties surplus workers
//! before they go, as usual.
//!
//! The state is in memory only, since it may be lost: the number then stays too high for one more
//! cooldown. The load of workers is not used, because it falls when there are more of them.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::time::Duration;

use crate::planner::{Room, active};
use crate::turn::unfinished;
use crate::{
    Assignment, Desired, Job, JobName, Jobs, Ledger, Member, Pool, Replication, Request, Slot,
    Standing, WORKERS_ENOUGH_MAX,
};

/// The settings for a number of workers that follows the jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase", deny_unknown_fields))]
pub struct Autoscale {
    /// The smallest number of workers.
    pub min: u32,
    /// The largest number of workers. If it is less than `min`, `min` counts.
    pub max: u32,
    /// The jobs per worker.
    pub per_worker: PerWorker,
    /// The time for which fewer workers must have been enough before the number shrinks.
    #[cfg_attr(feature = "serde", serde(rename = "cooldownMs", with = "crate::wire::millis"))]
    pub cooldown: Duration,
}

impl Autoscale {
    /// Returns `workers`, or the nearest number within the bounds.
    ///
    /// ```
    /// use std::time::Duration;
    /// use swarm_core::{Autoscale, PerWorker};
    ///
    /// let (per_worker, cooldown) = (PerWorker::Jobs(10), Duration::from_secs(300));
    /// let terms = Autoscale { min: 2, max: 5, per_worker, cooldown };
    /// assert_eq!([0, 3, 9].map(|workers| terms.bounded(workers)), [2, 3, 5]);
    /// ```
    #[must_use]
    pub fn bounded(&self, workers: u32) -> u32 {
        workers.min(self.max).max(self.min)
    }
}

/// The jobs per worker: more jobs ask for more workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
pub enum PerWorker {
    /// This many jobs, with a share or without. 0 counts as 1.
    Jobs(u32),
    /// Jobs whose shares add up to this percentage of a worker. 0 counts as 1. Jobs without a share
    /// together count for one worker at most.
    Share(u32),
}

impl PerWorker {
    /// Returns how many workers `jobs` ask for. O(jobs) by shares, else O(1).
    fn workers(self, jobs: &Jobs) -> u32 {
        let all = jobs.len() as u64;
        let workers = match self {
            Self::Jobs(count) => all.div_ceil(u64::from(count.max(1))),
            Self::Share(percent) => {
                let percents = jobs.values().filter_map(|job| job.share);
                let sum: u64 = percents.map(|share| u64::from(share.percent())).sum();
                sum.div_ceil(u64::from(percent.max(1))).max(all.min(1))
            }
        };
        u32::try_from(workers).unwrap_or(u32::MAX)
    }
}

/// The number of workers that the jobs of a pool need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// The number of workers, at most [`Autoscale::max`] if there is one. With fewer workers, each
    /// would have more jobs than [`PerWorker`] allows, or more jobs would have no place.
    pub workers: u32,
    /// The number without a maximum. If it exceeds `workers`, the maximum is too low.
    pub enough: u32,
}

impl Need {
    /// Returns the need of the unfinished jobs of `desired` that are not suspended, in slots from
    /// `first_slot` on, with the holders in `ledger`. It is the number that [`Desired::autoscale`]
    /// asks for, and at least enough for all jobs that fit on any number of workers. Each worker
    /// has the maximum and the capacity of its slot. `None` if every worker runs all jobs, since
    /// then any number is enough.
    ///
    /// Time: like [`Request::workers_needed`], plus O(jobs · log jobs).
    ///
    /// ```
    /// use std::time::Duration;
    /// use swarm_core::{Autoscale, Desired, Ledger, Need, PerWorker, jobs};
    ///
    /// let mut desired = Desired::new(jobs(["a", "b", "c", "d", "e"])?);
    /// let (per_worker, cooldown) = (PerWorker::Jobs(2), Duration::from_secs(300));
    /// desired.autoscale = Some(Autoscale { min: 1, max: 2, per_worker, cooldown });
    /// let need = Need::of(&Ledger::new(1), &desired, 0);
    /// assert_eq!(need, Some(Need { workers: 2, enough: 3 }));
    /// # Ok::<(), swarm_core::JobsError>(())
    /// ```
    #[must_use]
    pub fn of(ledger: &Ledger, desired: &Desired, first_slot: u32) -> Option<Self> {
        match desired.replication {
            Replication::One => {}
            Replication::All => return None,
        }
        let jobs = unfinished(ledger, desired);
        let jobs = &*active(&jobs);
        let by_target = desired.autoscale.map_or(0, |terms| terms.per_worker.workers(jobs));
        let held = ledger.unreleased_assignment();
        let (jobs, held) = from_zero(jobs, held, first_slot);
        let pool = special(desired, first_slot);
        let more = Room { max_jobs: desired.max_jobs, capacity: None };
        let request = Request { jobs: &jobs, held: &held, pool: &pool, rules: desired.rules };
        let most = desired.autoscale.map_or(WORKERS_ENOUGH_MAX, |terms| terms.bounded(u32::MAX));
        let needed = request.workers_needed_with(more, by_target, most);
        let enough = match (needed.left_out, most) {
            (0, _) | (_, WORKERS_ENOUGH_MAX) => needed.workers,
            (left_out, _) => {
                let all = request.workers_needed_with(more, by_target, WORKERS_ENOUGH_MAX);
                if all.left_out < left_out { all.workers } else { needed.workers }
            }
        };
        Some(Self { workers: needed.workers, enough: enough.max(by_target) })
    }
}

/// Returns the slots that have their own maximum or capacity, counted from `first_slot`.
fn special(desired: &Desired, first_slot: u32) -> Pool {
    let slots = desired.max_jobs_by_slot.keys().chain(desired.capacity_by_slot.keys());
    let member = |slot: &Slot| {
        let (max_jobs, capacity) = (desired.max_jobs_of(*slot), desired.capacity_of(*slot));
        let place = Slot(slot.0.checked_sub(first_slot)?);
        Some((place, Member { max_jobs, capacity, ..Member::new("", Standing::Takes) }))
    };
    Pool(slots.filter_map(member).collect())
}

/// A cache of [`Need::of`], which computes the need again only after a change of its inputs.
///
/// ```
/// use swarm_core::{Desired, Ledger, Need, Needs, jobs};
///
/// let (desired, ledger) = (Desired::new(jobs(["a"])?), Ledger::new(1));
/// let mut needs = Needs::default();
/// assert_eq!(needs.of(&ledger, &desired, 0), Need::of(&ledger, &desired, 0));
/// # Ok::<(), swarm_core::JobsError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Needs {
    last: Option<Box<Asked>>,
}

/// The last inputs, and the result.
#[derive(Clone, Debug)]
struct Asked {
    ledger: Ledger,
    desired: Desired,
    first_slot: u32,
    need: Option<Need>,
}

impl Needs {
    /// Like [`Need::of`]. O(workers) if ledger and jobs are clones of the previous ones.
    ///
    /// ```
    /// use swarm_core::{Desired, Ledger, Need, Needs, jobs};
    ///
    /// let mut desired = Desired::new(jobs(["a", "b", "c"])?);
    /// desired.max_jobs = Some(2);
    /// let (mut needs, ledger) = (Needs::default(), Ledger::new(1));
    /// let two = Some(Need { workers: 2, enough: 2 });
    /// assert_eq!(needs.of(&ledger, &desired, 0), two);
    /// assert_eq!(needs.of(&ledger, &desired.clone(), 0), two); // not computed again
    /// # Ok::<(), swarm_core::JobsError>(())
    /// ```
    pub fn of(&mut self, ledger: &Ledger, desired: &Desired, first_slot: u32) -> Option<Need> {
        let is_same = |asked: &&Asked| {
            (asked.first_slot, &asked.ledger, &asked.desired) == (first_slot, ledger, desired)
        };
        if let Some(asked) = self.last.as_deref().filter(is_same) {
            return asked.need;
        }
        let need = Need::of(ledger, desired, first_slot);
        let (ledger, desired) = (ledger.clone(), desired.clone());
        self.last = Some(Box::new(Asked { ledger, desired, first_slot, need }));
        need
    }
}

/// Returns the jobs and their holders with slots counted from `first_slot`. A pin below the first
/// slot can never be met.
fn from_zero(jobs: &Jobs, held: Assignment, first_slot: u32) -> (Cow<'_, Jobs>, Assignment) {
    if first_slot == 0 {
        return (Cow::Borrowed(jobs), held);
    }
    let shifted = |slot: Slot| slot.0.checked_sub(first_slot).map_or(Slot::NOBODY, Slot);
    let job = |(name, job): (&JobName, &Job)| {
        (name.clone(), Job { pin: job.pin.map(shifted), ..job.clone() })
    };
    let held = held.iter().map(|(job, slot)| (job.clone(), shifted(slot))).collect();
    (Cow::Owned(jobs.iter().map(job).collect()), held)
}

/// The number of workers that one pool should have, from turn to turn.
///
/// It keeps a few numbers. If they are lost, it starts with the present number of workers, and
/// waits a whole cooldown before the number shrinks.
///
/// ```
/// use std::time::Duration;
/// use swarm_core::{Autoscale, Autoscaler, PerWorker, Scale};
///
/// let (per_worker, cooldown) = (PerWorker::Jobs(10), Duration::from_secs(300));
/// let terms = Autoscale { min: 1, max: 9, per_worker, cooldown };
/// let (mut scaler, at) = (Autoscaler::default(), Duration::from_secs);
/// let mut workers = |need, now| scaler.step(&terms, need, 2, at(now)).workers;
///
/// assert_eq!(workers(2, 0), 2);
/// assert_eq!(workers(8, 1), 8); // at once
/// assert_eq!((workers(3, 2), workers(5, 60), workers(3, 301)), (8, 8, 8));
/// assert_eq!(workers(3, 302), 5); // the largest need meanwhile
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Autoscaler {
    workers: Option<u32>,
    lower: Option<Lower>,
}

/// A time in which fewer workers have been enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lower {
    /// The start of this time.
    since: Duration,
    /// The largest need since then.
    most: u32,
}

/// The result of an [`Autoscaler`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Scale {
    /// The number of workers that the pool should have, within the bounds.
    pub workers: u32,
    /// The time after which the number shrinks if the need stays as it is; `None` if it does not.
    pub requeue_after: Option<Duration>,
}

impl Autoscaler {
    /// Returns the number of workers for a pool that needs `need` workers at `now`, on any clock
    /// that never goes back. The `present` number counts only in the first step, as the start.
    ///
    /// The number grows as soon as the need exceeds it. It shrinks once the need was lower for a
    /// whole cooldown, to the largest need meanwhile. So it shrinks at most once in a cooldown, and
    /// not within a cooldown after it grew. The frequency of calls makes no difference. New bounds
    /// hold at once. O(1).
    ///
    /// ```
    /// use std::time::Duration;
    /// use swarm_core::{Autoscale, Autoscaler, PerWorker};
    ///
    /// let (per_worker, cooldown) = (PerWorker::Jobs(10), Duration::from_secs(300));
    /// let terms = Autoscale { min: 2, max: 9, per_worker, cooldown };
    /// let mut scaler = Autoscaler::default();
    /// let (at, present) = (Duration::from_secs, 5);
    ///
    /// let first = scaler.step(&terms, 1, present, at(0));
    /// // The present workers are the start.
    /// assert_eq!((first.workers, first.requeue_after), (5, Some(cooldown)));
    /// let later = scaler.step(&terms, 1, present, at(300));
    /// assert_eq!((later.workers, later.requeue_after), (2, None)); // no fewer than the minimum
    /// ```
    pub fn step(&mut self, terms: &Autoscale, need: u32, present: u32, now: Duration) -> Scale {
        let need = terms.bounded(need);
        let before = terms.bounded(self.workers.unwrap_or(present));
        if before <= need {
            *self = Self { workers: Some(need), lower: None };
            return Scale { workers: need, requeue_after: None };
        }
        let Lower { since, most } = self.lower.unwrap_or(Lower { since: now, most: need });
        let most = most.max(need).min(before);
        let left = terms.cooldown.saturating_sub(now.saturating_sub(since));
        if left.is_zero() {
            // A new wait starts if even fewer workers are enough.
            let lower = (need < most).then_some(Lower { since: now, most: need });
            *self = Self { workers: Some(most), lower };
            return Scale { workers: most, requeue_after: lower.map(|_| terms.cooldown) };
        }
        *self = Self { workers: Some(before), lower: Some(Lower { since, most }) };
        Scale { workers: before, requeue_after: Some(left) }
    }
}
