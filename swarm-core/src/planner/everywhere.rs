//! Plans in which every worker runs every job, for example for health probes and peering.
//!
//! Settings that need one worker (`pin`, `share`, `runOnce`, a maximum) are refused and not
//! ignored, since ignoring them would break promises.

use std::collections::{BTreeMap, BTreeSet};

use super::Unassigned;
use crate::{Change, JobName, Jobs, Pool, Slot, Standing};

/// A plan in which every worker that takes jobs has all jobs.
///
/// It stores the set of workers and the set of jobs, not an entry for each pair.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Everywhere {
    /// The workers that run every job.
    pub workers: BTreeSet<Slot>,
    /// The jobs of the workers that keep their jobs.
    pub kept: BTreeMap<Slot, BTreeSet<JobName>>,
    /// The jobs that no worker runs, with the reason.
    pub unassigned: BTreeMap<JobName, Unassigned>,
    jobs: BTreeSet<JobName>,
}

/// Gives every job to every worker that [takes](Standing::Takes) jobs.
///
/// A worker that [keeps](Standing::Keeps) retains its jobs that are still wanted. Pins, shares,
/// priorities and maxima have no effect. O(jobs + kept jobs).
///
/// ```
/// use swarm_core::{Pool, Slot, everywhere, jobs};
///
/// let plan = everywhere(&jobs(["ping:a", "ping:b"])?, &Default::default(), &Pool::ready(3));
/// assert_eq!(plan.jobs_of(Slot(2)).len(), 2);
/// assert_eq!(plan.changes(&Default::default()).len(), 3);
/// # Ok::<(), swarm_core::JobsError>(())
/// ```
pub fn everywhere(
    jobs: &Jobs,
    held: &BTreeMap<Slot, BTreeSet<JobName>>,
    pool: &Pool,
) -> Everywhere {
    let keeps = |(slot, _): &(&Slot, _)| pool.standing(**slot) == Some(Standing::Keeps);
    let wanted = |names: &BTreeSet<JobName>| {
        names.iter().filter(|job| jobs.contains_key(*job)).cloned().collect()
    };
    let kept = held.iter().filter(keeps).map(|(slot, names)| (*slot, wanted(names)));
    let kept: BTreeMap<_, BTreeSet<_>> = kept.collect();
    let workers: BTreeSet<_> = pool.takers().into_iter().collect();
    let mut unassigned = BTreeMap::new();
    if workers.is_empty() {
        let somewhere: BTreeSet<_> = kept.values().flatten().collect();
        let nowhere = jobs.keys().filter(|job| !somewhere.contains(job));
        unassigned.extend(nowhere.map(|job| (job.clone(), Unassigned::NoWorkers)));
    }
    Everywhere { workers, kept, unassigned, jobs: jobs.keys().cloned().collect() }
}

impl Everywhere {
    /// Returns the jobs that the worker in this slot runs; none if the slot does not exist.
    ///
    /// ```
    /// use swarm_core::{Pool, Slot, everywhere, jobs};
    ///
    /// let plan = everywhere(&jobs(["ping:a", "ping:b"])?, &Default::default(), &Pool::ready(1));
    /// assert_eq!(plan.jobs_of(Slot(0)).len(), 2);
    /// assert!(plan.jobs_of(Slot(1)).is_empty());
    /// # Ok::<(), swarm_core::JobsError>(())
    /// ```
    #[must_use]
    pub fn jobs_of(&self, slot: Slot) -> &BTreeSet<JobName> {
        static NONE: BTreeSet<JobName> = BTreeSet::new();
        let kept = || self.kept.get(&slot).unwrap_or(&NONE);
        if self.workers.contains(&slot) { &self.jobs } else { kept() }
    }

    /// Returns the jobs that each worker starts and stops. Workers without a change are left out.
    ///
    /// ```
    /// use std::collections::BTreeMap;
    ///
    /// use swarm_core::{Pool, Slot, everywhere, jobs};
    ///
    /// let jobs = jobs(["ping:a"])?;
    /// let held = BTreeMap::from([(Slot(0), jobs.keys().cloned().collect())]);
    /// let changes = everywhere(&jobs, &held, &Pool::ready(2)).changes(&held);
    /// assert_eq!(changes.keys().collect::<Vec<_>>(), [&Slot(1)]); // slot 0 runs it already
    /// # Ok::<(), swarm_core::JobsError>(())
    /// ```
    #[must_use]
    pub fn changes(&self, held: &BTreeMap<Slot, BTreeSet<JobName>>) -> BTreeMap<Slot, Change> {
        let slots: BTreeSet<_> = held.keys().chain(&self.workers).copied().collect();
        let change = |slot: Slot| {
            let empty = BTreeSet::new();
            let (before, after) = (held.get(&slot).unwrap_or(&empty), self.jobs_of(slot));
            (slot, Change { included: after - before, excluded: before - after })
        };
        let is_one = |(_, change): &(Slot, Change)| *change != Change::default();
        slots.into_iter().map(change).filter(is_one).collect()
    }
}
