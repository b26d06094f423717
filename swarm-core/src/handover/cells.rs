//! The ledger's cells: every job once, changed only by compare-and-set.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Cell, CellEvent, Policy, Refusal, SessionId, StepContext};
use crate::merge::side_by_side;
use crate::{JobName, SharedMap, Token};

/// The holder of each job in the ledger, with its counters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cells {
    /// The incarnation of the ledger: higher after a store was rolled back and the ledger reset.
    pub incarnation: u64,
    /// The number of changes so far.
    pub revision: u64,
    /// The token with which a job new to the ledger begins; its first grant is one higher. It rises
    /// above the token of every job that is removed.
    pub first_token: Token,
    /// Whether a job in this ledger may have a share. The flag outlives the last job with a share
    /// in the list while a removed job may still run, since that job may have had a share.
    pub has_shares: bool,
    /// The jobs. A job that is no longer wanted stays here until no session can be running it.
    pub jobs: SharedMap<JobName, Record>,
}

/// The ledger's record of one job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// The state of the job.
    pub cell: Cell,
    /// The number of workers' crashes that the job is blamed for since it was last released in
    /// order.
    pub strikes: u32,
}

impl Record {
    /// Returns whether the job is quarantined for having crashed workers. A quarantined job without
    /// a strike only waits until every session of another incarnation of the ledger has ended.
    ///
    /// ```
    /// use std::time::Duration;
    /// use swarm_core::Token;
    /// use swarm_core::handover::{Cell, Record};
    ///
    /// let cell = Cell::Quarantined { span: Duration::from_secs(60), token: Token(1) };
    /// assert!(Record { cell: cell.clone(), strikes: 3 }.is_quarantined());
    /// assert!(!Record { cell, strikes: 0 }.is_quarantined());
    /// ```
    #[must_use]
    pub fn is_quarantined(&self) -> bool {
        matches!(self.cell, Cell::Quarantined { .. }) && 0 < self.strikes
    }
}

/// The jobs that one session is to run, and the state of the ledger from which they follow.
///
/// A view is derived from the ledger. It may reach the session late, twice, out of order or never.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
pub struct SessionView {
    /// The session for which it is made.
    pub session: SessionId,
    /// The incarnation of the ledger.
    pub incarnation: u64,
    /// The ledger's revision.
    pub revision: u64,
    /// The jobs to run. A job that is being released is not among them.
    pub jobs: Grants,
}

/// Jobs to run, with the tokens to run them under.
///
/// Clones share one map: if every worker runs every job, all views have the same map.
///
/// ```
/// use swarm_core::Token;
/// use swarm_core::handover::Grants;
///
/// let grants = Grants::from([("camera".parse()?, Token(7))]);
/// assert_eq!(grants["camera"], Token(7));
/// assert!(Grants::default().is_empty());
/// # Ok::<(), swarm_core::JobNameError>(())
/// ```
pub type Grants = SharedMap<JobName, Token>;

impl Cells {
    /// Creates an empty ledger, `unix_time_us` microseconds after the Unix epoch. Its tokens begin
    /// at that number, so that a ledger recreated after a loss grants higher ones.
    ///
    /// ```
    /// use swarm_core::Token;
    /// use swarm_core::handover::Cells;
    ///
    /// let cells = Cells::new(1_700_000_000_000_000);
    /// assert_eq!((cells.revision, cells.first_token), (0, Token(1_700_000_000_000_000)));
    /// ```
    #[must_use]
    pub fn new(unix_time_us: u64) -> Self {
        Self {
            incarnation: unix_time_us,
            revision: 0,
            first_token: Token(unix_time_us),
            has_shares: false,
            jobs: SharedMap::new(),
        }
    }

    /// Returns the view of `session`. O(jobs).
    ///
    /// ```
    /// use swarm_core::Token;
    /// use swarm_core::handover::{Cell, Cells, Record, SessionId};
    ///
    /// let session = SessionId::new("pod", 1);
    /// let mut cells = Cells::new(0);
    /// let granted = Cell::Granted { session: session.clone(), token: Token(1) };
    /// let releasing = Cell::Releasing { session: session.clone(), token: Token(2), since: 1 };
    /// for (job, cell) in [("keep", granted), ("stop", releasing)] {
    ///     cells.jobs.insert(job.parse()?, Record { cell, strikes: 0 });
    /// }
    /// assert_eq!(cells.view(&session).jobs, [("keep".parse()?, Token(1))].into());
    /// # Ok::<(), swarm_core::JobNameError>(())
    /// ```
    #[must_use]
    pub fn view(&self, session: &SessionId) -> SessionView {
        let granted = |(job, record): (&JobName, &Record)| match &record.cell {
            Cell::Granted { session: holder, token } => {
                (holder == session).then(|| (job.clone(), *token))
            }
            Cell::Everywhere { token } => Some((job.clone(), *token)),
            Cell::Releasing { .. }
            | Cell::ReleasingAll { .. }
            | Cell::Free { .. }
            | Cell::Hold { .. }
            | Cell::Quarantined { .. }
            | Cell::Done { .. } => None,
        };
        SessionView {
            session: session.clone(),
            incarnation: self.incarnation,
            revision: self.revision,
            jobs: self.jobs.iter().filter_map(granted).collect(),
        }
    }
}

