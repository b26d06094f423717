//! Jobs with a share reserve a part of a worker. They are placed first; the rest is for the jobs
//! without a share.
//!
//! Jobs that fit where they are stay. The others are placed by class: pinned jobs first, then by
//! priority. A class never yields to a less important one.
//!
//! A job that does not fit where it is takes the first of these steps that gains it a place:
//!
//! 1. The least reserved worker that has room.
//! 2. A search for the fewest jobs, one to six, that make room and find other places.
//! 3. Less important jobs yield, as few as possible.
//! 4. The class is packed from scratch, on one worker, then two, four, up to all.
//!
//! The search is bounded, since the best packing cannot be computed fast. Its order depends on
//! places and sizes only, so a second plan finds no moves to make.

mod fit;
mod level;
mod pack;
mod pinned;
mod room;
mod search;
mod spare;

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Range;

use super::admit::Fate;
use super::columns::Columns;
use super::roster::Roster;
use super::{Mode, Rules, Unassigned};
use crate::Slot;
use pinned::Pinned;
use room::Room;
use search::{Places, Search};

/// The whole of a worker of the largest size, in percent.
const WHOLE: u8 = 100;

/// The largest number of jobs that one search evicts.
const EVICTIONS_MAX: isize = 6;

/// The largest number of held jobs that may move for each job fewer without a place, when some
/// workers are packed from scratch.
const MOVES_FOR_ONE: usize = 24;

/// The additional number of held jobs that may move or stop per job that gains a place, when all
/// workers are packed. It covers a larger job in exchange for a smaller one, and one other that
/// moves.
const MOVES_IN_EXCHANGE: usize = 2;

/// The largest number of rounds that reduce the moves of all classes together.
const ROUNDS_MAX: usize = 4;

/// The number of workers that are compared when a job has to displace less important ones.
const COMPARED_MAX: usize = 256;

/// A job that wants a share.
#[derive(Clone, Copy, Debug)]
struct Wish {
    job: u32,
    /// Its share, in percent.
    share: u8,
    /// The number of its class; the most important class has the lowest.
    rank: u32,
    /// The taker to which it is pinned.
    pin: Option<usize>,
    /// The taker that holds it.
    holder: Option<usize>,
}

/// The decisions about the jobs with a share; lists of jobs are ascending.
#[derive(Debug, Default)]
pub(super) struct Reserved {
    pub(super) fates: Vec<(u32, Fate)>,
    /// Jobs that move for balance.
    pub(super) moved: Vec<u32>,
    /// Jobs that balance would move with a larger budget.
    pub(super) deferred: Vec<u32>,
}

/// The places of the jobs with a share.
#[derive(Clone, Debug)]
struct Seating {
    /// The jobs, sorted by class and then the largest first.
    wishes: Vec<Wish>,
    /// The taker of each wish.
    seats: Vec<Option<usize>>,
    /// The free room next to all seated jobs.
    next_to_all: Room,
    /// The free room next to the jobs of the present class and of more important classes.
    next_to_better: Room,
    /// The present class.
    rank: u32,
    /// The number of seated jobs of later classes.
    later: usize,
    /// The wishes seated at each taker, ascending; empty until a job has to be evicted.
    residents: Vec<Vec<usize>>,
    /// The smallest share for which no place was found, even by eviction.
    hopeless: u8,
    /// The number of further held jobs that packing from scratch may move.
    moves_left: usize,
}

