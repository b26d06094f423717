//! The parts of explanations that are the same for many jobs.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::facts::{Holder, WorkerFacts};
use super::words::{named, slots};
use crate::Slot;

/// Texts about all workers, and the workers with the largest free parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Overview {
    /// The slots of the pool.
    pub(super) slots: String,
    /// The workers that take no jobs, as the end of a sentence.
    pub(super) absent: String,
    /// The plain workers that may get no jobs.
    pub(super) plain: String,
    /// The reason why no worker has room for a job without a wish.
    pub(super) full: String,
    /// The workers that take jobs, by size. Each size has the number of workers that are as large
    /// or larger, and the slot of the one with the largest free part.
    parts: BTreeMap<u8, (usize, Slot)>,
}

/// A worker and its slot.
type Worker<'a> = (Slot, &'a WorkerFacts);

impl Overview {
    pub(super) fn of(workers: &BTreeMap<Slot, WorkerFacts>) -> Self {
        let numbers: Vec<_> = workers.keys().map(|slot| slot.0).collect();
        let takers = workers.iter().filter(|(_, worker)| worker.absence.is_none());
        let takers: Vec<Worker<'_>> = takers.map(|(slot, worker)| (*slot, worker)).collect();
        let plain = workers.iter().filter(|(_, worker)| worker.is_plain());
        let plain: Vec<_> = plain.map(|(slot, worker)| worker.shown(*slot)).collect();
        Self {
            slots: slots(&numbers),
            absent: absent(workers),
            plain: named(&plain),
            full: full(&takers),
            parts: parts(takers),
        }
    }

    /// Returns the largest part that a worker offers, in percent.
    pub(super) fn largest(&self) -> u8 {
        self.parts.last_key_value().map_or(0, |(size, _)| *size)
    }

    /// Returns the slot of the worker with the largest free part among the workers that offer `share`
    /// percent, and their number. `None` if no worker is so large.
    pub(super) fn part(&self, share: u8) -> Option<(Slot, usize)> {
        let (_, (count, slot)) = self.parts.range(share..).next()?;
        Some((*slot, *count))
    }
}

/// Finds the workers with the largest free parts.
fn parts(mut takers: Vec<Worker<'_>>) -> BTreeMap<u8, (usize, Slot)> {
    takers.sort_by_key(|(slot, worker)| (Reverse(worker.size), *slot));
    let mut parts = BTreeMap::new();
    let mut best: Option<Worker<'_>> = None;
    for ((slot, worker), count) in takers.into_iter().zip(1..) {
        if best.is_none_or(|(_, best)| best.free() < worker.free()) {
            best = Some((slot, worker));
        }
        parts.insert(worker.size, (count, best.map_or(slot, |(slot, _)| slot)));
    }
    parts
}

/// Lists the workers that take no jobs, by their state.
fn absent(workers: &BTreeMap<Slot, WorkerFacts>) -> String {
    let mut states = BTreeMap::<_, Vec<String>>::new();
    for (slot, worker) in workers {
        if let Some(absence) = worker.absence {
            states.entry(absence).or_default().push(worker.shown(*slot));
        }
    }
    let state = |(absence, workers): (_, Vec<String>)| format!("; {absence}: {}", named(&workers));
    states.into_iter().map(state).collect()
}

/// Says why no worker has room for a job without a wish.
fn full(takers: &[Worker<'_>]) -> String {
    let (reserved, others): (Vec<Worker<'_>>, Vec<_>) =
        takers.iter().partition(|(_, worker)| worker.is_reserved());
    let full: Vec<_> = others.into_iter().filter(|(_, worker)| worker.is_at_maximum()).collect();
    let mut parts = Vec::new();
    match full.as_slice() {
        [] => {}
        [(slot, worker)] => parts.push(format!("{} {}", worker.shown(*slot), worker.maximum())),
        [(_, first), rest @ ..] => {
            let are_alike = rest.iter().all(|(_, worker)| worker.max_jobs == first.max_jobs);
            let of = if are_alike { first.of_jobs() } else { "of jobs".to_owned() };
            parts.push(format!("each of {} workers has its maximum {of}", full.len()));
        }
    }
    if let Some((slot, worker)) = reserved.first() {
        let holder = worker.largest.as_ref().map(Holder::shown).unwrap_or_default();
        let at = worker.shown(*slot);
        parts.push(match reserved.len() {
            1 => format!("{at} is fully reserved by {holder}"),
            many => format!("{many} workers are fully reserved, such as {at} by {holder}"),
        });
    }
    if parts.is_empty() { "every worker is full".to_owned() } else { parts.join(", and ") }
}
