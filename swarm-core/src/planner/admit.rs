//! The decisions before balancing: the places of pinned jobs, and the jobs that stay out when
//! workers are full.

use std::cmp::Reverse;

use super::columns::{Columns, find, runs_between};
use super::roster::Roster;
use super::{Load, Unassigned};
use crate::{Mode, Slot};

/// The decision about a job before balancing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It goes to the taker to which it is pinned.
    Pinned(usize),
    /// It reserves a share of this taker, and does not count as load.
    Reserved(usize),
    /// It stays out.
    Out(Unassigned),
}

/// The jobs that are decided before balancing, ascending, and the remaining load of each taker.
#[derive(Clone, Debug)]
pub(super) struct Preplaced {
    pub(super) apart: Vec<(u32, Fate)>,
    pub(super) loads: Vec<Load>,
    /// The number of jobs that takers should have, including pinned jobs.
    pub(super) total: usize,
    /// The number of these jobs that no taker holds and that are not pinned.
    pub(super) loose: usize,
}

/// Places pinned jobs, then keeps out as few jobs as the maxima allow, the lowest priorities first.
///
/// O(jobs), plus a sort of the pinned jobs, and of all jobs if some have to stay out.
pub(super) fn preplace(
    columns: &Columns,
    roster: &Roster,
    held: &[Slot],
    mode: Mode,
    reserved: Vec<(u32, Fate)>,
) -> Preplaced {
    let mut pinned = reserved;
    pinned.extend(pins(columns, roster, held));
    pinned.sort_unstable_by_key(|(job, _)| *job);
    let preplaced = tally(roster, held, pinned);
    let too_many = |load: &Load| load.max.is_some_and(|max| load.pinned > max);
    let room = roster.caps.iter().fold(0, |sum: usize, cap| sum.saturating_add(*cap));
    if preplaced.total <= room && !preplaced.loads.iter().any(too_many) {
        return preplaced;
    }
    let pins = preplaced.apart;
    let mut apart = pins.clone();
    apart.extend(staying_out(columns, roster, held, mode, &pins));
    // A pinned job that stays out has two entries; the later one counts.
    apart.sort_by_key(|(job, _)| *job);
    let mut last_of_each: Vec<(u32, Fate)> = Vec::with_capacity(apart.len());
    for entry in apart {
        match last_of_each.last_mut() {
            Some(last) if last.0 == entry.0 => *last = entry,
            Some(_) | None => last_of_each.push(entry),
        }
    }
    tally(roster, held, last_of_each)
}

/// Returns the places of pinned jobs. A pinned job of a worker that keeps stays there.
fn pins(columns: &Columns, roster: &Roster, held: &[Slot]) -> Vec<(u32, Fate)> {
    let is_kept = |job: u32| roster.at(held[job as usize]) == roster.kept();
    let loose = columns.pins.iter().filter(|(job, _)| !is_kept(*job) && !columns.has_share(*job));
    let fate = |slot| roster.taker(slot).map_or(Fate::Out(Unassigned::Pin), Fate::Pinned);
    loose.map(|(job, slot)| (*job, fate(*slot))).collect()
}

/// Counts the jobs of each taker once `apart` is preplaced.
fn tally(roster: &Roster, held: &[Slot], apart: Vec<(u32, Fate)>) -> Preplaced {
    let mut counts = roster.count(held);
    let mut pinned = vec![0; roster.takers.len()];
    for (job, fate) in &apart {
        counts[roster.at(held[*job as usize])] -= 1;
        match fate {
            Fate::Pinned(taker) => pinned[*taker] += 1,
            Fate::Reserved(_) | Fate::Out(_) => {}
        }
    }
    let max = |cap: &usize| Some(*cap).filter(|cap| *cap < usize::MAX);
    let load = |((pinned, free), cap)| Load { pinned, free, max: max(cap) };
    let loads: Vec<_> =
        pinned.into_iter().zip(counts.clone()).zip(&roster.caps).map(load).collect();
    let loose = counts[roster.gone()];
    let total = loose + loads.iter().map(|load| load.pinned + load.free).sum::<usize>();
    Preplaced { apart, loads, total, loose }
}

