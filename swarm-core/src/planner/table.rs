//! A table for many jobs: the names in one string, everything else in columns.

use super::columns::{Columns, number};
use crate::hash::hash_name;
use crate::{Assignment, Job, JobName, Jobs, JobsError, Slot};

/// A large set of jobs, sorted and hashed once, for plans that take milliseconds.
///
/// Jobs are numbered from 0 in the order of their names. A million names of 31 bytes take 44 MB.
/// [`plan`](Self::plan) works on arrays with an entry for every job; no map is built.
///
/// ```
/// use swarm_core::{JobTable, Pool, Rules};
///
/// let jobs = JobTable::new((0..1_000).map(|n| format!("feed-{n:04}")))?;
/// let first = jobs.plan(&[], &Pool::ready(10), Rules::default());
/// let without_last_worker = jobs.plan(&first.holders, &Pool::ready(9), Rules::default());
/// assert_eq!(without_last_worker.moves().count(), 100);
/// # Ok::<(), swarm_core::JobsError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobTable {
    text: String,
    /// The start of each name in `text`, and its length.
    starts: Vec<u32>,
    lengths: Vec<u8>,
    pub(super) columns: Columns,
}

impl JobTable {
    /// Builds a table of jobs without wishes from a list of names in any order.
    ///
    /// # Errors
    ///
    /// The same errors as [`with_wishes`](Self::with_wishes).
    ///
    /// ```
    /// use swarm_core::{JobTable, JobsError};
    ///
    /// let table = JobTable::new(["b", "a"])?;
    /// assert_eq!(table.name(0), "a"); // jobs are numbered in the order of their names
    /// assert!(matches!(JobTable::new(["a", "a"]), Err(JobsError::Duplicate { .. })));
    /// # Ok::<(), JobsError>(())
    /// ```
    pub fn new<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> Result<Self, JobsError> {
        Self::with_wishes(names.into_iter().map(|name| (name, Job::default())))
    }

    /// Builds a table from a list of jobs in any order. O(bytes), plus a sort if the list is not
    /// sorted.
    ///
    /// # Errors
    ///
    /// [`JobsError::Name`] for a text that is not a job name, [`JobsError::Duplicate`] for a name
    /// that occurs twice, [`JobsError::TooLarge`] for more than 4 GiB of names.
    ///
    /// ```
    /// use swarm_core::{Job, JobTable, Pool, Rules, Slot};
    ///
    /// let pinned = Job { pin: Some(Slot(1)), ..Job::default() };
    /// let table = JobTable::with_wishes([("b", pinned), ("a", Job::default())])?;
    /// let plan = table.plan(&[], &Pool::ready(2), Rules::default());
    /// assert_eq!(plan.holders[1], Slot(1)); // `b` is job 1, whatever its place in the list
    /// # Ok::<(), swarm_core::JobsError>(())
    /// ```
    pub fn with_wishes<S: AsRef<str>>(
        jobs: impl IntoIterator<Item = (S, Job)>,
    ) -> Result<Self, JobsError> {
        let mut table = Self::default();
        let mut wishes = Vec::new();
        for (index, (name, job)) in jobs.into_iter().enumerate() {
            let name = name.as_ref();
            let invalid = |source| JobsError::Name { number: index + 1, source };
            JobName::check(name).map_err(invalid)?;
            table.starts.push(table.end()?);
            table.lengths.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
            table.text.push_str(name);
            if job != Job::default() {
                wishes.push((index, job));
            }
        }
        table.end()?;
        // Otherwise up to half of the capacity would stay unused for as long as the table exists.
        table.text.shrink_to_fit();
        table.starts.shrink_to_fit();
        table.lengths.shrink_to_fit();
        table.sort(&mut wishes)?;
        table.columns.reserve(table.len());
        let mut wishes = wishes.into_iter().peekable();
        for job in 0..table.len() {
            let wish = wishes.next_if(|(of, _)| *of == job).map(|(_, wish)| wish);
            let hash = hash_name(table.name(job));
            table.columns.push(hash, &wish.unwrap_or_default());
        }
        Ok(table)
    }

