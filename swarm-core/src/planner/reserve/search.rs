//! A bounded search for places: which jobs make room for others so that the fewest move.

use std::cmp::Reverse;
use std::ops::Range;

use super::Wish;
use super::room::Room;

/// How many workers and jobs one search may look at: so many, or so many for each worker if that is
/// more. A pool of equal workers is looked at once for each number of evictions.
const STEPS_MAX: usize = 30_000;
const STEPS_PER_WORKER: usize = 8;

/// Looks for places for some jobs by evicting others, which then need places themselves.
///
/// For a given number of evictions it tries every way to reach every placement: the largest job
/// without a place goes to a worker where it fits, or to one from which the fewest jobs leave that
/// make it fit. A job that was placed stays where it is. So the search finds a placement if one with
/// so many evictions exists, unless the steps run out. What it looks at depends on the places and
/// sizes of jobs only, not on who held them, so a second plan from the result finds the same.
pub(super) struct Search<'a> {
    pub(super) wishes: &'a [Wish],
    /// The jobs of each worker, ascending.
    pub(super) residents: &'a [Vec<usize>],
    pub(super) room: &'a mut Room,
    /// The ranks of the jobs that may be evicted.
    pub(super) ranks: Range<u32>,
    /// Whether a job without a place that returns to its holder saves a move.
    pub(super) may_return: bool,
}

/// Where jobs go.
pub(super) type Places = Vec<(usize, usize)>;

/// The state of one search.
struct Walk<'a> {
    search: Search<'a>,
    /// How many more workers and jobs may be looked at.
    steps: usize,
    /// The workers, the least reserved first.
    order: Vec<usize>,
    pending: Vec<usize>,
    evicted: Vec<usize>,
    placed: Places,
}

impl<'a> Search<'a> {
    /// Places for all of `pending`, and for the jobs evicted for them, with the first of these
    /// numbers of evictions that is enough; a job that returns to its holder makes up for an
    /// eviction. The numbers ascend. `None` too if the steps are used up. The room is left as it was.
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

    /// Whether everything pending finds a place. If not, all is as it was before.
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

    /// The last job goes to the least reserved worker.
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
        // The last worker that was tried in vain.
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
            // Others that are pending may make up for evictions later.
            let most = slack - isize::from(may_return) + isize::from(returns);
            // Without evictions, workers of one kind are all the same.
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

    /// Whether two workers differ in nothing that the search looks at: what fails with one of them
    /// fails with the other. Where jobs may return, their holders differ.
    fn are_alike(&self, one: usize, other: usize) -> bool {
        let room = &self.search.room;
        let wishes = self.search.wishes;
        let shares = |at| self.may_leave(at).map(|resident| wishes[resident].share);
        !self.search.may_return
            && room.kind(one) == room.kind(other)
            && shares(one).eq(shares(other))
    }

    /// The jobs of a worker that may be evicted.
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
        // The smallest first, and of equal ones the least important.
        residents.sort_unstable_by_key(|resident| (wishes[*resident].share, Reverse(*resident)));
        self.evict_some((wish, at), &residents, left, most)
    }

    /// Evicts some of `residents`, at most so many, one of each size first, until the job fits.
    fn evict_some(
        &mut self,
        (wish, at): (usize, usize),
        residents: &[usize],
        left: isize,
        most: isize,
    ) -> bool {
        let wishes = self.search.wishes;
        // Even the largest ones would not make enough room.
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

    /// Workers of 34 and 33 percent each, and a job of 100: what a search from nothing used of its
    /// steps.
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
