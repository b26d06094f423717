//! Workers and their slots: which workers may receive jobs, and which keep their jobs.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::handover::LeaseTerms;
use crate::{Share, Slot};

/// The part of two times for which a session that ends keeps its jobs for the next worker of its slot:
/// min(`return_grace`, its own grace) / `SUCCESSOR_PART`, 7.5 s by default. Until then a rollout moves
/// each job once. After that other workers get the jobs, since the next worker may never start. The
/// rest of its own grace is for that handover.
const SUCCESSOR_PART: u32 = 4;

/// The observed state of the worker in a slot. Durations are ages on the observer's monotonic
/// clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Alive and ready to take jobs.
    Ready,
    /// Alive, but not ready for this long.
    NotReady(Duration),
    /// Absent for this long. Its slot is still wanted, so it is expected back.
    Away(Duration),
    /// Its slot is no longer wanted. It was asked to end this long ago and still exists.
    Leaving(Duration),
    /// It was asked to end and still runs. Another worker is expected in its slot.
    Ending {
        /// The time since it was asked.
        age: Duration,
        /// The time that it has for its end, from when it was asked.
        grace: Duration,
    },
    /// It implements the protocol and asks for its jobs to be moved away; it releases each job on
    /// request.
    Draining,
}

/// The waiting times of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct Timing {
    /// The time for which a cold pool may stay incomplete before the existing workers receive the
    /// jobs.
    #[cfg_attr(feature = "serde", serde(rename = "initialWaitMs", with = "crate::wire::millis"))]
    pub initial_wait: Duration,
    /// The time for which the jobs of an absent worker wait for its slot to be filled again.
    #[cfg_attr(feature = "serde", serde(rename = "returnGraceMs", with = "crate::wire::millis"))]
    pub return_grace: Duration,
    /// The time after which a plain worker that is not ready loses the jobs that a ready one can
    /// take; `None` for never.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "notReadyGraceMs", with = "crate::wire::some_millis")
    )]
    pub not_ready_grace: Option<Duration>,
    /// The longest wait for a leaving worker that does not end.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "releaseTimeoutMs", with = "crate::wire::millis")
    )]
    pub release_timeout: Duration,
    /// The time after which a session that could not renew its lease has certainly stopped; see
    /// [`LeaseTerms::fence_wait`](crate::handover::LeaseTerms::fence_wait).
    #[cfg_attr(feature = "serde", serde(rename = "fenceWaitMs", with = "crate::wire::millis"))]
    pub fence_wait: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            initial_wait: Duration::from_secs(60),
            return_grace: Duration::from_secs(30),
            not_ready_grace: Some(Duration::from_secs(5 * 60)),
            release_timeout: Duration::from_secs(60),
            fence_wait: LeaseTerms::default().fence_wait(),
        }
    }
}

/// The planner's options for the worker in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It takes part in balancing: it may receive jobs and may have to give up some.
    Takes,
    /// It keeps exactly its present jobs, as long as they are wanted.
    Keeps,
}

impl Presence {
    /// Returns the standing that follows from the presence; `None` for a worker that does not
    /// count.
    ///
    /// ```
    /// use swarm_core::{Presence, Standing, Timing};
    ///
    /// let timing = Timing::default();
    /// let just_left = Presence::Away(timing.return_grace / 2);
    /// assert_eq!(just_left.standing(&timing), Some(Standing::Keeps));
    /// assert_eq!(Presence::Away(timing.return_grace).standing(&timing), None);
    /// ```
    #[must_use]
    pub fn standing(self, timing: &Timing) -> Option<Standing> {
        match self {
            Self::Ready => Some(Standing::Takes),
            Self::NotReady(_) => Some(Standing::Keeps),
            Self::Away(age) => (age < timing.return_grace).then_some(Standing::Keeps),
            Self::Leaving(age) => (age < timing.release_timeout).then_some(Standing::Keeps),
            Self::Ending { .. } => self.changes_in(timing).map(|_| Standing::Keeps),
            Self::Draining => None,
        }
    }

    /// Returns the time until the worker is treated differently if no event happens; `None` if it
    /// never does.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use swarm_core::{Presence, Timing};
    ///
    /// let timing = Timing { return_grace: Duration::from_secs(30), ..Timing::default() };
    /// let away = Presence::Away(Duration::from_secs(10));
    /// assert_eq!(away.changes_in(&timing), Some(Duration::from_secs(20)));
    /// assert_eq!(Presence::Ready.changes_in(&timing), None);
    /// ```
    #[must_use]
    pub fn changes_in(self, timing: &Timing) -> Option<Duration> {
        let (age, limit) = match self {
            Self::Ready | Self::Draining => return None,
            Self::NotReady(age) => (age, timing.not_ready_grace?),
            Self::Away(age) => (age, timing.return_grace),
            Self::Leaving(age) => (age, timing.release_timeout),
            Self::Ending { age, grace } => (age, timing.return_grace.min(grace) / SUCCESSOR_PART),
        };
        limit.checked_sub(age).filter(|left| !left.is_zero())
    }
}