/// Places the jobs with a share and subtracts their room from the roster's maxima. A worker that is
/// fully reserved takes no other job.
///
/// In sticky mode:
///
/// 1. A job stays where it is if it fits next to the jobs that come before it.
/// 2. A job goes to the least reserved worker.
/// 3. If it fits nowhere, a bounded search evicts as few jobs of its class or of less important
///    classes as possible. All of these find another place.
/// 4. If that fails, too, it displaces less important jobs, which are then placed in their turn.
/// 5. If jobs of a class are still out, they are packed from scratch with the jobs of the least
///    reserved workers. It starts with one worker and doubles the number up to all. The first
///    result that leaves out less is used. It must move few held jobs for each job that gains a
///    place, and stay within the budget, which the more important classes use first.
/// 6. With a tolerance, and if no job is out, few jobs move to level the reserved parts.
///
/// In canonical mode only 2 applies, and first-fit decreasing of the whole class if that leaves out
/// less. In both modes, jobs with a share leave room for pinned jobs without a share, if no job
/// with a share is left out for this. O(jobs with a share · log workers), plus O(workers · log
/// workers) and a bounded number of steps for each job that needs evictions.
pub(super) fn reserve(
    columns: &Columns,
    roster: &mut Roster,
    held: &[Slot],
    rules: Rules,
) -> Reserved {
    let mut reserved = Reserved::default();
    let fates = &mut reserved.fates;
    let mut wishes = wishes(columns, roster, held, rules.mode, fates);
    if wishes.is_empty() {
        return reserved;
    }
    let levels = rules.share_tolerance.is_some() && rules.mode == Mode::Sticky;
    let pinned = Pinned::new(columns, roster, held);
    let mut left = roster.caps.clone();
    let all_stay = !levels && all_stay(&wishes, &mut left, &roster.sizes);
    if all_stay && pinned.all_fit(|at| left[at]) {
        let stays = |wish: Wish| Some((wish.job, Fate::Reserved(wish.holder?)));
        fates.extend(wishes.into_iter().filter_map(stays));
        roster.caps = left;
    } else {
        sort(&mut wishes, columns);
        let seating;
        (seating, reserved.moved, reserved.deferred) = seated(wishes, roster, &pinned, rules);
        seating.close(&mut roster.caps, fates);
    }
    fates.sort_unstable_by_key(|(job, _)| *job);
    reserved
}

/// Seats all jobs, and leaves room for pinned jobs without a share if that leaves out none. Also
/// returns the jobs that move for balance, and the jobs that would move with a larger budget.
fn seated(
    wishes: Vec<Wish>,
    roster: &Roster,
    pinned: &Pinned,
    rules: Rules,
) -> (Seating, Vec<u32>, Vec<u32>) {
    let mut seating = Seating::new(wishes, &roster.caps, &roster.sizes);
    seating.moves_left = rules.moves_max.unwrap_or(usize::MAX);
    seating.fill(rules.mode);
    let tolerance = rules.share_tolerance.filter(|_| rules.mode == Mode::Sticky);
    let (mut moved, mut deferred) = (BTreeSet::new(), Vec::new());
    loop {
        while pinned.make_room(&mut seating, roster, rules.mode) {}
        let Some(tolerance) = tolerance else { break };
        let before = seating.seats.clone();
        let (now_moved, now_deferred) = pinned.level(&mut seating, tolerance);
        moved.extend(now_moved);
        deferred = now_deferred;
        // New places may give room to more pinned jobs.
        if seating.seats == before {
            break;
        }
    }
    deferred.retain(|job| !moved.contains(job));
    (seating, moved.into_iter().collect(), deferred)
}

/// Returns the wishes of all jobs with a share that may move, without ranks. If the pin of a job
/// cannot be met, its fate is known at once.
fn wishes(
    columns: &Columns,
    roster: &Roster,
    held: &[Slot],
    mode: Mode,
    fates: &mut Vec<(u32, Fate)>,
) -> Vec<Wish> {
    let mut wishes = Vec::with_capacity(columns.shares.len());
    for (job, share) in &columns.shares {
        let (job, share) = (*job, *share);
        if roster.at(held[job as usize]) == roster.kept() {
            continue;
        }
        let pin = match columns.pin(job).map(|slot| roster.taker(slot)) {
            Some(None) => {
                fates.push((job, Fate::Out(Unassigned::Pin)));
                continue;
            }
            Some(pin) => pin,
            None => None,
        };
        let holder = roster.taker(held[job as usize]).filter(|_| mode == Mode::Sticky);
        wishes.push(Wish { job, share, rank: 0, pin, holder });
    }
    wishes
}

