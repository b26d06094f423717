//! First-fit decreasing from nothing, and the search for the fewest moves of a whole class.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::Seating;
use super::search::{Places, Search};

impl Seating {
    /// Packs the class from nothing if that leaves out less, and the budget has the held jobs that
    /// move in addition. Returns whether it did. O(class · log workers).
    pub(super) fn pack(&mut self, class: Range<usize>) -> bool {
        let out = class.clone().filter(|wish| self.seats[*wish].is_none());
        let left = self.sum(out);
        if left.0 == 0 || class.len() == 1 {
            return false;
        }
        for wish in class.clone() {
            self.beside_better.give_to(self.seats[wish], &self.wishes[wish]);
        }
        let (packed, out) = self.first_fit_decreasing(class.clone());
        let packed = self.renamed(packed);
        for wish in class.clone() {
            self.beside_better.take_from(self.seats[wish], &self.wishes[wish]);
        }
        let is_away = |(wish, at): &(usize, usize)| {
            self.wishes[*wish].holder.is_some_and(|holder| holder != *at)
        };
        let seated = class.clone().filter_map(|wish| Some((wish, self.seats[wish]?)));
        let more = packed.iter().filter(|place| is_away(place)).count();
        let more = more.saturating_sub(seated.filter(is_away).count());
        if self.sum(out.into_iter()) >= left || more > self.moves_left {
            return false;
        }
        self.moves_left -= more;
        for wish in class {
            self.stand_up(wish);
        }
        self.carry_out(packed);
        true
    }

    /// Every job, largest first, goes to the lowest slot where it fits; and the jobs that fit
    /// nowhere. The class has left its places.
    fn first_fit_decreasing(&mut self, class: Range<usize>) -> (Places, Vec<usize>) {
        let (mut packed, mut out) = (Places::new(), Vec::new());
        let (mut size, mut from) = (0, Some(0));
        for wish in class {
            let job = &self.wishes[wish];
            if job.share != size {
                (size, from) = (job.share, Some(0));
            }
            // What a job of the same size did not fit is not looked at again.
            from = from.and_then(|from| self.beside_better.first(size, from));
            match from {
                Some(at) => {
                    self.beside_better.take(at, job);
                    packed.push((wish, at));
                }
                None => out.push(wish),
            }
        }
        for (wish, at) in &packed {
            self.beside_better.give(*at, &self.wishes[*wish]);
        }
        (packed, out)
    }

    /// How many jobs these are, and how many percent they want in total.
    fn sum(&self, jobs: impl Iterator<Item = usize>) -> (usize, usize) {
        jobs.fold((0, 0), |(jobs, sum), wish| {
            (jobs + 1, sum + usize::from(self.wishes[wish].share))
        })
    }

    /// Exchanges workers that differ in nothing but their slot, so that many jobs stay with their
    /// holders: the pair with the most jobs in common first, then the next one. The class has left
    /// its places.
    fn renamed(&self, places: Places) -> Places {
        let kind = |at: usize| self.beside_better.kind(at);
        let mut common = BTreeMap::<(usize, usize), usize>::new();
        for (wish, at) in &places {
            let holder = self.wishes[*wish].holder;
            if let Some(holder) = holder.filter(|holder| kind(*at) == kind(*holder)) {
                *common.entry((*at, holder)).or_default() += 1;
            }
        }
        let mut pairs: Vec<_> = common.into_iter().collect();
        pairs.sort_by_key(|(_, count)| Reverse(*count));
        let mut name = BTreeMap::new();
        let mut named = BTreeMap::new();
        for ((at, holder), _) in pairs {
            if !name.contains_key(&at) && !named.contains_key(&holder) {
                name.insert(at, holder);
                named.insert(holder, at);
            }
        }
        // One without a name takes its own, or that of the one that took it, and so on.
        let own = |at: usize| {
            let mut own = at;
            while let Some(taken_by) = named.get(&own) {
                own = *taken_by;
            }
            own
        };
        let renamed = |at: usize| name.get(&at).copied().unwrap_or_else(|| own(at));
        places.into_iter().map(|(wish, at)| (wish, renamed(at))).collect()
    }

    /// Searches for places of the jobs that are seated now with fewer moves from where they were
    /// held, and uses what it finds. `stayed` is where jobs first stayed with their holders.
    pub(super) fn spare_moves(&mut self, stayed: &[Option<usize>]) -> bool {
        let seated = || (0..self.wishes.len()).filter(|wish| self.seats[*wish].is_some());
        let is_held = |wish: &usize| self.wishes[*wish].holder.is_some();
        let moved = seated().filter(is_held);
        let moved = moved.filter(|wish| self.seats[*wish] != self.wishes[*wish].holder).count();
        if moved == 0 {
            return false;
        }
        let mut room = self.beside_all.clone();
        for wish in seated() {
            room.give_to(self.seats[wish], &self.wishes[wish]);
        }
        let mut residents = vec![Vec::new(); room.len()];
        for wish in seated() {
            if let Some(at) = stayed[wish] {
                room.take(at, &self.wishes[wish]);
                residents[at].push(wish);
            }
        }
        let pending: Vec<_> = seated().filter(|wish| stayed[*wish].is_none()).collect();
        let away = pending.iter().filter(|wish| is_held(wish)).count();
        let (wishes, residents, ranks) = (&*self.wishes, &*residents, 0..u32::MAX);
        let search = Search { wishes, residents, room: &mut room, ranks, may_return: true };
        let evictions =
            (0..moved).filter_map(|moves| isize::try_from(moves).ok()?.checked_sub_unsigned(away));
        let Some(mut places) = search.fewest(&pending, evictions) else { return false };
        let found: BTreeSet<_> = places.iter().map(|(wish, _)| *wish).collect();
        let stays = seated().filter(|wish| !found.contains(wish));
        places.extend(stays.filter_map(|wish| Some((wish, stayed[wish]?))));
        self.rank = u32::MAX;
        self.carry_out(places);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::Wish;
    use super::*;

    /// Jobs of 60 %, each held by one of these workers.
    fn seating(holders: [usize; 4], caps: [usize; 4]) -> Seating {
        let wish = |(job, holder): (u32, usize)| Wish {
            job,
            share: 60,
            rank: 0,
            pin: None,
            holder: Some(holder),
        };
        Seating::new((0..).zip(holders).map(wish).collect(), &caps, &[100; 4])
    }

    #[test]
    fn equal_workers_change_names_so_that_their_jobs_stay() {
        let packed: Places = (0..4).map(|n| (n, n)).collect();
        let stay = vec![(0, 2), (1, 0), (2, 3), (3, 1)];
        assert_eq!(seating([2, 0, 3, 1], [9; 4]).renamed(packed.clone()), stay);
        // The third may have one job only: it is no equal of the others.
        let renamed = seating([2, 0, 3, 1], [9, 9, 1, 9]).renamed(packed);
        assert_eq!(renamed, [(0, 3), (1, 0), (2, 2), (3, 1)]);
    }
}
