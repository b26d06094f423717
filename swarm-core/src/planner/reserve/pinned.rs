//! Room for pinned jobs without a share. Jobs with a share leave this room free while they find
//! another place.

use super::Seating;
use crate::Slot;
use crate::planner::Mode;
use crate::planner::columns::Columns;
use crate::planner::roster::Roster;

/// The largest number of takers without room for their pinned jobs for which all jobs are seated
/// again.
const LACKING_MAX: usize = 64;

/// The needs of pinned jobs without a share, for each taker.
#[derive(Debug)]
pub(super) struct Pinned {
    /// The takers that have such jobs, ascending, with the number of these jobs, up to the maximum.
    jobs: Vec<(usize, usize)>,
}

impl Pinned {
    /// Counts the pinned jobs without a share that takers should have. O(pinned jobs · log shares).
    pub(super) fn new(columns: &Columns, roster: &Roster, held: &[Slot]) -> Self {
        let is_kept = |job: u32| roster.at(held[job as usize]) == roster.kept();
        let pins =
            columns.pins.iter().filter(|(job, _)| !columns.has_share(*job) && !is_kept(*job));
        let mut takers: Vec<_> = pins.filter_map(|(_, slot)| roster.taker(*slot)).collect();
        takers.sort_unstable();
        let equals = takers.chunk_by(|one, other| one == other);
        let jobs = equals.map(|equals| (equals[0], equals.len().min(roster.caps[equals[0]])));
        Self { jobs: jobs.filter(|(_, jobs)| *jobs > 0).collect() }
    }

    /// Returns whether all pinned jobs find room. `left` gives the number of jobs without a share
    /// that a taker may have.
    pub(super) fn all_fit(&self, left: impl Fn(usize) -> usize) -> bool {
        self.jobs.iter().all(|(at, jobs)| *jobs <= left(*at))
    }

    /// Returns how many pinned jobs find room next to the jobs with a share, for each of their
    /// takers.
    fn that_fit(&self, seating: &Seating) -> impl Iterator<Item = (usize, usize)> {
        self.jobs.iter().map(|(at, jobs)| (*at, seating.left_for_others(*at).min(*jobs)))
    }

    /// Moves jobs with a share so that more of the pinned jobs find room, if no job with a share
    /// loses its place. Returns whether it changed anything.
    ///
    /// The present places decide, not the holders, so that a second plan finds nothing more.
    pub(super) fn make_room(&self, seating: &mut Seating, roster: &Roster, mode: Mode) -> bool {
        if self.all_fit(|at| seating.left_for_others(at)) {
            return false;
        }
        let mut here = seating.clone();
        for (wish, at) in here.wishes.iter_mut().zip(&seating.seats) {
            wish.holder = *at;
        }
        let is_better = |other: &Seating| self.is_better(other, seating);
        let moved = self.some_moved(here.clone(), mode).filter(is_better);
        let again = || self.seated_again(&here, roster, mode).filter(is_better);
        let Some(mut better) = moved.or_else(again) else { return false };
        for (wish, before) in better.wishes.iter_mut().zip(&seating.wishes) {
            wish.holder = before.holder;
        }
        *seating = better;
        true
    }

    /// Returns whether more pinned jobs find room, and every job with a share that had a place has
    /// one.
    fn is_better(&self, seating: &Seating, than: &Seating) -> bool {
        let fit = |seating: &Seating| self.that_fit(seating).map(|(_, jobs)| jobs).sum::<usize>();
        let mut seats = than.seats.iter().zip(&seating.seats);
        fit(than) < fit(seating) && seats.all(|(before, after)| before.is_none() || after.is_some())
    }

    /// Moves jobs that crowd out pinned jobs to the least reserved workers with room next to other
    /// pinned jobs. The least important and smallest jobs move first. `None` if none of them finds
    /// a place.
    fn some_moved(&self, mut seating: Seating, mode: Mode) -> Option<Seating> {
        seating.list_residents();
        let fit: Vec<_> = self.that_fit(&seating).collect();
        let mut room = seating.next_to_all.clone();
        for (at, jobs) in &fit {
            room.shrink(*at, u8::from(*jobs > 0), *jobs);
        }
        let mut places = Vec::new();
        for ((at, wanted), (_, fit)) in self.jobs.iter().zip(&fit) {
            let (_, mut jobs) = seating.next_to_all.kind(*at);
            let mut fit = *fit;
            for wish in seating.residents[*at].iter().rev() {
                let job = &seating.wishes[*wish];
                if *wanted <= fit || job.pin.is_some() {
                    continue;
                }
                if let Some(to) = room.least_reserved(job) {
                    room.take(to, job);
                    places.push((*wish, to));
                    // If no percent was free before, there may be places for several jobs now.
                    jobs = jobs.saturating_add(1);
                    fit = jobs;
                }
            }
        }
        if places.is_empty() {
            return None;
        }
        seating.rank = u32::MAX;
        seating.carry_out(places);
        seating.seat_classes(mode);
        Some(seating)
    }

    /// Seats all jobs again from their present places, without the room that the pinned jobs need.
    /// Then seats the jobs without a place with that room. `None` if that would take long: if many
    /// takers lack room, or if jobs with a share have no place.
    fn seated_again(&self, here: &Seating, roster: &Roster, mode: Mode) -> Option<Seating> {
        let lacking = self.jobs.iter().filter(|(at, jobs)| here.left_for_others(*at) < *jobs);
        if here.seats.iter().any(Option::is_none) || lacking.count() > LACKING_MAX {
            return None;
        }
        let mut seating = Seating::new(here.wishes.clone(), &roster.caps, &roster.sizes);
        seating.moves_left = here.moves_left;
        // A worker with one free percent is not fully reserved.
        for (at, jobs) in &self.jobs {
            seating.next_to_all.shrink(*at, 1, *jobs);
        }
        seating.fill(mode);
        for (at, jobs) in &self.jobs {
            seating.next_to_all.enlarge(*at, 1, *jobs);
        }
        seating.seat_classes(mode);
        Some(seating)
    }

    /// [Levels](Seating::level) next to the pinned jobs that find room, so that they keep it.
    /// Returns the jobs that move, and the jobs that would move with a larger budget.
    pub(super) fn level(&self, seating: &mut Seating, tolerance: u8) -> (Vec<u32>, Vec<u32>) {
        let aside: Vec<_> = self.that_fit(seating).collect();
        for (at, jobs) in &aside {
            seating.next_to_all.shrink(*at, 0, *jobs);
        }
        let (moved, deferred) = seating.level(tolerance, seating.moves_left);
        for (at, jobs) in &aside {
            seating.next_to_all.enlarge(*at, 0, *jobs);
        }
        seating.moves_left = seating.moves_left.saturating_sub(moved.len());
        (moved, deferred)
    }
}

impl Seating {
    /// Returns the number of further jobs without a share that a taker may have.
    pub(super) fn left_for_others(&self, at: usize) -> usize {
        let (free, jobs) = self.next_to_all.kind(at);
        if free == 0 { 0 } else { jobs }
    }
}
