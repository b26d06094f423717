//! Jobs with a share reserve a part of a worker. They are placed first; what they leave is for the
//! jobs without a share.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::admit::Fate;
use super::columns::Columns;
use super::roster::Roster;
use super::{Mode, Unassigned};
use crate::Slot;

/// The whole of a worker, in percent.
const WHOLE: u8 = 100;

/// What is reserved of each taker.
#[derive(Clone, Debug)]
struct Reserved {
    percent: Vec<u8>,
    jobs: Vec<usize>,
}

/// A job that wants a share: number, percent, and the taker that holds it.
#[derive(Clone, Copy, Debug)]
struct Wish {
    job: u32,
    share: u8,
    holder: Option<usize>,
}

/// Where each job of one class goes; `None` where it found no room.
type Seating = Vec<(Wish, Option<usize>)>;

/// Places the jobs with a share and subtracts what they use from the roster's maxima; a worker that
/// is fully reserved takes no other job. Returns the fate of each, ascending.
///
/// Pinned jobs come first, then one priority class after the other. Within a class, a job that fits
/// where it is stays, then the largest go to the least reserved worker. If that leaves a job out,
/// first-fit decreasing is tried from an empty placement, and used if it leaves out less.
/// O(shares · log workers); first-fit decreasing costs 100 · workers more for each class.
pub(super) fn reserve(
    columns: &Columns,
    roster: &mut Roster,
    held: &[Slot],
    mode: Mode,
) -> Vec<(u32, Fate)> {
    let workers = roster.takers.len();
    let mut reserved = Reserved { percent: vec![0; workers], jobs: vec![0; workers] };
    let mut fates = Vec::new();
    let mut classes = BTreeMap::<(bool, Reverse<i32>), Vec<Wish>>::new();
    for (job, share) in &columns.shares {
        if roster.at(held[*job as usize]) == roster.kept() {
            continue;
        }
        let holder = roster.taker(held[*job as usize]).filter(|_| mode == Mode::Sticky);
        let class = (columns.pin(*job).is_none(), Reverse(columns.priority(*job)));
        classes.entry(class).or_default().push(Wish { job: *job, share: *share, holder });
    }
    for ((is_free, _), mut class) in classes {
        class.sort_by_key(|wish| {
            let hash = columns.hashes[wish.job as usize];
            (Reverse(wish.share), hash, wish.job)
        });
        if is_free {
            let seating = seat(&roster.caps, &mut reserved, &class);
            let fate =
                |at: Option<usize>| at.map_or(Fate::Out(Unassigned::Capacity), Fate::Reserved);
            fates.extend(seating.into_iter().map(|(wish, at)| (wish.job, fate(at))));
        } else {
            // Jobs that are already at the slot they are pinned to come first.
            let pin = |wish: &Wish| columns.pin(wish.job).and_then(|slot| roster.taker(slot));
            class.sort_by_key(|wish| wish.holder.is_none() || wish.holder != pin(wish));
            for wish in class {
                let fate = match pin(&wish) {
                    None => Fate::Out(Unassigned::Pin),
                    Some(at) if reserved.takes(&roster.caps, at, wish) => Fate::Reserved(at),
                    Some(_) => Fate::Out(Unassigned::Capacity),
                };
                fates.push((wish.job, fate));
            }
        }
    }
    for (cap, (percent, jobs)) in
        roster.caps.iter_mut().zip(reserved.percent.into_iter().zip(reserved.jobs))
    {
        *cap = if percent == WHOLE { 0 } else { *cap - jobs.min(*cap) };
    }
    fates.sort_unstable_by_key(|(job, _)| *job);
    fates
}

impl Reserved {
    fn fits(&self, caps: &[usize], at: usize, wish: Wish) -> bool {
        wish.share <= WHOLE - self.percent[at] && self.jobs[at] < caps[at]
    }

    /// Seats the job at a taker if it fits.
    fn takes(&mut self, caps: &[usize], at: usize, wish: Wish) -> bool {
        let fits = self.fits(caps, at, wish);
        if fits {
            self.percent[at] += wish.share;
            self.jobs[at] += 1;
        }
        fits
    }
}

