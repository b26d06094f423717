//! Packing from scratch, for jobs of a class for which no search finds a place.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::fit::{Fit, fill, fit, renamed};
use super::room::Room;
use super::search::Places;
use super::{MOVES_FOR_ONE, MOVES_IN_EXCHANGE, Seating, WHOLE};

/// The largest number of workers that are filled as full as possible, which is slow.
const FILLED_MAX: usize = 4;

/// A way to pack some jobs again.
struct Packing {
    places: Places,
    /// The jobs without a place in it.
    out: Vec<usize>,
    /// The number of jobs with a place that move in addition. A job without a place moves in any
    /// case.
    moves: usize,
}

/// The function from a job to its present or previous worker.
type Past<'a> = &'a dyn Fn(usize) -> Option<usize>;

/// The number of jobs without a place, and the percent that these jobs want in total.
type Left = (usize, usize);

impl Seating {
    /// Packs jobs of the class from scratch as long as that leaves out less: the jobs of the least
    /// reserved workers, and the jobs that are out. It starts with one worker and doubles the
    /// number up to all. A packing is used if it moves few held jobs for each job that gains a
    /// place, within the budget. Returns whether less is out.
    ///
    /// O(class · log workers) for each packing that is used.
    pub(super) fn pack(&mut self, class: &Range<usize>) -> bool {
        let mut is_better = false;
        while let Some((jobs, packing)) = self.better_packing(class) {
            is_better = true;
            self.moves_left -= packing.moves;
            for wish in jobs {
                self.stand_up(wish);
            }
            self.carry_out(packing.places);
        }
        is_better
    }

    /// Packs the whole class by first-fit decreasing, if that leaves out less. The class has no
    /// held job.
    pub(super) fn pack_all_first_fit(&mut self, class: Range<usize>) {
        let out: Vec<_> = self.out(&class);
        if out.is_empty() || class.len() == 1 {
            return;
        }
        self.leave_places(&class);
        let jobs: Vec<_> = class.clone().collect();
        let places = fit(&self.wishes, &jobs, &mut self.next_to_better, Fit::First);
        self.take_places(&class);
        if self.left(&without(&jobs, &places)) < self.left(&out) {
            for wish in class {
                self.stand_up(wish);
            }
            self.carry_out(places);
        }
    }

    /// Returns the jobs that are packed again, and the first packing that leaves out less.
    fn better_packing(&mut self, class: &Range<usize>) -> Option<(Vec<usize>, Packing)> {
        let out = self.out(class);
        if out.is_empty() || class.len() == 1 {
            return None;
        }
        self.list_residents();
        let mut count = 1;
        while count <= class.len() && count < self.next_to_better.len() {
            let workers = self.next_to_better.least_reserved_first(count);
            let out = self.that_may_fit(&out, count);
            let jobs = self.jobs_of(&workers, &out);
            if let Some(packing) = self.pack_some(&workers, &jobs, &out) {
                return Some((jobs, packing));
            }
            count *= 2;
        }
        let packing = self.pack_all(class, &out)?;
        Some((class.clone().collect(), packing))
    }

    /// Returns the jobs of the class without a place.
    fn out(&self, class: &Range<usize>) -> Vec<usize> {
        class.clone().filter(|wish| self.seats[*wish].is_none()).collect()
    }

    /// Returns as many jobs of each size as fit on this number of workers at most. `jobs` are in
    /// the order of their size.
    fn that_may_fit(&self, jobs: &[usize], workers: usize) -> Vec<usize> {
        let share = |wish: usize| self.wishes[wish].share;
        let equals = jobs.chunk_by(|one, other| share(*one) == share(*other));
        let few = equals.flat_map(|equals| {
            let most = workers * usize::from(WHOLE / share(equals[0]));
            &equals[..most.min(equals.len())]
        });
        few.copied().collect()
    }

    /// Returns the jobs of the class on these workers, and the jobs that are out, the largest
    /// first.
    fn jobs_of(&self, workers: &[usize], out: &[usize]) -> Vec<usize> {
        let residents = workers.iter().flat_map(|at| &self.residents[*at]).copied();
        let is_movable =
            |wish: &usize| self.wishes[*wish].rank == self.rank && self.wishes[*wish].pin.is_none();
        let mut jobs: Vec<_> = residents.filter(is_movable).chain(out.iter().copied()).collect();
        jobs.sort_unstable();
        jobs
    }

