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
mod renewals;
mod scale;
mod shares;

#[cfg(feature = "ports")]
mod stores;

#[cfg(test)]
mod recheck_tests;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use crate::handover::{Cell, HandoverTerms, Place, Policy, Record, SessionId};
use crate::merge::beside;
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
pub use shares::{Reservations, ShareClass};
#[cfg(feature = "ports")]
pub use stores::{Turn, turn};

/// What one turn decides.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct Decision {
    /// The ledger as it shall be; equal to the one given if nothing is to be done.
    pub ledger: Ledger,
    /// Where every job should be, and why each move.
    pub plan: Plan,
    /// What has to happen before anything can be assigned.
    pub waiting: Option<Waiting>,
    /// After which time the same observation leads to another decision.
    pub recheck_in: Option<Duration>,
    /// How many workers the workload is to have from now on, if it is meant to have another number.
    pub replicas: Option<u32>,
    /// What was taken over from whoever assigned the jobs before, in the turn that does so.
    pub adopted: Option<Adoption>,
}

impl Decision {
    /// A decision that assigns nothing until something has happened.
    fn waits(ledger: Ledger, plan: Plan, waiting: Waiting, recheck_in: Option<Duration>) -> Self {
        let waiting = Some(waiting);
        Self { ledger, plan, waiting, recheck_in, replicas: None, adopted: None }
    }
}

/// Why a turn assigns nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// The pool is cold, that is, nothing was ever assigned to it, and it is not complete.
    PoolIncomplete {
        /// Workers that are ready.
        ready: usize,
        /// Workers that are wanted.
        desired: usize,
    },
    /// Somebody asked for everything to stay as it is.
    Paused,
    /// The ledger was changed a moment ago; what changes now is gathered for the next one.
    Gathering,
    /// The ledger was lost or rolled back, and starts another incarnation; workers that may still run
    /// what it granted before have to stop first.
    LedgerReset,
    /// The operator has just started, and so many sessions have not renewed their Leases since. If the
    /// store was rolled back before, they may act on grants that the ledger does not have.
    Renewals {
        /// Sessions that are waited for.
        sessions: usize,
    },
}

/// Decides what to do about `ledger`, given what is wanted and what is seen.
///
/// A cold pool is assigned nothing until all its workers are ready or `initial_wait` has passed;
/// then every worker that exists counts, ready or not, since some are ready only once they have
/// work. Afterwards only ready workers are given jobs. With [`Policy::Exclusive`] plain workers are
/// given none, since nothing could be taken from them again; jobs that therefore have no worker are
/// [`Unassigned::PlainWorkers`].
///
/// The first ledger of a pool that somebody else assigned takes over what its running workers run,
/// as far as [`Observed::adoptable`] says that.
///
/// Changes that follow a change within the `batch_window` are gathered. Under a budget, plain
/// workers get one batch of voluntary moves at a time, with [`PLAIN_HANDOVER`] in between. Where the
/// user decides on the number of workers, surplus slots are emptied first; the workload gets fewer
/// pods once that is published, [`PLAIN_HANDOVER`] later.
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

/// The decision, once the ledger is the one to go by.
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
        Replication::One => {
            let overdue = Overdue::of(desired, observed);
            plan_one(ledger, desired, &pool, since_handover, &overdue)
        }
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
    // Where nothing is written, time changes the plan, which people see.
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
        // What goes on at once may be due before.
        let recheck_in = at_rest().chain([left]).min();
        return Decision::waits(ledger.clone(), plan, Waiting::Gathering, recheck_in);
    }
    let (replicas, look) = scale::replicas([ledger, &next], desired, observed, since_handover);
    let recheck = recheck_in(ledger, &next, desired, observed);
    let recheck_in = recheck.into_iter().chain(look).chain(batch).min();
    Decision { ledger: next, plan, waiting: None, recheck_in, replicas, adopted: None }
}

/// How long ago plain workers last had to release a job. Where none of them holds anything, nobody
/// has to be given time to read.
fn since_handover(ledger: &Ledger, observed: &Observed) -> Option<Duration> {
    let is_plain = |record: &Record| record.cell.holder().is_some_and(SessionId::is_plain);
    let has_plain = || ledger.cells.jobs.values().any(is_plain);
    observed.since_handover.filter(|_| has_plain())
}

