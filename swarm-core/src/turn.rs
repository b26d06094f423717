//! One turn of the operator: observe, plan, record, publish.
//!
//! [`decide`] is the whole decision, a pure function; `stores` carries it out. The operator may die
//! between any two awaits and repeat the turn: every write is either a compare-and-set or derived
//! from the ledger.

mod adopt;
mod begun;
mod decider;
mod incarnation;
mod input;
mod longest_lease;
mod overdue;
mod pace;
mod plain;
mod progress;
mod relocate;
mod renewals;
mod scale;
mod shares;

#[cfg(feature = "ports")]
mod stores;
pub(crate) mod unreleased;
mod unsteady;

#[cfg(test)]
mod recheck_tests;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::handover::{Cell, HandoverTerms, Place, Policy, Record, SessionId};
use crate::merge::left_join;
use crate::planner::active;
use crate::{
    Assignment, Filled, Job, JobName, Jobs, Ledger, LedgerStep, Member, MoveReason, Plan, Pool,
    Presence, Request, Rules, Slot, Standing, Unassigned, check, everywhere,
};

pub use adopt::Adoption;
pub use decider::Decider;
pub use input::{Desired, Observed, Replication, WorkerSeen};
pub use overdue::Overdue;
pub use pace::PLAIN_HANDOVER;
pub use progress::{JobCounts, Progress};
pub(crate) use scale::{is_beyond, largest_slot};
pub use shares::{Reservations, ShareClass};
#[cfg(feature = "ports")]
pub use stores::{Turn, turn};

/// The decision of one turn.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct Decision {
    /// The next ledger; equal to the given one if nothing has to change.
    pub ledger: Ledger,
    /// The goal of every job, with a reason for each move.
    pub plan: Plan,
    /// The condition that must be met before anything can be assigned.
    pub waiting: Option<Waiting>,
    /// The time after which the same observation leads to another decision.
    pub recheck_in: Option<Duration>,
    /// The number of workers that the workload should have from now on; `None` if its number stays.
    pub replicas: Option<u32>,
    /// The adopted assignment, in the turn that takes it over.
    pub adopted: Option<Adoption>,
}

impl Decision {
    /// Returns a decision that assigns nothing until some event has happened.
    fn waits(ledger: Ledger, plan: Plan, waiting: Waiting, recheck_in: Option<Duration>) -> Self {
        let waiting = Some(waiting);
        Self { ledger, plan, waiting, recheck_in, replicas: None, adopted: None }
    }
}

/// The reason why a turn assigns nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// The pool is incomplete and cold: nothing was ever assigned to it.
    PoolIncomplete {
        /// Workers that are ready.
        ready: usize,
        /// Workers that are wanted.
        desired: usize,
    },
    /// The user paused the Swarm.
    Paused,
    /// The ledger was changed a moment ago; further changes are collected for the next write.
    Gathering,
    /// The ledger was lost or rolled back, and starts another incarnation. Workers that may still
    /// run jobs of the previous one have to stop first.
    LedgerReset,
    /// The operator has just started, and some sessions have not renewed their Leases since. If the
    /// store was rolled back before, they may act on grants that the ledger does not have.
    Renewals {
        /// The number of sessions that are waited for.
        sessions: usize,
    },
}

