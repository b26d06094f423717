//! One turn of the operator: observe, plan, record, publish.
//!
//! [`decide`] is the whole decision, a pure function; [`turn`] carries it out. The operator may die
//! between any two awaits and repeat the turn: every write is either a compare-and-set or derived
//! from the ledger.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use crate::handover::{Cell, Evidence, HandoverTerms, Place, Policy, Record, SessionId};
use crate::ports::{LedgerStore, StoreError, ViewStore};
use crate::{
    Assignment, Filled, JobName, Jobs, Ledger, LedgerStep, Member, MoveReason, Plan, Pool,
    Presence, Request, Rules, Slot, Standing, Timing, Unassigned, check, everywhere,
};

/// What the user asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Desired {
    /// The jobs, each to be run by one worker, or by all.
    pub jobs: Jobs,
    /// By how many workers each job is run.
    pub replication: Replication,
    /// How to plan.
    pub rules: Rules,
    /// The most jobs one worker may have; `None` for any number.
    pub max_jobs: Option<u32>,
    /// How long to wait for absent workers.
    pub timing: Timing,
    /// What it takes to end an ownership.
    pub policy: Policy,
    /// Whether everything is to stay as it is.
    pub paused: bool,
}

/// By how many workers each job is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replication {
    /// By exactly one.
    #[default]
    One,
    /// By every one.
    All,
}

/// What was seen of the pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// Every slot that is wanted or still filled.
    pub workers: BTreeMap<Slot, WorkerSeen>,
    /// How many workers the pool is meant to have.
    pub workers_desired: usize,
    /// For how long the pool has been watched, on a monotonic clock.
    pub watched_for: Duration,
    /// The wall clock in microseconds since 1970. Only a new ledger's first token is taken from it.
    pub unix_time_us: u64,
    /// What is known of sessions. Plain workers need none.
    pub evidence: BTreeMap<SessionId, Evidence>,
    /// For how long each cell of the ledger has been seen as it is; a missing one counts as new.
    pub ages: BTreeMap<JobName, Duration>,
}

/// What was seen of the worker in a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerSeen {
    /// Its name, the key of its entry in the view. Empty until a worker filled the slot.
    pub name: String,
    /// Whether it is there.
    pub presence: Presence,
    /// Its session; `None` while there is no worker, or none that could be given jobs.
    pub session: Option<SessionId>,
}

/// What one turn decides.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Decision {
    /// The ledger as it shall be; equal to the one given if nothing is to be done.
    pub ledger: Ledger,
    /// Where every job should be, and why each move.
    pub plan: Plan,
    /// What has to happen before anything can be assigned.
    pub waiting: Option<Waiting>,
    /// After which time the same observation leads to another decision.
    pub recheck_in: Option<Duration>,
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
}

/// Decides what to do about `ledger`, given what is wanted and what is seen.
///
/// A cold pool is assigned nothing until all its workers are ready or `initial_wait` has passed;
/// then every worker that exists counts, ready or not, since some are ready only once they have
/// work. Afterwards only ready workers are given jobs. O(jobs · log jobs).
pub fn decide(ledger: &Ledger, desired: &Desired, observed: &Observed) -> Decision {
    let is_cold = ledger.version == 0;
    if desired.paused {
        return paused(ledger, desired, observed);
    }
    if is_cold && let Some(waiting) = incomplete(desired, observed) {
        let incomplete = |job: &JobName| (job.clone(), Unassigned::PoolIncomplete);
        let unassigned = desired.jobs.keys().map(incomplete).collect();
        let plan = Plan { unassigned, ..Plan::default() };
        let (next, waiting) = (ledger.clone(), Some(waiting));
        let recheck_in = recheck_in(ledger, &next, desired, observed);
        return Decision { ledger: next, plan, waiting, recheck_in };
    }
    let pool = pool(is_cold, desired, observed);
    let (plan, goal) = match desired.replication {
        Replication::One => plan_one(ledger, desired, &pool),
        Replication::All => plan_all(ledger, desired, &pool),
    };
    let terms = terms(desired);
    let step = LedgerStep {
        workers: &filled(&pool, observed),
        goal: &goal,
        evidence: &observed.evidence,
        ages: &waited(ledger, &goal, &observed.ages),
        terms: &terms,
    };
    let next = ledger.step(&step);
    let recheck_in = recheck_in(ledger, &next, desired, observed);
    Decision { ledger: next, plan, waiting: None, recheck_in }
}

