//! The search for the fewest moves of all classes together.

use std::collections::BTreeSet;

use super::Seating;
use super::search::Search;

impl Seating {
    /// Searches for places of the seated jobs with fewer moves from their holders, and uses the
    /// result. `stayed` has the places of the jobs that first stayed with their holders.
    pub(super) fn spare_moves(&mut self, stayed: &[Option<usize>]) -> bool {
        let seated = || (0..self.wishes.len()).filter(|wish| self.seats[*wish].is_some());
        let is_held = |wish: &usize| self.wishes[*wish].holder.is_some();
        let moved = seated().filter(is_held);
        let moved = moved.filter(|wish| self.seats[*wish] != self.wishes[*wish].holder).count();
        if moved == 0 {
            return false;
        }
        let mut room = self.next_to_all.clone();
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