/// Decides the next step for `ledger`, given the wishes of the user and the observed pool.
///
/// A cold pool is assigned nothing until all its workers are ready or `initial_wait` has passed.
/// Then every existing worker counts, ready or not, since some are ready only once they have jobs.
/// Afterwards only ready workers receive jobs. With [`Policy::Exclusive`] plain workers receive
/// none, since a job could never be taken from them again. Jobs that therefore have no worker are
/// [`Unassigned::PlainWorkers`].
///
/// If another system assigned the jobs of the pool, the first ledger adopts its assignment, as
/// given by [`Observed::adoptable`].
///
/// Changes that follow a change within the `batch_window` are collected. Under a budget, plain
/// workers get one batch of voluntary moves at a time, with [`PLAIN_HANDOVER`] in between. If the
/// user sets the number of workers, surplus slots are emptied first. The workload gets fewer pods
/// [`PLAIN_HANDOVER`] after that is published.
///
/// O(jobs · log sessions), and O(log jobs) for each job that changes.
///
/// ```
/// use swarm_core::handover::SessionId;
/// use swarm_core::{Desired, Ledger, Observed, Presence, Slot, WorkerSeen, decide, jobs};
///
/// let worker = |slot: u32| {
///     let (name, session) = (format!("worker-{slot}"), Some(SessionId::new("pod", slot.into())));
///     WorkerSeen::new(name, Presence::Ready, session)
/// };
/// let desired = Desired::new(jobs(["a", "b"])?);
/// let observed = Observed::new([0, 1].map(|n| (Slot(n), worker(n))), 1, []);
/// let ledger = decide(&Ledger::new(0), &desired, &observed).ledger;
/// assert_eq!(ledger.assignment().len(), 2);
/// assert_eq!(decide(&ledger, &desired, &observed).ledger, ledger); // it is at rest
/// # Ok::<(), swarm_core::JobsError>(())
/// ```
pub fn decide(ledger: &Ledger, desired: &Desired, observed: &Observed) -> Decision {
    match adopt::adopt(ledger, desired, observed) {
        Some((first, adoption)) => {
            Decision { adopted: Some(adoption), ..decide_upon(&first, desired, observed) }
        }
        None => decide_upon(ledger, desired, observed),
    }
}

/// Decides about `ledger`, after a possible adoption.
fn decide_upon(ledger: &Ledger, desired: &Desired, observed: &Observed) -> Decision {
    if let Some(ledger) = incarnation::reset(ledger, desired, observed) {
        let plan = current_plan(desired, &ledger);
        let recheck_in = recheck_in(&ledger, &ledger, desired, observed).or(Some(Duration::ZERO));
        return Decision::waits(ledger, plan, Waiting::LedgerReset, recheck_in);
    }
    let is_cold = ledger.version == 0;
    let since_handover = since_handover(ledger, observed);
    if desired.paused {
        return paused(ledger, desired, observed);
    }
    if let Some(waiting) = incomplete(desired, observed).filter(|_| is_cold) {
        let reason = |(name, job)| {
            (JobName::clone(name), unassigned(desired, job, Unassigned::PoolIncomplete))
        };
        let unassigned = desired.jobs.iter().map(reason).collect();
        let plan = Plan { unassigned, ..Plan::default() };
        let (replicas, look) = scale::replicas([ledger, ledger], desired, observed, since_handover);
        let recheck = recheck_in(ledger, ledger, desired, observed);
        let recheck_in = recheck.into_iter().chain(look).min();
        let waits = Decision::waits(ledger.clone(), plan, waiting, recheck_in);
        return Decision { replicas, ..waits };
    }
    let pool = pool(is_cold, desired, observed);
    let (mut plan, goal) = match desired.replication {
        Replication::One => plan_one(ledger, desired, observed, &pool, since_handover),
        Replication::All => plan_all(ledger, desired, &pool),
    };
    plain::explain(&mut plan, desired, observed);
    let mut workers = filled(&pool, desired, observed);
    workers.extend(scale::emptied(desired, observed));
    let step = LedgerStep {
        workers: &workers,
        goal: &goal,
        evidence: &observed.evidence,
        ages: &waited(ledger, &goal, &observed.ages),
        jobs: &desired.jobs,
        terms: &terms(desired),
    };
    let next = longest_lease::keep(ledger, ledger.step(&step), observed);
    let batch = pace::next_batch_in(desired, &plan, since_handover);
    // If nothing is written, time changes only the plan, which people see.
    let at_rest = || recheck_in(ledger, ledger, desired, observed).into_iter().chain(batch);
    if incarnation::has_foreign_sessions(ledger, desired, observed) {
        return Decision::waits(ledger.clone(), plan, Waiting::LedgerReset, at_rest().min());
    }
    if let Some(waiting) = renewals::awaited(ledger, &next, observed) {
        let recheck_in = at_rest().chain([renewals::RECHECK]).min();
        return Decision::waits(ledger.clone(), plan, waiting, recheck_in);
    }
    let is_news = || next != *ledger && !pace::goes_on(ledger, &next);
    if let Some(left) = pace::gathers_for(desired, observed).filter(|_| is_news()) {
        // A handover in progress may be due earlier.
        let recheck_in = at_rest().chain([left]).min();
        return Decision::waits(ledger.clone(), plan, Waiting::Gathering, recheck_in);
    }
    let (replicas, look) = scale::replicas([ledger, &next], desired, observed, since_handover);
    let recheck = recheck_in(ledger, &next, desired, observed);
    let recheck_in = recheck.into_iter().chain(look).chain(batch).min();
    Decision { ledger: next, plan, waiting: None, recheck_in, replicas, adopted: None }
}

