//! From one ledger to the next: slots are filled, jobs handed over, publications counted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Ledger, SlotRecord};
use crate::handover::{
    Cells, Evidence, HandoverTerms, Place, SessionId, Sight, advance, check_step,
};
use crate::{Assignment, JobName, Member, Pool, Slot, Standing};

/// Who fills a slot now, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filled {
    /// The worker's name, the key of its entry in the view.
    pub worker: String,
    /// Its session; `None` while there is none, as while it is away or has just started.
    pub session: Option<SessionId>,
    /// Whether it may be given jobs.
    pub takes: bool,
}

/// What a ledger is to become, and what is known.
#[derive(Clone, Copy, Debug)]
pub struct LedgerStep<'a> {
    /// The workers that count. A slot that does not stand here is given up.
    pub workers: &'a BTreeMap<Slot, Filled>,
    /// Where every job should be; a job that does not stand here is let go. A [`Place::Slot`]
    /// means whoever fills the slot.
    pub goal: &'a BTreeMap<JobName, Place>,
    /// What is known of sessions.
    pub evidence: &'a BTreeMap<SessionId, Evidence>,
    /// For how long the observer has seen each cell as it is.
    pub ages: &'a BTreeMap<JobName, Duration>,
    /// The terms of the handover.
    pub terms: &'a HandoverTerms,
}

impl Ledger {
    /// The ledger after one write towards what is wanted; equal to `self` if there is nothing to
    /// write now.
    ///
    /// The revision rises by one with any change, the version if the view differs too. Plain
    /// workers get there in one step: what they lose is granted elsewhere in the same write.
    /// Sessions take two: the first asks them to let go, the next grants what they let go of.
    /// O(jobs · log jobs).
    #[must_use]
    pub fn step(&self, step: &LedgerStep<'_>) -> Self {
        let mut next = self.filled(step.workers);
        let place = |job, place| next.place(job, place, step.workers);
        let goal: BTreeMap<_, _> =
            step.goal.iter().map(|(job, to)| (job.clone(), place(job, to))).collect();
        let sight = Sight { goal: &goal, evidence: step.evidence, ages: step.ages };
        if let Some(save) = advance(&self.cells, &sight, step.terms) {
            debug_assert_eq!(
                check_step(&self.cells, &save.next, &sight, step.terms),
                Ok(()),
                "the handover made a step that breaks its rules"
            );
            next.cells = save.next;
        }
        next.forget_idle_sessions();
        next.count_publication(self);
        if next != *self && next.cells.revision == self.cells.revision {
            next.cells.revision += 1;
        }
        next
    }

    /// The ledger after `assignment` was published to the workers of `pool`, all of them plain and
    /// known by their names alone.
    #[must_use]
    pub fn next(&self, assignment: &Assignment, pool: &Pool) -> Self {
        let filled = |member: &Member| Filled {
            worker: member.name.clone(),
            session: Some(SessionId::plain(&member.name)),
            takes: member.standing == Standing::Takes,
        };
        let workers = pool.0.iter().map(|(slot, member)| (*slot, filled(member))).collect();
        let goal = assignment.iter().map(|(job, slot)| (job.clone(), Place::Slot(slot))).collect();
        self.step(&LedgerStep {
            workers: &workers,
            goal: &goal,
            evidence: &BTreeMap::new(),
            ages: &BTreeMap::new(),
            terms: &HandoverTerms::default(),
        })
    }

    /// The same ledger with its slots filled by `workers`. A slot enters when its worker first
    /// takes jobs, and keeps the latest session while it has none.
    fn filled(&self, workers: &BTreeMap<Slot, Filled>) -> Self {
        let mut next = self.clone();
        next.slots.clear();
        for (slot, now) in workers {
            let before = self.slots.get(slot);
            let enters = before.is_some() || now.takes;
            let session = now.session.as_ref().or(before.map(|before| &before.session));
            let Some(session) = session.filter(|_| enters) else { continue };
            let record = SlotRecord {
                worker: now.worker.clone(),
                session: session.clone(),
                version: before.map_or(0, |before| before.version),
                gave: before.map_or(0, |before| before.gave),
            };
            next.slots.insert(*slot, record);
        }
        let current: BTreeSet<_> =
            next.slots.values().map(|record| record.session.clone()).collect();
        let before = self.slots.iter().map(|(slot, record)| (record.session.clone(), *slot));
        next.former.extend(before);
        next.former.retain(|session, _| !current.contains(session));
        next
    }

    /// Where a job goes, once it is known who fills which slot. The latest session of a slot whose
    /// worker is away keeps what it holds, and is given nothing: perhaps it never comes back.
    fn place(&self, job: &JobName, place: &Place, workers: &BTreeMap<Slot, Filled>) -> Place {
        let is_there = |slot: &Slot| workers.get(slot).is_some_and(|now| now.session.is_some());
        let holds = |session: &SessionId| {
            let record = self.cells.jobs.get(job);
            record.is_some_and(|record| record.cell.holder() == Some(session))
        };
        match place {
            Place::Slot(slot) => match self.slots.get(slot) {
                Some(record) if is_there(slot) || holds(&record.session) => {
                    Place::Session(*slot, record.session.clone())
                }
                Some(_) | None => Place::Slot(*slot),
            },
            Place::Session(..) | Place::Everywhere | Place::Nowhere => place.clone(),
        }
    }

    fn forget_idle_sessions(&mut self) {
        let Cells { jobs, .. } = &self.cells;
        let holders: BTreeSet<_> =
            jobs.values().filter_map(|record| record.cell.holder()).collect();
        self.former.retain(|session, _| holders.contains(session));
    }

    /// Makes the first publication of a ledger follow one that was there before it.
    pub(crate) fn count_on_from(&mut self, published: u64) {
        let slots = self.slots.values_mut().map(|record| &mut record.version);
        for version in slots.chain([&mut self.version]).filter(|version| **version > 0) {
            *version += published;
        }
    }

    /// Gives every slot whose set of jobs changed the number of this publication, and counts it if
    /// there is anything to publish.
    pub(crate) fn count_publication(&mut self, before: &Self) {
        let (was, is) = (before.granted(), self.granted());
        let published = before.version + 1;
        let went = gone_elsewhere(&was, &is);
        for (slot, record) in &mut self.slots {
            if was.get(slot) != is.get(slot) {
                record.version = published;
            }
            if went.contains(slot) {
                record.gave = published;
            }
        }
        let names = |ledger: &Self| -> Vec<_> {
            ledger.slots.iter().map(|(slot, record)| (*slot, record.worker.clone())).collect()
        };
        let differs = was != is || names(before) != names(self);
        self.version += u64::from(differs);
    }
}

/// The slots that lost a job which another slot has now. O(jobs that changed · log jobs).
fn gone_elsewhere(
    was: &BTreeMap<Slot, BTreeSet<JobName>>,
    is: &BTreeMap<Slot, BTreeSet<JobName>>,
) -> BTreeSet<Slot> {
    let nothing = BTreeSet::new();
    let gained: BTreeSet<&JobName> = is
        .iter()
        .flat_map(|(slot, jobs)| jobs.difference(was.get(slot).unwrap_or(&nothing)))
        .collect();
    let gave = |(slot, jobs): &(&Slot, &BTreeSet<JobName>)| {
        let mut lost = jobs.difference(is.get(slot).unwrap_or(&nothing));
        lost.any(|job| gained.contains(job))
    };
    was.iter().filter(gave).map(|(slot, _)| *slot).collect()
}