/// Everything stays where it is; only what was held by a session that has ended is granted again, to
/// whoever fills the same slot now.
fn paused(ledger: &Ledger, desired: &Desired, observed: &Observed) -> Decision {
    let held = ledger.assignment();
    let has_ended = |session: &SessionId| {
        observed.evidence.get(session).is_some_and(|evidence| evidence.ended.is_some())
    };
    let place = |(job, record): (&JobName, &Record)| {
        let slot = held.holder(job);
        let place = match &record.cell {
            Cell::Granted { session, .. } | Cell::Releasing { session, .. } => match slot {
                // Nothing is known of a plain worker but who fills its slot now.
                Some(slot) if has_ended(session) || session.is_plain() => Place::Slot(slot),
                Some(slot) => Place::Session(slot, session.clone()),
                None => Place::Nowhere,
            },
            Cell::Hold { slot, .. } => Place::Slot(*slot),
            Cell::Everywhere { .. } => Place::Everywhere,
            Cell::Free { .. } | Cell::Quarantined { .. } | Cell::Done { .. } => Place::Nowhere,
        };
        (job.clone(), place)
    };
    let goal = ledger.cells.jobs.iter().map(place).collect();
    // A slot whose worker is leaving keeps its entry as well.
    let before = ledger.slots.iter().map(|(slot, record)| {
        let (worker, session) = (record.worker.clone(), Some(record.session.clone()));
        (*slot, Filled { worker, session, takes: false })
    });
    let mut workers: BTreeMap<_, _> = before.collect();
    workers.extend(filled(&pool(false, desired, observed), observed));
    let next = if ledger.version == 0 {
        ledger.clone()
    } else {
        ledger.step(&LedgerStep {
            workers: &workers,
            goal: &goal,
            evidence: &observed.evidence,
            ages: &observed.ages,
            terms: &terms(desired),
        })
    };
    let (plan, waiting) = (Plan::default(), Some(Waiting::Paused));
    Decision { ledger: next, plan, waiting, recheck_in: None }
}

/// Each job on one worker: the plan, and where every job should be.
fn plan_one(ledger: &Ledger, desired: &Desired, pool: &Pool) -> (Plan, BTreeMap<JobName, Place>) {
    let held = ledger.settled();
    let in_flight = ledger.cells.jobs.values().filter(|record| is_moving(record)).count();
    let moves_max = desired.rules.moves_max.map(|most| most.saturating_sub(in_flight));
    let rules = Rules { moves_max, ..desired.rules };
    let jobs = unfinished(ledger, &desired.jobs);
    let request = Request { jobs: &jobs, held: &held, pool, rules };
    let mut plan = request.plan();
    debug_assert_eq!(check(&request, &plan), Ok(()), "the planner made a plan that is no answer");
    tell_moves_in_flight(&mut plan, &ledger.assignment());
    let place = |job: &JobName| plan.assignment.holder(job).map_or(Place::Nowhere, Place::Slot);
    let goal = desired.jobs.keys().map(|job| (job.clone(), place(job))).collect();
    (plan, goal)
}

