//! A bounded search for places: chooses the jobs that make room for others with the fewest moves.

use std::cmp::Reverse;
use std::ops::Range;

use super::Wish;
use super::room::Room;

/// The budget of one search, in workers and jobs that it examines: the larger of `STEPS_MAX` and
/// `STEPS_PER_WORKER` · workers. Equal workers are examined once for each number of evictions.
const STEPS_MAX: usize = 30_000;
const STEPS_PER_WORKER: usize = 8;

/// Looks for places for some jobs by evicting others, which then need places themselves.
///
/// For a given number of evictions it tries every way to reach every placement. The largest job
/// without a place goes to a worker with room, or to a worker where the fewest evictions make room.
/// A placed job stays where it is. So the search finds a placement with that many evictions if one
/// exists, unless the steps run out. It depends on the places and sizes of jobs only, not on their
/// holders, so a second plan from the result finds the same.
pub(super) struct Search<'a> {
    pub(super) wishes: &'a [Wish],
    /// The jobs of each worker, ascending.
    pub(super) residents: &'a [Vec<usize>],
    pub(super) room: &'a mut Room,
    /// The ranks of the jobs that may be evicted.
    pub(super) ranks: Range<u32>,
    /// Whether returning a job without a place to its holder saves a move.
    pub(super) may_return: bool,
}

/// The new places of jobs: pairs of wish and worker.
pub(super) type Places = Vec<(usize, usize)>;

/// The state of one search.
struct Walk<'a> {
    search: Search<'a>,
    /// The number of further workers and jobs that may be examined.
    steps: usize,
    /// The workers, the least reserved first.
    order: Vec<usize>,
    pending: Vec<usize>,
    evicted: Vec<usize>,
    placed: Places,
}

impl<'a> Search<'a> {
    /// Returns places for all of `pending`, and for the jobs evicted for them. It uses the first of
    /// these ascending numbers of evictions that is enough. A job that returns to its holder makes
    /// up for an eviction. `None` if no number is enough or the steps are used up. The room stays
    /// unchanged.
    pub(super) fn fewest(
        self,
        pending: &[usize],
        evictions: impl IntoIterator<Item = isize>,
    ) -> Option<Places> {
        let mut walk = self.walk(pending);
        walk.fewest(evictions).then_some(walk.placed)
    }

    fn walk(self, pending: &[usize]) -> Walk<'a> {
        let workers = self.residents.len();
        let steps = STEPS_MAX.max(workers.saturating_mul(STEPS_PER_WORKER));
        let mut order: Vec<_> = (0..workers).collect();
        order.sort_by_key(|at| Reverse(self.room.free(*at)));
        let (pending, evicted, placed) = (pending.to_vec(), Vec::new(), Vec::new());
        Walk { search: self, steps, order, pending, evicted, placed }
    }
}