    fn pack_some(&self, workers: &[usize], jobs: &[usize], out: &[usize]) -> Option<Packing> {
        let number: BTreeMap<_, _> = workers.iter().zip(0..).map(|(at, n)| (*at, n)).collect();
        let number = |at: usize| number.get(&at).copied();
        let kind = |at: &usize| self.next_to_better.kind(*at);
        let (mut sizes, mut caps): (Vec<_>, Vec<_>) = workers.iter().map(kind).unzip();
        for wish in jobs {
            if let Some(n) = self.seats[*wish].and_then(number) {
                sizes[n] += self.wishes[*wish].share;
                caps[n] += 1;
            }
        }
        let mut room = Room::new(&caps, &sizes);
        let mut ways = vec![
            fit(&self.wishes, jobs, &mut room, Fit::First),
            fit(&self.wishes, jobs, &mut room, Fit::LeastReserved),
        ];
        if workers.len() <= FILLED_MAX {
            let seat = |wish: usize| self.seats[wish].and_then(number);
            ways.push(fill(&self.wishes, jobs, &room, seat));
        }
        let named = |places: Places, past: Past<'_>| {
            let past = |wish: usize| past(wish).and_then(number);
            let places = renamed(places, |n| room.kind(n), past);
            places.into_iter().map(|(wish, n)| (wish, workers[n])).collect()
        };
        self.best(ways, jobs, out, 0, named)
    }

    fn pack_all(&mut self, class: &Range<usize>, out: &[usize]) -> Option<Packing> {
        self.leave_places(class);
        let jobs: Vec<_> = class.clone().collect();
        let both = [Fit::First, Fit::LeastReserved];
        let ways = both.map(|how| fit(&self.wishes, &jobs, &mut self.next_to_better, how));
        let kind = |at: usize| self.next_to_better.kind(at);
        let named = |places: Places, past: Past<'_>| renamed(places, kind, past);
        let best = self.best(ways.into(), &jobs, out, MOVES_IN_EXCHANGE, named);
        self.take_places(class);
        best
    }

    /// Returns the packing that leaves out the least; ties go to the one with the fewest moves.
    ///
    /// Equal workers get their names by the holders of jobs, and by their present places. A later
    /// plan knows only the latter, and must find no cheaper packing.
    fn best(
        &self,
        ways: Vec<Places>,
        jobs: &[usize],
        out: &[usize],
        in_exchange: usize,
        named: impl Fn(Places, Past<'_>) -> Places,
    ) -> Option<Packing> {
        let (holder, seat) =
            (|wish: usize| self.wishes[wish].holder, |wish: usize| self.seats[wish]);
        let pasts: [Past<'_>; 2] = [&holder, &seat];
        let mut best: Option<Packing> = None;
        for places in ways {
            let now_out = without(jobs, &places);
            let left = self.left(&now_out);
            if left >= self.left(out) {
                continue;
            }
            for past in pasts {
                let places = named(places.clone(), past);
                let moves = self.moves(jobs, &places);
                let packing = Packing { moves, places, out: now_out.clone() };
                let key = |packing: &Packing| (self.left(&packing.out), packing.moves);
                let is_better = best.as_ref().is_none_or(|best| key(&packing) < key(best));
                if is_better && self.may_move(&packing, out, in_exchange) {
                    best = Some(packing);
                }
            }
        }
        best
    }

    /// Returns how many more jobs with a place are away from their holders than now.
    fn moves(&self, jobs: &[usize], places: &Places) -> usize {
        let is_away = |(wish, at): &(usize, usize)| {
            self.wishes[*wish].holder.is_some_and(|holder| holder != *at)
        };
        let before = jobs.iter().filter_map(|wish| Some((*wish, self.seats[*wish]?)));
        let before = before.filter(is_away).count();
        let after = places.iter().filter(|(wish, _)| self.seats[*wish].is_some());
        after.filter(|place| is_away(place)).count().saturating_sub(before)
    }

    /// Returns whether the gain is worth the moves. A running job that loses its place counts as a
    /// move. `in_exchange` is the number of further moves or stops for each job that gains a place.
    fn may_move(&self, packing: &Packing, out: &[usize], in_exchange: usize) -> bool {
        let seat = |wish: &usize| self.seats[*wish];
        let stay_out = packing.out.iter().filter(|wish| seat(wish).is_none()).count();
        let runs = |wish: &&usize| seat(wish).is_some() && seat(wish) == self.wishes[**wish].holder;
        let stopped = packing.out.iter().filter(runs).count();
        let fewer = out.len().saturating_sub(packing.out.len());
        let gained = out.len() - stay_out;
        packing.moves <= self.moves_left
            && packing.moves + stopped <= fewer * MOVES_FOR_ONE + gained * in_exchange
    }

    fn left(&self, jobs: &[usize]) -> Left {
        let share = |wish: &usize| usize::from(self.wishes[*wish].share);
        (jobs.len(), jobs.iter().map(share).sum())
    }

    /// Frees the places of the class.
    fn leave_places(&mut self, class: &Range<usize>) {
        for wish in class.clone() {
            self.next_to_better.give_to(self.seats[wish], &self.wishes[wish]);
        }
    }

    /// Ends [`leave_places`](Self::leave_places).
    fn take_places(&mut self, class: &Range<usize>) {
        for wish in class.clone() {
            self.next_to_better.take_from(self.seats[wish], &self.wishes[wish]);
        }
    }
}

/// Returns the jobs without a place.
fn without(jobs: &[usize], places: &Places) -> Vec<usize> {
    let seen: BTreeSet<_> = places.iter().map(|(wish, _)| *wish).collect();
    jobs.iter().copied().filter(|wish| !seen.contains(wish)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Wish;
    use super::*;

    /// Jobs of two workers, the largest first, each with its share and its holder.
    fn seating(jobs: &[(u8, Option<usize>)]) -> Seating {
        let wish = |(job, (share, holder)): (u32, &(u8, Option<usize>))| {
            let (share, holder) = (*share, *holder);
            Wish { job, share, rank: 0, pin: None, holder }
        };
        let wishes: Vec<_> = (0..).zip(jobs).map(wish).collect();
        let mut seating = Seating::new(wishes, &[9; 2], &[100; 2]);
        for (wish, (_, at)) in jobs.iter().enumerate() {
            if let Some(at) = at {
                seating.sit(wish, *at);
            }
        }
        seating
    }

    #[test]
    fn a_packing_moves_no_more_jobs_than_the_budget_has_left() {
        let jobs = [(60, None), (40, Some(0)), (40, Some(1)), (30, Some(0)), (30, Some(1))];
        let mut seating = seating(&jobs);
        seating.moves_left = 0;
        assert!(!seating.pack(&(0..5)));
        seating.moves_left = 3;
        assert!(seating.pack(&(0..5)));
        assert!(seating.seats.iter().all(Option::is_some));
        assert_eq!(seating.moves_left, 2, "one job moved");
    }
}
