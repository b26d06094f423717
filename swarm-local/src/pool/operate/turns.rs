//! Runs turns, and delivers their results to the workers.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::{Discriminant, discriminant};
use std::time::{Duration, Instant};

use swarm_adapters_host::ledger::FileLedgerStore;
use swarm_core::handover::{Evidence, SessionId};
use swarm_core::ports::{LedgerStore as _, StoreError};
use swarm_core::verdict::{displaced, failed_over};
use swarm_core::{
    Autoscaler, Decider, Decision, Desired, Failover, JobName, Ledger, Needs, Observed, Presence,
    Progress, Relocation, Slot, Turn, Unassigned, WorkerSeen, turn,
};

use super::health::Health;
use super::stores::{Stores, continues};
use crate::pool::outlets::{Outlets, Voice};
use crate::processes::{Phase, WorkerProcess, Workers};
use crate::settings::input::Wanted;

/// Maximum time for the workers of a new run to join before the first turn. They join within
/// milliseconds on an idle machine. On a busy one each turn without some of them would move jobs. A
/// worker that has ended is not waited for.
const JOINED_WITHIN: Duration = Duration::from_secs(10);

/// Delay before a failed request to a store is retried.
const RETRY: Duration = Duration::from_secs(1);

/// Reason why the desired state is not delivered to the workers; a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    /// A store did not answer; the turn is repeated.
    Unavailable(String),
    /// The desired state is too large for this number of workers, or for the ledger. Only an edit
    /// or more workers can help.
    TooLarge(String, usize),
}

impl Problem {
    pub(super) fn sentence(&self) -> &str {
        match self {
            Self::Unavailable(sentence) | Self::TooLarge(sentence, _) => sentence,
        }
    }
}

/// The inputs of a turn, except for the manifest and the time.
type ObservationKey = (
    Vec<(Slot, Discriminant<Presence>, Option<SessionId>)>,
    BTreeMap<SessionId, Evidence>,
    BTreeMap<JobName, Relocation>,
    BTreeSet<Slot>,
);

/// The decisions, from turn to turn.
#[derive(Default)]
pub(super) struct Turns {
    decider: Decider,
    /// The number of workers that the jobs need, before and after smoothing.
    needs: Needs,
    scaler: Autoscaler,
    /// Jobs that try another worker.
    failover: Failover,
    /// Latest time of the first turn of this run; `None` after it.
    joined_by: Option<Instant>,
    /// Inputs of the last turn; the same inputs would give the same result.
    seen: Option<ObservationKey>,
    /// The ledger of this operator, if the file held another ledger.
    known: Option<Ledger>,
    pub(super) last: Option<Last>,
    /// The ledger before the last turn and the jobs that the turn granted, until it is recorded.
    pub(super) unrecorded: Option<(Ledger, BTreeSet<JobName>)>,
    /// The desired state that was last delivered to the workers.
    delivered: Option<Desired>,
    /// Reason why the desired state is not delivered to the workers.
    pub(super) problem: Option<Problem>,
}

/// The last turn.
pub(super) struct Last {
    pub(super) decision: Decision,
    /// The wishes of the user.
    pub(super) desired: Desired,
    pub(super) observed: Observed,
}

impl Turns {
    /// Begins a run.
    pub(super) fn begin() -> Self {
        Self { joined_by: Some(Instant::now() + JOINED_WITHIN), ..Self::default() }
    }

    /// Goes on with other workers and stores. The ledger is written again, so that no token is granted
    /// twice.
    pub(super) fn begin_again(&mut self, known: Option<Ledger>) {
        self.decider = Decider::default();
        self.known = known;
        // The problem stays until the first turn, since no job runs before.
        self.seen = None;
        self.joined_by = Some(Instant::now() + JOINED_WITHIN);
    }

    /// Returns the ledger of the last turn.
    pub(super) fn ledger(&self) -> Option<&Ledger> {
        self.last.as_ref().map(|last| &last.decision.ledger)
    }

    /// Returns the number of jobs that have no worker although they should run.
    pub(super) fn without_worker(&self) -> usize {
        let Some(last) = &self.last else { return 0 };
        let reasons = last.decision.plan.unassigned.values();
        reasons.filter(|why| **why != Unassigned::Suspended).count()
    }

