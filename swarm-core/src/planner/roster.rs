//! The workers that take jobs, numbered in the order of their slots, and a lookup by slot.

use crate::{Member, Pool, Share, Slot, Standing};

/// The number of slots, from the lowest one on, that one load from a table finds:
/// `DIRECT_PER_WORKER` · workers + `DIRECT_MORE`.
const DIRECT_PER_WORKER: usize = 4;
const DIRECT_MORE: usize = 4_096;

/// The workers of a pool as the planner numbers them. Workers that take jobs have the numbers
/// `0..takers`; all others share one number for "keeps" and one for "gone".
#[derive(Clone, Debug)]
pub(super) struct Roster {
    /// The slots that take jobs, ascending.
    pub(super) takers: Vec<Slot>,
    /// The largest number of jobs of each taker; `usize::MAX` for any number.
    pub(super) caps: Vec<usize>,
    /// The part of each taker that jobs can reserve, in percent.
    pub(super) sizes: Vec<u8>,
    /// The lowest slot.
    first: u32,
    /// The number of each slot from the first one on; the last entry is for all other slots.
    direct: Vec<u32>,
    /// Slots beyond `direct`, ascending, with their numbers.
    beyond: Vec<(Slot, u32)>,
    /// The entry of `direct` that means "look into `beyond`".
    look_beyond: u32,
    /// Whether every slot that has its own entry in `direct` is filled.
    is_dense: bool,
}

/// The room of a worker.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Room {
    /// The largest number of jobs; `None` for any number.
    pub(crate) max_jobs: Option<u32>,
    /// The part that jobs can reserve; `None` for the whole worker.
    pub(crate) capacity: Option<Share>,
}

impl Room {
    /// Returns the greatest maximum and the greatest capacity in `pool`; no limit if the pool is
    /// empty.
    pub(super) fn greatest(pool: &Pool) -> Self {
        let mut rooms = pool.0.values().map(Self::of);
        let first = rooms.next().unwrap_or_default();
        rooms.fold(first, Self::or)
    }

    /// Returns the greater of this and the [greatest](Self::greatest) in `pool`.
    pub(super) fn or_of(self, pool: &Pool) -> Self {
        pool.0.values().map(Self::of).fold(self, Self::or)
    }

    fn of(member: &Member) -> Self {
        Self { max_jobs: member.max_jobs, capacity: member.capacity }
    }

    fn or(self, other: Self) -> Self {
        let max_jobs = if cap(self.max_jobs) < cap(other.max_jobs) { other } else { self }.max_jobs;
        let capacity =
            if size(self.capacity) < size(other.capacity) { other } else { self }.capacity;
        Self { max_jobs, capacity }
    }
}

/// Returns the largest number of jobs of a worker.
fn cap(max: Option<u32>) -> usize {
    max.map_or(usize::MAX, |max| max as usize)
}

/// Returns the part of a worker that jobs can reserve, in percent.
fn size(capacity: Option<Share>) -> u8 {
    capacity.map_or(100, Share::percent)
}

impl Roster {
    pub(super) fn new(pool: &Pool) -> Self {
        let there = || pool.0.iter().filter(|(slot, _)| slot.some().is_some());
        let taking = || there().filter(|(_, member)| member.standing == Standing::Takes);
        let takers: Vec<_> = taking().map(|(slot, _)| *slot).collect();
        let caps = taking().map(|(_, member)| cap(member.max_jobs)).collect();
        let sizes = taking().map(|(_, member)| size(member.capacity)).collect();
        let kept = super::columns::number(takers.len());
        let (gone, look_beyond) = (kept + 1, kept + 2);
        let first = pool.0.keys().next().map_or(0, |slot| slot.0);
        let place = |slot: &Slot| (slot.0 - first) as usize;
        let limit = DIRECT_PER_WORKER * pool.0.len() + DIRECT_MORE;
        let highest = pool.0.keys().map(place).take_while(|place| *place < limit).last();
        let mut direct = vec![gone; highest.map_or(0, |highest| highest + 1) + 1];
        let mut beyond = Vec::new();
        let mut taker = 0;
        for (slot, member) in there() {
            let number = match member.standing {
                Standing::Takes => {
                    taker += 1;
                    taker - 1
                }
                Standing::Keeps => kept,
            };
            match direct.get_mut(place(slot)) {
                Some(entry) if place(slot) < limit => *entry = number,
                Some(_) | None => beyond.push((*slot, number)),
            }
        }
        if let Some(last) = direct.last_mut().filter(|_| !beyond.is_empty()) {
            *last = look_beyond;
        }
        let is_dense = direct.iter().rev().skip(1).all(|number| *number < gone);
        Self { takers, caps, sizes, first, direct, beyond, look_beyond, is_dense }
    }

