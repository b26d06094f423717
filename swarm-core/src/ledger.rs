//! The ledger: the durable record of the holder of each job. It is the only authority; views are
//! derived from it.

mod step;
pub mod stored;

pub mod parts;
mod size;

#[cfg(test)]
mod any;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub use step::{Filled, LedgerStep};

use crate::handover::{Cell, Cells, Grants, SessionId, SessionView};
use crate::{Assignment, JobName, Position, Slot, Token, View, ViewEntry};

/// The holder of each job, the session in each slot, and the counters of publications.
///
/// A ledger only changes to its next [`step`](Self::step), by compare-and-set in its store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    /// The jobs and their holders. The revision of the cells is also the revision of the whole
    /// ledger.
    pub cells: Cells,
    /// The number of publications so far: changes that alter the view.
    pub version: u64,
    /// The worker in each slot. A slot without jobs has a record as long as its worker exists.
    pub slots: BTreeMap<Slot, SlotRecord>,
    /// The sessions that no longer fill a slot but still hold jobs, with the slot that each filled.
    pub former: BTreeMap<SessionId, Slot>,
    /// The longest Lease duration of any session that the ledger names, or that a lost ledger
    /// named. An operator that starts after the duration was shortened needs it: it still knows how
    /// long to wait for a session whose Lease was deleted. Zero without a session, and in ledgers
    /// of older releases.
    pub longest_lease: Duration,
}

/// The worker in a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotRecord {
    /// The worker's name in the view.
    pub worker: String,
    /// Its session; while the worker is away, its latest session.
    pub session: SessionId,
    /// The revision of the ledger at which that session joined the slot. It is recorded only if
    /// there were jobs that all sessions run. Otherwise it is 0, since the session may run any of
    /// these jobs.
    pub joined: u64,
    /// The publication that last changed the slot's set of jobs, or first sent it to this worker.
    pub version: u64,
    /// The publication that last moved one of its jobs to another slot; 0 if none did. A worker
    /// that has read only an older publication may still run a job that another worker received.
    pub last_handoff_version: u64,
}

impl Ledger {
    /// Creates an empty ledger, `unix_time_us` microseconds after the Unix epoch. Its tokens begin
    /// at that number, so that a ledger that is recreated after a loss grants higher ones.
    ///
    /// ```
    /// use swarm_core::{Ledger, Token};
    ///
    /// let ledger = Ledger::new(1_700_000_000_000_000);
    /// assert_eq!(ledger.cells.first_token, Token(1_700_000_000_000_000));
    /// assert!(ledger.assignment().is_empty());
    /// ```
    #[must_use]
    pub fn new(unix_time_us: u64) -> Self {
        Self {
            cells: Cells::new(unix_time_us),
            version: 0,
            slots: BTreeMap::new(),
            former: BTreeMap::new(),
            longest_lease: Duration::ZERO,
        }
    }

    /// Returns the ledger's place in its history.
    ///
    /// ```
    /// use swarm_core::{Ledger, Position};
    ///
    /// assert_eq!(Ledger::new(7).position(), Position { incarnation: 7, revision: 0 });
    /// ```
    #[must_use]
    pub fn position(&self) -> Position {
        Position { incarnation: self.cells.incarnation, revision: self.cells.revision }
    }

