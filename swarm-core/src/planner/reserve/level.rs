//! Balance of the reserved parts: few jobs move from the most to the least reserved workers.

use std::collections::BTreeSet;

use super::Seating;

impl Seating {
    /// Moves jobs from the most to the least reserved worker, while these differ by more than
    /// `tolerance` percent and a move reduces the difference. The job that halves the difference
    /// best moves. Returns the held jobs that move, and the held jobs that would move with a larger
    /// budget, both ascending. Nothing moves while a job is out, since the free room may become its
    /// place.
    ///
    /// Every move lowers the sum of the squares of the reserved parts. So this ends, and a second
    /// plan moves nothing. O(jobs · log jobs) for jobs of similar size.
    pub(super) fn level(&mut self, tolerance: u8, budget: usize) -> (Vec<u32>, Vec<u32>) {
        if self.seats.iter().any(Option::is_none) {
            return (Vec::new(), Vec::new());
        }
        self.list_residents();
        (self.rank, self.later) = (u32::MAX, 0);
        self.next_to_better = self.next_to_all.clone();
        let all = 0..self.next_to_all.len();
        let mut givers: BTreeSet<_> = all.map(|at| (self.next_to_all.free(at), at)).collect();
        let (mut moved, mut deferred, mut affordable) = (BTreeSet::new(), BTreeSet::new(), None);
        while let Some((free, from)) = givers.first().copied() {
            let most = self.next_to_all.most();
            let difference = most.saturating_sub(free);
            let Some(to) = self.next_to_all.first(most, 0).filter(|_| tolerance < difference)
            else {
                break;
            };
            let Some(wish) = self.best_to_give(from, difference) else {
                givers.pop_first();
                continue;
            };
            if self.wishes[wish].holder.is_some() && !moved.contains(&wish) {
                if affordable.is_none() && moved.len() == budget {
                    // Later plans make the remaining moves.
                    affordable = Some(self.seats.clone());
                }
                let list = if affordable.is_none() { &mut moved } else { &mut deferred };
                list.insert(wish);
            }
            givers.remove(&(self.next_to_all.free(to), to));
            givers.remove(&(free, from));
            self.stand_up(wish);
            self.sit(wish, to);
            givers.extend([from, to].map(|at| (self.next_to_all.free(at), at)));
        }
        let seats = affordable.into_iter().flatten().enumerate();
        self.carry_out(seats.filter_map(|(wish, at)| Some((wish, at?))).collect());
        let jobs = |wishes: BTreeSet<usize>| {
            let mut jobs: Vec<_> = wishes.into_iter().map(|wish| self.wishes[wish].job).collect();
            jobs.sort_unstable();
            jobs
        };
        (jobs(moved), jobs(deferred))
    }

    /// Returns the job whose move halves a difference best; ties go to the least important. `None`
    /// if no move reduces the difference.
    fn best_to_give(&self, from: usize, difference: u8) -> Option<usize> {
        let share = |wish: &usize| self.wishes[*wish].share;
        let may_move = |wish: &usize| self.wishes[*wish].pin.is_none() && share(wish) < difference;
        let movable = self.residents[from].iter().rev().copied().filter(may_move);
        movable.min_by_key(|wish| (2 * u16::from(share(wish))).abs_diff(difference.into()))
    }
}
