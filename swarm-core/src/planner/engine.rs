//! The planner on columns: every job is a number, every holder a slot in an array.

use std::borrow::Cow;
use std::ops::Range;

use super::admit::{Fate, Preplaced, preplace};
use super::canonical;
use super::columns::{Columns, number, of, runs_between};
use super::quota::{Aims, minimum_moves};
use super::reserve::{Reserved, reserve};
use super::roster::Roster;
use super::select::{greatest, split_greatest};
use super::{Mode, Rules, Unassigned};
use crate::Slot;
use crate::hash::{Homes, mix};

/// The plan, by number of the job.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome<'a> {
    /// The holder of every job. If nothing changes, it is the array of present holders, borrowed.
    pub(super) holders: Cow<'a, [Slot]>,
    /// Jobs without a holder, ascending.
    pub(super) unassigned: Vec<(u32, Unassigned)>,
    /// Jobs that leave a worker that may not have them, ascending.
    pub(super) evicted: Vec<u32>,
    /// Jobs with a share that move for balance, ascending.
    pub(super) leveled: Vec<u32>,
    /// Jobs that the budget keeps where they are for now, ascending.
    pub(super) deferred: Vec<u32>,
    /// M* of the present holders.
    pub(super) minimum_moves: usize,
}

/// The number of jobs that are checked at once for loose jobs.
const BLOCK: usize = 16;

/// Plans. `held` has an entry for every job. The roster's maxima are reduced by the reserved
/// shares. O(jobs + workers + moves · log moves).
pub(super) fn solve<'a>(
    columns: &Columns,
    roster: &mut Roster,
    held: Cow<'a, [Slot]>,
    rules: Rules,
) -> Outcome<'a> {
    if roster.takers.is_empty() {
        return nobody_takes(roster, held);
    }
    let Reserved { fates, moved, deferred } = reserve(columns, roster, &held, rules);
    let moves_max = rules.moves_max.map(|most| most.saturating_sub(moved.len()));
    let roster = &*roster;
    let preplaced = preplace(columns, roster, &held, rules.mode, fates);
    let minimum_moves = minimum_moves(&preplaced.loads, preplaced.total);
    let outcome = match rules.mode {
        Mode::Sticky => sticky(columns, roster, held, &preplaced, moves_max),
        Mode::Canonical => canonical::solve(columns, roster, held, &preplaced, moves_max),
    };
    let mut outcome = Outcome { minimum_moves, leveled: moved, ..outcome };
    outcome.deferred.extend(deferred);
    outcome.deferred.sort_unstable();
    outcome
}

/// Lets jobs of workers that keep stay, and leaves all other jobs unassigned.
fn nobody_takes<'a>(roster: &Roster, mut held: Cow<'a, [Slot]>) -> Outcome<'a> {
    let is_out = |slot: Slot| roster.at(slot) == roster.gone();
    let out = held.iter().enumerate().filter(|(_, slot)| is_out(**slot));
    let unassigned: Vec<_> = out.map(|(job, _)| (number(job), Unassigned::NoWorkers)).collect();
    if held.iter().any(|slot| is_out(*slot) && *slot != Slot::NOBODY) {
        for (job, _) in &unassigned {
            held.to_mut()[*job as usize] = Slot::NOBODY;
        }
    }
    Outcome { holders: held, unassigned, ..Outcome::default() }
}

/// Lets every worker give up exactly its surplus, and fills the other workers with the loose jobs.
fn sticky<'a>(
    columns: &Columns,
    roster: &Roster,
    held: Cow<'a, [Slot]>,
    preplaced: &Preplaced,
    moves_max: Option<usize>,
) -> Outcome<'a> {
    let aims = Aims::new(&preplaced.loads, preplaced.total, moves_max);
    let runs = runs_between(&preplaced.apart, columns.len());
    let mut leaving = leave(columns, roster, &held, &runs, preplaced, &aims);
    let unassigned = preplaced.unassigned();
    let deferred = std::mem::take(&mut leaving.deferred);
    let nothing_changes = leaving.is_empty() && preplaced.loose == 0;
    if nothing_changes && preplaced.is_in_place(roster, &held) {
        return Outcome { holders: held, unassigned, deferred, ..Outcome::default() };
    }
    let mut loose = loose(roster, &held, &runs, preplaced.loose);
    let mut evicted = leaving.evicted;
    if !(evicted.is_empty() && leaving.shed.is_empty()) {
        loose.extend(evicted.iter().chain(&leaving.shed));
        loose.sort_unstable();
    }
    evicted.sort_unstable();
    let mut holders = held.into_owned();
    preplace_into(&mut holders, roster, preplaced);
    let stays = |((load, shed), evicted): ((&super::Load, &usize), &usize)| {
        load.pinned + load.free - shed - evicted
    };
    let loads = preplaced.loads.iter().zip(&aims.shed).zip(&aims.evicted).map(stays);
    let room: Vec<_> = loads.zip(&aims.quota).map(|(load, quota)| quota - load).collect();
    place(columns, roster, &mut holders, &loose, room);
    let holders = holders.into();
    Outcome { holders, unassigned, evicted, deferred, ..Outcome::default() }
}

/// The jobs that their workers give up, and the jobs that they would give up with a larger budget.
#[derive(Debug, Default)]
struct Leaving {
    evicted: Vec<u32>,
    shed: Vec<u32>,
    deferred: Vec<u32>,
}

