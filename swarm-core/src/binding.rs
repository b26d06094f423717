//! Binds workers to slots if workers have names without numbers: the pods of a Deployment, or
//! machines that come and go.
//!
//! The binding is a function of the previous bindings and of the existing workers; the order of its
//! inputs does not matter. The ledger stores the bindings: the session in a slot's record names the
//! worker. When a worker is replaced, its successor takes over the slot and the assignment stays,
//! so each job moves once.
//!
//! ```
//! use swarm_core::handover::SessionId;
//! use swarm_core::{Candidate, Desired, Ledger, Observed, Presence, Slot, WorkerSeen};
//! use swarm_core::{bind, decide, jobs};
//!
//! let desired = Desired::new(jobs(["crm", "mail", "wiki"])?);
//! let turn = |ledger: &Ledger, machines: [&str; 3], known| {
//!     let binding = bind(&ledger.bound(), &machines.map(Candidate::ready), 3, None);
//!     let worker = |(slot, name): (Slot, String)| {
//!         let session = Some(SessionId::plain(&name));
//!         (slot, WorkerSeen::new(name, Presence::Ready, session))
//!     };
//!     let observed = Observed::new(binding.workers.into_iter().map(worker), 1, known);
//!     decide(ledger, &desired, &observed).ledger
//! };
//! let first = turn(&Ledger::new(1), ["amber", "birch", "cedar"], None);
//! assert_eq!(first.bound()[&Slot(1)], "birch");
//!
//! // Machine `birch` is replaced: its successor takes over its jobs, and no other job moves.
//! let second = turn(&first, ["amber", "cedar", "daisy"], Some(first.position()));
//! assert_eq!(second.bound()[&Slot(1)], "daisy");
//! assert_eq!(second.assignment(), first.assignment());
//! # Ok::<(), swarm_core::JobsError>(())
//! ```

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::handover::SessionId;
use crate::{Ledger, Slot};

/// An existing worker. A worker that has ended does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Candidate {
    /// The identity that distinguishes it from all others, including earlier workers of the same
    /// name: the UID of a pod, which is the [`pod_uid`](crate::handover::SessionId::pod_uid) of its
    /// sessions.
    pub uid: String,
    /// Its name. Between equal workers, the order of names decides.
    pub name: String,
    /// The time of its creation, in seconds since 1970, by a clock that is the same for all
    /// workers.
    pub created_s: Option<i64>,
    /// Whether it was asked to end.
    pub is_leaving: bool,
    /// Whether it is ready.
    pub is_ready: bool,
}

impl Candidate {
    /// Creates a worker that is ready, and whose name is unique for all time.
    ///
    /// ```
    /// use swarm_core::Candidate;
    ///
    /// let mut starting = Candidate::ready("machine-7");
    /// (starting.is_ready, starting.created_s) = (false, Some(1_790_000_000));
    /// ```
    #[must_use]
    pub fn ready(name: impl Into<String>) -> Self {
        let name = name.into();
        Self { uid: name.clone(), name, created_s: None, is_leaving: false, is_ready: true }
    }
}

/// The worker of each slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Binding {
    /// The slots that should be filled.
    pub wanted: BTreeSet<Slot>,
    /// The worker in each slot, by UID. Slots that are given up are included while their worker
    /// exists.
    pub workers: BTreeMap<Slot, String>,
}

impl Ledger {
    /// Returns the UID of the worker that filled each slot last, which is an input of [`bind`].
    ///
    /// ```
    /// use swarm_core::{Assignment, Ledger, Pool, Slot};
    ///
    /// let ledger = Ledger::new(0).next(&Assignment::default(), &Pool::ready(1));
    /// assert_eq!(ledger.bound()[&Slot(0)], "worker-0");
    /// ```
    #[must_use]
    pub fn bound(&self) -> BTreeMap<Slot, String> {
        let uid = |session: &SessionId| session.pod_uid().to_owned();
        self.slots.iter().map(|(slot, record)| (*slot, uid(&record.session))).collect()
    }
}

