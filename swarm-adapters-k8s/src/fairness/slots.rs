//! Slots bound the reconciles of a controller that run at the same time, and share them fairly. The number
//! of slots can change while the controller runs. The same rules apply to reads of lists and to requests
//! to workers.
//!
//! Tenants have namespaces, so namespaces share the slots. Waiting namespaces take turns. A namespace gets
//! a further slot while it has fewer than [`SHARE`] times the free slots. So one namespace with long
//! reconciles leaves a quarter of the slots free, two leave a seventh, and a small tenant finds a slot at
//! once. Within a namespace, changed Swarms come before Swarms that were only taken over, each in order of
//! arrival. A replica inherits many takeovers at once, and an edit must not wait for all of them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Bounds the slots of a namespace that wants another one: SHARE times the free slots.
const SHARE: usize = 3;
/// Bounds the changed Swarms of a namespace that pass its waiting takeovers, in a row.
const FIRST: usize = 3;

/// Slots that tenants share. Clones share the state.
#[derive(Clone, Debug)]
pub(crate) struct FairSlots(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// The number of slots. After it shrinks, more may stay busy until their turns end.
    count: usize,
    /// The number of busy slots of each namespace that has any.
    busy: BTreeMap<String, usize>,
    /// The queue of each namespace that waits.
    waiting: BTreeMap<String, Queue>,
    /// The waiting namespaces. The first has waited longest since it got a slot.
    order: VecDeque<String>,
    is_closed: bool,
}

type Waits = oneshot::Sender<FairSlot>;

/// The waiting turns of a namespace.
#[derive(Debug, Default)]
struct Queue {
    first: VecDeque<Waits>,
    /// Swarms that can wait, by their UIDs.
    later: VecDeque<(String, Waits)>,
    /// Counts the changed Swarms that got a slot since the last takeover got one.
    passed: usize,
}

impl Queue {
    fn len(&self) -> usize {
        self.first.len() + self.later.len()
    }

    fn next(&mut self) -> Option<Waits> {
        let is_for_first = self.later.is_empty() || self.passed < FIRST;
        if let Some(waits) = self.first.pop_front_if(|_| is_for_first) {
            self.passed += 1;
            return Some(waits);
        }
        self.passed = 0;
        self.later.pop_front().map(|(_, waits)| waits)
    }
}

/// A slot, which is free again when the value is dropped.
#[derive(Debug)]
pub(crate) struct FairSlot {
    of: FairSlots,
    namespace: String,
}

impl FairSlots {
    pub(crate) fn new(count: usize) -> Self {
        Self(Arc::new(Mutex::new(State { count, ..State::default() })))
    }

    /// Waits for a slot for a namespace. `None` once the slots are closed.
    pub(crate) async fn one(&self, namespace: &str) -> Option<FairSlot> {
        self.wait(namespace, |queue, waits| queue.first.push_back(waits)).await
    }

    /// Waits for a slot for an object that yields to others of its namespace, until
    /// [`hurry`](Self::hurry).
    pub(crate) async fn one_later(&self, namespace: &str, uid: &str) -> Option<FairSlot> {
        self.wait(namespace, |queue, waits| queue.later.push_back((uid.to_owned(), waits))).await
    }

    /// Stops an object from yielding to others, if it waits. O(the yielding objects of the
    /// namespace).
    pub(crate) fn hurry(&self, namespace: &str, uid: &str) {
        let mut state = self.state();
        let Some(queue) = state.waiting.get_mut(namespace) else { return };
        if let Some(place) = queue.later.iter().position(|(waits, _)| waits == uid) {
            queue.first.extend(queue.later.remove(place).map(|(_, waits)| waits));
        }
    }

    async fn wait(&self, namespace: &str, put: impl FnOnce(&mut Queue, Waits)) -> Option<FairSlot> {
        let given = {
            let mut state = self.state();
            if state.is_closed {
                return None;
            }
            let (waits, given) = oneshot::channel();
            if !state.waiting.contains_key(namespace) {
                state.order.push_back(namespace.to_owned());
            }
            put(state.waiting.entry(namespace.to_owned()).or_default(), waits);
            given
        };
        self.give();
        given.await.ok()
    }

    /// Sets the number of slots. Turns that are under way continue.
    pub(crate) fn set(&self, count: usize) {
        self.state().count = count;
        self.give();
    }

    /// The number of slots, and the number of turns that wait for one.
    pub(crate) fn load(&self) -> (usize, usize) {
        let state = self.state();
        (state.count, state.waiting.values().map(Queue::len).sum())
    }

