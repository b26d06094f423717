//! The step from one ledger to the next: fills slots, hands jobs over, counts publications.

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Ledger, SlotRecord};
use crate::handover::{
    Cell, Cells, Evidence, HandoverTerms, Place, Record, Seat, SessionId, StepInputs, advance,
    check_step,
};
use crate::merge::side_by_side;
use crate::{Assignment, JobName, Jobs, Member, Pool, Share, Slot, Standing};

/// The worker that fills a slot now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filled {
    /// The worker's name, the key of its entry in the view.
    pub worker: String,
    /// Its session; `None` without a session, for example while the worker is away or has just
    /// started.
    pub session: Option<SessionId>,
    /// Whether it may receive jobs.
    pub takes: bool,
    /// The largest number of jobs that it may hold, including jobs that it is asked to release.
    pub max_jobs: Option<u32>,
    /// The part of the worker that jobs can reserve; `None` for the whole worker.
    pub capacity: Option<Share>,
}

/// The input of a step: the goal, and the known facts.
#[derive(Clone, Copy, Debug)]
pub struct LedgerStep<'a> {
    /// The workers of the pool. A slot without a worker here is removed from the ledger.
    pub workers: &'a BTreeMap<Slot, Filled>,
    /// The goal of every job; a job without an entry is released. A [`Place::Slot`] means the
    /// worker that fills the slot.
    pub goal: &'a BTreeMap<JobName, Place>,
    /// The evidence about sessions.
    pub evidence: &'a BTreeMap<SessionId, Evidence>,
    /// The time for which the observer has seen each cell in its current state.
    pub ages: &'a BTreeMap<JobName, Duration>,
    /// The wanted jobs.
    pub jobs: &'a Jobs,
    /// The terms of the handover.
    pub terms: &'a HandoverTerms,
}

impl Ledger {
    /// Returns the ledger after one write towards the goal; equal to `self` if nothing has to be
    /// written.
    ///
    /// Any change increases the revision by one, and the version if the view differs too. Plain
    /// workers reach the goal in one step: a job that one worker loses is granted to another in the
    /// same write. Sessions take two steps. The first step asks them to release jobs, and the
    /// second grants the released jobs. O(jobs · log sessions), and O(log jobs) for each job that
    /// changes.
    ///
    /// ```
    /// use std::collections::BTreeMap;
    ///
    /// use swarm_core::handover::{HandoverTerms, Place, SessionId};
    /// use swarm_core::{Filled, Jobs, Ledger, LedgerStep, Slot};
    ///
    /// let session = Some(SessionId::new("pod-uid", 1));
    /// let worker =
    ///     Filled { worker: "worker-0".into(), session, takes: true, max_jobs: None, capacity: None };
    /// let step = LedgerStep {
    ///     workers: &BTreeMap::from([(Slot(0), worker)]),
    ///     goal: &BTreeMap::from([("a".parse()?, Place::Slot(Slot(0)))]),
    ///     evidence: &BTreeMap::new(),
    ///     ages: &BTreeMap::new(),
    ///     jobs: &Jobs::new(),
    ///     terms: &HandoverTerms::default(),
    /// };
    /// let first = Ledger::new(0).step(&step);
    /// assert!(first.session_views()[&SessionId::new("pod-uid", 1)].jobs.contains_key("a"));
    /// assert_eq!(first.step(&step), first); // the goal is reached, so nothing is written
    /// # Ok::<(), swarm_core::JobNameError>(())
    /// ```
    #[must_use]
    pub fn step(&self, step: &LedgerStep<'_>) -> Self {
        let slots = self.filled(step.workers);
        let place = |(job, place): (&JobName, &Place)| {
            (job.clone(), self.place(job, place, &slots, step.workers))
        };
        let goal = step.goal.iter().map(place).collect();
        let LedgerStep { evidence, ages, jobs, .. } = *step;
        let seats = &self.seats(&slots, step.workers);
        let inputs = StepInputs { goal: &goal, evidence, ages, jobs, seats };
        let save = advance(&self.cells, &inputs, step.terms);
        if let Some(save) = &save {
            debug_assert_eq!(
                check_step(&self.cells, &save.next, &inputs, step.terms),
                Ok(()),
                "the handover made a step that breaks its rules"
            );
        }
        if save.is_none() && slots == self.slots && self.former.is_empty() {
            return self.clone();
        }
        let cells = save.map_or_else(|| self.cells.clone(), |save| save.next);
        let former = self.former(&slots, &cells, step);
        let (version, longest_lease) = (self.version, self.longest_lease);
        let mut next = Self { cells, version, slots, former, longest_lease };
        next.count_publication(self);
        if next != *self && next.cells.revision == self.cells.revision {
            next.cells.revision += 1;
        }
        next
    }

