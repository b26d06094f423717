//! Many jobs: names in one text, everything else in columns.

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
/// let last_worker_is_gone = jobs.plan(&first.holders, &Pool::ready(9), Rules::default());
/// assert_eq!(last_worker_is_gone.moves().count(), 100);
/// # Ok::<(), swarm_core::JobsError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobTable {
    text: String,
    /// Where each name starts in `text`, and its length.
    starts: Vec<u32>,
    lengths: Vec<u8>,
    pub(super) columns: Columns,
}

impl JobTable {
    /// Takes over a list of names, in any order, as jobs without wishes.
    ///
    /// # Errors
    ///
    /// As [`with_wishes`](Self::with_wishes).
    pub fn new<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> Result<Self, JobsError> {
        Self::with_wishes(names.into_iter().map(|name| (name, Job::default())))
    }

    /// Takes over a list of jobs in any order. O(bytes), and a sort if they are not in order yet.
    ///
    /// # Errors
    ///
    /// [`JobsError::Name`] for a text that is no job name, [`JobsError::Duplicate`] for a name that
    /// stands twice, [`JobsError::TooLarge`] for more than 4 GiB of names.
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
        // Up to half of what grew would be kept in vain for as long as the table lives.
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

    /// Puts the names in order, and the wishes with them, and refuses doubled names.
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

    /// How many jobs there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// The name of the job with this number.
    ///
    /// # Panics
    ///
    /// If there is no such job.
    #[must_use]
    pub fn name(&self, job: usize) -> &str {
        let start = self.starts[job] as usize;
        &self.text[start..start + usize::from(self.lengths[job])]
    }

    /// The column of holders for [`plan`](Self::plan) that an assignment stands for. Jobs that are
    /// not in the table are passed over. O(jobs).
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

/// Cannot fail: every name of the map is one, and stands there once.
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