impl Walk<'_> {
    fn fewest(&mut self, evictions: impl IntoIterator<Item = isize>) -> bool {
        for evictions in evictions {
            if self.settle(evictions) {
                return true;
            }
            if self.steps == 0 {
                return false;
            }
        }
        false
    }

    /// Returns whether all pending jobs find a place. If not, everything stays unchanged.
    fn settle(&mut self, left: isize) -> bool {
        let wishes = self.search.wishes;
        let largest = |(_, wish): &(usize, &usize)| (Reverse(wishes[**wish].share), **wish);
        let Some((position, _)) = self.pending.iter().enumerate().min_by_key(largest) else {
            return left >= 0;
        };
        let returns = self.pending.iter().filter(|wish| self.may_return(**wish)).count();
        let slack = left.saturating_add_unsigned(returns);
        let wish = self.pending[position];
        if slack < 0 || slack == 0 && self.search.room.most() < wishes[wish].share {
            return false;
        }
        self.pending.swap_remove(position);
        let found = if self.pending.is_empty() && left >= 0 && self.fits_somewhere(wish) {
            true
        } else {
            self.try_all(wish, left, slack)
        };
        if !found {
            self.pending.push(wish);
        }
        found
    }

    /// Places the last job at the least reserved worker.
    fn fits_somewhere(&mut self, wish: usize) -> bool {
        let job = &self.search.wishes[wish];
        let at = match job.pin {
            Some(pin) => Some(pin).filter(|pin| self.search.room.has(*pin, job)),
            None => self.search.room.least_reserved(job),
        };
        self.placed.extend(at.map(|at| (wish, at)));
        at.is_some()
    }

    fn try_all(&mut self, wish: usize, left: isize, slack: isize) -> bool {
        let mut failed_at = None;
        // The last worker that was tried without success.
        let mut vain: Option<usize> = None;
        for i in 0..self.order.len() {
            let Some(steps) = self.steps.checked_sub(1) else { return false };
            self.steps = steps;
            let at = self.order[i];
            if self.search.wishes[wish].pin.is_some_and(|pin| pin != at) {
                continue;
            }
            let may_return = self.may_return(wish);
            let returns = may_return && self.search.wishes[wish].holder == Some(at);
            let left = left + isize::from(returns);
            // Other pending jobs may make up for evictions later.
            let most = slack - isize::from(may_return) + isize::from(returns);
            // Without evictions, all workers of one kind are equivalent.
            let kind = (slack == 0 && !returns).then(|| self.search.room.kind(at));
            if kind.is_some() && kind == failed_at {
                continue;
            }
            if self.search.room.has(at, &self.search.wishes[wish]) {
                if self.place(wish, at, left) {
                    return true;
                }
                failed_at = kind.or(failed_at);
            } else if most > 0 {
                if vain.is_some_and(|vain| self.are_alike(vain, at)) {
                    continue;
                }
                if self.evict_for(wish, at, left, most) {
                    return true;
                }
                vain = Some(at);
            }
        }
        false
    }

    /// Returns whether the search cannot distinguish two workers: a failure with one of them
    /// implies a failure with the other. If jobs may return, the holders of the workers' jobs
    /// differ.
    fn are_alike(&self, one: usize, other: usize) -> bool {
        let room = &self.search.room;
        let wishes = self.search.wishes;
        let shares = |at| self.may_leave(at).map(|resident| wishes[resident].share);
        !self.search.may_return
            && room.kind(one) == room.kind(other)
            && shares(one).eq(shares(other))
    }

    /// Returns the jobs of a worker that may be evicted.
    fn may_leave(&self, at: usize) -> impl Iterator<Item = usize> {
        self.search.residents[at].iter().copied().filter(move |resident| {
            let wish = &self.search.wishes[*resident];
            let may_leave = wish.pin.is_none() && self.search.ranks.contains(&wish.rank);
            may_leave && !self.evicted.contains(resident)
        })
    }

    fn may_return(&self, wish: usize) -> bool {
        let has_holder = self.search.wishes[wish].holder.is_some();
        self.search.may_return && has_holder && !self.evicted.contains(&wish)
    }

    fn place(&mut self, wish: usize, at: usize, left: isize) -> bool {
        self.search.room.take(at, &self.search.wishes[wish]);
        self.placed.push((wish, at));
        let before = self.placed.len();
        let found = self.settle(left);
        self.search.room.give(at, &self.search.wishes[wish]);
        if !found {
            self.placed.truncate(before - 1);
        }
        found
    }

    fn evict_for(&mut self, wish: usize, at: usize, left: isize, most: isize) -> bool {
        let wishes = self.search.wishes;
        let mut residents: Vec<_> = self.may_leave(at).collect();
        // The smallest job comes first; ties go to the least important.
        residents.sort_unstable_by_key(|resident| (wishes[*resident].share, Reverse(*resident)));
        self.evict_some((wish, at), &residents, left, most)
    }

    /// Evicts at most `most` of `residents`, one of each size first, until the job fits.
    fn evict_some(
        &mut self,
        (wish, at): (usize, usize),
        residents: &[usize],
        left: isize,
        most: isize,
    ) -> bool {
        let wishes = self.search.wishes;
        // Even the largest jobs would not make enough room.
        let largest = residents.iter().rev().take(most.unsigned_abs());
        let largest: usize = largest.map(|resident| usize::from(wishes[*resident].share)).sum();
        if usize::from(self.search.room.free(at)) + largest < usize::from(wishes[wish].share) {
            return false;
        }
        let mut size = 0;
        for (i, resident) in residents.iter().enumerate() {
            let Some(steps) = self.steps.checked_sub(1) else { return false };
            self.steps = steps;
            let share = wishes[*resident].share;
            if share == size {
                continue;
            }
            size = share;
            self.search.room.give(at, &wishes[*resident]);
            self.evicted.push(*resident);
            self.pending.push(*resident);
            let found = if self.search.room.has(at, &wishes[wish]) {
                self.place(wish, at, left - 1)
            } else {
                most > 1 && self.evict_some((wish, at), &residents[i + 1..], left - 1, most - 1)
            };
            self.search.room.take(at, &wishes[*resident]);
            if found {
                return true;
            }
            self.pending.retain(|pending| pending != resident);
            self.evicted.pop();
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Workers of 34 and 33 percent each, and a job of 100 percent: the number of steps that a
    /// search from scratch used.
    #[test]
    fn equal_workers_are_looked_at_once_for_each_number_of_evictions() {
        for workers in [10_000, 100_000] {
            let wish = |(job, share)| Wish { job, share, rank: 0, pin: None, holder: None };
            let shares = [34, 33].into_iter().cycle().take(2 * workers).chain([100]);
            let wishes: Vec<_> = (0..).zip(shares).map(wish).collect();
            let mut room = Room::new(&vec![9; workers], &vec![100; workers]);
            let residents: Vec<_> = (0..workers).map(|at| vec![2 * at, 2 * at + 1]).collect();
            for (at, there) in residents.iter().enumerate() {
                for resident in there {
                    room.take(at, &wishes[*resident]);
                }
            }
            let (wishes, residents, room) = (&*wishes, &*residents, &mut room);
            let search = Search { wishes, residents, room, ranks: 0..1, may_return: false };
            let mut walk = search.walk(&[2 * workers]);
            let steps = walk.steps;
            assert!(walk.fewest(1..=6));
            assert_eq!(walk.placed.len(), 4, "the job and three that make room");
            let used = steps - walk.steps;
            assert!(used < 2 * workers + 100, "{used} steps with {workers} workers");
        }
    }
}