    /// Returns the ledger after `assignment` was published to the workers of `pool`. All of them
    /// are plain, and identified by name alone.
    ///
    /// ```
    /// use swarm_core::{Assignment, Ledger, Pool, Slot};
    ///
    /// let at = |slot| Ok(Assignment::from_iter([("a".parse()?, Slot(slot))]));
    /// let (pool, first) = (Pool::ready(2), Ledger::new(0).next(&at(0)?, &Pool::ready(2)));
    /// let moved = first.next(&at(1)?, &pool);
    /// assert_eq!((first.version, moved.version), (1, 2));
    /// assert_eq!(moved.slots[&Slot(0)].last_handoff_version, 2); // it lost its job to slot 1
    /// # Ok::<(), swarm_core::JobNameError>(())
    /// ```
    #[must_use]
    pub fn next(&self, assignment: &Assignment, pool: &Pool) -> Self {
        let filled = |member: &Member| Filled {
            worker: member.name.clone(),
            session: Some(SessionId::plain(&member.name)),
            takes: member.standing == Standing::Takes,
            max_jobs: member.max_jobs,
            capacity: member.capacity,
        };
        let workers = pool.0.iter().map(|(slot, member)| (*slot, filled(member))).collect();
        let goal = assignment.iter().map(|(job, slot)| (job.clone(), Place::Slot(slot))).collect();
        self.step(&LedgerStep {
            workers: &workers,
            goal: &goal,
            evidence: &BTreeMap::new(),
            ages: &BTreeMap::new(),
            jobs: &Jobs::new(),
            terms: &HandoverTerms::default(),
        })
    }

    /// Returns the slots that `workers` fill. A slot is added when its worker first takes jobs, and
    /// keeps the worker's latest session while the worker has none.
    fn filled(&self, workers: &BTreeMap<Slot, Filled>) -> BTreeMap<Slot, SlotRecord> {
        let has_shared = LazyCell::new(|| has_shared(&self.cells));
        let record = |(slot, now): (&Slot, &Filled)| {
            let before = self.slots.get(slot);
            let enters = before.is_some() || now.takes;
            let session = now.session.as_ref().or(before.map(|before| &before.session));
            // A session that returns may still run the jobs that all ran before it left.
            let joined = match before.filter(|before| Some(&before.session) == session) {
                Some(before) if before.joined == 0 => 0,
                _ if !*has_shared => 0,
                Some(before) => before.joined,
                None if session.is_some_and(|it| self.former.contains_key(it)) => 0,
                None => self.cells.revision + 1,
            };
            let record = SlotRecord {
                worker: now.worker.clone(),
                joined,
                session: session.filter(|_| enters)?.clone(),
                version: before.map_or(0, |before| before.version),
                last_handoff_version: before.map_or(0, |before| before.last_handoff_version),
            };
            Some((*slot, record))
        };
        workers.iter().filter_map(record).collect()
    }

    /// Returns the limits of every session that may run a job once the slots are filled as in
    /// `slots`.
    fn seats(
        &self,
        slots: &BTreeMap<Slot, SlotRecord>,
        workers: &BTreeMap<Slot, Filled>,
    ) -> BTreeMap<SessionId, Seat> {
        let seat = |(slot, record): (&Slot, &SlotRecord)| {
            let now = workers.get(slot);
            let max_jobs = now.and_then(|now| now.max_jobs);
            let capacity = now.and_then(|now| now.capacity);
            (record.session.clone(), Seat { max_jobs, capacity, joined: record.joined })
        };
        // A session that leaves may still run the jobs that all sessions run.
        let left = self.former.keys().map(|session| (session.clone(), Seat::default()));
        left.chain(self.slots.iter().chain(slots).map(seat)).collect()
    }

    /// Returns the sessions that fill none of `slots` but still hold some of `cells`. It includes
    /// sessions that may still run the jobs that all sessions run, or ran.
    fn former(
        &self,
        slots: &BTreeMap<Slot, SlotRecord>,
        cells: &Cells,
        step: &LedgerStep<'_>,
    ) -> BTreeMap<SessionId, Slot> {
        let current: BTreeSet<_> = slots.values().map(|record| &record.session).collect();
        let mut gone = self.sessions();
        gone.retain(|session, _| !current.contains(session));
        if gone.is_empty() {
            return BTreeMap::new();
        }
        let has_shared = has_shared(cells);
        let may_run = |(session, _): &(&&SessionId, &Slot)| {
            has_shared && step.terms.waits_for(session, step.evidence.get(**session))
        };
        let sharers =
            gone.iter().filter(may_run).map(|(session, slot)| ((*session).clone(), *slot));
        let holders = cells.jobs.values().filter_map(|record| record.cell.holder());
        let holders = holders.filter_map(|holder| Some((holder.clone(), *gone.get(holder)?)));
        holders.chain(sharers).collect()
    }