/// A change that is being prepared: any number of steps that become one write.
#[derive(Debug)]
pub(super) struct Change<'a> {
    before: &'a Cells,
    /// The jobs that differ from `before`; `None` for a removed job.
    jobs: BTreeMap<JobName, Option<Record>>,
    first_token: Token,
    touched: BTreeSet<SessionId>,
}

/// A change that is ready to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Save {
    /// The ledger's revision from which it was made.
    pub base: u64,
    /// The ledger after the write.
    pub next: Cells,
    /// The sessions whose views differ. They are published after the write, never before.
    pub touched: BTreeSet<SessionId>,
}

/// Another writer was faster. Read the ledger again, then decide again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the ledger is at {stored}, and the change was made from {base}")]
pub struct CellsConflict {
    /// The revision from which the change was made.
    pub base: u64,
    /// The revision that is stored.
    pub stored: u64,
}

impl<'a> Change<'a> {
    /// Begins a change of `cells`.
    pub(super) fn of(before: &'a Cells) -> Self {
        let (jobs, touched) = (BTreeMap::new(), BTreeSet::new());
        Self { before, jobs, first_token: before.first_token, touched }
    }

    /// Returns every job as it is after the change so far.
    pub(super) fn records(&self) -> impl Iterator<Item = (&JobName, &Record)> {
        side_by_side(&self.before.jobs, &self.jobs)
            .filter_map(|(job, before, now)| Some((job, now.map_or(before, Option::as_ref)?)))
    }

    fn record(&self, job: &JobName) -> Option<&Record> {
        self.jobs.get(job).map_or_else(|| self.before.jobs.get(job), Option::as_ref)
    }

    /// Adds a job that is not in the ledger.
    pub(super) fn admit(&mut self, job: &JobName, record: Record) {
        self.jobs.insert(job.clone(), Some(record));
    }

    /// Removes a job. Its tokens stay used.
    ///
    /// # Errors
    ///
    /// [`Refusal::Held`] while a session holds the job: release it first.
    pub(super) fn remove(&mut self, job: &JobName) -> Result<(), Refusal> {
        let Some(record) = self.record(job) else { return Ok(()) };
        if let Some(session) = record.cell.holder() {
            return Err(Refusal::Held { session: session.clone() });
        }
        let used = record.cell.token();
        self.first_token = self.first_token.max(used);
        self.jobs.insert(job.clone(), None);
        Ok(())
    }

    /// Applies `event` to `job`, whose cell the observer has seen unchanged for `age`.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if the event does not apply; the change stays as it was.
    pub(super) fn step(
        &mut self,
        job: &JobName,
        event: &CellEvent,
        age: Duration,
        policy: Policy,
    ) -> Result<(), Refusal> {
        let revision = self.before.revision + 1;
        let Record { cell, strikes } = self.record(job).ok_or(Refusal::Unknown)?;
        let next = cell.step(event, &StepContext { revision, age, policy })?;
        if next != *cell {
            let concerned = [cell.holder().cloned(), next.holder().cloned()];
            let record = Record { cell: next, strikes: *strikes };
            self.touched.extend(concerned.into_iter().flatten());
            self.jobs.insert(job.clone(), Some(record));
        }
        Ok(())
    }

    /// Sets the number of crashes that `job` is blamed for.
    pub(super) fn blame(&mut self, job: &JobName, strikes: u32) {
        if let Some(record) = self.record(job).filter(|record| record.strikes != strikes) {
            let record = Record { strikes, ..record.clone() };
            self.jobs.insert(job.clone(), Some(record));
        }
    }

    /// Returns the write, or `None` if nothing changed. `has_shares` is written at once if it
    /// becomes true, and with the next change if it becomes false.
    pub(super) fn finish(self, has_shares: bool) -> Option<Save> {
        if self.jobs.is_empty() && has_shares <= self.before.has_shares {
            return None;
        }
        let next = Cells {
            incarnation: self.before.incarnation,
            revision: self.before.revision + 1,
            first_token: self.first_token,
            has_shares,
            jobs: self.records().map(|(job, record)| (job.clone(), record.clone())).collect(),
        };
        Some(Save { base: self.before.revision, next, touched: self.touched })
    }
}

impl Save {
    /// Returns the ledger that a store holds after this write. Stores without a compare-and-set of
    /// their own use this under their lock.
    ///
    /// # Errors
    ///
    /// [`CellsConflict`] if `stored` is not the ledger from which the change was made.
    ///
    /// ```
    /// use swarm_core::handover::{Cells, HandoverTerms, Place, StepInputs, advance};
    ///
    /// let cells = Cells::new(0);
    /// let goal = [("job".parse()?, Place::Nowhere)].into();
    /// let (evidence, ages, jobs, seats) = Default::default();
    /// let (evidence, ages, seats) = (&evidence, &ages, &seats);
    /// let inputs = StepInputs { goal: &goal, evidence, ages, jobs: &jobs, seats };
    /// let save = advance(&cells, &inputs, &HandoverTerms::default()).unwrap();
    /// let stored = save.onto(&cells).unwrap();
    /// assert_eq!(stored.revision, 1);
    /// assert!(save.onto(&stored).is_err()); // the ledger has changed since
    /// # Ok::<(), swarm_core::JobNameError>(())
    /// ```
    pub fn onto(&self, stored: &Cells) -> Result<Cells, CellsConflict> {
        let unchanged = stored.revision == self.base && stored.incarnation == self.next.incarnation;
        if unchanged {
            Ok(self.next.clone())
        } else {
            Err(CellsConflict { base: self.base, stored: stored.revision })
        }
    }
}
