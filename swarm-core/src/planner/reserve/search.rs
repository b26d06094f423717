//! A bounded search for places: which jobs make room for others so that the fewest move.

use std::cmp::Reverse;
use std::ops::Range;

use super::Wish;
use super::room::Room;

/// Looks for places for some jobs by evicting others, which then need places themselves.
///
/// For a given number of evictions it tries every way to reach every placement: the largest job
/// without a place goes to a worker where it fits, or to one from which the fewest jobs leave that
/// make it fit. A job that was placed stays where it is. So the search finds a placement if one with
/// so many evictions exists, unless `steps` runs out. What it looks at depends on the places and
/// sizes of jobs only, not on who held them, so a second plan from the result finds the same.
pub(super) struct Search<'a> {
    pub(super) wishes: &'a [Wish],
    /// The jobs of each worker, ascending.
    pub(super) residents: &'a [Vec<usize>],
    pub(super) room: &'a mut Room,
    /// The ranks of the jobs that may be evicted.
    pub(super) ranks: Range<u32>,
    /// How many more workers and jobs may be looked at.
    pub(super) steps: usize,
    /// Whether a job without a place that returns to its holder saves a move.
    pub(super) may_return: bool,
}

/// Where jobs go.
pub(super) type Places = Vec<(usize, usize)>;

/// The state of one search.
struct Walk<'a, 'b> {
    search: &'b mut Search<'a>,
    /// The workers, the least reserved first.
    order: Vec<usize>,
    pending: Vec<usize>,
    evicted: Vec<usize>,
    placed: Places,
}

impl Search<'_> {
    /// Places for all of `pending`, and for the jobs evicted for them, with at most `evictions`; a
    /// job that returns to its holder makes up for an eviction. The room is left as it was.
    pub(super) fn places(&mut self, pending: &[usize], evictions: isize) -> Option<Places> {
        let mut order: Vec<_> = (0..self.residents.len()).collect();
        order.sort_by_key(|at| Reverse(self.room.free(*at)));
        let (pending, evicted) = (pending.to_vec(), Vec::new());
        let mut walk = Walk { search: self, order, pending, evicted, placed: Vec::new() };
        walk.settle(evictions).then_some(walk.placed)
    }
}

impl Walk<'_, '_> {
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
        for i in 0..self.order.len() {
            let Some(steps) = self.search.steps.checked_sub(1) else { return false };
            self.search.steps = steps;
            let at = self.order[i];
            if self.search.wishes[wish].pin.is_some_and(|pin| pin != at) {
                continue;
            }
            let returns = self.may_return(wish) && self.search.wishes[wish].holder == Some(at);
            let left = left + isize::from(returns);
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
            } else if left > 0 && self.evict_for(wish, at, left) {
                return true;
            }
        }
        false
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

    fn evict_for(&mut self, wish: usize, at: usize, left: isize) -> bool {
        let wishes = self.search.wishes;
        let ranks = &self.search.ranks;
        let may_leave = |resident: &&usize| {
            let wish = &wishes[**resident];
            wish.pin.is_none() && ranks.contains(&wish.rank)
        };
        let residents = self.search.residents[at].iter().filter(may_leave).copied();
        let mut residents: Vec<_> =
            residents.filter(|resident| !self.evicted.contains(resident)).collect();
        // The smallest first, and of equal ones the least important.
        residents.sort_unstable_by_key(|resident| (wishes[*resident].share, Reverse(*resident)));
        self.evict_some(wish, at, &residents, left)
    }

    /// Evicts some of `residents`, one of each size first, until the job fits.
    fn evict_some(&mut self, wish: usize, at: usize, residents: &[usize], left: isize) -> bool {
        let wishes = self.search.wishes;
        // Even the largest ones would not make enough room.
        let most = residents.iter().rev().take(left.unsigned_abs());
        let most: usize = most.map(|resident| usize::from(wishes[*resident].share)).sum();
        if usize::from(self.search.room.free(at)) + most < usize::from(wishes[wish].share) {
            return false;
        }
        let mut size = 0;
        for (i, resident) in residents.iter().enumerate() {
            let Some(steps) = self.search.steps.checked_sub(1) else { return false };
            self.search.steps = steps;
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
                left > 1 && self.evict_some(wish, at, &residents[i + 1..], left - 1)
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