/// All jobs on every worker. While nobody takes jobs, those who keep what they have go on.
fn plan_all(ledger: &Ledger, desired: &Desired, pool: &Pool) -> (Plan, BTreeMap<JobName, Place>) {
    let nobody_takes = pool.takers().is_empty();
    let held = if nobody_takes { ledger.granted() } else { BTreeMap::new() };
    let everywhere = everywhere(&desired.jobs, &held, pool);
    let place = |job: &JobName| match everywhere.unassigned.get(job) {
        Some(_) => Place::Nowhere,
        None => Place::Everywhere,
    };
    let goal = desired.jobs.keys().map(|job| (job.clone(), place(job))).collect();
    (Plan { unassigned: everywhere.unassigned, ..Plan::default() }, goal)
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

/// The jobs without the finite ones that are done: those take no worker's room.
fn unfinished<'a>(ledger: &Ledger, jobs: &'a Jobs) -> Cow<'a, Jobs> {
    let is_done = |job: &JobName| {
        let record = ledger.cells.jobs.get(job);
        record.is_some_and(|record| matches!(record.cell, Cell::Done { .. }))
    };
    if jobs.keys().any(is_done) {
        let left = jobs.iter().filter(|(name, _)| !is_done(name));
        Cow::Owned(left.map(|(name, job)| (name.clone(), job.clone())).collect())
    } else {
        Cow::Borrowed(jobs)
    }
}

