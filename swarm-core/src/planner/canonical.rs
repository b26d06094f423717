//! Canonical mode: placement by homes and exact quotas, from names alone.

use std::borrow::Cow;

use super::Load;
use super::admit::{Fate, Preplaced};
use super::columns::{Columns, number, runs_between};
use super::engine::{Outcome, place, preplace_into};
use super::quota::quotas;
use super::roster::Roster;
use crate::Slot;

/// Finds the place of every job, independently of its holder; jobs of workers that keep stay. Under
/// a budget, the result is a step towards these places.
pub(super) fn solve<'a>(
    columns: &Columns,
    roster: &Roster,
    held: Cow<'a, [Slot]>,
    preplaced: &Preplaced,
    moves_max: Option<usize>,
) -> Outcome<'a> {
    let unheld: Vec<_> = preplaced.loads.iter().map(|load| Load { free: 0, ..*load }).collect();
    let quota = quotas(&unheld, preplaced.total);
    let room = quota.iter().zip(&unheld).map(|(quota, load)| quota - load.pinned).collect();
    let jobs = runs_between(&preplaced.apart, columns.len()).into_iter().flatten();
    let loose: Vec<_> =
        jobs.filter(|job| roster.at(held[*job as usize]) != roster.kept()).collect();
    let mut target = held.to_vec();
    preplace_into(&mut target, roster, preplaced);
    place(columns, roster, &mut target, &loose, room);
    let deferred = match moves_max {
        Some(budget) => hold_back(columns, roster, &held, &mut target, preplaced, budget),
        None => Vec::new(),
    };
    let holders = if *held == *target { held } else { target.into() };
    let unassigned = preplaced.unassigned();
    Outcome { holders, unassigned, deferred, ..Outcome::default() }
}

/// Turns the target into a step. All but `budget` of the jobs that would move between takers stay
/// where they are for now, if maxima permit it. Returns these jobs.
///
/// The target is within the maxima, and a job returns to its holder only if its holder has room. So
/// every state in between is within the maxima, too. If no worker has room, jobs that have to be
/// swapped are swapped at once. A job whose holder is full is queued until another job leaves that
/// holder. O(jobs).
fn hold_back(
    columns: &Columns,
    roster: &Roster,
    held: &[Slot],
    target: &mut [Slot],
    preplaced: &Preplaced,
    budget: usize,
) -> Vec<u32> {
    let moves = |job: &u32| {
        let (from, to) = (held[*job as usize], target[*job as usize]);
        from != to && roster.taker(from).is_some() && !preplaced.is_apart(*job)
    };
    let mut wanting: Vec<_> = (0..number(columns.len())).filter(moves).collect();
    let Some(mut surplus) = wanting.len().checked_sub(budget) else { return Vec::new() };
    wanting.sort_unstable_by_key(|job| (columns.hashes[*job as usize], *job));
    let mut count = roster.count(target);
    for (_, fate) in &preplaced.apart {
        if let Fate::Reserved(taker) = fate {
            count[*taker] -= 1;
        }
    }
    let mut queued = vec![Vec::new(); roster.takers.len()];
    let mut deferred = Vec::new();
    while surplus > 0 {
        let Some(job) = wanting.pop() else { break };
        let (from, to) = (roster.at(held[job as usize]), roster.at(target[job as usize]));
        if count[from] >= roster.caps[from] {
            queued[from].push(job);
            continue;
        }
        target[job as usize] = held[job as usize];
        count[from] += 1;
        count[to] -= 1;
        surplus -= 1;
        deferred.push(job);
        wanting.extend(queued[to].pop());
    }
    deferred.sort_unstable();
    deferred
}