/// Returns whether all jobs fit where they are. If so, subtracts their room from the maxima.
fn all_stay(wishes: &[Wish], caps: &mut [usize], sizes: &[u8]) -> bool {
    let mut used = vec![(0_u8, 0_usize); caps.len()];
    let stays = |wish: &Wish| {
        let at = wish.holder.filter(|at| wish.pin.is_none_or(|pin| pin == *at));
        let Some(at) = at else { return false };
        let (percent, jobs) = &mut used[at];
        let fits = wish.share <= sizes[at] - *percent && *jobs < caps[at];
        if fits {
            (*percent, *jobs) = (*percent + wish.share, *jobs + 1);
        }
        fits
    };
    let all_stay = wishes.iter().all(stays);
    let each = caps.iter_mut().zip(sizes).zip(used);
    for ((cap, size), (percent, jobs)) in each.filter(|_| all_stay) {
        *cap = if percent == *size { 0 } else { *cap - jobs };
    }
    all_stay
}

/// Sorts by class, then the largest first, and gives each class its rank.
fn sort(wishes: &mut Vec<Wish>, columns: &Columns) {
    let key = |wish: Wish| {
        let class = (wish.pin.is_none(), Reverse(columns.priority(wish.job)));
        // Among pinned jobs, the jobs that are already in their place come first.
        let has_to_come = wish.pin.is_some() && wish.pin != wish.holder;
        let hash = columns.hashes[wish.job as usize];
        ((class, has_to_come, Reverse(wish.share), hash, wish.job), wish)
    };
    let mut keyed: Vec<_> = wishes.drain(..).map(key).collect();
    keyed.sort_unstable_by_key(|(key, _)| *key);
    let mut rank = 0;
    for i in 1..keyed.len() {
        rank += u32::from(keyed[i - 1].0.0 != keyed[i].0.0);
        keyed[i].1.rank = rank;
    }
    wishes.extend(keyed.into_iter().map(|(_, wish)| wish));
}

impl Seating {
    fn new(wishes: Vec<Wish>, caps: &[usize], sizes: &[u8]) -> Self {
        let room = Room::new(caps, sizes);
        Self {
            seats: vec![None; wishes.len()],
            wishes,
            next_to_all: room.clone(),
            next_to_better: room,
            rank: 0,
            later: 0,
            residents: Vec::new(),
            hopeless: u8::MAX,
            moves_left: usize::MAX,
        }
    }

    fn fill(&mut self, mode: Mode) {
        for wish in 0..self.wishes.len() {
            let Wish { holder, pin, .. } = self.wishes[wish];
            let holder = holder.filter(|holder| pin.is_none_or(|pin| pin == *holder));
            if let Some(at) = holder.filter(|at| self.next_to_all.has(*at, &self.wishes[wish])) {
                self.next_to_all.take(at, &self.wishes[wish]);
                self.seats[wish] = Some(at);
            }
        }
        let stayed = self.seats.clone();
        self.seat_classes(mode);
        for _ in 0..ROUNDS_MAX {
            if mode == Mode::Canonical || !self.spare_moves(&stayed) {
                break;
            }
            // Jobs that found no place may find one now.
            self.seat_classes(mode);
        }
    }

    /// Seats one class after the other, next to the seated jobs.
    fn seat_classes(&mut self, mode: Mode) {
        self.next_to_better = self.next_to_all.clone();
        self.later = 0;
        for (wish, at) in self.wishes.iter().zip(&self.seats) {
            if let Some(at) = at {
                self.next_to_better.give(*at, wish);
                self.later += 1;
            }
        }
        self.hopeless = u8::MAX;
        let mut start = 0;
        while start < self.wishes.len() {
            self.rank = self.wishes[start].rank;
            let same = self.wishes[start..].iter().take_while(|wish| wish.rank == self.rank);
            let class = start..start + same.count();
            start = class.end;
            self.enter(class.clone());
            match mode {
                _ if self.wishes[class.start].pin.is_some() => self.seat_pinned(class),
                Mode::Sticky => self.seat_class(class),
                Mode::Canonical => {
                    self.seat_directly(class.clone());
                    self.pack_all_first_fit(class);
                }
            }
        }
    }