/// Returns the time since plain workers last had to release a job. `None` if plain workers hold no
/// job, since then no worker needs time to read.
fn since_handover(ledger: &Ledger, observed: &Observed) -> Option<Duration> {
    let is_plain = |record: &Record| record.cell.holder().is_some_and(SessionId::is_plain);
    let has_plain = || ledger.cells.jobs.values().any(is_plain);
    observed.since_handover.filter(|_| has_plain())
}

/// Decides for a paused pool: every job stays where it is. Only the jobs of a session that has
/// ended are granted again, to the session that fills the same slot now.
fn paused(ledger: &Ledger, desired: &Desired, observed: &Observed) -> Decision {
    let held = ledger.assignment();
    let place = |(job, record): (&JobName, &Record)| {
        let slot = held.holder(job);
        let place = match &record.cell {
            Cell::Granted { session, .. } | Cell::Releasing { session, .. } => match slot {
                // A plain worker is known only by the worker that fills its slot now.
                Some(slot) if has_ended(observed, session) || session.is_plain() => {
                    Place::Slot(slot)
                }
                Some(slot) => Place::Session(slot, session.clone()),
                None => Place::Nowhere,
            },
            Cell::Hold { slot, .. } => Place::Slot(*slot),
            Cell::Everywhere { .. } => Place::Everywhere,
            Cell::Free { .. }
            | Cell::Quarantined { .. }
            | Cell::Done { .. }
            | Cell::ReleasingAll { .. } => Place::Nowhere,
        };
        (job.clone(), place)
    };
    let goal = ledger.cells.jobs.iter().map(place).collect();
    // A slot whose worker is leaving also keeps its entry, and its latest session keeps its jobs.
    // It receives no new ones, since the worker was not observed.
    let before = ledger.slots.iter().map(|(slot, record)| {
        let worker = record.worker.clone();
        (*slot, Filled { worker, session: None, takes: false, max_jobs: None, capacity: None })
    });
    let mut workers: BTreeMap<_, _> = before.collect();
    workers.extend(filled(&pool(false, desired, observed), desired, observed));
    // A session that acts on another incarnation may run jobs that would be granted again.
    let next =
        if ledger.version == 0 || incarnation::has_foreign_sessions(ledger, desired, observed) {
            ledger.clone()
        } else {
            let step = LedgerStep {
                workers: &workers,
                goal: &goal,
                evidence: &observed.evidence,
                ages: &observed.ages,
                jobs: &desired.jobs,
                terms: &terms(desired),
            };
            longest_lease::keep(ledger, ledger.step(&step), observed)
        };
    let plan = current_plan(desired, ledger);
    if let Some(waiting) = renewals::awaited(ledger, &next, observed) {
        let recheck_in = recheck_in(ledger, ledger, desired, observed);
        let recheck_in = recheck_in.into_iter().chain([renewals::RECHECK]).min();
        return Decision::waits(ledger.clone(), plan, waiting, recheck_in);
    }
    let recheck_in = recheck_in(ledger, &next, desired, observed);
    Decision::waits(next, plan, Waiting::Paused, recheck_in)
}