/// A job that is being released is planned as nobody's; for people it still moves from its holder.
fn tell_moves_in_flight(plan: &mut Plan, held: &Assignment) {
    for step in &mut plan.moves {
        if step.reason == MoveReason::New
            && let Some(holder) = held.holder(&step.job)
        {
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
        ..HandoverTerms::default()
    }
}

/// What a cold pool still has to wait for.
fn incomplete(desired: &Desired, observed: &Observed) -> Option<Waiting> {
    let ready = observed.ready();
    let still_waiting = observed.watched_for < desired.timing.initial_wait;
    (still_waiting && ready < observed.workers_desired)
        .then_some(Waiting::PoolIncomplete { ready, desired: observed.workers_desired })
}

/// The workers that count, by what is seen of them. One without a session can be given nothing.
fn pool(is_cold: bool, desired: &Desired, observed: &Observed) -> Pool {
    let standing = |seen: &WorkerSeen| {
        let standing = match seen.presence {
            Presence::NotReady if is_cold => Some(Standing::Takes),
            presence => presence.standing(&desired.timing),
        };
        match (standing, &seen.session) {
            (Some(Standing::Takes), None) => Some(Standing::Keeps),
            (standing, _) => standing,
        }
    };
    let member = |(slot, seen): (&Slot, &WorkerSeen)| {
        let (name, standing) = (seen.name.clone(), standing(seen)?);
        Some((*slot, Member { name, standing, max_jobs: desired.max_jobs }))
    };
    Pool(observed.workers.iter().filter_map(member).collect())
}

/// Who fills the slots that count.
fn filled(pool: &Pool, observed: &Observed) -> BTreeMap<Slot, Filled> {
    let filled = |(slot, member): (&Slot, &Member)| {
        let session = observed.workers.get(slot).and_then(|seen| seen.session.clone());
        let takes = member.standing == Standing::Takes;
        (*slot, Filled { worker: member.name.clone(), session, takes })
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
    let worker = observed.workers.values().filter_map(|seen| seen.presence.changes_in(timing));
    let cold = timing.initial_wait.checked_sub(observed.watched_for);
    let cold = cold.filter(|_| ledger.version == 0);
    let cell = |(job, record): (&JobName, &Record)| {
        let span = match &record.cell {
            Cell::Releasing { .. } if desired.policy == Policy::AtLeastOnce => {
                timing.release_timeout
            }
            Cell::Hold { span, .. } | Cell::Quarantined { span, .. } => *span,
            Cell::Releasing { .. }
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
    worker.chain(cold).chain(cells).filter(|wait| !wait.is_zero()).min()
}

impl Observed {
    /// How many workers are ready.
    #[must_use]
    pub fn ready(&self) -> usize {
        self.workers.values().filter(|seen| seen.presence == Presence::Ready).count()
    }
}

/// What a turn did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Turn {
    /// What was decided. Its ledger and view are stored and published.
    pub decision: Decision,
    /// Whether the ledger was written in this turn.
    pub changed: bool,
}

/// Carries out one turn: reads the ledger, decides, saves the ledger if it changes, and publishes
/// the view that follows from it.
///
/// # Errors
///
/// Whatever the stores report. After [`StoreError::Conflict`] the turn is to be repeated from
/// fresh reads; after [`StoreError::Refused`] the last good view stays published.
pub async fn turn(
    ledgers: &dyn LedgerStore,
    views: &dyn ViewStore,
    desired: &Desired,
    observed: &Observed,
) -> Result<Turn, StoreError> {
    let stored = ledgers.load().await?;
    let (ledger, seen) = stored.unzip();
    let is_new = ledger.is_none();
    let ledger = ledger.unwrap_or_else(|| Ledger::new(observed.unix_time_us));
    let decision = decide(&ledger, desired, observed);
    let changed = is_new || decision.ledger != ledger;
    if changed {
        ledgers.save(&decision.ledger, seen.as_ref()).await?;
    }
    views.publish(&decision.ledger).await?;
    Ok(Turn { decision, changed })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MoveReason, jobs};

    fn desired(names: &[&str]) -> Desired {
        Desired { jobs: jobs(names.iter().copied()).unwrap(), ..Desired::default() }
    }

    fn observed(presences: &[Presence]) -> Observed {
        let worker = |(n, presence): (u32, &Presence)| {
            let name = format!("w-{n}");
            let session = Some(SessionId::plain(&name));
            (Slot(n), WorkerSeen { name, presence: *presence, session })
        };
        Observed {
            workers: (0..).zip(presences).map(worker).collect(),
            workers_desired: presences.len(),
            ..Observed::default()
        }
    }

    #[test]
    fn a_cold_pool_is_assigned_nothing_until_it_is_complete() {
        let want = desired(&["a", "b", "c"]);
        let half = observed(&[Presence::Ready, Presence::NotReady]);
        let decision = decide(&Ledger::new(1), &want, &half);
        assert_eq!(decision.waiting, Some(Waiting::PoolIncomplete { ready: 1, desired: 2 }));
        assert_eq!(decision.ledger, Ledger::new(1));
        assert_eq!(decision.recheck_in, Some(want.timing.initial_wait));
        let reasons: Vec<_> = decision.plan.unassigned.into_values().collect();
        assert_eq!(reasons, [Unassigned::PoolIncomplete; 3]);

        let complete = observed(&[Presence::Ready, Presence::Ready]);
        let decision = decide(&Ledger::new(1), &want, &complete);
        assert_eq!((decision.waiting, decision.ledger.assignment().len()), (None, 3));
    }

    #[test]
    fn after_the_initial_wait_every_worker_that_exists_counts_ready_or_not() {
        let want = desired(&["a", "b"]);
        let away = Presence::Away(Duration::ZERO);
        let mut half = observed(&[Presence::NotReady, Presence::NotReady, away]);
        half.watched_for = want.timing.initial_wait;
        let by_slot = decide(&Ledger::new(1), &want, &half).ledger.assignment().by_slot();
        assert_eq!(by_slot.into_keys().collect::<Vec<_>>(), [Slot(0), Slot(1)]);
    }

    #[test]
    fn a_warm_pool_gives_new_jobs_to_ready_workers_only() {
        let first = decide(&Ledger::new(1), &desired(&["a"]), &observed(&[Presence::Ready]));
        let scaled = observed(&[Presence::Ready, Presence::NotReady]);
        let second = decide(&first.ledger, &desired(&["a", "b", "c"]), &scaled);
        assert_eq!(second.ledger.assignment().by_slot().into_keys().collect::<Vec<_>>(), [Slot(0)]);
    }

    #[test]
    fn in_a_paused_pool_only_the_jobs_of_the_dead_are_granted_again_in_the_same_slot() {
        use crate::handover::Proof;

        let session = |life: &str| Some(SessionId::new(life, 1));
        let mut seen = observed(&[Presence::Ready; 2]);
        for (slot, worker) in &mut seen.workers {
            worker.session = session(&format!("first-{slot}"));
        }
        let mut want = desired(&["a", "b", "c", "d"]);
        let first = decide(&Ledger::new(1), &want, &seen).ledger;
        want.paused = true;
        want.jobs = jobs(["b", "c", "d", "e"]).unwrap();
        assert_eq!(decide(&first, &want, &seen).ledger, first);
        let lost = first.slots[&Slot(0)].session.clone();
        let ended = Some(Proof::ProcessEnded);
        seen.evidence.insert(lost.clone(), Evidence { ended, ..Evidence::default() });
        seen.workers.get_mut(&Slot(0)).unwrap().session = session("second");
        let next = decide(&first, &want, &seen);
        assert_eq!(
            (next.waiting, next.ledger.assignment()),
            (Some(Waiting::Paused), first.assignment())
        );
        let held_by = |ledger: &Ledger, id: &SessionId| ledger.session_views()[id].jobs.len();
        let now = SessionId::new("second", 1);
        assert_eq!(held_by(&next.ledger, &now), held_by(&first, &lost));
    }

    #[test]
    fn in_a_paused_pool_a_replaced_plain_worker_keeps_its_jobs() {
        let mut want = desired(&["a", "b"]);
        let mut seen = observed(&[Presence::Ready; 2]);
        let first = decide(&Ledger::new(1), &want, &seen).ledger;
        want.paused = true;
        seen.workers.get_mut(&Slot(0)).unwrap().session = Some(SessionId::plain("replaced"));
        let next = decide(&first, &want, &seen).ledger;
        assert_eq!((next.view(), next.revision()), (first.view(), first.revision() + 1));
    }

    #[test]
    fn a_job_that_waits_for_a_slot_goes_at_once_where_the_plan_wants_it_instead() {
        use crate::handover::Proof;

        let want = |pin: u32| {
            let pinned = crate::Job { pin: Some(Slot(pin)), ..crate::Job::default() };
            Desired { jobs: [("a".parse().unwrap(), pinned)].into(), ..Desired::default() }
        };
        let session = |life: &str| Some(SessionId::new(life, 1));
        let mut seen = observed(&[Presence::Ready; 2]);
        for (slot, worker) in &mut seen.workers {
            worker.session = session(&format!("first-{slot}"));
        }
        let first = decide(&Ledger::new(1), &want(0), &seen);
        // The operator starts again: all workers are new, and the pin was edited meanwhile.
        for session in first.ledger.slots.values().map(|record| &record.session) {
            let ended = Some(Proof::ProcessEnded);
            seen.evidence.insert(session.clone(), Evidence { ended, ..Evidence::default() });
        }
        let mut none = seen.clone();
        for worker in none.workers.values_mut() {
            (worker.presence, worker.session) = (Presence::NotReady, None);
        }
        let waits = decide(&first.ledger, &want(1), &none);
        for (slot, worker) in &mut seen.workers {
            worker.session = session(&format!("second-{slot}"));
        }
        let back = decide(&waits.ledger, &want(1), &seen);
        let holder = back.ledger.cells.jobs.values().next().unwrap().cell.holder().cloned();
        assert_eq!(holder, session(&format!("second-{}", Slot(1))));
    }

    #[test]
    fn what_everybody_runs_goes_on_while_nobody_is_ready() {
        let want = Desired { replication: Replication::All, ..desired(&["a", "b"]) };
        let first = decide(&Ledger::new(1), &want, &observed(&[Presence::Ready; 2]));
        let unready = decide(&first.ledger, &want, &observed(&[Presence::NotReady; 2]));
        assert_eq!(unready.ledger, first.ledger);
        assert!(unready.plan.unassigned.is_empty());
    }

    #[test]
    fn jobs_of_an_absent_worker_wait_for_it_and_move_when_the_grace_is_over() {
        let want = desired(&["a", "b", "c", "d"]);
        let first = decide(&Ledger::new(1), &want, &observed(&[Presence::Ready; 2]));
        let absent = |age| observed(&[Presence::Ready, Presence::Away(age)]);
        let soon = decide(&first.ledger, &want, &absent(Duration::from_secs(1)));
        assert_eq!(soon.ledger, first.ledger);
        assert_eq!(soon.recheck_in, Some(Duration::from_secs(29)));
        let late = decide(&first.ledger, &want, &absent(Duration::from_secs(30)));
        assert_eq!(late.plan.moves.len(), 2);
        assert!(late.plan.moves.iter().all(|step| step.reason == MoveReason::WorkerGone));
    }
}
