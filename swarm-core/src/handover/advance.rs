//! One turn of a handover: from where every job should be, and what is proved, to one write.
//!
//! A move takes two writes: the first releases jobs, the second turns every release that is proved
//! straight into the next grant, if the worker has room for it beside what it still has.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::room::Room;
use super::{
    Cell, CellEvent, Cells, Change, Policy, Proof, Record, Refusal, Save, SessionId, Stopping,
    Then, strikes,
};
use crate::merge::side_by_side;
use crate::{JobName, Jobs, Share, Slot, Token};

/// The terms of a handover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandoverTerms {
    /// What it takes to end an ownership.
    pub policy: Policy,
    /// How long a release waits for its acknowledgement, under [`Policy::AtLeastOnce`].
    pub release_timeout: Duration,
    /// How long jobs wait for the worker of their slot to come back.
    pub return_grace: Duration,
}

impl Default for HandoverTerms {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            release_timeout: Duration::from_secs(60),
            return_grace: Duration::from_secs(30),
        }
    }
}

/// Where a job should be.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// With the session that fills a slot now.
    Session(Slot, SessionId),
    /// In a slot whose worker is expected back.
    Slot(Slot),
    /// With every session.
    Everywhere,
    /// Nowhere, but it stays a job.
    Nowhere,
}

/// What is known of one session, however old the knowledge: every part is a stable fact. By default
/// nothing is known, and so nothing is proved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Evidence {
    /// The highest revision it acknowledged in this incarnation of the ledger.
    pub acked: u64,
    /// A later revision that it acknowledged except for the jobs named there.
    pub stopping: Stopping,
    /// The jobs it says it finished, with the token they ran under.
    pub finished: BTreeMap<JobName, Token>,
    /// Why the session has ended, if it has: closed, fenced, or its process ended.
    pub ended: Option<Proof>,
    /// For how long its worker has been gone; `None` while it is there.
    pub gone_for: Option<Duration>,
    /// The job that crashed it, if it crashed and one job is known to be at fault.
    pub culprit: Option<JobName>,
    /// For how long it may act after a renewal, by its own Lease; `None` if that was never seen.
    pub lease: Option<Duration>,
}

impl Evidence {
    /// Nothing is known but the highest revision that the session acknowledged.
    ///
    /// ```
    /// use swarm_core::handover::{Evidence, Proof};
    ///
    /// let mut known = Evidence::acked(7);
    /// known.ended = Some(Proof::Closed);
    /// ```
    #[must_use]
    pub fn acked(revision: u64) -> Self {
        Self { acked: revision, ..Self::default() }
    }

    /// The revision up to which the session has released `job`, by what it acknowledged.
    ///
    /// ```
    /// use swarm_core::Token;
    /// use swarm_core::handover::{Evidence, Stopping};
    ///
    /// let (quick, slow) = ("quick".parse()?, "slow".parse()?);
    /// let mut known = Evidence::acked(7);
    /// known.stopping = Stopping { reads: 8, jobs: [(slow, Token(1))].into() };
    /// assert_eq!((known.released(&quick), known.released(&"slow".parse()?)), (8, 7));
    /// # Ok::<(), swarm_core::JobNameError>(())
    /// ```
    #[must_use]
    pub fn released(&self, job: &JobName) -> u64 {
        self.acked.max(self.stopping.released(job.as_str()))
    }
}

/// What a turn has to go by.
#[derive(Clone, Copy, Debug)]
pub struct StepInputs<'a> {
    /// Where every job should be. A job that is in the ledger and not here is released.
    pub goal: &'a BTreeMap<JobName, Place>,
    /// What is known of sessions. Nothing is known of one that does not stand here.
    pub evidence: &'a BTreeMap<SessionId, Evidence>,
    /// For how long the observer has seen each cell as it is; zero for one that is missing.
    pub ages: &'a BTreeMap<JobName, Duration>,
    /// The jobs as they are wanted now. Only a run-to-completion job can be finished, and one that was
    /// finished and does not run to completion any more is free again. A share counts where the job
    /// is held.
    pub jobs: &'a Jobs,
    /// The sessions of the pool, those included that have left it and may still run what all run.
    /// One that does not stand here may hold any number of jobs, and runs none that all run.
    pub seats: &'a BTreeMap<SessionId, Seat>,
}

