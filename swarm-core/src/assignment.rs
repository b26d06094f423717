//! The map from jobs to slots that a plan produces, and the difference between two such maps.

use std::collections::{BTreeMap, BTreeSet};

use crate::merge::{left_join, side_by_side};
use crate::{JobName, Jobs, SharedMap, Slot};

/// The slot that holds each job. A job without an entry is unassigned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct Assignment(SharedMap<JobName, Slot>);

impl Assignment {
    /// Returns the slot that holds `job`, if any.
    ///
    /// ```
    /// use swarm_core::{Assignment, Slot};
    ///
    /// let held = Assignment::from_iter([("a".parse()?, Slot(1))]);
    /// assert_eq!(held.holder(&"a".parse()?), Some(Slot(1)));
    /// assert_eq!(held.holder(&"b".parse()?), None);
    /// # Ok::<(), swarm_core::JobNameError>(())
    /// ```
    #[must_use]
    pub fn holder(&self, job: &JobName) -> Option<Slot> {
        self.0.get(job).copied()
    }

    /// Returns the number of assigned jobs.
    ///
    /// ```
    /// use swarm_core::{Assignment, Slot};
    ///
    /// let held = Assignment::from_iter([("a".parse()?, Slot(0)), ("a".parse()?, Slot(1))]);
    /// assert_eq!(held.len(), 1); // a job has one holder: the later pair replaced the first
    /// # Ok::<(), swarm_core::JobNameError>(())
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether no job is assigned.
    ///
    /// ```
    /// assert!(swarm_core::Assignment::default().is_empty());
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the jobs and their holders, in the order of job names.
    ///
    /// ```
    /// use swarm_core::{Assignment, Slot};
    ///
    /// let held = Assignment::from_iter([("b".parse()?, Slot(0)), ("a".parse()?, Slot(1))]);
    /// assert_eq!(held.iter().map(|(_, slot)| slot).collect::<Vec<_>>(), [Slot(1), Slot(0)]);
    /// # Ok::<(), swarm_core::JobNameError>(())
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = (&JobName, Slot)> {
        self.0.iter().map(|(job, slot)| (job, *slot))
    }

    /// Assigns a job to a slot.
    pub(crate) fn insert(&mut self, job: JobName, slot: Slot) {
        self.0.insert(job, slot);
    }

    /// Returns each of `jobs` with its holder, in the order of names. O(jobs).
    pub(crate) fn holders_of<'a>(
        &'a self,
        jobs: &'a Jobs,
    ) -> impl Iterator<Item = (&'a JobName, Option<Slot>)> {
        left_join(jobs, &self.0).map(|(job, _, slot)| (job, slot.copied()))
    }

    /// Returns the assigned jobs that are not in `jobs`, with their holders, in the order of names.
    /// O(jobs).
    pub(crate) fn without<'a>(
        &'a self,
        jobs: &'a Jobs,
    ) -> impl Iterator<Item = (&'a JobName, Slot)> {
        let joined = left_join(&self.0, jobs);
        joined.filter(|(.., wanted)| wanted.is_none()).map(|(job, slot, _)| (job, *slot))
    }

    /// Returns the jobs of each slot. Slots without jobs are left out.
    ///
    /// ```
    /// use swarm_core::{Assignment, Slot};
    ///
    /// let held = Assignment::from_iter([("a".parse()?, Slot(2)), ("b".parse()?, Slot(2))]);
    /// assert_eq!(held.by_slot()[&Slot(2)].len(), 2);
    /// assert!(!held.by_slot().contains_key(&Slot(0)));
    /// # Ok::<(), swarm_core::JobNameError>(())
    /// ```
    #[must_use]
    pub fn by_slot(&self) -> BTreeMap<Slot, BTreeSet<JobName>> {
        let mut by_slot = BTreeMap::<_, BTreeSet<_>>::new();
        for (job, slot) in self.iter() {
            by_slot.entry(slot).or_default().insert(job.clone());
        }
        by_slot
    }
}

impl FromIterator<(JobName, Slot)> for Assignment {
    fn from_iter<I: IntoIterator<Item = (JobName, Slot)>>(pairs: I) -> Self {
        Self(pairs.into_iter().collect())
    }
}

/// The change of one worker's jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Jobs it has now and did not have before.
    pub included: BTreeSet<JobName>,
    /// Jobs it had before and no longer has.
    pub excluded: BTreeSet<JobName>,
}

/// Returns the workers whose sets of jobs differ between two assignments, with the difference.
///
/// Workers with the same jobs are left out. O(jobs), and O(log jobs) for each job that moved.
///
/// ```
/// use swarm_core::{Assignment, JobName, Slot, diff};
///
/// let job: JobName = "a".parse()?;
/// let before = Assignment::from_iter([(job.clone(), Slot(0))]);
/// let after = Assignment::from_iter([(job.clone(), Slot(1))]);
/// let changes = diff(&before, &after);
/// assert!(changes[&Slot(0)].excluded.contains(&job));
/// assert!(changes[&Slot(1)].included.contains(&job));
/// # Ok::<(), swarm_core::JobNameError>(())
/// ```
#[must_use]
pub fn diff(before: &Assignment, after: &Assignment) -> BTreeMap<Slot, Change> {
    let mut changes = BTreeMap::<Slot, Change>::new();
    let all = side_by_side(&before.0, &after.0);
    for (job, before, after) in all.filter(|(_, before, after)| before != after) {
        if let Some(slot) = before {
            changes.entry(*slot).or_default().excluded.insert(job.clone());
        }
        if let Some(slot) = after {
            changes.entry(*slot).or_default().included.insert(job.clone());
        }
    }
    changes
}