    /// Creates workers that all take jobs, in the slots 0, 1, 2, …. Each has the room of the worker
    /// that `pool` has in its slot, or else the room `more`.
    pub(super) fn ready(workers: u32, pool: &Pool, more: Room) -> Self {
        let (gone, look_beyond) = (workers + 1, workers + 2);
        let mut caps = vec![cap(more.max_jobs); workers as usize];
        let mut sizes = vec![size(more.capacity); workers as usize];
        for (slot, member) in pool.0.range(..Slot(workers)) {
            caps[slot.0 as usize] = cap(member.max_jobs);
            sizes[slot.0 as usize] = size(member.capacity);
        }
        Self {
            takers: (0..workers).map(Slot).collect(),
            caps,
            sizes,
            first: 0,
            direct: (0..workers).chain([gone]).collect(),
            beyond: Vec::new(),
            look_beyond,
            is_dense: true,
        }
    }

    /// Returns the number of all workers that keep.
    pub(super) fn kept(&self) -> usize {
        self.takers.len()
    }

    /// Returns the number of all workers that no longer exist, and of [`Slot::NOBODY`].
    pub(super) fn gone(&self) -> usize {
        self.takers.len() + 1
    }

    /// Returns the number of the worker in `slot`. O(1) if slots are dense, else O(log workers).
    #[inline]
    pub(super) fn at(&self, slot: Slot) -> usize {
        let found = self.direct[self.place(slot)];
        if found == self.look_beyond { self.search(slot) } else { found as usize }
    }

    /// Returns whether any of `slots` may have the number for "gone"; exact if slots are dense.
    #[inline]
    pub(super) fn may_be_gone(&self, slots: &[Slot]) -> bool {
        let count = if self.is_dense {
            // This needs no lookup, so several slots are compared at once.
            let last = super::columns::number(self.direct.len() - 1);
            slots.iter().filter(|slot| slot.0.wrapping_sub(self.first) >= last).count()
        } else {
            let gone = self.look_beyond - 1;
            slots.iter().filter(|slot| self.direct[self.place(**slot)] >= gone).count()
        };
        count > 0
    }

    /// Returns the index of `slot` in `direct`. Slots below the first one wrap around to the last
    /// index.
    #[inline]
    fn place(&self, slot: Slot) -> usize {
        (slot.0.wrapping_sub(self.first) as usize).min(self.direct.len() - 1)
    }

    #[cold]
    fn search(&self, slot: Slot) -> usize {
        let at = self.beyond.binary_search_by_key(&slot, |(slot, _)| *slot);
        at.map_or(self.gone(), |at| self.beyond[at].1 as usize)
    }

    /// Returns the taker that fills `slot`, if there is one.
    pub(super) fn taker(&self, slot: Slot) -> Option<usize> {
        Some(self.at(slot)).filter(|number| *number < self.takers.len())
    }

    /// Returns the number of jobs of each number: the takers, then "keeps", then "gone".
    pub(super) fn count(&self, held: &[Slot]) -> Vec<usize> {
        let mut counts = vec![0; self.takers.len() + 2];
        if self.beyond.is_empty() {
            for (count, number) in self.histogram(held).into_iter().zip(&self.direct) {
                counts[*number as usize] += count as usize;
            }
        } else {
            for slot in held {
                counts[self.at(*slot)] += 1;
            }
        }
        counts
    }

    /// Returns how often each slot of `direct` occurs in `held`.
    fn histogram(&self, held: &[Slot]) -> Vec<u32> {
        // Two arrays are used in turn. With one, neighbours with the same holder would make an
        // increment wait for the store before it.
        let mut counts = [vec![0_u32; self.direct.len()], vec![0_u32; self.direct.len()]];
        let (even, odd) = counts.split_at_mut(1);
        let mut pairs = held.chunks_exact(2);
        for pair in &mut pairs {
            even[0][self.place(pair[0])] += 1;
            odd[0][self.place(pair[1])] += 1;
        }
        for slot in pairs.remainder() {
            even[0][self.place(*slot)] += 1;
        }
        even[0].iter().zip(&odd[0]).map(|(even, odd)| even + odd).collect()
    }
}