    /// Returns the number of changes of the ledger so far.
    ///
    /// ```
    /// use swarm_core::{Assignment, Ledger, Pool};
    ///
    /// let first = Ledger::new(0).next(&Assignment::default(), &Pool::ready(1));
    /// assert_eq!(first.revision(), 1);
    /// assert_eq!(first.next(&Assignment::default(), &Pool::ready(1)).revision(), 1); // no change
    /// ```
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.cells.revision
    }

    /// Returns the slot of every session that fills one, or that filled one and still holds jobs.
    /// O(sessions · log sessions).
    ///
    /// ```
    /// use swarm_core::handover::SessionId;
    /// use swarm_core::{Assignment, Ledger, Pool, Slot};
    ///
    /// let ledger = Ledger::new(0).next(&Assignment::default(), &Pool::ready(2));
    /// assert_eq!(ledger.sessions()[&SessionId::plain("worker-1")], Slot(1));
    /// ```
    #[must_use]
    pub fn sessions(&self) -> BTreeMap<&SessionId, Slot> {
        let former = self.former.iter().map(|(session, slot)| (session, *slot));
        former.chain(self.slots.iter().map(|(slot, record)| (&record.session, *slot))).collect()
    }

    /// Returns the holder of each job, as a slot. A job that is being released is still held. A job
    /// that waits for its slot to be filled counts as held there. O(jobs · log sessions).
    ///
    /// ```
    /// use swarm_core::{Assignment, Ledger, Pool, Slot};
    ///
    /// let one = Assignment::from_iter([("a".parse()?, Slot(0))]);
    /// assert_eq!(Ledger::new(0).next(&one, &Pool::ready(1)).assignment(), one);
    /// # Ok::<(), swarm_core::JobNameError>(())
    /// ```
    #[must_use]
    pub fn assignment(&self) -> Assignment {
        self.holders(|_| true)
    }

    /// Returns the [`assignment`](Self::assignment) from which a plan starts. It leaves out the
    /// jobs that are being released, which are in flight and count for no worker.
    pub(crate) fn unreleased_assignment(&self) -> Assignment {
        self.holders(|cell| !matches!(cell, Cell::Releasing { .. }))
    }

    fn holders(&self, counts: impl Fn(&Cell) -> bool) -> Assignment {
        let slots = self.sessions();
        let slot = |cell: &Cell| match cell {
            Cell::Granted { session, .. } | Cell::Releasing { session, .. } => {
                slots.get(session).copied()
            }
            Cell::Hold { slot, .. } => Some(*slot),
            Cell::Free { .. }
            | Cell::Quarantined { .. }
            | Cell::Done { .. }
            | Cell::Everywhere { .. }
            | Cell::ReleasingAll { .. } => None,
        };
        let counted = self.cells.jobs.iter().filter(|(_, record)| counts(&record.cell));
        counted.filter_map(|(job, record)| Some((job.clone(), slot(&record.cell)?))).collect()
    }

    /// Returns the published jobs of every slot: granted and not being released. O(jobs).
    pub(crate) fn granted(&self) -> BTreeMap<Slot, BTreeSet<JobName>> {
        let mut by_session = BTreeMap::<&SessionId, Vec<JobName>>::new();
        let mut by_all = Vec::new();
        for (job, record) in &self.cells.jobs {
            match &record.cell {
                Cell::Granted { session, .. } => {
                    by_session.entry(session).or_default().push(job.clone());
                }
                Cell::Everywhere { .. } => by_all.push(job.clone()),
                Cell::Free { .. }
                | Cell::Releasing { .. }
                | Cell::ReleasingAll { .. }
                | Cell::Hold { .. }
                | Cell::Quarantined { .. }
                | Cell::Done { .. } => {}
            }
        }
        let jobs = |(slot, record): (&Slot, &SlotRecord)| {
            let jobs = by_session.remove(&record.session).unwrap_or_default();
            (*slot, jobs.into_iter().chain(by_all.iter().cloned()).collect())
        };
        self.slots.iter().map(jobs).collect()
    }

    /// Returns the view that plain workers and people read. It depends on the ledger alone, so a
    /// lost view is recreated with the same content. O(jobs).
    ///
    /// ```
    /// use swarm_core::{Assignment, Ledger, Pool, Slot};
    ///
    /// let one = Assignment::from_iter([("a".parse()?, Slot(0))]);
    /// let view = Ledger::new(0).next(&one, &Pool::ready(2)).view();
    /// assert!(view.workers["worker-0"].jobs.contains("a"));
    /// assert!(view.workers["worker-1"].jobs.is_empty()); // it has an entry, too
    /// # Ok::<(), swarm_core::JobNameError>(())
    /// ```
    #[must_use]
    pub fn view(&self) -> View {
        let mut granted = self.granted();
        let entry = |(slot, record): (&Slot, &SlotRecord)| {
            let entry = ViewEntry {
                slot: (View::slot_in_name(&record.worker) != Some(*slot)).then_some(*slot),
                version: record.version,
                jobs: granted.remove(slot).unwrap_or_default(),
            };
            (record.worker.clone(), entry)
        };
        View { version: self.version, workers: self.slots.iter().map(entry).collect() }
    }

    /// Returns the revision that each session has to acknowledge before all jobs that it was asked
    /// to release can be granted to others. Every session is asked to release the jobs that all
    /// sessions ran. Sessions without such jobs are left out. O(jobs · log sessions).
    ///
    /// A publisher may keep a session's view if the view has the same jobs and tokens, and if its
    /// revision is not below this one. Equal jobs alone are not enough: a grant that was never
    /// published may be released again, and no view would then ask the session to acknowledge that.
    ///
    /// ```
    /// use swarm_core::handover::{Cell, Record, SessionId};
    /// use swarm_core::{Ledger, Token};
    ///
    /// let session = SessionId::new("pod-uid", 1);
    /// let mut ledger = Ledger::new(0);
    /// for (job, since) in [("a", 3), ("b", 5)] {
    ///     let cell = Cell::Releasing { session: session.clone(), token: Token(1), since };
    ///     ledger.cells.jobs.insert(job.parse()?, Record { cell, strikes: 0 });
    /// }
    /// assert_eq!(ledger.releases()[&session], 5); // one acknowledgement of 5 releases both
    /// # Ok::<(), swarm_core::JobNameError>(())
    /// ```
    #[must_use]
    pub fn releases(&self) -> BTreeMap<&SessionId, u64> {
        let mut latest = BTreeMap::new();
        let mut by_all = None;
        for record in self.cells.jobs.values() {
            match &record.cell {
                Cell::Releasing { session, since, .. } => {
                    let known = latest.entry(session).or_insert(*since);
                    *known = (*known).max(*since);
                }
                Cell::ReleasingAll { since, .. } => by_all = by_all.max(Some(*since)),
                Cell::Free { .. }
                | Cell::Granted { .. }
                | Cell::Hold { .. }
                | Cell::Quarantined { .. }
                | Cell::Done { .. }
                | Cell::Everywhere { .. } => {}
            }
        }
        if let Some(since) = by_all {
            for session in self.sessions().into_keys() {
                let known = latest.entry(session).or_insert(since);
                *known = (*known).max(since);
            }
        }
        latest
    }

    /// Returns the view of each session that fills a slot or still holds jobs: its jobs, with their
    /// tokens. [`releases`](Self::releases) shows when a view has to be published. Sessions that
    /// run only the jobs of all workers share one map. O(jobs · log sessions), and O(jobs) for each
    /// session that has both kinds of jobs.
    ///
    /// ```
    /// use swarm_core::handover::SessionId;
    /// use swarm_core::{Assignment, Ledger, Pool, Slot};
    ///
    /// let one = Assignment::from_iter([("a".parse()?, Slot(0))]);
    /// let views = Ledger::new(0).next(&one, &Pool::ready(2)).session_views();
    /// assert!(views[&SessionId::plain("worker-0")].jobs.contains_key("a"));
    /// assert!(views[&SessionId::plain("worker-1")].jobs.is_empty()); // an empty view is a view
    /// # Ok::<(), swarm_core::JobNameError>(())
    /// ```
    #[must_use]
    pub fn session_views(&self) -> BTreeMap<SessionId, SessionView> {
        let sessions = self.sessions();
        let mut own: BTreeMap<_, Vec<_>> =
            sessions.into_keys().map(|session| (session, Vec::new())).collect();
        let mut of_all = Vec::new();
        for (job, record) in &self.cells.jobs {
            match &record.cell {
                Cell::Granted { session, token } => {
                    if let Some(jobs) = own.get_mut(session) {
                        jobs.push((job.clone(), *token));
                    }
                }
                Cell::Everywhere { token } => of_all.push((job.clone(), *token)),
                Cell::Free { .. }
                | Cell::Releasing { .. }
                | Cell::ReleasingAll { .. }
                | Cell::Hold { .. }
                | Cell::Quarantined { .. }
                | Cell::Done { .. } => {}
            }
        }
        let fills: BTreeSet<_> = self.slots.values().map(|record| &record.session).collect();
        let of_all = Grants::from_iter(of_all);
        let view = |(session, own): (&SessionId, Vec<_>)| {
            let mut jobs = if fills.contains(session) { of_all.clone() } else { Grants::default() };
            if !own.is_empty() {
                // Collecting pairs that are nearly in order is faster than inserting them one by one.
                let of_all = jobs.iter().map(|(job, token)| (job.clone(), *token));
                jobs = own.into_iter().chain(of_all).collect();
            }
            let Cells { incarnation, revision, .. } = self.cells;
            let view = SessionView { session: session.clone(), incarnation, revision, jobs };
            (session.clone(), view)
        };
        own.into_iter().map(view).collect()
    }
}