/// A worker of the pool, as the planner sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Member {
    /// The worker's name, the key of its entry in the view. Empty until a worker fills the slot.
    pub name: String,
    /// Its standing.
    pub standing: Standing,
    /// The largest number of jobs that it may have; `None` for any number.
    pub max_jobs: Option<u32>,
    /// The part of it that jobs can reserve, in percent of the largest workers; `None` for the
    /// whole worker.
    pub capacity: Option<Share>,
}

impl Member {
    /// Returns the worker of this name, which may have any number of jobs.
    ///
    /// ```
    /// use swarm_core::{Member, Pool, Slot, Standing};
    ///
    /// let mut small = Member::new("machine-0", Standing::Takes);
    /// small.max_jobs = Some(3);
    /// let pool = Pool([(Slot(0), small)].into());
    /// assert_eq!(pool.takers(), [Slot(0)]);
    /// ```
    #[must_use]
    pub fn new(name: impl Into<String>, standing: Standing) -> Self {
        Self { name: name.into(), standing, max_jobs: None, capacity: None }
    }
}

/// The workers that exist for the planner, by slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pool(pub BTreeMap<Slot, Member>);

impl Pool {
    /// Returns a pool of `workers` ready workers in the slots 0, 1, 2, …, for examples and
    /// forecasts.
    ///
    /// ```
    /// use swarm_core::{Pool, Slot};
    ///
    /// assert_eq!(Pool::ready(2).takers(), [Slot(0), Slot(1)]);
    /// ```
    #[must_use]
    pub fn ready(workers: u32) -> Self {
        let member = |n| Member::new(format!("worker-{n}"), Standing::Takes);
        Self((0..workers).map(|n| (Slot(n), member(n))).collect())
    }

    /// Returns the standing of the worker in `slot`; `None` without such a worker.
    ///
    /// ```
    /// use swarm_core::{Pool, Slot, Standing};
    ///
    /// assert_eq!(Pool::ready(1).standing(Slot(0)), Some(Standing::Takes));
    /// assert_eq!(Pool::ready(1).standing(Slot(1)), None);
    /// ```
    #[must_use]
    pub fn standing(&self, slot: Slot) -> Option<Standing> {
        self.0.get(&slot.some()?).map(|member| member.standing)
    }

    /// Returns the slots whose workers take part in balancing, in ascending order.
    ///
    /// ```
    /// use swarm_core::{Pool, Slot, Standing};
    ///
    /// let mut pool = Pool::ready(3);
    /// pool.0.get_mut(&Slot(1)).unwrap().standing = Standing::Keeps;
    /// assert_eq!(pool.takers(), [Slot(0), Slot(2)]);
    /// ```
    #[must_use]
    pub fn takers(&self) -> Vec<Slot> {
        let takes = |slot: &Slot| self.standing(*slot) == Some(Standing::Takes);
        self.0.keys().copied().filter(takes).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_worker_keeps_its_jobs_until_the_return_grace_has_elapsed() {
        let timing = Timing { return_grace: Duration::from_secs(30), ..Timing::default() };
        let just_before = Presence::Away(Duration::from_millis(29_999));
        assert_eq!(just_before.standing(&timing), Some(Standing::Keeps));
        assert_eq!(just_before.changes_in(&timing), Some(Duration::from_millis(1)));
        let at_the_end = Presence::Away(Duration::from_secs(30));
        assert_eq!(at_the_end.standing(&timing), None);
        assert_eq!(at_the_end.changes_in(&timing), None);
    }

    #[test]
    fn a_worker_that_ends_waits_for_the_next_one_for_a_part_of_both_times() {
        let timing = Timing { return_grace: Duration::from_secs(40), ..Timing::default() };
        let after = |age, grace| {
            let (age, grace) = (Duration::from_secs(age), Duration::from_secs(grace));
            let ending = Presence::Ending { age, grace };
            (ending.standing(&timing), ending.changes_in(&timing))
        };
        let keeps = |left| (Some(Standing::Keeps), Some(Duration::from_secs(left)));
        assert_eq!(after(0, 99), keeps(10), "a quarter of the grace");
        assert_eq!(after(9, 99), keeps(1));
        assert_eq!(after(10, 99), (None, None));
        assert_eq!(after(0, 12), keeps(3), "a quarter of its own grace");
        assert_eq!(after(3, 12), (None, None));
        assert_eq!(after(0, 0), (None, None));
    }

    #[test]
    fn a_leaving_worker_keeps_its_jobs_until_the_release_timeout() {
        let timing = Timing { release_timeout: Duration::from_secs(5), ..Timing::default() };
        assert_eq!(Presence::Leaving(Duration::ZERO).standing(&timing), Some(Standing::Keeps));
        assert_eq!(Presence::Leaving(Duration::from_secs(5)).standing(&timing), None);
    }
}
