//! Workers and the slots they fill: who may be given jobs, and who keeps what it has.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::handover::LeaseTerms;

/// The place a worker fills in its pool; the ordinal of a StatefulSet pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

impl Slot {
    /// Stands for "no slot" where an array has an entry for every job. No worker can fill it: a
    /// pool's member in this slot is passed over.
    pub const NOBODY: Self = Self(u32::MAX);

    /// The slot, unless it stands for nobody.
    #[must_use]
    pub fn some(self) -> Option<Self> {
        (self != Self::NOBODY).then_some(self)
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What is seen of the worker in a slot. Durations are ages on the observer's monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Alive and ready to take jobs.
    Ready,
    /// Alive, but not ready.
    NotReady,
    /// Not there for this long, though its slot is still wanted: expected back.
    Away(Duration),
    /// Its slot is no longer wanted; it was told to end this long ago and is still there.
    Leaving(Duration),
    /// It speaks the protocol and asks for its jobs to be moved away; it lets go of each when told.
    Draining,
}

/// How long an absent or leaving worker keeps its jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long a cold pool may stay incomplete before the workers that exist are given the jobs.
    pub initial_wait: Duration,
    /// How long the jobs of an absent worker wait for its slot to be filled again.
    pub return_grace: Duration,
    /// How long a leaving worker that does not end is waited for.
    pub release_timeout: Duration,
    /// After which time a session that could not renew its lease has stopped for certain; see
    /// [`LeaseTerms::fence_wait`](crate::handover::LeaseTerms::fence_wait).
    pub fence_wait: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            initial_wait: Duration::from_mins(1),
            return_grace: Duration::from_secs(30),
            release_timeout: Duration::from_mins(1),
            fence_wait: LeaseTerms::default().fence_wait(),
        }
    }
}

/// What the planner may do with the worker in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It takes part in balancing: it may be given jobs and may have to give some away.
    Takes,
    /// It keeps exactly the jobs it has, as long as those exist.
    Keeps,
}

impl Presence {
    /// The standing that follows from what is seen, or `None` for a worker that is gone.
    #[must_use]
    pub fn standing(self, timing: &Timing) -> Option<Standing> {
        match self {
            Self::Ready => Some(Standing::Takes),
            Self::NotReady => Some(Standing::Keeps),
            Self::Away(age) => (age < timing.return_grace).then_some(Standing::Keeps),
            Self::Leaving(age) => (age < timing.release_timeout).then_some(Standing::Keeps),
            Self::Draining => None,
        }
    }

    /// How long until the mere passing of time changes the standing; `None` if it never does.
    #[must_use]
    pub fn changes_in(self, timing: &Timing) -> Option<Duration> {
        let (age, limit) = match self {
            Self::Ready | Self::NotReady | Self::Draining => return None,
            Self::Away(age) => (age, timing.return_grace),
            Self::Leaving(age) => (age, timing.release_timeout),
        };
        limit.checked_sub(age).filter(|left| !left.is_zero())
    }
}

/// A worker of the pool, as the planner sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The worker's name, the key of its entry in the view. Empty until a worker filled the slot.
    pub name: String,
    /// What may be done with it.
    pub standing: Standing,
    /// The most jobs it may have; `None` for any number.
    pub max_jobs: Option<u32>,
}

/// The workers that count now, by slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pool(pub BTreeMap<Slot, Member>);

impl Pool {
    /// A pool of `workers` ready workers in the slots 0, 1, 2, …, for examples and what-ifs.
    #[must_use]
    pub fn ready(workers: u32) -> Self {
        let member =
            |n| Member { name: format!("worker-{n}"), standing: Standing::Takes, max_jobs: None };
        Self((0..workers).map(|n| (Slot(n), member(n))).collect())
    }

    /// The standing of the worker in `slot`, or `None` if there is no such worker.
    #[must_use]
    pub fn standing(&self, slot: Slot) -> Option<Standing> {
        self.0.get(&slot.some()?).map(|member| member.standing)
    }

    /// The slots that take part in balancing, in ascending order.
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
    fn an_absent_worker_keeps_its_jobs_until_the_grace_is_over() {
        let timing = Timing { return_grace: Duration::from_secs(30), ..Timing::default() };
        let just_before = Presence::Away(Duration::from_millis(29_999));
        assert_eq!(just_before.standing(&timing), Some(Standing::Keeps));
        assert_eq!(just_before.changes_in(&timing), Some(Duration::from_millis(1)));
        let at_the_end = Presence::Away(Duration::from_secs(30));
        assert_eq!(at_the_end.standing(&timing), None);
        assert_eq!(at_the_end.changes_in(&timing), None);
    }

    #[test]
    fn a_leaving_worker_is_waited_for_until_the_release_timeout() {
        let timing = Timing { release_timeout: Duration::from_secs(5), ..Timing::default() };
        assert_eq!(Presence::Leaving(Duration::ZERO).standing(&timing), Some(Standing::Keeps));
        assert_eq!(Presence::Leaving(Duration::from_secs(5)).standing(&timing), None);
    }
}
