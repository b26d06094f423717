//! Decides where each job goes: the sticky quota planner for jobs without shares.
//!
//! Every worker gets an exact quota, gives up exactly its surplus, and what is left over fills
//! what is missing. So the loads of the workers that take jobs differ by at most one, and no plan
//! that even could move fewer jobs ([`minimum_moves`] has the formula). The result depends on the
//! set of jobs, on who holds them and on the pool: never on an order of input, never on a clock.

mod quota;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

pub use quota::minimum_moves;

use crate::hash::{hash_job, home, mix};
use crate::{Assignment, JobName, Pool, Slot, Standing};

/// Where every job should be, and what changes on the way there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Plan {
    /// The slot of every job that has one.
    pub assignment: Assignment,
    /// The jobs that have none, with the reason. A job stands here or in `assignment`, never in
    /// both, never in neither.
    pub unassigned: BTreeMap<JobName, Unassigned>,
    /// The difference to what was held, in the order of job names.
    pub moves: Vec<Move>,
}

/// A change of one job's holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// The job.
    pub job: JobName,
    /// Who held it.
    pub from: Option<Slot>,
    /// Who is to hold it.
    pub to: Option<Slot>,
    /// Why it moves.
    pub reason: MoveReason,
}

/// Why a job changes its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MoveReason {
    /// Nobody held the job.
    New,
    /// The job is no longer wanted.
    Removed,
    /// Its worker is gone.
    WorkerGone,
    /// Its worker had more than its quota.
    Balance,
    /// It lost its holder and nobody can take it.
    Unassigned(Unassigned),
}

/// Why a job has no holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unassigned {
    /// No worker takes jobs now.
    NoWorkers,
    /// The pool was never assigned anything and is not complete yet.
    PoolIncomplete,
}

impl MoveReason {
    /// The documented word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Removed => "removed",
            Self::WorkerGone => "worker-gone",
            Self::Balance => "balance",
            Self::Unassigned(reason) => reason.as_str(),
        }
    }
}

impl Unassigned {
    /// The documented word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoWorkers => "no-workers",
            Self::PoolIncomplete => "pool-incomplete",
        }
    }
}

/// Finds the even assignment of `jobs` to `pool` that changes the fewest holders.
///
/// Workers that [keep](Standing::Keeps) hold on to their jobs and take no part; over the workers
/// that [take](Standing::Takes), loads differ by at most one and the moves between them are
/// exactly [`minimum_moves`]. A job nobody holds goes to its [`home`] where that has room. Planning
/// again from the result moves nothing. Time: O(jobs · log jobs); memory: O(jobs).
pub fn plan(jobs: &BTreeSet<JobName>, held: &Assignment, pool: &Pool) -> Plan {
    let takers = pool.takers();
    let mut assignment = BTreeMap::new();
    let mut load = vec![Vec::new(); takers.len()];
    let mut loose = Vec::new();
    for job in jobs {
        match held.holder(job).map(|slot| (slot, pool.standing(slot))) {
            Some((slot, Some(Standing::Keeps))) => {
                assignment.insert(job.clone(), slot);
            }
            Some((slot, Some(Standing::Takes))) => {
                takers.binary_search(&slot).map_or_else(|_| (), |taker| load[taker].push(job));
            }
            Some((_, None)) | None => loose.push(job),
        }
    }
    let mut unassigned = BTreeMap::new();
    if takers.is_empty() {
        unassigned.extend(loose.drain(..).map(|job| (job.clone(), Unassigned::NoWorkers)));
    }
    let total = loose.len() + load.iter().map(Vec::len).sum::<usize>();
    let quota = quota::quotas(&load.iter().map(Vec::len).collect::<Vec<_>>(), total);
    for (taker, jobs) in load.iter_mut().enumerate() {
        loose.append(&mut shed(jobs, takers[taker], quota[taker]));
    }
    place(loose, &takers, &mut load, &quota);
    for (slot, jobs) in takers.iter().zip(load) {
        assignment.extend(jobs.into_iter().map(|job| (job.clone(), *slot)));
    }
    let assignment = Assignment::from_iter(assignment);
    let moves = moves(jobs, held, pool, &assignment);
    Plan { assignment, unassigned, moves }
}

/// Takes from `jobs` what exceeds `quota`: which ones, a hash over job, slot and quota decides, so
/// that no job is always the one to move.
fn shed<'a>(jobs: &mut Vec<&'a JobName>, slot: Slot, quota: usize) -> Vec<&'a JobName> {
    if jobs.len() <= quota {
        return Vec::new();
    }
    let salt = mix(u64::from(slot.0) << 32 ^ quota as u64);
    jobs.sort_by_cached_key(|job| (mix(hash_job(job) ^ salt), *job));
    jobs.split_off(quota)
}

/// Gives every loose job to its home while that has room, and the rest to whoever has, lowest slot
/// first. There is exactly as much room as there are loose jobs.
fn place<'a>(
    mut loose: Vec<&'a JobName>,
    takers: &[Slot],
    load: &mut [Vec<&'a JobName>],
    quota: &[usize],
) {
    loose.sort_by_cached_key(|job| (hash_job(job), *job));
    loose.retain(|job| {
        let home = home(hash_job(job), takers).and_then(|slot| takers.binary_search(&slot).ok());
        let Some(taker) = home.filter(|taker| load[*taker].len() < quota[*taker]) else {
            return true;
        };
        load[taker].push(job);
        false
    });
    let mut rest = loose.into_iter();
    for (jobs, quota) in load.iter_mut().zip(quota) {
        jobs.extend(rest.by_ref().take(quota.saturating_sub(jobs.len())));
    }
    debug_assert!(rest.next().is_none(), "quotas do not sum to the number of jobs");
}

/// The difference between `held` and `next`, each with its reason.
fn moves(jobs: &BTreeSet<JobName>, held: &Assignment, pool: &Pool, next: &Assignment) -> Vec<Move> {
    let names: BTreeSet<_> = held.iter().map(|(job, _)| job).chain(jobs).collect();
    let changed = names.into_iter().filter_map(|job| {
        let (from, to) = (held.holder(job), next.holder(job));
        let reason = match (from, to) {
            (from, to) if from == to => return None,
            (None, _) => MoveReason::New,
            (Some(_), None) if !jobs.contains(job) => MoveReason::Removed,
            (Some(_), None) => MoveReason::Unassigned(Unassigned::NoWorkers),
            (Some(slot), Some(_)) if pool.standing(slot).is_none() => MoveReason::WorkerGone,
            (Some(_), Some(_)) => MoveReason::Balance,
        };
        Some(Move { job: job.clone(), from, to, reason })
    });
    changed.collect()
}