    /// Makes this class the present one.
    fn enter(&mut self, class: Range<usize>) {
        for wish in class {
            if let Some(at) = self.seats[wish] {
                self.next_to_better.take(at, &self.wishes[wish]);
                self.later -= 1;
            }
        }
    }

    fn seat_pinned(&mut self, class: Range<usize>) {
        for wish in class.filter(|wish| self.seats[*wish].is_none()).collect::<Vec<_>>() {
            let pin = self.wishes[wish].pin;
            if let Some(at) = pin.filter(|at| self.next_to_better.has(*at, &self.wishes[wish])) {
                self.displace_for(wish, at);
                self.sit(wish, at);
            }
        }
    }

    fn seat_directly(&mut self, class: Range<usize>) {
        for wish in class {
            if self.seats[wish].is_some() {
                continue;
            }
            if let Some(at) = self.next_to_all.least_reserved(&self.wishes[wish]) {
                self.sit(wish, at);
            }
        }
    }

    fn seat_class(&mut self, class: Range<usize>) {
        let hopeless = self.hopeless;
        if class.clone().all(|wish| self.seats[wish].is_none()) {
            // No job of the class has to keep its place.
            self.seat_directly(class.clone());
            self.pack_all_first_fit(class.clone());
        }
        loop {
            self.seat_one_by_one(class.clone(), hopeless);
            if !self.pack(&class) {
                break;
            }
        }
    }

    /// Seats jobs until it can seat no other, so that another plan finds nothing to do.
    fn seat_one_by_one(&mut self, class: Range<usize>, hopeless: u8) {
        loop {
            self.hopeless = hopeless;
            let mut is_done = true;
            for wish in class.clone() {
                let share = self.wishes[wish].share;
                if self.seats[wish].is_some() || self.hopeless <= share {
                    continue;
                }
                if self.seat(wish) {
                    is_done = false;
                } else {
                    self.hopeless = share;
                }
            }
            if is_done {
                return;
            }
        }
    }

    /// Seats one job. Other jobs may have to make room, but no more important ones.
    fn seat(&mut self, wish: usize) -> bool {
        if let Some(at) = self.next_to_all.least_reserved(&self.wishes[wish]) {
            self.sit(wish, at);
            return true;
        }
        let place = self.place_to_displace(wish);
        let places = match place {
            Some(at) => vec![(wish, at)],
            None => match self.search(wish, self.rank..self.rank + 1) {
                Some(places) => places,
                None => return false,
            },
        };
        let all_stay = (self.later > 0).then(|| self.search(wish, self.rank..u32::MAX)).flatten();
        self.carry_out(all_stay.unwrap_or(places));
        true
    }

    /// Returns places for this job and for jobs with one of these ranks that make room for it. The
    /// places are next to all other jobs. If only the present class makes room, they are next to
    /// the jobs of this and of more important classes.
    fn search(&mut self, wish: usize, ranks: Range<u32>) -> Option<Places> {
        self.list_residents();
        let is_class = ranks.len() == 1;
        let room = if is_class { &mut self.next_to_better } else { &mut self.next_to_all };
        let (wishes, residents) = (&*self.wishes, &*self.residents);
        let search = Search { wishes, residents, room, ranks, may_return: false };
        search.fewest(&[wish], 1..=EVICTIONS_MAX)
    }

    fn carry_out(&mut self, places: Places) {
        for (wish, _) in &places {
            self.stand_up(*wish);
        }
        for (wish, at) in places {
            self.displace_for(wish, at);
            self.sit(wish, at);
        }
    }