/// Binds `workers` to `wanted` slots, given the worker to which each slot was last `bound`.
///
/// - A slot stays bound to its worker as long as the worker exists and no other takes over the
///   slot.
/// - If there are more slots than wanted, slots of live workers stay before others, low slots
///   before high ones. The others are given up.
/// - If there are fewer slots than wanted, the lowest free slots are added.
/// - A worker without a slot takes one whose worker no longer exists. If there is none, a ready
///   worker takes one whose worker is leaving. Otherwise the worker takes a slot that was never
///   filled. Low slots come first; ready workers come first, then the oldest, then by name.
///
/// From slot `end` on, if it is given, slots are emptied. Once no more slots are wanted than exist
/// below `end`, a worker that is still above moves into a slot that lost its worker.
///
/// O((workers + slots) · log (workers + slots)).
///
/// ```
/// use swarm_core::{Candidate, Slot, bind};
///
/// let bound = [(Slot(0), "a".to_owned()), (Slot(1), "b".to_owned())].into();
/// let (mut a, b, c) = (Candidate::ready("a"), Candidate::ready("b"), Candidate::ready("c"));
/// let surplus = bind(&bound, &[a.clone(), b.clone(), c.clone()], 2, None);
/// assert_eq!(surplus.workers, bound, "no worker has to end");
///
/// a.is_leaving = true;
/// let replaced = bind(&bound, &[a, b, c], 2, None);
/// assert_eq!(replaced.workers[&Slot(0)], "c");
/// ```
#[must_use]
pub fn bind(
    bound: &BTreeMap<Slot, String>,
    workers: &[Candidate],
    wanted: usize,
    end: Option<u32>,
) -> Binding {
    let known: BTreeMap<&str, &Candidate> =
        workers.iter().map(|worker| (worker.uid.as_str(), worker)).collect();
    let held = held(bound, &known);
    let end = end.filter(|end| wanted <= *end as usize);
    let is_above = |slot: Slot| end.is_some_and(|end| end <= slot.0);
    let wanted = slots(bound, &held, wanted, is_above);

    let mut settled: BTreeMap<&str, Slot> =
        held.iter().map(|(slot, worker)| (worker.uid.as_str(), *slot)).collect();
    let has_place = |uid: &str| settled.get(uid).is_some_and(|slot| !is_above(*slot));
    let without = known.values().copied().filter(|it| !it.is_leaving && !has_place(&it.uid));
    let mut queue = Queue::of(without, |uid| settled.contains_key(uid));
    for (slot, takes) in vacancies(&wanted, bound, &held) {
        let Some(worker) = queue.next(takes) else { continue };
        if let Some(before) = held.get(&slot) {
            settled.remove(before.uid.as_str());
        }
        settled.insert(&worker.uid, slot);
    }
    let workers = settled.into_iter().map(|(uid, slot)| (slot, uid.to_owned())).collect();
    Binding { wanted, workers }
}

/// Returns the existing workers by the slots to which they were bound, each in one slot.
fn held<'a>(
    bound: &BTreeMap<Slot, String>,
    known: &BTreeMap<&str, &'a Candidate>,
) -> BTreeMap<Slot, &'a Candidate> {
    let mut seen = BTreeSet::new();
    let mut held = BTreeMap::new();
    for (slot, uid) in bound {
        if let Some(worker) = known.get(uid.as_str()).filter(|_| seen.insert(uid)) {
            held.insert(*slot, *worker);
        }
    }
    held
}

/// Returns `wanted` slots that should be filled.
fn slots(
    bound: &BTreeMap<Slot, String>,
    held: &BTreeMap<Slot, &Candidate>,
    wanted: usize,
    is_above: impl Fn(Slot) -> bool,
) -> BTreeSet<Slot> {
    let is_living = |slot: &Slot| held.get(slot).is_some_and(|worker| !worker.is_leaving);
    let mut slots: Vec<Slot> = bound.keys().copied().filter(|slot| !is_above(*slot)).collect();
    slots.sort_by_key(|slot| (!is_living(slot), *slot));
    slots.truncate(wanted);
    let free = (0..u32::MAX).map(Slot).filter(|slot| !bound.contains_key(slot));
    slots.extend(free.take(wanted - slots.len()));
    slots.into_iter().collect()
}

/// The workers that may take a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    Any,
    Ready,
}

/// Returns the slots to fill, in this order.
fn vacancies(
    wanted: &BTreeSet<Slot>,
    bound: &BTreeMap<Slot, String>,
    held: &BTreeMap<Slot, &Candidate>,
) -> Vec<(Slot, Takes)> {
    let vacancy = |slot: &Slot| match held.get(slot) {
        Some(worker) if worker.is_leaving => Some((1, *slot, Takes::Ready)),
        Some(_) => None,
        None if bound.contains_key(slot) => Some((0, *slot, Takes::Any)),
        None => Some((2, *slot, Takes::Any)),
    };
    let mut vacancies: Vec<_> = wanted.iter().filter_map(vacancy).collect();
    vacancies.sort_by_key(|(rank, slot, _)| (*rank, *slot));
    vacancies.into_iter().map(|(_, slot, takes)| (slot, takes)).collect()
}

/// The workers that wait for a slot, by whether they leave another slot, and whether they are
/// ready.
struct Queue<'a>([VecDeque<&'a Candidate>; 4]);

impl<'a> Queue<'a> {
    fn of(waiting: impl Iterator<Item = &'a Candidate>, has_slot: impl Fn(&str) -> bool) -> Self {
        let mut waiting: Vec<_> = waiting.collect();
        waiting.sort_by_key(|it| (it.created_s.is_none(), it.created_s, &it.name, &it.uid));
        let mut queues: [VecDeque<_>; 4] = Default::default();
        for worker in waiting {
            let (has_slot, is_unready) = (has_slot(&worker.uid), !worker.is_ready);
            queues[2 * usize::from(has_slot) + usize::from(is_unready)].push_back(worker);
        }
        Self(queues)
    }

    fn next(&mut self, takes: Takes) -> Option<&'a Candidate> {
        let step = match takes {
            Takes::Any => 1,
            Takes::Ready => 2,
        };
        self.0.iter_mut().step_by(step).find_map(VecDeque::pop_front)
    }
}
