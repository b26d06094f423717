//! Adopts a pool whose jobs another system assigned. The first ledger contains the jobs that the
//! running workers already run, so the migration moves only the jobs that balance requires.
//!
//! The only trace of such an assignment is the view that the workers read. It may be uneven, list a
//! job under two workers, or name workers that no longer exist.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use super::{Desired, Observed, Replication, incarnation, incomplete, terms};
use crate::handover::{Place, Policy, SessionId};
use crate::view::VERSION_MAX;
use crate::{Filled, JobName, Jobs, Ledger, LedgerStep, Slot, View, ViewEntry};

/// The assignment that a first ledger adopted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Adoption {
    /// The number of jobs that stay with a worker that runs them.
    pub jobs: usize,
    /// The number of workers that run them.
    pub workers: usize,
    /// The number of jobs that several workers ran. The worker in the lowest slot keeps each.
    pub doubled: usize,
}

/// Returns the first ledger of a pool, with the jobs that its running workers have in the adoptable
/// view. Returns `None` if there is nothing to adopt, or if the pool is not complete yet. O(jobs).
///
/// Only plain workers read a view, so only their jobs are adopted. A job under several workers
/// belongs to the lowest slot. A worker whose jobs stay the same keeps its version, since it has
/// nothing to read.
pub(super) fn adopt(
    ledger: &Ledger,
    desired: &Desired,
    observed: &Observed,
) -> Option<(Ledger, Adoption)> {
    let view = observed.adoptable.as_ref()?;
    let is_first = ledger.version == 0 && ledger.cells.jobs.is_empty();
    let may_hold = desired.replication == Replication::One && desired.policy == Policy::AtLeastOnce;
    if !is_first || !may_hold || desired.paused {
        return None;
    }
    if incomplete(desired, observed).is_some()
        || incarnation::reset(ledger, desired, observed).is_some()
    {
        return None;
    }
    let running = running(view, observed);
    let (placed, doubled) = placed(&running);
    if placed.is_empty() {
        return None;
    }
    let filled = |(slot, run): (&Slot, &Running<'_>)| {
        let (worker, session) = (run.worker.to_owned(), Some(run.session.clone()));
        (*slot, Filled { worker, session, takes: true, max_jobs: None, capacity: None })
    };
    let goal = placed.iter().map(|(job, slot)| ((*job).clone(), Place::Slot(*slot))).collect();
    let mut first = ledger.step(&LedgerStep {
        workers: &running.iter().map(filled).collect(),
        goal: &goal,
        evidence: &BTreeMap::new(),
        ages: &BTreeMap::new(),
        jobs: &Jobs::new(),
        terms: &terms(desired),
    });
    count_on(&mut first, view, &running);
    let jobs = placed.len();
    let workers = running.values().filter(|run| !run.entry.jobs.is_empty()).count();
    Some((first, Adoption { jobs, workers, doubled }))
}

/// An existing worker, and its entry in the view.
struct Running<'a> {
    worker: &'a str,
    session: &'a SessionId,
    entry: &'a ViewEntry,
}

/// Returns the existing workers of the view, by slot.
fn running<'a>(view: &'a View, observed: &'a Observed) -> BTreeMap<Slot, Running<'a>> {
    let running = |(slot, seen): (&Slot, &'a super::WorkerSeen)| {
        let session = seen.session.as_ref().filter(|session| session.is_plain())?;
        let entry = view.workers.get(&seen.name)?;
        Some((*slot, Running { worker: &seen.name, session, entry }))
    };
    observed.workers.iter().filter_map(running).collect()
}

/// Returns the slot that holds each job, and the number of jobs that several workers run.
fn placed<'a>(running: &BTreeMap<Slot, Running<'a>>) -> (BTreeMap<&'a JobName, Slot>, usize) {
    let (mut placed, mut doubled) = (BTreeMap::new(), BTreeSet::new());
    for (slot, run) in running {
        for job in &run.entry.jobs {
            match placed.entry(job) {
                Entry::Vacant(free) => {
                    free.insert(*slot);
                }
                Entry::Occupied(_) => {
                    doubled.insert(job);
                }
            }
        }
    }
    (placed, doubled.len())
}

/// Continues the publications of the view, and reuses its version if the jobs are the same.
fn count_on(first: &mut Ledger, view: &View, running: &BTreeMap<Slot, Running<'_>>) {
    let published = if view.version < VERSION_MAX { view.version } else { 0 };
    let granted = first.granted();
    let mut is_same = view.workers.len() == running.len();
    for (slot, record) in &mut first.slots {
        let Some(run) = running.get(slot) else { continue };
        let keeps_all = granted.get(slot) == Some(&run.entry.jobs);
        is_same &= keeps_all;
        let next = published + 1;
        // A worker that keeps all its jobs has nothing to read.
        record.version = if keeps_all { run.entry.version.min(published) } else { next };
        // A lower slot keeps the jobs that this one loses.
        record.last_handoff_version = if keeps_all { 0 } else { next };
    }
    first.version = if is_same { published.max(1) } else { published + 1 };
}

#[cfg(test)]
mod tests;