/// What holds for one session of the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seat {
    /// The most jobs that it may hold; `None` for any number.
    pub max_jobs: Option<u32>,
    /// How much of its worker jobs can reserve; `None` for all of it.
    pub capacity: Option<Share>,
    /// The ledger's revision from which on it has been in the pool. It never ran what all were asked
    /// to release before.
    pub joined: u64,
}

impl StepInputs<'_> {
    /// Whether a job that is wanted has a share. O(jobs).
    pub(super) fn want_shares(&self) -> bool {
        self.jobs.values().any(|job| job.share.is_some())
    }

    /// Whether `job` is held although it is not wanted any more, so that its share is not known.
    pub(super) fn is_leaving(&self, job: &JobName) -> bool {
        !self.jobs.contains_key(job) && !self.goal.contains_key(job)
    }

    /// Whether somebody still holds a job that is not wanted any more. O(jobs · log jobs).
    fn any_leaves(&self, change: &Change<'_>) -> bool {
        let mut held = change.records().filter(|(_, record)| record.cell.holder().is_some());
        held.any(|(job, _)| self.is_leaving(job))
    }

    /// The jobs that some session still stops, of those that all ran and were asked to release at
    /// revision `since`; `None` if a session has not acknowledged that revision for any job.
    /// O(sessions + jobs that they name).
    fn left_of_all(&self, since: u64, terms: &HandoverTerms) -> Option<BTreeSet<&JobName>> {
        let mut left = BTreeSet::new();
        for (session, _) in self.seats.iter().filter(|(_, seat)| seat.joined < since) {
            let known = self.evidence.get(session);
            if known.is_some_and(|known| since <= known.acked) || !terms.waits_for(session, known) {
                continue;
            }
            let stopping = &known.filter(|known| since <= known.stopping.reads)?.stopping;
            left.extend(stopping.jobs.keys());
        }
        Some(left)
    }
}

impl HandoverTerms {
    /// Whether a session that may run what all run is waited for, until it says that it has released
    /// it: not one that has ended, and at least once, neither a plain worker nor one that is gone.
    pub(crate) fn waits_for(&self, session: &SessionId, known: Option<&Evidence>) -> bool {
        let has_ended = known.is_some_and(|known| known.ended.is_some());
        let gone_for = known.and_then(|known| known.gone_for);
        let is_gone = gone_for.is_some_and(|gone| self.return_grace <= gone);
        let is_excused = self.policy == Policy::AtLeastOnce && (session.is_plain() || is_gone);
        !has_ended && !is_excused
    }
}