/// Seats a class, which comes largest first.
fn seat(caps: &[usize], reserved: &mut Reserved, class: &[Wish]) -> Seating {
    let before = reserved.clone();
    let seating = sticky(caps, reserved, class);
    let left = left_out(&seating);
    if left.0 == 0 {
        return seating;
    }
    let mut packed = before.clone();
    let first_fit = first_fit_decreasing(caps, &mut packed, class);
    if left_out(&first_fit) >= left {
        return seating;
    }
    let seating = renamed(caps, &before, first_fit);
    *reserved = before;
    for (wish, at) in &seating {
        let fits = at.is_none_or(|at| reserved.takes(caps, at, *wish));
        debug_assert!(fits, "renaming changed what fits");
    }
    seating
}

/// How many jobs found no room, and how many percent they want in total.
fn left_out(seating: &Seating) -> (usize, usize) {
    let left = seating.iter().filter(|(_, at)| at.is_none());
    left.fold((0, 0), |(jobs, sum), (wish, _)| (jobs + 1, sum + usize::from(wish.share)))
}

/// Jobs that fit stay; the others go, largest first, to the least reserved worker, lowest slot first.
fn sticky(caps: &[usize], reserved: &mut Reserved, class: &[Wish]) -> Seating {
    let mut stays = |wish: &Wish| wish.holder.filter(|at| reserved.takes(caps, *at, *wish));
    let mut seating: Seating = class.iter().map(|wish| (*wish, stays(wish))).collect();
    let open = (0..caps.len()).filter(|at| reserved.jobs[*at] < caps[*at]);
    let mut by_load: BTreeSet<_> = open.map(|at| (reserved.percent[at], at)).collect();
    for (wish, seat) in seating.iter_mut().filter(|(_, seat)| seat.is_none()) {
        let Some((percent, at)) = by_load.first().copied() else { break };
        if reserved.takes(caps, at, *wish) {
            *seat = Some(at);
            by_load.remove(&(percent, at));
            if reserved.jobs[at] < caps[at] {
                by_load.insert((reserved.percent[at], at));
            }
        }
    }
    seating
}

/// Every job, largest first, goes to the lowest slot where it fits. A worker that a job of the same
/// size did not fit is not tried again.
fn first_fit_decreasing(caps: &[usize], reserved: &mut Reserved, class: &[Wish]) -> Seating {
    let (mut at, mut size) = (0, 0);
    let seat = |wish: &Wish| {
        if wish.share != size {
            (at, size) = (0, wish.share);
        }
        while at < caps.len() && !reserved.fits(caps, at, *wish) {
            at += 1;
        }
        (*wish, (at < caps.len() && reserved.takes(caps, at, *wish)).then_some(at))
    };
    class.iter().map(seat).collect()
}

/// Exchanges workers that differ in nothing but their slot, so that many jobs stay where they are:
/// the pair with the most jobs in common first, then the next one.
fn renamed(caps: &[usize], before: &Reserved, seating: Seating) -> Seating {
    let kind = |at: usize| (before.percent[at], before.jobs[at], caps[at]);
    let mut common = BTreeMap::<(usize, usize), usize>::new();
    for (wish, at) in &seating {
        if let (Some(at), Some(holder)) = (*at, wish.holder)
            && kind(at) == kind(holder)
        {
            *common.entry((at, holder)).or_default() += 1;
        }
    }
    let mut pairs: Vec<_> = common.into_iter().collect();
    pairs.sort_by_key(|(_, count)| Reverse(*count));
    let mut name = vec![None; caps.len()];
    let mut is_taken = vec![false; caps.len()];
    for ((at, holder), _) in pairs {
        if name[at].is_none() && !is_taken[holder] {
            name[at] = Some(holder);
            is_taken[holder] = true;
        }
    }
    let mut unused = BTreeMap::<_, Vec<usize>>::new();
    for at in (0..caps.len()).rev().filter(|at| !is_taken[*at]) {
        unused.entry(kind(at)).or_default().push(at);
    }
    for (at, name) in name.iter_mut().enumerate().filter(|(_, name)| name.is_none()) {
        *name = unused.get_mut(&kind(at)).and_then(Vec::pop);
    }
    seating.into_iter().map(|(wish, at)| (wish, at.and_then(|at| name[at]))).collect()
}