    /// Updates the number of workers if it depends on the jobs. Returns the delay until the number
    /// falls if nothing changes.
    pub(super) fn follow_jobs(
        &mut self,
        wanted: &mut Wanted,
        elapsed: Duration,
    ) -> Option<Duration> {
        let Wanted { desired, slots, .. } = wanted;
        let Some(terms) = desired.autoscale else {
            self.scaler = Autoscaler::default();
            return None;
        };
        let none = Ledger::new(0);
        let ledger = self.last.as_ref().map_or(&none, |last| &last.decision.ledger);
        let need = self.needs.of(ledger, desired, slots.start)?;
        let present = slots.end.saturating_sub(slots.start);
        let scale = self.scaler.step(&terms, need.workers, present, elapsed);
        slots.end = slots.start.saturating_add(scale.workers);
        scale.requeue_after
    }

    /// Runs a turn if one is `due` or if its inputs changed. Returns the delay until the next turn,
    /// if a turn ran.
    pub(super) async fn turn_if_needed(
        &mut self,
        stores: &mut Stores,
        wanted: &Wanted,
        (workers, health): (&Workers, &Health),
        outlets: &Outlets,
        (due, elapsed): (bool, Duration),
    ) -> anyhow::Result<Option<Option<Duration>>> {
        let voice = &outlets.voice;
        let ledger = match self.load(&stores.ledgers, voice).await {
            Ok(ledger) => ledger.unwrap_or_else(|| Ledger::new(0)),
            Err(error) => return self.failed(error, voice).map(Some),
        };
        let Wanted { desired, slots, .. } = wanted;
        let mut observed = stores.sessions.observed(&ledger, desired, workers, slots);
        self.failover.observe(desired, &ledger, health.failing(), elapsed);
        observed.relocations = self.failover.relocations();
        let is_away = |it: &WorkerProcess| matches!(it.phase, Phase::Away(_) | Phase::Ending(_));
        let away = workers.values().filter(|it| is_away(it)).count();
        let awaited = wanted.workers().saturating_sub(away);
        if let Some(wait) = self.waits_for_workers(&observed, awaited) {
            return Ok(Some(Some(wait)));
        }
        let key = key(&observed);
        if !due && self.seen.as_ref() == Some(&key) {
            return Ok(None);
        }
        match self.turn(stores, wanted, outlets, &observed).await {
            Ok(turn) => {
                self.seen = Some(key);
                let Some(turn) = turn else { return Ok(Some(None)) };
                let recheck_in = turn.decision.recheck_in;
                stores.sessions.published(stores.views.marks());
                // A turn in between may have failed after its ledger was saved.
                let before = self.last.take().map(|last| last.decision.ledger);
                self.unrecorded = Some((before.unwrap_or(turn.before), turn.granted));
                let (decision, desired) = (turn.decision, desired.clone());
                self.last = Some(Last { decision, desired, observed });
                Ok(Some(recheck_in))
            }
            Err(error) => {
                if matches!(error, StoreError::Conflict { .. }) {
                    self.known = Some(ledger);
                }
                self.failed(error, voice).map(Some)
            }
        }
    }

    /// Returns the time that the first turn still waits for workers; `None` once all have joined.
    fn waits_for_workers(&mut self, observed: &Observed, awaited: usize) -> Option<Duration> {
        let wait = self.joined_by?.saturating_duration_since(Instant::now());
        if wait.is_zero() || awaited <= takers(observed) {
            self.joined_by = None;
        }
        self.joined_by.map(|_| wait)
    }