    fn end(&self) -> Result<u32, JobsError> {
        u32::try_from(self.text.len()).map_err(|_| JobsError::TooLarge)
    }

    /// Sorts the names, and the wishes with them. Refuses a name that occurs twice.
    fn sort(&mut self, wishes: &mut [(usize, Job)]) -> Result<(), JobsError> {
        if (1..self.len()).all(|job| self.name(job - 1) < self.name(job)) {
            return Ok(());
        }
        let mut order: Vec<_> = (0..number(self.len())).collect();
        order.sort_by_key(|job| self.name(*job as usize));
        for pair in order.windows(2) {
            let [first, second] = [pair[0], pair[1]].map(|job| job as usize);
            if self.name(first) == self.name(second) {
                let invalid = |source| JobsError::Name { number: first + 1, source };
                let name = JobName::new(self.name(first)).map_err(invalid)?;
                return Err(JobsError::Duplicate { name, first: first + 1, second: second + 1 });
            }
        }
        if !wishes.is_empty() {
            let mut rank = vec![0; self.len()];
            for (to, from) in order.iter().enumerate() {
                rank[*from as usize] = to;
            }
            for (job, _) in &mut *wishes {
                *job = rank[*job];
            }
            wishes.sort_unstable_by_key(|(job, _)| *job);
        }
        self.starts = order.iter().map(|job| self.starts[*job as usize]).collect();
        self.lengths = order.iter().map(|job| self.lengths[*job as usize]).collect();
        Ok(())
    }

    /// Returns the number of jobs.
    ///
    /// ```
    /// assert_eq!(swarm_core::JobTable::new(["a", "b"])?.len(), 2);
    /// # Ok::<(), swarm_core::JobsError>(())
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Returns whether the table is empty.
    ///
    /// ```
    /// assert!(swarm_core::JobTable::default().is_empty());
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Returns the name of the job with this number.
    ///
    /// # Panics
    ///
    /// Panics if the table has no job with this number.
    ///
    /// ```
    /// let table = swarm_core::JobTable::new(["feed-2", "feed-10"])?;
    /// assert_eq!(table.name(0), "feed-10"); // names are ordered as bytes
    /// # Ok::<(), swarm_core::JobsError>(())
    /// ```
    #[must_use]
    pub fn name(&self, job: usize) -> &str {
        let start = self.starts[job] as usize;
        &self.text[start..start + usize::from(self.lengths[job])]
    }

    /// Returns an assignment as the column of holders that [`plan`](Self::plan) takes. It has one
    /// entry for each job of the table, [`Slot::NOBODY`] for jobs without a holder. Jobs that are
    /// not in the table are skipped. O(jobs).
    ///
    /// ```
    /// use swarm_core::{Assignment, JobTable, Slot};
    ///
    /// let table = JobTable::new(["a", "b"])?;
    /// let held = Assignment::from_iter([("b".parse()?, Slot(3)), ("other".parse()?, Slot(4))]);
    /// assert_eq!(table.holders(&held), [Slot::NOBODY, Slot(3)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn holders(&self, held: &Assignment) -> Vec<Slot> {
        let mut held = held.iter().peekable();
        let holder = |job| {
            let name = self.name(job);
            while held.next_if(|(other, _)| other.as_str() < name).is_some() {}
            held.next_if(|(other, _)| other.as_str() == name).map_or(Slot::NOBODY, |(_, slot)| slot)
        };
        (0..self.len()).map(holder).collect()
    }
}

/// Never fails: every key of the map is a valid name, and occurs once.
impl From<&Jobs> for Columns {
    fn from(jobs: &Jobs) -> Self {
        let mut columns = Self::default();
        columns.reserve(jobs.len());
        for (name, job) in jobs {
            columns.push(hash_name(name.as_str()), job);
        }
        columns
    }
}
