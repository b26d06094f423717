//! Which worker fills which slot, where workers have names and no numbers: the pods of a Deployment,
//! or machines that come and go.
//!
//! The rule is a function of what the ledger remembers and of the workers that are there; the order
//! of its inputs does not matter. The ledger is the memory of bindings: the session of a slot's
//! record names the worker. When workers are replaced, the binding moves from one to its successor
//! and the assignment stays, so that each job moves once.
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
//! // Machine `birch` is replaced: its successor gets what it ran, and nothing else moves.
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

/// A worker that is there: one that has ended is not.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Candidate {
    /// What distinguishes it from all others, also from one of the same name before it: the UID of a
    /// pod, which is the [`pod_uid`](crate::handover::SessionId::pod_uid) of its sessions.
    pub uid: String,
    /// Its name. Where workers are as good as each other, the order of names decides.
    pub name: String,
    /// When it was made, in seconds since 1970, by whatever clock made all of them.
    pub created_s: Option<i64>,
    /// Whether it was asked to end.
    pub is_leaving: bool,
    /// Whether it is ready.
    pub is_ready: bool,
}

impl Candidate {
    /// A worker that is ready, and whose name nobody else ever had.
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

/// Who fills which slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Binding {
    /// The slots that somebody is meant to fill.
    pub wanted: BTreeSet<Slot>,
    /// The worker in each slot, by UID; also in slots that are given up, as long as it is there.
    pub workers: BTreeMap<Slot, String>,
}

impl Ledger {
    /// The UID of the worker that filled each slot last, which [`bind`] starts from.
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

/// Binds `workers` to as many slots as are `wanted`, given the worker that each slot was `bound` to
/// last.
///
/// - A slot stays bound to its worker as long as that exists and no other takes the slot over.
/// - More slots than wanted: those of live workers stay before others, low ones before high ones. The
///   others are given up.
/// - Fewer slots than wanted: the lowest free ones are added.
/// - A worker without a slot takes one whose worker is gone; if it is ready, else one whose worker is
///   leaving; else one that nobody filled yet. Low slots come first; of the workers first those that
///   are ready, then the oldest, then by name.
///
/// From slot `end` on, if there is one, slots are emptied. Once no more are wanted than are below, a
/// worker that is still above moves into a slot that lost its own.
///
/// O((workers + slots) · log (workers + slots)).
///
/// ```
/// use swarm_core::{Candidate, Slot, bind};
///
/// let bound = [(Slot(0), "a".to_owned()), (Slot(1), "b".to_owned())].into();
/// let (mut a, b, c) = (Candidate::ready("a"), Candidate::ready("b"), Candidate::ready("c"));
/// let surplus = bind(&bound, &[a.clone(), b.clone(), c.clone()], 2, None);
/// assert_eq!(surplus.workers, bound, "nobody has to go");
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

/// The workers that are there, by the slots they were bound to, each in one.
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

/// The slots that somebody is meant to fill, as many as are `wanted`.
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
        Some(worker) if worker.is_leaving => Some((1, *slot, Takes::Ready)),
        Some(_) => None,
        None if bound.contains_key(slot) => Some((0, *slot, Takes::Any)),
        None => Some((2, *slot, Takes::Any)),
    };
    let mut vacancies: Vec<_> = wanted.iter().filter_map(vacancy).collect();
    vacancies.sort_by_key(|(rank, slot, _)| (*rank, *slot));
    vacancies.into_iter().map(|(_, slot, takes)| (slot, takes)).collect()
}

/// The workers that wait for a slot, by whether they have one to leave, and whether they are ready.
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