/// Everything stays where it is; only what was held by a session that has ended is granted again, to
/// whoever fills the same slot now.
fn paused(ledger: &Ledger, desired: &Desired, observed: &Observed) -> Decision {
    let held = ledger.assignment();
    let place = |(job, record): (&JobName, &Record)| {
        let slot = held.holder(job);
        let place = match &record.cell {
            Cell::Granted { session, .. } | Cell::Releasing { session, .. } => match slot {
                // Nothing is known of a plain worker but who fills its slot now.
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
    // A slot whose worker is leaving keeps its entry as well, and its latest session what it holds. It
    // is granted nothing: nobody sees it.
    let before = ledger.slots.iter().map(|(slot, record)| {
        let worker = record.worker.clone();
        (*slot, Filled { worker, session: None, takes: false, max_jobs: None, capacity: None })
    });
    let mut workers: BTreeMap<_, _> = before.collect();
    workers.extend(filled(&pool(false, desired, observed), desired, observed));
    // Whoever acts on another incarnation may run what would be granted again.
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

/// The plan of a pool in which nothing is planned: who holds what, and who is without a worker.
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

/// Why a job without a worker has none: for this reason, or since it is suspended.
fn unassigned(desired: &Desired, job: &Job, why: Unassigned) -> Unassigned {
    if desired.suspend || job.suspend { Unassigned::Suspended } else { why }
}

/// The plan that answers `request`, which debug builds check.
fn checked(request: &Request<'_>) -> Plan {
    let plan = request.plan();
    debug_assert_eq!(check(request, &plan), Ok(()), "the planner made a plan that is no answer");
    plan
}

/// Each job on one worker: the plan, and where every job should be.
fn plan_one(
    ledger: &Ledger,
    desired: &Desired,
    pool: &Pool,
    since_handover: Option<Duration>,
    overdue: &Overdue,
) -> (Plan, BTreeMap<JobName, Place>) {
    let held = ledger.unreleased_assignment();
    let in_flight = ledger.cells.jobs.values().filter(|record| is_moving(record)).count();
    let moves_max = desired.rules.moves_max.map(|most| most.saturating_sub(in_flight));
    let moves_max = moves_max.map(|most| if pace::may_move(since_handover) { most } else { 0 });
    let rules = Rules { moves_max, ..desired.rules };
    let jobs = unfinished(ledger, desired);
    let request = Request { jobs: &jobs, held: &held, pool, rules };
    let plan = begun::keep(&request, checked(&request));
    let mut plan = overdue.plan(&request, plan);
    if 0 < in_flight {
        relabel_in_flight_moves(&mut plan, &ledger.assignment());
    }
    let place = |(job, slot): (&JobName, Option<Slot>)| {
        (job.clone(), slot.map_or(Place::Nowhere, Place::Slot))
    };
    let goal = plan.assignment.holders_of(&desired.jobs).map(place).collect();
    (plan, goal)
}

/// All jobs on every worker. While nobody takes jobs, those who keep what they have go on.
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

/// For how long each job has waited. Where the plan wants a job in another slot than the one it
/// waits for, it has given that slot up, and there is nothing left to wait for.
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

/// The jobs, each marked if it is suspended; of a Swarm that is, all are.
fn with_suspended(desired: &Desired) -> Cow<'_, Jobs> {
    let mut jobs = Cow::Borrowed(&desired.jobs);
    if desired.suspend {
        jobs.to_mut().values_mut().for_each(|job| job.suspend = true);
    }
    jobs
}

/// The jobs without the run-to-completion jobs that are done: those take no worker's room.
pub(crate) fn unfinished<'a>(ledger: &Ledger, desired: &'a Desired) -> Cow<'a, Jobs> {
    let jobs = with_suspended(desired);
    let is_done = |record: &Record| matches!(record.cell, Cell::Done { .. });
    if !ledger.cells.jobs.values().any(is_done) {
        return jobs;
    }
    let all = beside(&*jobs, &ledger.cells.jobs);
    let left = all.filter(|(_, job, record)| !(job.run_once && record.is_some_and(is_done)));
    Cow::Owned(left.map(|(name, job, _)| (name.clone(), job.clone())).collect())
}

/// A job that is being released is planned as nobody's; for people it still moves from its holder.
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

/// What a cold pool still has to wait for.
fn incomplete(desired: &Desired, observed: &Observed) -> Option<Waiting> {
    let wanted = desired.replicas.map_or(observed.workers_desired, |count| count as usize);
    let stays = |slot: &Slot| !scale::is_beyond(*slot, desired, observed);
    let ready =
        |(slot, seen): &(&Slot, &WorkerSeen)| seen.presence == Presence::Ready && stays(slot);
    let ready = observed.workers.iter().filter(ready).count();
    let still_waiting = observed.watched_for < desired.timing.initial_wait;
    (still_waiting && ready < wanted).then_some(Waiting::PoolIncomplete { ready, desired: wanted })
}

/// Whether a session is known to have ended.
fn has_ended(observed: &Observed, session: &SessionId) -> bool {
    observed.evidence.get(session).is_some_and(|known| known.ended.is_some())
}

/// The workers that count, by what is seen of them. One whose session has ended, or that has none,
/// can be given nothing until its next one begins; nor can one that could not let go of it.
fn pool(is_cold: bool, desired: &Desired, observed: &Observed) -> Pool {
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

/// Who fills the slots that count.
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

/// When the mere passing of time changes the decision, once `ledger` has become `next`.
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
            Cell::Releasing { .. } | Cell::ReleasingAll { .. }
                if desired.policy == Policy::AtLeastOnce =>
            {
                timing.release_timeout
            }
            Cell::Hold { span, .. } | Cell::Quarantined { span, .. } => *span,
            Cell::Releasing { .. }
            | Cell::ReleasingAll { .. }
            | Cell::Free { .. }
            | Cell::Granted { .. }
            | Cell::Done { .. }
            | Cell::Everywhere { .. } => return None,
        };
        let is_old = ledger.cells.jobs.get(job).is_some_and(|before| before.cell == record.cell);
        let age = observed.ages.get(job).copied().filter(|_| is_old);
        span.checked_sub(age.unwrap_or_default())
    };
    let cells = next.cells.jobs.iter().filter_map(cell);
    // At least once, a holder that is gone for long enough has let go.
    let gone = observed.evidence.values().filter_map(|known| {
        let counts = desired.policy == Policy::AtLeastOnce && known.ended.is_none();
        timing.return_grace.checked_sub(known.gone_for.filter(|_| counts)?)
    });
    worker.chain(cold).chain(cells).chain(gone).filter(|wait| !wait.is_zero()).min()
}