/// The next write that brings `cells` closer to the goal, or `None` if there is nothing to write
/// now: the goal is reached, or somebody has to answer first.
///
/// A grant waits until the session has room for it beside everything that it still holds, also what
/// it is asked to release: nobody holds more jobs than it may, shares of more than its capacity (100
/// percent, or less), or any other job beside shares of all of that. That cannot end in a deadlock, since a release waits
/// for no room. A job that is not wanted any more may have had any share.
///
/// Repeating it with the same arguments gives the same write. O(jobs · log sessions), and O(log
/// jobs) for each job that changes.
///
/// ```
/// use swarm_core::Slot;
/// use swarm_core::handover::{Cells, HandoverTerms, Place, SessionId, StepInputs, advance};
///
/// let session = SessionId::new("pod", 1);
/// let goal = [("job".parse()?, Place::Session(Slot(0), session.clone()))].into();
/// let (evidence, ages, jobs, seats) = Default::default();
/// let (evidence, ages, seats) = (&evidence, &ages, &seats);
/// let sight = StepInputs { goal: &goal, evidence, ages, jobs: &jobs, seats };
/// let terms = HandoverTerms::default();
/// let save = advance(&Cells::new(0), &sight, &terms).unwrap();
/// assert_eq!(save.touched, [session].into()); // to be published once it was saved
/// assert_eq!(advance(&save.next, &sight, &terms), None); // the goal is reached
/// # Ok::<(), swarm_core::JobNameError>(())
/// ```
#[must_use]
pub fn advance(cells: &Cells, sight: &StepInputs<'_>, terms: &HandoverTerms) -> Option<Save> {
    let mut change = Change::of(cells);
    let fresh = Record { cell: Cell::Free { token: cells.first_token }, strikes: 0 };
    let released = Released::of(cells, sight, terms);
    let mut grants = Vec::new();
    for (job, record, goal) in side_by_side(&cells.jobs, sight.goal) {
        if record.is_none() {
            change.admit(job, fresh.clone());
        }
        let record = record.unwrap_or(&fresh);
        let turn = Turn { job, record, goal, sight, terms, released: &released };
        // A refusal leaves the job as it is; the next turn looks at it again.
        if let Ok(Next::Grant { slot, session }) = turn.take(&mut change) {
            grants.push((turn, slot, session));
        }
    }
    // Last, when it is known what everybody still holds.
    let sessions = grants.iter().map(|(_, _, session)| *session);
    let mut room = Room::of(&change, sight, cells.has_shares, sessions);
    for (turn, slot, session) in grants {
        let event = CellEvent::Grant { session: session.clone(), slot };
        if room.has(turn.job, session) && turn.step(&mut change, &event).is_ok() {
            room.take(turn.job, session);
        }
    }
    let has_shares = sight.want_shares() || (cells.has_shares && sight.any_leaves(&change));
    change.finish(has_shares)
}

/// What comes after a job's own part of a turn.
enum Next<'a> {
    /// Nobody holds it, and it goes to a session if that has room for it.
    Grant { slot: Slot, session: &'a SessionId },
    /// Nothing.
    Rest,
}

fn has_ended(sight: &StepInputs<'_>, session: &SessionId) -> bool {
    sight.evidence.get(session).is_some_and(|evidence| evidence.ended.is_some())
}

/// Which jobs that all ran have been released by everybody.
struct Released<'a> {
    /// The revisions such that everybody has released what they were asked to release then, except
    /// for the jobs given with them.
    since: BTreeMap<u64, BTreeSet<&'a JobName>>,
    /// Whether nobody has to be asked.
    by_itself: bool,
}

impl<'a> Released<'a> {
    /// O(jobs + (sessions + jobs that they name) · releases that began in different writes).
    fn of(cells: &Cells, sight: &'a StepInputs<'_>, terms: &HandoverTerms) -> Self {
        let mut has_everywhere = false;
        let since = |record: &Record| match record.cell {
            Cell::ReleasingAll { since, .. } => Some(since),
            Cell::Everywhere { .. } => {
                has_everywhere = true;
                None
            }
            Cell::Free { .. }
            | Cell::Granted { .. }
            | Cell::Releasing { .. }
            | Cell::Hold { .. }
            | Cell::Quarantined { .. }
            | Cell::Done { .. } => None,
        };
        let since: BTreeSet<_> = cells.jobs.values().filter_map(since).collect();
        let left = |since: u64| Some((since, sight.left_of_all(since, terms)?));
        let since = since.into_iter().filter_map(left).collect();
        // Nobody has acknowledged the last revision that there can be.
        let left_now = || sight.left_of_all(u64::MAX, terms);
        let by_itself = has_everywhere && left_now().is_some_and(|left| left.is_empty());
        Self { since, by_itself }
    }

    /// Whether everybody has released `job`, which they were asked to release at revision `since`.
    fn has(&self, job: &JobName, since: u64) -> bool {
        self.since.get(&since).is_some_and(|left| !left.contains(job))
    }
}

