//! The durable record of who holds which job: the only authority, from which views are derived.

use std::collections::BTreeMap;

use crate::{Assignment, JobName, Member, Pool, Slot, Standing, View, ViewEntry};

/// A job's fencing number: higher at every grant, never reused.
///
/// It protects a sink only if the sink remembers the highest one it saw and refuses lower ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// Who holds which job, and what was published.
///
/// A ledger only ever becomes the [`next`](Self::next) one, by compare-and-set in its store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    /// Counts changes of the ledger.
    pub revision: u64,
    /// Counts publications: changes that alter the view.
    pub version: u64,
    /// The token of a job that is new to this ledger. It starts at the creation time in
    /// microseconds, so that a ledger made anew after a loss still grants higher tokens, and is
    /// raised past the token of every job that goes.
    pub first_token: Token,
    /// What each slot holds. A slot without jobs stands here as long as its worker exists.
    pub slots: BTreeMap<Slot, SlotRecord>,
}

/// What one slot holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotRecord {
    /// The worker that fills the slot, by the name it has in the view.
    pub worker: String,
    /// The publication that last changed the slot's set of jobs.
    pub version: u64,
    /// The jobs it holds, each with the token it was granted under.
    pub jobs: BTreeMap<JobName, Token>,
}

impl Ledger {
    /// An empty ledger, created `unix_time_us` microseconds after the Unix epoch.
    #[must_use]
    pub fn new(unix_time_us: u64) -> Self {
        let first_token = Token(unix_time_us);
        Self { revision: 0, version: 0, first_token, slots: BTreeMap::new() }
    }

    /// The assignment as it stands.
    #[must_use]
    pub fn assignment(&self) -> Assignment {
        let jobs_of = |(slot, record): (&Slot, &SlotRecord)| {
            let slot = *slot;
            record.jobs.keys().cloned().map(move |job| (job, slot)).collect::<Vec<_>>()
        };
        self.slots.iter().flat_map(jobs_of).collect()
    }

    /// The ledger after `assignment` was granted to the workers of `pool`.
    ///
    /// It is equal to `self` if that changes nothing. Otherwise the revision is one higher; the
    /// version too, if the view differs. A job that changes its slot gets a token one higher.
    /// Slots that are not in `pool` go, and with them what they held; a slot enters when its worker
    /// first [takes](Standing::Takes) jobs. O(jobs · log jobs).
    #[must_use]
    pub fn next(&self, assignment: &Assignment, pool: &Pool) -> Self {
        let held: BTreeMap<&JobName, (Slot, Token)> = self
            .slots
            .iter()
            .flat_map(|(slot, record)| record.jobs.iter().map(|(job, n)| (job, (*slot, *n))))
            .collect();
        let token = |job: &JobName, slot: Slot| match held.get(job) {
            Some((holder, token)) if *holder == slot => *token,
            Some((_, token)) => Token(token.0 + 1),
            None => self.first_token,
        };
        let mut granted = assignment.by_slot();
        let published = self.version + 1;
        let record = |(slot, member): (&Slot, &Member)| {
            let jobs = granted.remove(slot).unwrap_or_default();
            let jobs: BTreeMap<_, _> =
                jobs.into_iter().map(|job| (job.clone(), token(&job, *slot))).collect();
            let unchanged = |before: &&SlotRecord| before.jobs.keys().eq(jobs.keys());
            let before = self.slots.get(slot).filter(unchanged);
            let version = before.map_or(published, |before| before.version);
            (*slot, SlotRecord { worker: member.name.clone(), version, jobs })
        };
        let has_a_place = |(slot, member): &(&Slot, &Member)| {
            member.standing == Standing::Takes || self.slots.contains_key(slot)
        };
        let slots: BTreeMap<_, _> = pool.0.iter().filter(has_a_place).map(record).collect();
        let gone = held.iter().filter(|(job, _)| assignment.holder(job).is_none());
        let past = gone.map(|(_, (_, token))| Token(token.0 + 1)).max();
        let first_token = past.map_or(self.first_token, |past| past.max(self.first_token));
        let mut next = Self { first_token, slots, ..self.clone() };
        next.version += u64::from(next.view().workers != self.view().workers);
        next.revision += u64::from(next != *self);
        next
    }

    /// What workers read: a function of the ledger, so that a lost view is written again, the same.
    #[must_use]
    pub fn view(&self) -> View {
        let entry = |(slot, record): (&Slot, &SlotRecord)| {
            let entry = ViewEntry {
                slot: (View::slot_in_name(&record.worker) != Some(*slot)).then_some(*slot),
                version: record.version,
                jobs: record.jobs.keys().cloned().collect(),
            };
            (record.worker.clone(), entry)
        };
        View { version: self.version, workers: self.slots.iter().map(entry).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{jobs, plan};

    fn member(name: &str, standing: Standing) -> Member {
        Member { name: name.into(), standing, max_jobs: None }
    }

    fn step(ledger: &Ledger, names: &[&str], pool: &Pool) -> Ledger {
        let jobs = jobs(names.iter().copied()).unwrap();
        ledger.next(&plan(&jobs, &ledger.assignment(), pool).assignment, pool)
    }

    #[test]
    fn the_same_assignment_again_is_the_same_ledger() {
        let first = step(&Ledger::new(1), &["a", "b", "c"], &Pool::ready(2));
        assert_eq!((first.revision, first.version), (1, 1));
        assert_eq!(step(&first, &["a", "b", "c"], &Pool::ready(2)), first);
    }

    #[test]
    fn only_slots_whose_jobs_changed_get_the_new_version() {
        let pool = Pool::ready(3);
        let first = step(&Ledger::new(1), &["a", "b", "c"], &pool);
        let second = step(&first, &["a", "b", "c", "d"], &pool);
        let versions: Vec<_> = second.slots.values().map(|slot| slot.version).collect();
        assert_eq!(second.version, 2);
        assert_eq!(versions.iter().filter(|version| **version == 2).count(), 1, "{versions:?}");
    }

    #[test]
    fn tokens_rise_at_every_grant_even_when_a_job_went_in_between() {
        let a: JobName = "a".parse().unwrap();
        let token_in = |ledger: &Ledger| {
            ledger.slots.values().find_map(|slot| slot.jobs.get(&a)).copied().unwrap()
        };
        let at = |slot| {
            let member = member(&format!("w-{slot}"), Standing::Takes);
            Pool([(Slot(slot), member)].into())
        };
        let first = step(&Ledger::new(100), &["a"], &at(0));
        let moved = step(&first, &["a"], &at(1));
        let removed = step(&moved, &[], &at(1));
        let back = step(&removed, &["a"], &at(1));
        assert_eq!([&first, &moved, &back].map(token_in), [Token(100), Token(101), Token(102)]);
    }

    #[test]
    fn a_worker_that_takes_no_jobs_yet_changes_nothing() {
        let first = step(&Ledger::new(1), &["a", "b"], &Pool::ready(2));
        let mut pool = Pool::ready(2);
        pool.0.insert(Slot(2), member("w-2", Standing::Keeps));
        assert_eq!(step(&first, &["a", "b"], &pool), first);
    }

    #[test]
    fn a_renamed_worker_is_published_and_keeps_its_version() {
        let first = step(&Ledger::new(1), &["a"], &Pool::ready(1));
        let member = member("other-x7f", Standing::Takes);
        let renamed = step(&first, &["a"], &Pool([(Slot(0), member)].into()));
        assert_eq!((renamed.version, renamed.slots[&Slot(0)].version), (2, 1));
        assert_eq!(renamed.view().workers["other-x7f"].slot, Some(Slot(0)));
    }
}