    /// Returns where a job goes, given the worker in each slot. If the worker of a slot is away,
    /// its latest session keeps its jobs and receives no new ones: it may never return.
    fn place(
        &self,
        job: &JobName,
        place: &Place,
        slots: &BTreeMap<Slot, SlotRecord>,
        workers: &BTreeMap<Slot, Filled>,
    ) -> Place {
        let is_there = |slot: &Slot| workers.get(slot).is_some_and(|now| now.session.is_some());
        let holds = |session: &SessionId| {
            let record = self.cells.jobs.get(job);
            record.is_some_and(|record| record.cell.holder() == Some(session))
        };
        match place {
            Place::Slot(slot) => match slots.get(slot) {
                Some(record) if is_there(slot) || holds(&record.session) => {
                    Place::Session(*slot, record.session.clone())
                }
                Some(_) | None => Place::Slot(*slot),
            },
            Place::Session(..) | Place::Everywhere | Place::Nowhere => place.clone(),
        }
    }

    /// Makes the first publication of a recreated ledger follow the last one before the loss.
    /// `published` is the version of that publication. Workers may have read it, and would ignore a
    /// lower one. O(slots).
    ///
    /// ```
    /// use swarm_core::{Assignment, Ledger, Pool, Slot};
    ///
    /// let one = Assignment::from_iter([("a".parse()?, Slot(0))]);
    /// let mut ledger = Ledger::new(0).next(&one, &Pool::ready(1));
    /// assert_eq!(ledger.view().version, 1);
    /// ledger.count_on_from(6);
    /// assert_eq!(ledger.view().version, 7);
    /// # Ok::<(), swarm_core::JobNameError>(())
    /// ```
    pub fn count_on_from(&mut self, published: u64) {
        let slots = self.slots.values_mut().map(|record| &mut record.version);
        for version in slots.chain([&mut self.version]).filter(|version| **version > 0) {
            *version += published;
        }
    }

    /// Sets the version of every slot whose set of jobs changed, or whose worker has another name
    /// now. Counts the publication if the view differs.
    pub(crate) fn count_publication(&mut self, before: &Self) {
        let published = before.version + 1;
        let Touched { changed, handed_off } = Touched::between(before, self);
        for (slot, record) in &mut self.slots {
            // A new worker, or a successor under another name, has not read any publication yet.
            let is_new = before.slots.get(slot).is_none_or(|it| it.worker != record.worker);
            if changed.contains(slot) || is_new {
                record.version = published;
            }
            if handed_off.contains(slot) {
                record.last_handoff_version = published;
            }
        }
        let names = |ledger: &Self| -> Vec<_> {
            ledger.slots.iter().map(|(slot, record)| (*slot, record.worker.clone())).collect()
        };
        let differs = !changed.is_empty() || names(before) != names(self);
        self.version += u64::from(differs);
    }
}

/// Returns whether there are jobs that all sessions run, or may still run.
fn has_shared(cells: &Cells) -> bool {
    cells.jobs.values().any(|record| record.cell.is_for_all())
}

/// The differences between two ledgers in their publications.
#[derive(Debug, Default, PartialEq, Eq)]
struct Touched {
    /// The slots whose sets of jobs differ.
    changed: BTreeSet<Slot>,
    /// The slots that lost a job to another slot.
    handed_off: BTreeSet<Slot>,
}

impl Touched {
    /// Compares two ledgers. O(jobs), and O(log slots) for each job that changed.
    fn between(before: &Ledger, after: &Ledger) -> Self {
        let mut touched = Self::default();
        let (was, is) = (Published::of(before), Published::of(after));
        for (_, before, after) in side_by_side(&before.cells.jobs, &after.cells.jobs) {
            let (before, after) = (was.at(before), is.at(after));
            if before == after {
                continue;
            }
            let (before, after) = (was.slots(before), is.slots(after));
            let (lost, gained) = (&before - &after, &after - &before);
            if !gained.is_empty() {
                touched.handed_off.extend(&lost);
            }
            touched.changed.extend(lost.into_iter().chain(gained));
        }
        touched
    }
}

/// The workers that run a job according to the published view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunBy {
    Nobody,
    One(Slot),
    All,
}

/// The publication of a ledger, job by job.
struct Published<'a> {
    ledger: &'a Ledger,
    slots: BTreeMap<&'a SessionId, Slot>,
}

impl<'a> Published<'a> {
    fn of(ledger: &'a Ledger) -> Self {
        let slots = ledger.slots.iter().map(|(slot, record)| (&record.session, *slot)).collect();
        Self { ledger, slots }
    }

    fn at(&self, record: Option<&Record>) -> RunBy {
        match record.map(|record| &record.cell) {
            Some(Cell::Granted { session, .. }) => {
                self.slots.get(session).map_or(RunBy::Nobody, |slot| RunBy::One(*slot))
            }
            Some(Cell::Everywhere { .. }) => RunBy::All,
            Some(
                Cell::Free { .. }
                | Cell::Releasing { .. }
                | Cell::ReleasingAll { .. }
                | Cell::Hold { .. }
                | Cell::Quarantined { .. }
                | Cell::Done { .. },
            )
            | None => RunBy::Nobody,
        }
    }

    fn slots(&self, run_by: RunBy) -> BTreeSet<Slot> {
        match run_by {
            RunBy::Nobody => BTreeSet::new(),
            RunBy::One(slot) => [slot].into(),
            RunBy::All => self.ledger.slots.keys().copied().collect(),
        }
    }
}