    /// Runs a turn. If the desired state cannot be delivered, it is not saved, and the last
    /// delivered state is used instead. So the jobs of a worker that ends continue. Returns `None`
    /// if that state cannot be delivered either.
    async fn turn(
        &mut self,
        stores: &Stores,
        wanted: &Wanted,
        outlets: &Outlets,
        observed: &Observed,
    ) -> Result<Option<Turn>, StoreError> {
        let desired = &wanted.desired;
        let takers = takers(observed);
        // With fewer workers the plan would assign fewer jobs and stop running ones.
        let is_hopeless =
            matches!(self.problem, Some(Problem::TooLarge(_, most)) if takers <= most);
        if !is_hopeless {
            match self.turn_for(desired, stores, outlets, observed).await {
                Err(StoreError::Refused { code, reason }) if is_too_large(code) => {
                    let problem = Problem::TooLarge(reason, takers);
                    self.complain(problem, "what ran before stays", &outlets.voice);
                }
                turned => {
                    let turn = turned?;
                    self.problem = None;
                    // A turn that waits, or has no worker, assigns nothing: the new state may still
                    // be too large.
                    if turn.decision.waiting.is_none() && 0 < takers {
                        self.delivered = Some(desired.clone());
                    }
                    return Ok(Some(turn));
                }
            }
        }
        // Before the first delivery nothing moves.
        let mut stays = self.delivered.as_ref().unwrap_or(desired).clone();
        stays.paused |= self.delivered.is_none();
        stores.views.set_details(wanted.details_of(&stays.jobs));
        let turned = self.turn_for(&stays, stores, outlets, observed).await;
        stores.views.set_details(wanted.details());
        match turned {
            Err(StoreError::Refused { code, .. }) if is_too_large(code) => Ok(None),
            turned => turned.map(Some),
        }
    }

    /// Runs a turn for this desired state.
    async fn turn_for(
        &mut self,
        desired: &Desired,
        stores: &Stores,
        outlets: &Outlets,
        observed: &Observed,
    ) -> Result<Turn, StoreError> {
        let started = Instant::now();
        let Stores { ledgers, views, .. } = stores;
        let turned = turn(ledgers, views, &mut self.decider, desired, observed).await;
        outlets.turned(started.elapsed(), &turned);
        if let Ok(Turn { decision, changed: true, .. }) = &turned {
            for sentence in [displaced(decision, desired), failed_over(decision)].iter().flatten() {
                outlets.voice.say(sentence);
            }
        }
        turned
    }

    /// Loads the ledger. If the file was removed or rolled back during this run, it is written
    /// again unchanged. Workers run the jobs that the ledger grants, and an older ledger would
    /// grant them twice.
    async fn load(
        &mut self,
        ledgers: &FileLedgerStore,
        voice: &Voice,
    ) -> Result<Option<Ledger>, StoreError> {
        let stored = ledgers.load().await?;
        let Some(known) = &self.known else { return Ok(stored.map(|(ledger, _)| ledger)) };
        let (ledger, seen) = stored.unzip();
        if let Some(ledger) = ledger.filter(|ledger| continues(ledger, known)) {
            self.known = None;
            return Ok(Some(ledger));
        }
        ledgers.save(known, seen.as_ref()).await?;
        voice.complain("the ledger was removed or rolled back; it is written again as it was");
        Ok(self.known.take())
    }

    /// Reports a failed store, and returns the delay before a retry. An error means that a retry
    /// cannot help.
    fn failed(&mut self, error: StoreError, voice: &Voice) -> anyhow::Result<Option<Duration>> {
        self.seen = None;
        match error {
            // The pool may not be settled any more; the next turn detects it.
            StoreError::Conflict { .. } => Ok(Some(Duration::ZERO)),
            error @ StoreError::Unavailable { .. } => {
                let sentence = format!("{:#}", anyhow::Error::from(error));
                self.complain(Problem::Unavailable(sentence), "retrying", voice);
                Ok(Some(RETRY))
            }
            error @ StoreError::Refused { .. } => Err(error.into()),
        }
    }

    /// Reports a problem and its remedy, once instead of at every turn.
    pub(super) fn complain(&mut self, problem: Problem, remedy: &str, voice: &Voice) {
        if self.problem.as_ref() != Some(&problem) {
            voice.complain(&format!("{}; {remedy}", problem.sentence()));
            self.problem = Some(problem);
        }
    }

    /// Returns the problem that keeps the pool from becoming settled although all its workers are up.
    pub(super) fn lasting_problem(&self, workers: usize) -> Option<&str> {
        let Some(Problem::TooLarge(sentence, takers)) = &self.problem else { return None };
        (*takers == workers).then_some(sentence)
    }

