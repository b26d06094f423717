//! The durable record of who holds which job: the only authority, from which views are derived.

mod step;
pub mod stored;

pub mod parts;

#[cfg(test)]
mod any;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

pub use step::{Filled, LedgerStep};

use crate::handover::{Cell, Cells, SessionId, SessionView};
use crate::{Assignment, JobName, Slot, View, ViewEntry};

/// A job's fencing number: higher at every grant, never reused.
///
/// It protects a sink only if the sink remembers the highest one it saw and refuses lower ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// Who holds which job, who fills which slot, and what was published.
///
/// A ledger only ever becomes its next [`step`](Self::step), by compare-and-set in its store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    /// The jobs and their holders. Its revision is that of the whole ledger.
    pub cells: Cells,
    /// Counts publications: changes that alter the view.
    pub version: u64,
    /// Who fills each slot. A slot without jobs stands here as long as its worker exists.
    pub slots: BTreeMap<Slot, SlotRecord>,
    /// The sessions that fill no slot any more and still hold jobs, with the slot they filled.
    pub former: BTreeMap<SessionId, Slot>,
}

/// Who fills a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotRecord {
    /// The worker, by the name it has in the view.
    pub worker: String,
    /// Its session, or its latest one while it is away.
    pub session: SessionId,
    /// The publication that last changed the slot's set of jobs, or first told it to this worker.
    pub version: u64,
    /// The publication that last moved one of its jobs to another slot; 0 if none did. A worker that
    /// has an older one may still run what somebody else was told to run.
    pub gave: u64,
}

impl Ledger {
    /// An empty ledger, created `unix_time_us` microseconds after the Unix epoch. Its tokens begin
    /// there, so that a ledger made anew after a loss grants higher ones.
    #[must_use]
    pub fn new(unix_time_us: u64) -> Self {
        Self {
            cells: Cells::new(unix_time_us),
            version: 0,
            slots: BTreeMap::new(),
            former: BTreeMap::new(),
        }
    }

    /// Counts changes of the ledger.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.cells.revision
    }

    /// The slot of every session that fills one or did and still holds jobs. O(sessions · log
    /// sessions).
    #[must_use]
    pub fn sessions(&self) -> BTreeMap<&SessionId, Slot> {
        let former = self.former.iter().map(|(session, slot)| (session, *slot));
        former.chain(self.slots.iter().map(|(slot, record)| (&record.session, *slot))).collect()
    }

    /// Who holds each job now, by slot. A job that is being released is still held; one that waits
    /// for its slot counts as held there. O(jobs · log sessions).
    #[must_use]
    pub fn assignment(&self) -> Assignment {
        self.holders(|_| true)
    }

    /// What a plan goes by: like [`assignment`](Self::assignment), without the jobs that are being
    /// released. They are on their way and count for no worker.
    pub(crate) fn settled(&self) -> Assignment {
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
            | Cell::Everywhere { .. } => None,
        };
        let counted = self.cells.jobs.iter().filter(|(_, record)| counts(&record.cell));
        counted.filter_map(|(job, record)| Some((job.clone(), slot(&record.cell)?))).collect()
    }

    /// What every slot runs, as it was published: granted and not being released. O(jobs).
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

    /// What plain workers and people read: a function of the ledger, so that a lost view is
    /// written again, the same. O(jobs).
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

    /// The revision that each session has to acknowledge before all it was asked to let go of can
    /// go on; sessions that were asked for nothing do not stand here. O(jobs · log sessions).
    ///
    /// A publisher may leave a session's view as it is if that names the same jobs and tokens, and
    /// its revision is not below this one. Equal jobs alone are not enough: a grant that was never
    /// published may be released again, and then nobody would be told to acknowledge that.
    #[must_use]
    pub fn releases(&self) -> BTreeMap<&SessionId, u64> {
        let mut latest = BTreeMap::new();
        for record in self.cells.jobs.values() {
            if let Cell::Releasing { session, since, .. } = &record.cell {
                let known = latest.entry(session).or_insert(*since);
                *known = (*known).max(*since);
            }
        }
        latest
    }

    /// What each session that fills a slot, or still holds jobs, is to run, with its tokens.
    /// See [`releases`](Self::releases) for when one has to be published. O(jobs · log sessions).
    #[must_use]
    pub fn session_views(&self) -> BTreeMap<SessionId, SessionView> {
        let mut granted: BTreeMap<_, Vec<_>> =
            self.sessions().into_keys().map(|session| (session, Vec::new())).collect();
        for (job, record) in &self.cells.jobs {
            match &record.cell {
                Cell::Granted { session, token } => {
                    if let Some(jobs) = granted.get_mut(session) {
                        jobs.push((job.clone(), *token));
                    }
                }
                Cell::Everywhere { token } => {
                    for record in self.slots.values() {
                        if let Some(jobs) = granted.get_mut(&record.session) {
                            jobs.push((job.clone(), *token));
                        }
                    }
                }
                Cell::Free { .. }
                | Cell::Releasing { .. }
                | Cell::Hold { .. }
                | Cell::Quarantined { .. }
                | Cell::Done { .. } => {}
            }
        }
        let view = |(session, jobs): (&SessionId, Vec<_>)| {
            let view = SessionView {
                session: session.clone(),
                incarnation: self.cells.incarnation,
                revision: self.cells.revision,
                // They come in order, which is faster than one by one.
                jobs: jobs.into_iter().collect(),
            };
            (session.clone(), view)
        };
        granted.into_iter().map(view).collect()
    }
}
