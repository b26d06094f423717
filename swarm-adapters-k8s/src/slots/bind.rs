//! The rule by which pods without an ordinal are bound to slots. A pure function of what the ledger
//! remembers and of the pods that are there; the order of its inputs does not matter.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use swarm_core::Slot;

/// A pod that is there: one that has ended is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its UID.
    pub uid: String,
    /// Its name.
    pub name: String,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// Whether it is being deleted.
    pub is_leaving: bool,
    /// Whether it is ready.
    pub is_ready: bool,
}

/// Who fills which slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Binding {
    /// The slots that somebody is meant to fill.
    pub wanted: BTreeSet<Slot>,
    /// The pod in each slot, by UID; also in slots that are given up, as long as it is there.
    pub pods: BTreeMap<Slot, String>,
}

/// Binds `pods` to as many slots as are `wanted`, given the pod that each slot was `bound` to last.
///
/// - A slot stays bound to its pod as long as that exists and no other pod takes the slot over.
/// - More slots than wanted: those of live pods stay before others, low ones before high ones. The
///   others are given up.
/// - Fewer slots than wanted: the lowest free ones are added.
/// - A pod without a slot takes one whose pod is gone; if it is ready, else one whose pod is being
///   deleted; else one that nobody filled yet. Low slots come first; of the pods first those that are
///   ready, then the oldest, then by name.
///
/// From slot `end` on, if there is one, slots are emptied. Once no more are wanted than are below, a
/// pod that is still above moves into a slot that lost its own. O(pods · log pods).
#[must_use]
pub fn bind(
    bound: &BTreeMap<Slot, String>,
    pods: &[Candidate],
    wanted: usize,
    end: Option<u32>,
) -> Binding {
    let known: BTreeMap<&str, &Candidate> =
        pods.iter().map(|pod| (pod.uid.as_str(), pod)).collect();
    let held = held(bound, &known);
    let is_living = |slot: &Slot| held.get(slot).is_some_and(|pod| !pod.is_leaving);
    let end = end.filter(|end| wanted <= *end as usize);
    let is_above = |slot: Slot| end.is_some_and(|end| end <= slot.0);

    let mut slots: Vec<Slot> = bound.keys().copied().filter(|slot| !is_above(*slot)).collect();
    slots.sort_by_key(|slot| (!is_living(slot), *slot));
    slots.truncate(wanted);
    let free = (0..u32::MAX).map(Slot).filter(|slot| !bound.contains_key(slot));
    slots.extend(free.take(wanted - slots.len()));
    let wanted: BTreeSet<Slot> = slots.into_iter().collect();

    let mut binding = Binding { wanted, pods: BTreeMap::new() };
    let mut settled: BTreeMap<&str, Slot> =
        held.iter().map(|(slot, pod)| (pod.uid.as_str(), *slot)).collect();
    let has_place = |uid: &str| settled.get(uid).is_some_and(|slot| !is_above(*slot));
    let mut without: Vec<&Candidate> =
        known.values().copied().filter(|pod| !pod.is_leaving && !has_place(&pod.uid)).collect();
    without.sort_by_key(|pod| {
        let created = (pod.created.is_none(), pod.created);
        (settled.contains_key(pod.uid.as_str()), !pod.is_ready, created, &pod.name, &pod.uid)
    });
    for (slot, takes) in vacancies(&binding.wanted, bound, &held) {
        let Some(place) = without.iter().position(|pod| takes == Takes::Any || pod.is_ready) else {
            continue;
        };
        let pod = without.remove(place);
        if let Some(before) = held.get(&slot) {
            settled.remove(before.uid.as_str());
        }
        settled.insert(&pod.uid, slot);
    }
    binding.pods.extend(settled.into_iter().map(|(uid, slot)| (slot, uid.to_owned())));
    binding
}

/// The pods that are there, by the slots they were bound to, each in one.
fn held<'a>(
    bound: &BTreeMap<Slot, String>,
    known: &BTreeMap<&str, &'a Candidate>,
) -> BTreeMap<Slot, &'a Candidate> {
    let mut seen = BTreeSet::new();
    let mut held = BTreeMap::new();
    for (slot, uid) in bound {
        if let Some(pod) = known.get(uid.as_str()).filter(|_| seen.insert(uid)) {
            held.insert(*slot, *pod);
        }
    }
    held
}

/// Who may take a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    Any,
    Ready,
}

/// The slots to be filled, in this order.
fn vacancies(
    wanted: &BTreeSet<Slot>,
    bound: &BTreeMap<Slot, String>,
    held: &BTreeMap<Slot, &Candidate>,
) -> Vec<(Slot, Takes)> {
    let vacancy = |slot: &Slot| match held.get(slot) {
        Some(pod) if pod.is_leaving => Some((1, *slot, Takes::Ready)),
        Some(_) => None,
        None if bound.contains_key(slot) => Some((0, *slot, Takes::Any)),
        None => Some((2, *slot, Takes::Any)),
    };
    let mut vacancies: Vec<_> = wanted.iter().filter_map(vacancy).collect();
    vacancies.sort_by_key(|(rank, slot, _)| (*rank, *slot));
    vacancies.into_iter().map(|(_, slot, takes)| (slot, takes)).collect()
}