    /// Whether the pool is settled with the desired state, all its workers are up, and no other
    /// worker's process remains. This process starts and ends the workers, so it can wait for them.
    /// After a failed turn its last observations are old, so this method checks the workers directly.
    pub(super) fn is_settled(&self, progress: &Progress, workers: &Workers, wanted: usize) -> bool {
        // The progress belongs to the last completed turn, which may have been for other jobs.
        let is_delivered = self.seen.is_some() && self.problem.is_none();
        let has_no_other = workers.len() == wanted;
        let are_up = workers.values().all(|worker| worker.phase == Phase::Up);
        let has_settled = progress.is_settled() && progress.has_all_workers();
        is_delivered && has_settled && has_no_other && are_up
    }
}

/// Whether a store refused a request because of its size.
fn is_too_large(code: &str) -> bool {
    matches!(code, "ViewTooLarge" | "LedgerTooLarge")
}

/// Returns the number of workers that can be given jobs.
fn takers(observed: &Observed) -> usize {
    let takes = |seen: &&WorkerSeen| seen.presence == Presence::Ready && seen.session.is_some();
    observed.workers.values().filter(takes).count()
}

fn key(observed: &Observed) -> ObservationKey {
    let workers = observed.workers.iter();
    let workers = workers
        .map(|(slot, seen)| (*slot, discriminant(&seen.presence), seen.session.clone()))
        .collect();
    let Observed { evidence, relocations, unsteady, .. } = observed;
    (workers, evidence.clone(), relocations.clone(), unsteady.clone())
}

#[cfg(test)]
mod tests {
    use swarm_view::message::Message;

    use super::*;
    use crate::pool::events::Events;
    use crate::pool::outlets::Place;

    fn voice() -> Voice {
        Voice { place: Place::Log, events: Events::default() }
    }

    fn complaints(voice: &Voice) -> Vec<String> {
        let events = voice.events.after(0).events.into_iter();
        let complaint = |message| match message {
            Message::Problem(text) => Some(text),
            _ => None,
        };
        events.filter_map(|event| complaint(event.message)).collect()
    }

    #[tokio::test]
    async fn a_ledger_that_was_removed_or_rolled_back_is_written_again() {
        let (dir, voice) = (tempfile::tempdir().unwrap(), voice());
        let ledgers = FileLedgerStore::open(dir.path()).unwrap();
        let mut turns = Turns::begin();
        assert_eq!(turns.load(&ledgers, &voice).await.unwrap(), None);
        turns.begin_again(Some(Ledger::new(7)));
        assert_eq!(turns.load(&ledgers, &voice).await.unwrap(), Some(Ledger::new(7)));
        assert_eq!(ledgers.load().await.unwrap().unwrap().0, Ledger::new(7));
        assert_eq!(complaints(&voice).len(), 1);
        // A later state of the same ledger stays.
        turns.begin_again(Some(Ledger::new(7)));
        assert_eq!(turns.load(&ledgers, &voice).await.unwrap(), Some(Ledger::new(7)));
        assert_eq!(complaints(&voice).len(), 1);
    }

    #[test]
    fn a_problem_is_told_once_with_its_remedy_and_lasts_while_no_worker_joins() {
        let (mut turns, voice) = (Turns::begin(), voice());
        let problem = || Problem::TooLarge("the view of w-0 is too large".to_owned(), 2);
        turns.complain(problem(), "what ran before stays", &voice);
        turns.complain(problem(), "what ran before stays", &voice);
        let told = complaints(&voice);
        assert_eq!(told, ["the view of w-0 is too large; what ran before stays"]);
        assert_eq!(turns.lasting_problem(2), Some("the view of w-0 is too large"));
        assert_eq!(turns.lasting_problem(3), None, "a third worker may help");
    }

    #[test]
    fn the_first_turn_waits_until_all_workers_have_joined() {
        let worker = |n: u32| {
            let session = Some(SessionId::new("uid", n.into()));
            (Slot(n), WorkerSeen::new(format!("w-{n}"), Presence::Ready, session))
        };
        let joined = |count: u32| Observed::new((0..count).map(worker), 1, []);
        let joined_by = Some(Instant::now() + Duration::from_hours(1));
        let mut turns = Turns { joined_by, ..Turns::default() };
        assert!(turns.waits_for_workers(&joined(1), 2).is_some());
        assert_eq!(turns.waits_for_workers(&joined(2), 2), None);
        assert_eq!(turns.waits_for_workers(&joined(1), 2), None, "a later turn waits for none");
    }
}