/// Returns the jobs for which the takers have no room.
///
/// From the most to the least important job, each job that still fits is admitted. A pinned job
/// fits if its worker and the pool have room, any other job if the pool has room. (The sets that
/// fit form a laminar matroid, so this greedy choice admits as many jobs as possible, of the best
/// priorities.) Among equal priorities, held jobs come first. The choice among them lets as many as
/// possible stay where they are, so that no job moves to a place that another one has to leave.
/// Apart from that, the order is (hash, name). O(jobs · log jobs).
fn staying_out(
    columns: &Columns,
    roster: &Roster,
    held: &[Slot],
    mode: Mode,
    pins: &[(u32, Fate)],
) -> Vec<(u32, Fate)> {
    let holder = |job: u32| match mode {
        Mode::Sticky => roster.taker(held[job as usize]),
        Mode::Canonical => None,
    };
    let rank = |(job, pin): (u32, Option<usize>)| {
        let priority = Reverse(columns.priority(job));
        (priority, holder(job).is_none(), columns.hashes[job as usize], job, pin)
    };
    let is_kept = |job: u32| roster.at(held[job as usize]) == roster.kept();
    let free = runs_between(pins, columns.len()).into_iter().flatten();
    let free = free.filter(|job| !is_kept(*job)).map(|job| (job, None));
    let pinned = pins.iter().filter_map(|(job, fate)| match fate {
        Fate::Pinned(taker) => Some((*job, Some(*taker))),
        Fate::Reserved(_) | Fate::Out(_) => None,
    });
    let mut ranked: Vec<_> = free.chain(pinned).map(rank).collect();
    ranked.sort_unstable();
    let left = roster.caps.iter().fold(0, |sum: usize, cap| sum.saturating_add(*cap));
    let mut door = Door { left, pinned: roster.caps.clone(), staying: roster.caps.clone() };
    let mut out = Vec::new();
    for equals in ranked.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
        let mut waiting: Vec<_> = equals.iter().map(|(_, _, _, job, pin)| (*job, *pin)).collect();
        let preferences: &[Preference] = match mode {
            Mode::Sticky => {
                &[Preference::Stays, Preference::MovesNobody, Preference::IsThere, Preference::None]
            }
            Mode::Canonical => &[Preference::None],
        };
        for preference in preferences {
            waiting.retain(|(job, pin)| !door.admits(*preference, holder(*job), *pin));
        }
        out.extend(waiting.into_iter().map(|(job, _)| (job, Fate::Out(Unassigned::Capacity))));
    }
    out
}

/// The classes of equally important jobs, in the order of admission.
#[derive(Clone, Copy)]
enum Preference {
    /// Jobs that can stay where they are.
    Stays,
    /// Jobs that take no place of a job that stays.
    MovesNobody,
    /// Jobs that are where they are pinned. Another job has to leave for them, but they need not
    /// move as well.
    IsThere,
    None,
}

/// The number of further jobs that may be admitted.
struct Door {
    /// In total.
    left: usize,
    /// Pinned to each taker.
    pinned: Vec<usize>,
    /// Staying at each taker, or moving there because they are pinned there.
    staying: Vec<usize>,
}

impl Door {
    /// Admits a job if it fits and belongs to the given class.
    fn admits(&mut self, which: Preference, holder: Option<usize>, pin: Option<usize>) -> bool {
        if self.left == 0 || pin.is_some_and(|pin| self.pinned[pin] == 0) {
            return false;
        }
        let stays = holder.filter(|at| pin.is_none_or(|pin| pin == *at) && self.staying[*at] > 0);
        let (is_preferred, at) = match which {
            Preference::Stays => (stays.is_some(), stays),
            Preference::MovesNobody => (pin.is_none_or(|pin| self.staying[pin] > 0), pin),
            Preference::IsThere => (pin.is_some() && pin == holder, pin),
            Preference::None => (true, pin),
        };
        if is_preferred {
            self.left -= 1;
            if let Some(pin) = pin {
                self.pinned[pin] -= 1;
            }
            if let Some(at) = at {
                self.staying[at] = self.staying[at].saturating_sub(1);
            }
        }
        is_preferred
    }
}

impl Preplaced {
    /// Returns whether every preplaced job is already in its place.
    pub(super) fn is_in_place(&self, roster: &Roster, held: &[Slot]) -> bool {
        self.apart.iter().all(|(job, fate)| match fate {
            Fate::Pinned(taker) | Fate::Reserved(taker) => {
                held[*job as usize] == roster.takers[*taker]
            }
            Fate::Out(_) => held[*job as usize] == Slot::NOBODY,
        })
    }

    /// Returns the jobs that stay out, ascending.
    pub(super) fn unassigned(&self) -> Vec<(u32, Unassigned)> {
        let out = |(job, fate): &(u32, Fate)| match fate {
            Fate::Out(reason) => Some((*job, *reason)),
            Fate::Pinned(_) | Fate::Reserved(_) => None,
        };
        self.apart.iter().filter_map(out).collect()
    }

    /// Returns whether the job is decided before balancing: pinned, with a share, or out.
    pub(super) fn is_apart(&self, job: u32) -> bool {
        find(&self.apart, job).is_some()
    }
}
