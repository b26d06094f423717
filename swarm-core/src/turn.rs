//! One turn of the operator: observe, plan, record, publish.
//!
//! [`decide`] is the whole decision, a pure function; [`turn`] carries it out. The operator may die
//! between any two awaits and repeat the turn: every write is either a compare-and-set or derived
//! from the ledger.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::ports::{LedgerStore, StoreError, ViewStore};
use crate::{
    JobName, Jobs, Ledger, Member, Plan, Pool, Presence, Request, Rules, Slot, Standing, Timing,
    Unassigned, check,
};

/// What the user asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Desired {
    /// The jobs, each to be run by one worker.
    pub jobs: Jobs,
    /// How to plan.
    pub rules: Rules,
    /// The most jobs one worker may have; `None` for any number.
    pub max_jobs: Option<u32>,
    /// How long to wait for absent workers.
    pub timing: Timing,
}

/// What was seen of the pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// Every slot that is wanted or still filled, with its worker's name.
    pub workers: BTreeMap<Slot, (String, Presence)>,
    /// How many workers the pool is meant to have.
    pub workers_desired: usize,
    /// For how long the pool has been watched, on a monotonic clock.
    pub watched_for: Duration,
    /// The wall clock in microseconds since 1970. Only a new ledger's first token is taken from it.
    pub unix_time_us: u64,
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
}

/// Decides what to do about `ledger`, given what is wanted and what is seen.
///
/// A cold pool is assigned nothing until all its workers are ready or `initial_wait` has passed;
/// then every worker that exists counts, ready or not, since some are ready only once they have
/// work. Afterwards only ready workers are given jobs. O(jobs · log jobs).
pub fn decide(ledger: &Ledger, desired: &Desired, observed: &Observed) -> Decision {
    let is_cold = ledger.version == 0;
    let recheck_in = recheck_in(is_cold, desired, observed);
    if is_cold && let Some(waiting) = incomplete(desired, observed) {
        let incomplete = |job: &JobName| (job.clone(), Unassigned::PoolIncomplete);
        let unassigned = desired.jobs.keys().map(incomplete).collect();
        let plan = Plan { unassigned, ..Plan::default() };
        return Decision { ledger: ledger.clone(), plan, waiting: Some(waiting), recheck_in };
    }
    let pool = pool(is_cold, desired, observed);
    let held = ledger.assignment();
    let request = Request { jobs: &desired.jobs, held: &held, pool: &pool, rules: desired.rules };
    let plan = request.plan();
    debug_assert_eq!(check(&request, &plan), Ok(()), "the planner made a plan that is no answer");
    Decision { ledger: ledger.next(&plan.assignment, &pool), plan, waiting: None, recheck_in }
}

/// What a cold pool still has to wait for.
fn incomplete(desired: &Desired, observed: &Observed) -> Option<Waiting> {
    let ready = observed.ready();
    let still_waiting = observed.watched_for < desired.timing.initial_wait;
    (still_waiting && ready < observed.workers_desired)
        .then_some(Waiting::PoolIncomplete { ready, desired: observed.workers_desired })
}

/// The workers that count, by what is seen of them.
fn pool(is_cold: bool, desired: &Desired, observed: &Observed) -> Pool {
    let standing = |presence: &Presence| match presence {
        Presence::NotReady if is_cold => Some(Standing::Takes),
        presence => presence.standing(&desired.timing),
    };
    let member = |(slot, (name, presence)): (&Slot, &(String, Presence))| {
        let (name, standing) = (name.clone(), standing(presence)?);
        Some((*slot, Member { name, standing, max_jobs: desired.max_jobs }))
    };
    Pool(observed.workers.iter().filter_map(member).collect())
}

/// When the mere passing of time changes the decision.
fn recheck_in(is_cold: bool, desired: &Desired, observed: &Observed) -> Option<Duration> {
    let timing = &desired.timing;
    let presences = observed.workers.values().map(|(_, presence)| presence);
    let worker = presences.filter_map(|presence| presence.changes_in(timing)).min();
    let cold = timing.initial_wait.checked_sub(observed.watched_for).filter(|_| is_cold);
    worker.into_iter().chain(cold).filter(|wait| !wait.is_zero()).min()
}

impl Observed {
    /// How many workers are ready.
    #[must_use]
    pub fn ready(&self) -> usize {
        self.workers.values().filter(|(_, presence)| *presence == Presence::Ready).count()
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
    views.publish(&decision.ledger.view()).await?;
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
        let worker = |(n, presence): (u32, &Presence)| (Slot(n), (format!("w-{n}"), *presence));
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