/// Returns the plan of a pool in which nothing is planned: the present holders, and the jobs
/// without a worker.
fn current_plan(desired: &Desired, ledger: &Ledger) -> Plan {
    let held = ledger.assignment();
    let kept = held.iter().filter(|(job, _)| desired.jobs.contains_key(*job));
    let assignment: Assignment = kept.map(|(job, slot)| (job.clone(), slot)).collect();
    let is_everywhere = |job: &JobName| {
        let record = ledger.cells.jobs.get(job);
        record.is_some_and(|record| matches!(record.cell, Cell::Everywhere { .. }))
    };
    let has_none = |job: &JobName| assignment.holder(job).is_none() && !is_everywhere(job);
    let without = desired.jobs.iter().filter(|(name, _)| has_none(name));
    let reason = |(name, job)| (JobName::clone(name), unassigned(desired, job, Unassigned::Paused));
    let unassigned = without.map(reason).collect();
    Plan { assignment, unassigned, ..Plan::default() }
}

/// Returns the reason why a job has no worker: `why`, unless it is suspended.
fn unassigned(desired: &Desired, job: &Job, why: Unassigned) -> Unassigned {
    if desired.suspend || job.suspend { Unassigned::Suspended } else { why }
}

/// Returns the plan for `request`, which debug builds check.
fn checked(request: &Request<'_>) -> Plan {
    let plan = request.plan();
    debug_assert_eq!(check(request, &plan), Ok(()), "the planner made an invalid plan");
    plan
}

/// Plans each job on one worker. Returns the plan, and the goal of every job.
fn plan_one(
    ledger: &Ledger,
    desired: &Desired,
    observed: &Observed,
    pool: &Pool,
    since_handover: Option<Duration>,
) -> (Plan, BTreeMap<JobName, Place>) {
    let held = ledger.unreleased_assignment();
    let jobs = unfinished(ledger, desired);
    let (all, bound) = unreleased::without_their_room(pool, &jobs, ledger, desired, observed);
    let pool = unsteady::without(&all, observed);
    let relocations = &observed.relocations;
    let late: BTreeSet<_> =
        unreleased::late(ledger, desired, &observed.ages).map(|(job, _)| job).collect();
    let moving = ledger.cells.jobs.iter().filter(|(_, record)| is_moving(record));
    let moving = moving.map(|(job, _)| job).filter(|job| !late.contains(job));
    let (relocated, others): (Vec<_>, Vec<_>) =
        moving.partition(|job| relocations.contains_key(*job));
    let homes = relocate::homes(&held, &jobs, &pool, relocations);
    let planned = |in_flight: usize| {
        let moves_max = desired.rules.moves_max.map(|most| most.saturating_sub(in_flight));
        let moves_max = moves_max.map(|most| if pace::may_move(since_handover) { most } else { 0 });
        let rules = Rules { moves_max, ..desired.rules };
        let request = Request { jobs: &bound, held: &homes, pool: &pool, rules };
        let plan =
            unreleased::give_way(&request, &late, |request| begun::keep(request, checked(request)));
        let plan = Overdue::of(desired, observed).plan(&request, plan);
        (rules, plan)
    };
    // A relocated job counts at its home while it is released. So the plan repeats its own move of
    // such a job within the budget, and only the other relocated jobs lessen the budget.
    let is_leaving = |job: &JobName| held.holder(job).is_none();
    let (mut rules, mut plan) = planned(others.len());
    let beside = relocate::leaving_beside(&plan, &relocated);
    if 0 < beside && rules.moves_max.is_some() {
        (rules, plan) = planned(others.len().saturating_add(beside));
    }
    if !(relocations.is_empty() && others.is_empty() && late.is_empty()) {
        let request = Request { jobs: &jobs, held: &homes, pool: &pool, rules };
        let assigned = ledger.assignment();
        plan = relocate::apply(&request, &assigned, is_leaving, relocations, plan);
        relabel_in_flight_moves(&mut plan, &assigned);
    }
    if let Cow::Owned(pool) = &pool {
        unsteady::fill(&Request { jobs: &jobs, held: &homes, pool, rules }, &all, &mut plan);
    }
    let place = |(job, slot): (&JobName, Option<Slot>)| {
        (job.clone(), slot.map_or(Place::Nowhere, Place::Slot))
    };
    let goal = plan.assignment.holders_of(&desired.jobs).map(place).collect();
    (plan, goal)
}