    /// Returns the best worker for displacing less important jobs: the least important ones, and
    /// few.
    fn place_to_displace(&mut self, wish: usize) -> Option<usize> {
        let part = self.wishes[wish].share;
        let least = self.next_to_better.least_reserved(&self.wishes[wish])?;
        self.list_residents();
        let next = |at: &usize| self.next_to_better.first(part, at + 1);
        let places = std::iter::successors(self.next_to_better.first(part, 0), next);
        let places = places.take(COMPARED_MAX).chain([least]);
        places.min_by_key(|at| {
            let displaced = self.displaced(wish, *at);
            let best = displaced.iter().map(|wish| self.wishes[*wish].rank).min();
            (Reverse(best), displaced.len(), *at)
        })
    }

    /// Returns the jobs of later classes that have to leave a worker for this job. The least
    /// important jobs leave first; of these, the smallest job that makes enough room, else the
    /// largest.
    fn displaced(&self, wish: usize, at: usize) -> Vec<usize> {
        let wanted = usize::from(self.wishes[wish].share);
        let (mut free, jobs) = self.next_to_all.kind(at);
        let mut lacks_job = jobs == 0;
        let later = |resident: &&usize| self.rank < self.wishes[**resident].rank;
        let mut rest: Vec<_> = self.residents[at].iter().filter(later).copied().collect();
        let mut displaced = Vec::new();
        while lacks_job || usize::from(free) < wanted {
            let lacking = wanted.saturating_sub(usize::from(free));
            let key = |(_, resident): &(usize, &usize)| {
                let Wish { rank, share, .. } = self.wishes[**resident];
                let is_enough = lacking <= usize::from(share);
                let size = if is_enough { share } else { WHOLE - share };
                (Reverse(rank), !is_enough, size, Reverse(**resident))
            };
            let Some((i, _)) = rest.iter().enumerate().min_by_key(key) else { break };
            let resident = rest.swap_remove(i);
            free += self.wishes[resident].share;
            lacks_job = false;
            displaced.push(resident);
        }
        displaced
    }

    /// Displaces jobs of later classes so that this job fits.
    fn displace_for(&mut self, wish: usize, at: usize) {
        if self.next_to_all.has(at, &self.wishes[wish]) {
            return;
        }
        self.list_residents();
        for displaced in self.displaced(wish, at) {
            self.stand_up(displaced);
        }
    }

    fn sit(&mut self, wish: usize, at: usize) {
        let job = &self.wishes[wish];
        self.next_to_all.take(at, job);
        if job.rank <= self.rank {
            self.next_to_better.take(at, job);
        } else {
            self.later += 1;
        }
        self.seats[wish] = Some(at);
        if let Some(residents) = self.residents.get_mut(at) {
            let position = residents.partition_point(|resident| *resident < wish);
            residents.insert(position, wish);
        }
    }

    fn stand_up(&mut self, wish: usize) {
        let Some(at) = self.seats[wish].take() else { return };
        let job = &self.wishes[wish];
        self.next_to_all.give(at, job);
        if job.rank <= self.rank {
            self.next_to_better.give(at, job);
        } else {
            self.later -= 1;
        }
        if let Some(residents) = self.residents.get_mut(at) {
            residents.retain(|resident| *resident != wish);
        }
    }

    fn list_residents(&mut self) {
        if self.residents.is_empty() {
            self.residents = vec![Vec::new(); self.next_to_all.len()];
            for (wish, at) in self.seats.iter().enumerate() {
                if let Some(at) = at {
                    self.residents[*at].push(wish);
                }
            }
        }
    }

    /// Writes the room for jobs without a share, and the fate of each job with a share.
    fn close(self, caps: &mut [usize], fates: &mut Vec<(u32, Fate)>) {
        for (at, cap) in caps.iter_mut().enumerate() {
            *cap = self.left_for_others(at);
        }
        let fate = |at: Option<usize>| at.map_or(Fate::Out(Unassigned::Capacity), Fate::Reserved);
        fates.extend(self.wishes.iter().zip(self.seats).map(|(wish, at)| (wish.job, fate(at))));
    }
}