/// One job's part of a turn.
struct Turn<'a> {
    job: &'a JobName,
    record: &'a Record,
    goal: Option<&'a Place>,
    sight: &'a StepInputs<'a>,
    terms: &'a HandoverTerms,
    released: &'a Released<'a>,
}

impl<'a> Turn<'a> {
    fn take(&self, change: &mut Change<'_>) -> Result<Next<'a>, Refusal> {
        match &self.record.cell {
            Cell::Granted { session, token } => self.advance_held(change, session, *token, None),
            Cell::Releasing { session, token, since } => {
                self.advance_held(change, session, *token, Some(*since))
            }
            Cell::Free { .. } | Cell::Hold { .. } | Cell::Quarantined { .. } => {
                self.advance_unheld(change)
            }
            Cell::Everywhere { .. } if self.is_for_all() => Ok(Next::Rest),
            Cell::Everywhere { .. } => self.release_all(change),
            Cell::ReleasingAll { since, .. } => self.end_all(change, *since),
            Cell::Done { .. } if !self.is_wanted() => self.forget(change),
            Cell::Done { .. } if self.runs_again() => {
                self.step(change, &CellEvent::Reopen)?;
                self.advance_unheld(change)
            }
            Cell::Done { .. } => Ok(Next::Rest),
        }
    }

    /// For how long its cell has been seen as it is.
    fn age(&self) -> Duration {
        self.sight.ages.get(self.job).copied().unwrap_or_default()
    }

    fn runs_once(&self) -> bool {
        self.sight.jobs.get(self.job).is_some_and(|job| job.run_once)
    }

    /// Whether it is wanted as a job that does not run to completion.
    fn runs_again(&self) -> bool {
        self.sight.jobs.get(self.job).is_some_and(|job| !job.run_once)
    }

    fn is_wanted(&self) -> bool {
        self.goal.is_some()
    }

    fn is_for_all(&self) -> bool {
        self.goal == Some(&Place::Everywhere)
    }

    fn step(&self, change: &mut Change<'_>, event: &CellEvent) -> Result<(), Refusal> {
        change.step(self.job, event, self.age(), self.terms.policy)
    }

    fn rest(&self, change: &mut Change<'_>, event: &CellEvent) -> Result<Next<'a>, Refusal> {
        self.step(change, event).map(|()| Next::Rest)
    }

    fn forget(&self, change: &mut Change<'_>) -> Result<Next<'a>, Refusal> {
        change.remove(self.job).map(|()| Next::Rest)
    }

    /// The slot and the live session where the job should be.
    fn place(&self) -> Option<(Slot, Option<&'a SessionId>)> {
        match self.goal? {
            Place::Session(slot, session) => {
                Some((*slot, Some(session).filter(|session| !has_ended(self.sight, session))))
            }
            Place::Slot(slot) => Some((*slot, None)),
            Place::Everywhere | Place::Nowhere => None,
        }
    }

    /// Asks everybody to release it; if nobody has to be waited for, it is free in the same write.
    fn release_all(&self, change: &mut Change<'_>) -> Result<Next<'a>, Refusal> {
        self.step(change, &CellEvent::Release)?;
        if !self.released.by_itself {
            return Ok(Next::Rest);
        }
        let proof = Proof::Acknowledged { revision: u64::MAX };
        self.step(change, &CellEvent::EndAll { proof })?;
        self.advance_unheld(change)
    }

    fn end_all(&self, change: &mut Change<'_>, since: u64) -> Result<Next<'a>, Refusal> {
        let has_timed_out =
            self.terms.policy == Policy::AtLeastOnce && self.terms.release_timeout <= self.age();
        let proof = if self.released.has(self.job, since) {
            Proof::Acknowledged { revision: since }
        } else if has_timed_out {
            Proof::TimedOut
        } else {
            return Ok(Next::Rest);
        };
        self.step(change, &CellEvent::EndAll { proof })?;
        self.advance_unheld(change)
    }

    fn advance_unheld(&self, change: &mut Change<'_>) -> Result<Next<'a>, Refusal> {
        match self.place() {
            Some((slot, Some(session))) => Ok(Next::Grant { slot, session }),
            Some((_, None)) | None if self.is_for_all() => {
                self.rest(change, &CellEvent::GrantToAll)
            }
            // Nobody can take it: neither a hold nor a quarantine outlasts its span, or the job would
            // stay bound to a slot that nobody fills, or count as kept away for good.
            Some((_, None)) | None if self.is_wanted() => self.rest(change, &CellEvent::Release),
            Some((_, None)) | None => self.forget(change),
        }
    }

    fn advance_held(
        &self,
        change: &mut Change<'_>,
        holder: &SessionId,
        token: Token,
        since: Option<u64>,
    ) -> Result<Next<'a>, Refusal> {
        let nothing = Evidence::default();
        let evidence = self.sight.evidence.get(holder).unwrap_or(&nothing);
        let is_finished = evidence.finished.get(self.job) == Some(&token);
        if is_finished && self.runs_once() {
            return self.rest(change, &CellEvent::Finish { session: holder.clone(), token });
        }
        // Whoever calls another job finished does not run it any more, as when `run_once` was taken
        // away meanwhile: it is released, and granted again.
        let stays = self.place().is_some_and(|(_, session)| session == Some(holder));
        let stays = stays && !is_finished;
        let Some(proof) = self.proof(holder, evidence, since, stays) else {
            return if stays { Ok(Next::Rest) } else { self.rest(change, &CellEvent::Release) };
        };
        let strikes = match proof {
            // Whoever could answer was not crashed by it.
            Proof::Acknowledged { .. } => 0,
            Proof::Closed
            | Proof::Fenced
            | Proof::ProcessEnded
            | Proof::TimedOut
            | Proof::Gone
            | Proof::Published => {
                self.record.strikes + u32::from(evidence.culprit.as_ref() == Some(self.job))
            }
        };
        let then = self.then(strikes);
        self.step(change, &CellEvent::End { session: holder.clone(), proof, then })?;
        change.blame(self.job, strikes);
        match self.place() {
            Some((slot, Some(session))) if strikes <= self.record.strikes => {
                Ok(Next::Grant { slot, session })
            }
            // In the same write: nothing else may happen that would cause the next one.
            None if self.is_for_all() && strikes <= self.record.strikes => {
                self.rest(change, &CellEvent::GrantToAll)
            }
            Some(_) | None if self.is_wanted() => Ok(Next::Rest),
            Some(_) | None => self.forget(change),
        }
    }

    /// Why the holder no longer holds the job, if that can be said.
    fn proof(
        &self,
        holder: &SessionId,
        evidence: &Evidence,
        since: Option<u64>,
        stays: bool,
    ) -> Option<Proof> {
        let HandoverTerms { policy, release_timeout, return_grace } = *self.terms;
        let revision = evidence.released(self.job);
        let acked = |since: u64| (since <= revision).then_some(Proof::Acknowledged { revision });
        let is_gone = || evidence.gone_for.is_some_and(|gone| return_grace <= gone);
        let weaker = || match policy {
            Policy::AtLeastOnce if !stays && is_gone() => Some(Proof::Gone),
            Policy::AtLeastOnce if since.is_some() && release_timeout <= self.age() => {
                Some(Proof::TimedOut)
            }
            Policy::AtLeastOnce if !stays && holder.is_plain() => Some(Proof::Published),
            Policy::AtLeastOnce | Policy::Exclusive => None,
        };
        evidence.ended.or_else(|| since.and_then(acked)).or_else(weaker)
    }

    /// What becomes of the job once nobody holds it.
    fn then(&self, strikes: u32) -> Then {
        if let Some(span) = (self.record.strikes < strikes).then(|| strikes::backoff(strikes)) {
            return span.map_or(Then::Free, |span| Then::Quarantine { span });
        }
        match self.place() {
            Some((slot, None)) => Then::Hold { slot, span: self.terms.return_grace },
            Some((_, Some(_))) | None => Then::Free,
        }
    }
}