/// Plans all jobs on every worker. While no worker takes jobs, the workers that keep their jobs go
/// on.
fn plan_all(ledger: &Ledger, desired: &Desired, pool: &Pool) -> (Plan, BTreeMap<JobName, Place>) {
    let nobody_takes = pool.takers().is_empty();
    let held = if nobody_takes { ledger.granted() } else { BTreeMap::new() };
    let jobs = with_suspended(desired);
    let suspended = jobs.iter().filter(|(_, job)| job.suspend);
    let mut unassigned: BTreeMap<_, _> =
        suspended.map(|(name, _)| (name.clone(), Unassigned::Suspended)).collect();
    unassigned.extend(everywhere(&active(&jobs), &held, pool).unassigned);
    let place = |job: &JobName| match unassigned.get(job) {
        Some(_) => Place::Nowhere,
        None => Place::Everywhere,
    };
    let goal = desired.jobs.keys().map(|job| (job.clone(), place(job))).collect();
    (Plan { unassigned, ..Plan::default() }, goal)
}

/// Returns how long each job has waited. A job that the plan wants in another slot than the one it
/// waits for counts as having waited long enough, since the plan has given that slot up.
fn waited<'a>(
    ledger: &Ledger,
    goal: &BTreeMap<JobName, Place>,
    ages: &'a BTreeMap<JobName, Duration>,
) -> Cow<'a, BTreeMap<JobName, Duration>> {
    let given_up = |(job, record): (&JobName, &Record)| {
        let Cell::Hold { slot, span, .. } = &record.cell else { return None };
        let Some(Place::Slot(wanted)) = goal.get(job) else { return None };
        (slot != wanted).then(|| (job.clone(), *span))
    };
    let given_up: Vec<_> = ledger.cells.jobs.iter().filter_map(given_up).collect();
    if given_up.is_empty() {
        return Cow::Borrowed(ages);
    }
    let mut ages = ages.clone();
    ages.extend(given_up);
    Cow::Owned(ages)
}

fn is_moving(record: &Record) -> bool {
    matches!(record.cell, Cell::Releasing { .. })
}

/// Returns the jobs with their suspension; in a suspended Swarm all jobs are suspended.
fn with_suspended(desired: &Desired) -> Cow<'_, Jobs> {
    let mut jobs = Cow::Borrowed(&desired.jobs);
    if desired.suspend {
        jobs.to_mut().values_mut().for_each(|job| job.suspend = true);
    }
    jobs
}

/// Returns the jobs without finished run-to-completion jobs, which take no room.
pub(crate) fn unfinished<'a>(ledger: &Ledger, desired: &'a Desired) -> Cow<'a, Jobs> {
    let jobs = with_suspended(desired);
    let is_done = |record: &Record| matches!(record.cell, Cell::Done { .. });
    if !ledger.cells.jobs.values().any(is_done) {
        return jobs;
    }
    let all = left_join(&*jobs, &ledger.cells.jobs);
    let left = all.filter(|(_, job, record)| !(job.run_once && record.is_some_and(is_done)));
    Cow::Owned(left.map(|(name, job, _)| (name.clone(), job.clone())).collect())
}

/// Corrects the moves of jobs that are being released. They are planned without a holder, and
/// people see them move from their holder.
fn relabel_in_flight_moves(plan: &mut Plan, held: &Assignment) {
    for step in &mut plan.moves {
        let is_new = step.reason == MoveReason::New;
        if let Some(holder) = held.holder(&step.job).filter(|_| is_new) {
            step.from = Some(holder);
            step.reason = MoveReason::Balance;
        }
    }
    plan.moves.retain(|step| step.from != step.to);
}

fn terms(desired: &Desired) -> HandoverTerms {
    HandoverTerms {
        policy: desired.policy,
        release_timeout: desired.timing.release_timeout,
        return_grace: desired.timing.return_grace,
    }
}

/// Returns the workers that a cold pool still waits for, if any.
fn incomplete(desired: &Desired, observed: &Observed) -> Option<Waiting> {
    let wanted = desired.replicas.map_or(observed.workers_desired, |count| count as usize);
    let stays = |slot: &Slot| !scale::is_beyond(*slot, desired, observed);
    let ready =
        |(slot, seen): &(&Slot, &WorkerSeen)| seen.presence == Presence::Ready && stays(slot);
    let ready = observed.workers.iter().filter(ready).count();
    let still_waiting = observed.watched_for < desired.timing.initial_wait;
    (still_waiting && ready < wanted).then_some(Waiting::PoolIncomplete { ready, desired: wanted })
}