impl Leaving {
    fn is_empty(&self) -> bool {
        self.evicted.is_empty() && self.shed.is_empty()
    }
}

/// Chooses the jobs that leave. A hash over job, slot and quota decides, so that it is not always
/// the same job that moves.
fn leave(
    columns: &Columns,
    roster: &Roster,
    held: &[Slot],
    runs: &[Range<u32>],
    preplaced: &Preplaced,
    aims: &Aims,
) -> Leaving {
    let workers = 0..roster.takers.len();
    let take: Vec<_> = workers.map(|w| aims.evicted[w] + aims.shed[w] + aims.deferred[w]).collect();
    if take.iter().all(|take| *take == 0) {
        return Leaving::default();
    }
    let salts: Vec<_> = roster
        .takers
        .iter()
        .zip(&aims.quota)
        .map(|(slot, quota)| mix(u64::from(slot.0) << 32 ^ *quota as u64))
        .collect();
    let count: Vec<_> = preplaced.loads.iter().map(|load| load.free).collect();
    let jobs = |run: &Range<u32>| run.clone().zip(of(run, held)).zip(of(run, &columns.hashes));
    let candidates = runs.iter().flat_map(jobs);
    let candidates = candidates.map(|((job, slot), hash)| (job, roster.at(*slot), *hash));
    let mut leaving = Leaving::default();
    let chosen = greatest(&candidates, |hash, worker| mix(hash ^ salts[worker]), &take, &count);
    for (worker, mut jobs) in chosen.into_iter().enumerate() {
        let (evicted, shed) = (aims.evicted[worker], aims.shed[worker]);
        split_greatest(&mut jobs, evicted + shed);
        split_greatest(&mut jobs[..evicted + shed], evicted);
        let jobs: Vec<_> = jobs.into_iter().map(|(_, job)| job).collect();
        leaving.evicted.extend(&jobs[..evicted]);
        leaving.shed.extend(&jobs[evicted..evicted + shed]);
        leaving.deferred.extend(&jobs[evicted + shed..]);
    }
    leaving.deferred.sort_unstable();
    leaving
}

/// Returns the jobs without a holder, apart from pinned jobs.
fn loose(roster: &Roster, held: &[Slot], runs: &[Range<u32>], count: usize) -> Vec<u32> {
    let mut loose = Vec::with_capacity(count);
    let are_all = count == runs.iter().map(ExactSizeIterator::len).sum::<usize>();
    let is_loose = |job: &u32| roster.at(held[*job as usize]) == roster.gone();
    for run in runs.iter().filter(|_| count > 0) {
        if are_all {
            loose.extend(run.clone());
            continue;
        }
        let mut start = run.start;
        for block in of(run, held).chunks_exact(BLOCK) {
            let end = start + number(BLOCK);
            // Most blocks have no loose job and are skipped with one branch.
            if roster.may_be_gone(block) {
                loose.extend((start..end).filter(is_loose));
            }
            start = end;
        }
        loose.extend((start..run.end).filter(is_loose));
    }
    loose
}

/// Writes the holders of the preplaced jobs.
pub(super) fn preplace_into(holders: &mut [Slot], roster: &Roster, preplaced: &Preplaced) {
    for (job, fate) in &preplaced.apart {
        holders[*job as usize] = match fate {
            Fate::Pinned(taker) | Fate::Reserved(taker) => roster.takers[*taker],
            Fate::Out(_) => Slot::NOBODY,
        };
    }
}

/// Gives every loose job to its home while its home has room, smallest (hash, name) first. The
/// others go to workers that have room, lowest slot first. There is exactly as much room as there
/// are loose jobs. `loose` is ascending.
pub(super) fn place(
    columns: &Columns,
    roster: &Roster,
    holders: &mut [Slot],
    loose: &[u32],
    mut room: Vec<usize>,
) {
    let homes = Homes::new(&roster.takers);
    let mut count = vec![0_usize; room.len()];
    for job in loose {
        let home = homes.of(columns.hashes[*job as usize], |slot| roster.taker(slot));
        count[home] += 1;
        holders[*job as usize] = roster.takers[home];
    }
    let over: Vec<_> = count.iter().zip(&room).map(|(n, room)| n.saturating_sub(*room)).collect();
    for ((room, count), over) in room.iter_mut().zip(&count).zip(&over) {
        *room -= count - over;
    }
    let mut spilled = spill(columns, roster, holders, loose, &over, &count);
    spilled.sort_unstable();
    let mut rest = spilled.into_iter();
    for (slot, room) in roster.takers.iter().zip(room) {
        for (_, job) in rest.by_ref().take(room) {
            holders[job as usize] = *slot;
        }
    }
    debug_assert!(rest.next().is_none(), "quotas do not sum to the number of jobs");
}

/// Returns the loose jobs that find no room at home: the jobs with the greatest (hash, name).
fn spill(
    columns: &Columns,
    roster: &Roster,
    holders: &[Slot],
    loose: &[u32],
    over: &[usize],
    count: &[usize],
) -> Vec<(u64, u32)> {
    if over.iter().all(|over| *over == 0) {
        return Vec::new();
    }
    let at_home = |job: &u32| {
        let (at, hash) = (holders[*job as usize], columns.hashes[*job as usize]);
        (*job, roster.at(at), hash)
    };
    let chosen = greatest(&loose.iter().map(at_home), |hash, _| hash, over, count);
    chosen.into_iter().flatten().collect()
}
