//! The reserved part of the workers, by jobs with a share, and the shares that do not fit.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::{Decision, Desired, Observed, pool};
use crate::{Job, Slot, Standing, Unassigned};

/// The parts of the workers that jobs with a share reserve. Only workers that take jobs count. All
/// parts are percentages of one worker of the largest size, so three such workers offer 300.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reservations {
    /// The sum of the workers' capacities.
    pub capacity: u64,
    /// The reserved part of it.
    pub reserved: u64,
    /// The largest share that one worker still has room for. The free capacity may be spread over
    /// many workers.
    pub largest_free: u64,
    /// The jobs with a share by priority, the most important ones first.
    pub classes: Vec<ShareClass>,
}

/// The jobs with a share and one priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShareClass {
    /// Their priority.
    pub priority: i32,
    /// The number of jobs that have a worker.
    pub jobs: usize,
    /// The sum of the shares of these jobs.
    pub reserved: u64,
    /// The number of jobs that have no worker, without suspended jobs.
    pub waiting: usize,
    /// The sum of the shares of these jobs.
    pub waiting_percent: u64,
}

impl Reservations {
    /// Returns the reservations in `decision`; `None` if no job has a share. O(jobs · log jobs).
    ///
    /// ```
    /// use swarm_core::{Desired, Job, Ledger, Observed, Reservations, Share, decide};
    ///
    /// let mut desired = Desired::default();
    /// let seen = Observed::new([], 1, []);
    /// let of = |desired: &Desired| {
    ///     Reservations::of(&decide(&Ledger::new(0), desired, &seen), desired, &seen)
    /// };
    /// assert_eq!(of(&desired), None);
    /// let half = Job { share: Share::new(50).ok(), ..Job::default() };
    /// desired.jobs.insert("half".parse()?, half);
    /// let reservations = of(&desired).unwrap();
    /// assert_eq!((reservations.reserved, reservations.classes[0].waiting_percent), (0, 50));
    /// # Ok::<(), swarm_core::JobNameError>(())
    /// ```
    #[must_use]
    pub fn of(decision: &Decision, desired: &Desired, observed: &Observed) -> Option<Self> {
        let mut classes = BTreeMap::new();
        let mut free: BTreeMap<Slot, u64> = BTreeMap::new();
        for (slot, member) in pool(false, desired, observed).0 {
            if member.standing == Standing::Takes {
                free.insert(slot, member.capacity.map_or(100, |part| part.percent().into()));
            }
        }
        let capacity = free.values().sum();
        for (name, job) in &desired.jobs {
            let Job { share: Some(share), priority, .. } = job else { continue };
            let class: &mut ShareClass = classes.entry(Reverse(*priority)).or_default();
            class.priority = *priority;
            let share = u64::from(share.percent());
            match (decision.plan.assignment.holder(name), decision.plan.unassigned.get(name)) {
                (Some(slot), _) => {
                    class.jobs += 1;
                    class.reserved += share;
                    if let Some(free) = free.get_mut(&slot) {
                        *free = free.saturating_sub(share);
                    }
                }
                (None, Some(Unassigned::Suspended) | None) => {}
                (None, Some(_)) => {
                    class.waiting += 1;
                    class.waiting_percent += share;
                }
            }
        }
        let left: u64 = free.values().sum();
        (!classes.is_empty()).then(|| Self {
            capacity,
            reserved: capacity - left,
            largest_free: free.values().copied().max().unwrap_or(0),
            classes: classes.into_values().collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{WorkerSeen, decide};
    use super::*;
    use crate::handover::SessionId;
    use crate::{Ledger, Presence, Share};

    #[test]
    fn what_is_reserved_and_what_waits_is_counted_by_priority() {
        let wish = |percent, priority, pin: Option<u32>, suspend| {
            let share = Share::new(percent).ok();
            Job { share, priority, pin: pin.map(Slot), suspend, ..Job::default() }
        };
        let mut desired = Desired::default();
        for (name, job) in [
            ("first", wish(60, 5, Some(0), false)),
            ("second", wish(10, 5, Some(0), false)),
            ("small", wish(40, 0, Some(1), false)),
            ("large", wish(90, 0, None, false)),
            ("suspended", wish(20, 0, None, true)),
            ("without", Job::default()),
        ] {
            desired.jobs.insert(name.parse().unwrap(), job);
        }
        desired.capacity_by_slot = [(Slot(1), Share::new(50).unwrap())].into();
        let worker = |(n, presence)| {
            let session = Some(SessionId::new("pod", u64::from(n)));
            (Slot(n), WorkerSeen::new(format!("w-{n}"), presence, session))
        };
        // Two of the three workers take jobs.
        let presences = [Presence::Ready, Presence::Ready, Presence::Draining];
        let mut observed = Observed::new((0..).zip(presences).map(worker), 1, []);
        observed.watched_for = desired.timing.initial_wait;
        let decision = decide(&Ledger::new(0), &desired, &observed);
        let high =
            ShareClass { priority: 5, jobs: 2, reserved: 70, waiting: 0, waiting_percent: 0 };
        let low =
            ShareClass { priority: 0, jobs: 1, reserved: 40, waiting: 1, waiting_percent: 90 };
        let expected = Reservations {
            capacity: 150,
            reserved: 110,
            largest_free: 30,
            classes: vec![high, low],
        };
        assert_eq!(Reservations::of(&decision, &desired, &observed), Some(expected));
    }
}