/// Returns whether a session is known to have ended.
fn has_ended(observed: &Observed, session: &SessionId) -> bool {
    observed.evidence.get(session).is_some_and(|known| known.ended.is_some())
}

/// Returns the workers that count, as observed. A worker without a live session receives no jobs
/// until its next session begins. Neither does a worker that could not release them.
pub(crate) fn pool(is_cold: bool, desired: &Desired, observed: &Observed) -> Pool {
    let standing = |seen: &WorkerSeen| {
        let standing = match seen.presence {
            Presence::NotReady(_) if is_cold => Some(Standing::Takes),
            presence => presence.standing(&desired.timing),
        };
        let session = plain::session(desired, seen);
        let is_none = session.is_none_or(|session| has_ended(observed, session));
        if standing == Some(Standing::Takes) && is_none { Some(Standing::Keeps) } else { standing }
    };
    let member = |(slot, seen): (&Slot, &WorkerSeen)| {
        if scale::is_beyond(*slot, desired, observed) {
            return None;
        }
        let (name, standing) = (seen.name.clone(), standing(seen)?);
        let (max_jobs, capacity) = (desired.max_jobs_of(*slot), desired.capacity_of(*slot));
        Some((*slot, Member { name, standing, max_jobs, capacity }))
    };
    Pool(observed.workers.iter().filter_map(member).collect())
}

/// Returns the workers in the slots that count.
fn filled(pool: &Pool, desired: &Desired, observed: &Observed) -> BTreeMap<Slot, Filled> {
    let filled = |(slot, member): (&Slot, &Member)| {
        let seen = observed.workers.get(slot);
        let session = seen.and_then(|seen| plain::session(desired, seen)).cloned();
        let takes = member.standing == Standing::Takes;
        let Member { name, standing: _, max_jobs, capacity } = member.clone();
        (*slot, Filled { worker: name, session, takes, max_jobs, capacity })
    };
    pool.0.iter().map(filled).collect()
}

/// Returns when time alone changes the decision, once `ledger` has become `next`.
fn recheck_in(
    ledger: &Ledger,
    next: &Ledger,
    desired: &Desired,
    observed: &Observed,
) -> Option<Duration> {
    let timing = &desired.timing;
    let worker = observed.workers.values().filter_map(|seen| {
        let is_plain = plain::session(desired, seen).is_some_and(SessionId::is_plain);
        // A session is judged by its lease, ready or not.
        let counts = is_plain || !matches!(seen.presence, Presence::NotReady(_));
        seen.presence.changes_in(timing).filter(|_| counts)
    });
    let cold = timing.initial_wait.checked_sub(observed.watched_for);
    let cold = cold.filter(|_| ledger.version == 0);
    let cell = |(job, record): (&JobName, &Record)| {
        let span = match &record.cell {
            // At least once, the job is free then. Otherwise its room counts as taken.
            Cell::Releasing { .. } | Cell::ReleasingAll { .. } => timing.release_timeout,
            Cell::Hold { span, .. } | Cell::Quarantined { span, .. } => *span,
            Cell::Free { .. }
            | Cell::Granted { .. }
            | Cell::Done { .. }
            | Cell::Everywhere { .. } => return None,
        };
        let is_old = ledger.cells.jobs.get(job).is_some_and(|before| before.cell == record.cell);
        let age = observed.ages.get(job).copied().filter(|_| is_old);
        span.checked_sub(age.unwrap_or_default())
    };
    let cells = next.cells.jobs.iter().filter_map(cell);
    // At least once, a holder that has been missing long enough has released its jobs.
    let gone = observed.evidence.values().filter_map(|known| {
        let counts = desired.policy == Policy::AtLeastOnce && known.ended.is_none();
        timing.return_grace.checked_sub(known.gone_for.filter(|_| counts)?)
    });
    worker.chain(cold).chain(cells).chain(gone).filter(|wait| !wait.is_zero()).min()
}
