//! Runs turns, and delivers their results to the workers.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::{Discriminant, discriminant};
use std::time::{Duration, Instant};

use swarm_core::handover::{Evidence, SessionId};
use swarm_core::ports::{LedgerStore as _, StoreError};
use swarm_core::verdict::{displaced, failed_over};
use swarm_core::{
    Desired, JobName, Ledger, Observed, Presence, Relocation, Slot, Turn, WorkerSeen, turn,
};

use super::Operation;
use super::stores::continues;
use crate::processes::Workers;
use crate::settings::input::Wanted;

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
pub(super) type ObservationKey = (
    Vec<(Slot, Discriminant<Presence>, Option<SessionId>)>,
    BTreeMap<SessionId, Evidence>,
    BTreeMap<JobName, Relocation>,
    BTreeSet<Slot>,
);

impl Operation {
    /// Runs a turn if one is `due` or if its inputs changed. Returns the delay until the next turn,
    /// if a turn ran.
    pub(super) async fn turn_if_needed(
        &mut self,
        workers: &Workers,
        due: bool,
    ) -> anyhow::Result<Option<Option<Duration>>> {
        let ledger = match self.load().await {
            Ok(ledger) => ledger.unwrap_or_else(|| Ledger::new(0)),
            Err(error) => return self.failed(error).map(Some),
        };
        let Wanted { desired, slots, .. } = &self.inputs.wanted;
        let mut observed = self.stores.sessions.observed(&ledger, desired, workers, slots);
        let reports = self.failing.iter().map(|(slot, failing)| (*slot, &**failing));
        self.failover.observe(desired, &ledger, reports, self.started.elapsed());
        observed.relocations = self.failover.relocations();
        if let Some(wait) = self.waits_for_workers(&observed) {
            return Ok(Some(Some(wait)));
        }
        let key = key(&observed);
        if !due && self.seen.as_ref() == Some(&key) {
            return Ok(None);
        }
        match self.turn(&observed).await {
            Ok(turn) => {
                self.seen = Some(key);
                let Some(turn) = turn else { return Ok(Some(None)) };
                let recheck_in = turn.decision.recheck_in;
                self.stores.sessions.published(self.stores.views.marks());
                // A turn in between may have failed after its ledger was saved.
                let last = self.decision.take().map(|(last, _)| last.ledger);
                self.turned = Some((last.unwrap_or(turn.before), turn.granted));
                self.decided = self.inputs.wanted.desired.clone();
                self.decision = Some((turn.decision, observed));
                Ok(Some(recheck_in))
            }
            Err(error) => {
                if matches!(error, StoreError::Conflict { .. }) {
                    self.known = Some(ledger);
                }
                self.failed(error).map(Some)
            }
        }
    }

    /// Returns the time that the first turn still waits for workers; `None` once all have joined.
    fn waits_for_workers(&mut self, observed: &Observed) -> Option<Duration> {
        let wait = self.joined_by?.saturating_duration_since(Instant::now());
        if wait.is_zero() || self.inputs.wanted.workers() <= takers(observed) {
            self.joined_by = None;
        }
        self.joined_by.map(|_| wait)
    }

    /// Runs a turn. If the desired state cannot be delivered, it is not saved, and the last
    /// delivered state is used instead. So the jobs of a worker that ends continue. Returns `None`
    /// if that state cannot be delivered either.
    async fn turn(&mut self, observed: &Observed) -> Result<Option<Turn>, StoreError> {
        let wanted = self.inputs.wanted.desired.clone();
        let takers = takers(observed);
        // With fewer workers the plan would assign fewer jobs and stop running ones.
        let is_hopeless =
            matches!(self.problem, Some(Problem::TooLarge(_, most)) if takers <= most);
        if !is_hopeless {
            match self.turn_for(&wanted, observed).await {
                Err(StoreError::Refused { code, reason }) if is_too_large(code) => {
                    self.complain(Problem::TooLarge(reason, takers), "what ran before stays");
                }
                turned => {
                    let turn = turned?;
                    self.problem = None;
                    // A turn that waits, or has no worker, assigns nothing: the new state may still
                    // be too large.
                    if turn.decision.waiting.is_none() && 0 < takers {
                        self.delivered = Some(wanted);
                    }
                    return Ok(Some(turn));
                }
            }
        }
        // Before the first delivery nothing moves.
        let mut stays = self.delivered.as_ref().unwrap_or(&wanted).clone();
        stays.paused |= self.delivered.is_none();
        self.stores.views.set_details(self.inputs.wanted.details_of(&stays.jobs));
        let turned = self.turn_for(&stays, observed).await;
        self.stores.views.set_details(self.inputs.wanted.details());
        match turned {
            Err(StoreError::Refused { code, .. }) if is_too_large(code) => Ok(None),
            turned => turned.map(Some),
        }
    }

    /// Runs a turn for this desired state.
    async fn turn_for(
        &mut self,
        desired: &Desired,
        observed: &Observed,
    ) -> Result<Turn, StoreError> {
        let started = Instant::now();
        let turned =
            turn(&self.stores.ledgers, &self.stores.views, &mut self.decider, desired, observed)
                .await;
        self.outlets.turned(started.elapsed(), &turned);
        if let Ok(Turn { decision, changed: true, .. }) = &turned {
            for sentence in [displaced(decision, desired), failed_over(decision)].iter().flatten() {
                self.outlets.voice.say(sentence);
            }
        }
        turned
    }

    /// Loads the ledger. If the file was removed or rolled back during this run, it is written
    /// again unchanged. Workers run the jobs that the ledger grants, and an older ledger would
    /// grant them twice.
    async fn load(&mut self) -> Result<Option<Ledger>, StoreError> {
        let stored = self.stores.ledgers.load().await?;
        let Some(known) = &self.known else { return Ok(stored.map(|(ledger, _)| ledger)) };
        let (ledger, seen) = stored.unzip();
        if let Some(ledger) = ledger.filter(|ledger| continues(ledger, known)) {
            self.known = None;
            return Ok(Some(ledger));
        }
        self.stores.ledgers.save(known, seen.as_ref()).await?;
        self.outlets
            .voice
            .complain("the ledger was removed or rolled back; it is written again as it was");
        Ok(self.known.take())
    }

    /// Reports a failed store, and returns the delay before a retry. An error means that a retry
    /// cannot help.
    fn failed(&mut self, error: StoreError) -> anyhow::Result<Option<Duration>> {
        self.seen = None;
        match error {
            // The pool may not be settled any more; the next turn detects it.
            StoreError::Conflict { .. } => Ok(Some(Duration::ZERO)),
            error @ StoreError::Unavailable { .. } => {
                let sentence = format!("{:#}", anyhow::Error::from(error));
                self.complain(Problem::Unavailable(sentence), "retrying");
                Ok(Some(RETRY))
            }
            error @ StoreError::Refused { .. } => Err(error.into()),
        }
    }

    /// Reports a problem and its remedy, once instead of at every turn.
    pub(super) fn complain(&mut self, problem: Problem, remedy: &str) {
        if self.problem.as_ref() != Some(&problem) {
            self.outlets.voice.complain(&format!("{}; {remedy}", problem.sentence()));
            self.problem = Some(problem);
        }
    }

    /// Returns the problem that keeps the pool from becoming settled although all workers are up.
    pub(super) fn lasting_problem(&self) -> Option<&str> {
        let Some(Problem::TooLarge(sentence, takers)) = &self.problem else { return None };
        (*takers == self.inputs.wanted.workers()).then_some(sentence)
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