    /// Closes the slots: no slot is given any more, and all waiting ends.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        state.waiting.clear();
        state.order.clear();
    }

    /// Gives free slots to the next waiting turns.
    fn give(&self) {
        while let Some((waits, namespace)) = self.next() {
            // If the receiver has stopped waiting, the slot is dropped here, and its drop locks the
            // state. So this function must not hold the lock.
            drop(waits.send(FairSlot { of: self.clone(), namespace }));
        }
    }

    /// Removes the next waiter from its queue, and counts its slot as busy.
    fn next(&self) -> Option<(oneshot::Sender<FairSlot>, String)> {
        let mut guard = self.state();
        let State { count, busy, waiting, order, is_closed: _ } = &mut *guard;
        let free = count.saturating_sub(busy.values().sum());
        let may_have = |namespace: &String| {
            busy.get(namespace).copied().unwrap_or(0) < free.saturating_mul(SHARE)
        };
        let place = order.iter().position(may_have)?;
        let namespace = order.remove(place)?;
        let queue = waiting.get_mut(&namespace)?;
        let waits = queue.next()?;
        if queue.len() == 0 {
            waiting.remove(&namespace);
        } else {
            order.push_back(namespace.clone());
        }
        *busy.entry(namespace.clone()).or_default() += 1;
        Some((waits, namespace))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for FairSlot {
    fn drop(&mut self) {
        {
            let mut state = self.of.state();
            if let Some(busy) = state.busy.get_mut(&self.namespace) {
                *busy -= 1;
                if *busy == 0 {
                    state.busy.remove(&self.namespace);
                }
            }
        }
        self.of.give();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Poll;

    use futures::{FutureExt, poll};

    /// Takes a slot that is free now, if one is.
    fn now(slots: &FairSlots, namespace: &str) -> Option<FairSlot> {
        slots.one(namespace).now_or_never().flatten()
    }

    /// All slots that a namespace gets at once.
    fn all(slots: &FairSlots, namespace: &str) -> Vec<FairSlot> {
        std::iter::from_fn(|| now(slots, namespace)).collect()
    }

    #[test]
    fn workers_come_at_once_and_go_when_their_turns_end() {
        let slots = FairSlots::new(2);
        let [one, other] = [now(&slots, "a").unwrap(), now(&slots, "a").unwrap()];
        slots.set(3);
        let third = now(&slots, "b").unwrap();
        slots.set(1);
        assert!(now(&slots, "b").is_none());
        drop((one, third));
        assert!(now(&slots, "b").is_none(), "they were too many");
        drop(other);
        let _busy = now(&slots, "b").unwrap();
        slots.set(2);
        assert!(now(&slots, "b").is_some());
    }

    #[test]
    fn one_namespace_leaves_workers_to_others() {
        let slots = FairSlots::new(16);
        let greedy = all(&slots, "greedy");
        assert_eq!(greedy.len(), 12);
        let second = all(&slots, "second");
        assert_eq!(second.len(), 3);
        assert!(now(&slots, "third").is_some(), "a small tenant gets a slot at once");
        drop(greedy);
        assert_eq!(all(&slots, "second").len(), 9);
        for count in 1..=3 {
            assert_eq!(all(&FairSlots::new(count), "alone").len(), count, "too few to leave any");
        }
    }

    #[tokio::test]
    async fn namespaces_that_wait_take_turns_whatever_they_wait_for() {
        let slots = FairSlots::new(1);
        let busy = now(&slots, "x").unwrap();
        let wait = async |namespace: &'static str| {
            drop(slots.one(namespace).await);
            namespace
        };
        let mut waiting: futures::stream::FuturesUnordered<_> =
            ["a", "a", "a", "b", "c", "b"].into_iter().map(wait).collect();
        assert_eq!(poll!(futures::StreamExt::next(&mut waiting)), Poll::Pending);
        drop(busy);
        let order: String = futures::StreamExt::collect::<Vec<_>>(waiting).await.concat();
        assert_eq!(order, "abcaba");
    }

    #[tokio::test]
    async fn what_was_taken_over_waits_for_what_is_new_and_not_for_ever() {
        let slots = FairSlots::new(1);
        let busy = now(&slots, "x").unwrap();
        let wait = async |uid: &'static str| {
            match uid {
                "new" => drop(slots.one("a").await),
                _ => drop(slots.one_later("a", uid).await),
            }
            uid
        };
        let mut waiting: futures::stream::FuturesUnordered<_> =
            ["b", "c", "new", "new", "new", "new", "d"].into_iter().map(wait).collect();
        assert_eq!(poll!(futures::StreamExt::next(&mut waiting)), Poll::Pending);
        slots.hurry("a", "d");
        slots.hurry("a", "e");
        drop(busy);
        let order: Vec<_> = futures::StreamExt::collect(waiting).await;
        assert_eq!(order, ["new", "new", "new", "b", "new", "d", "c"]);
        assert_eq!(slots.load(), (1, 0));
    }

    #[tokio::test]
    async fn a_waiter_that_gave_up_takes_no_slot_and_closing_ends_all_waits() {
        let slots = FairSlots::new(1);
        let busy = now(&slots, "a").unwrap();
        let mut gone = Box::pin(slots.one("a"));
        let mut stays = Box::pin(slots.one("a"));
        assert!(poll!(&mut gone).is_pending() && poll!(&mut stays).is_pending());
        drop(gone);
        drop(busy);
        let last = stays.await.unwrap();
        let mut waits = Box::pin(slots.one("b"));
        assert!(poll!(&mut waits).is_pending());
        slots.close();
        assert!(waits.await.is_none() && slots.one("c").await.is_none());
        drop(last);
    }
}
