//! One turn of a handover: computes one write from the goal and the proofs.
//!
//! A move takes two writes. The first write releases jobs. The second write turns every proved
//! release into the next grant, if the new worker has room for the job.

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
    /// The condition under which an ownership may end.
    pub policy: Policy,
    /// The longest wait for the acknowledgement of a release, under [`Policy::AtLeastOnce`].
    pub release_timeout: Duration,
    /// The time for which jobs wait for the worker of their slot to return.
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

/// The goal of one job: the place where it should be.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// With the session that currently fills the slot.
    Session(Slot, SessionId),
    /// In a slot whose worker is expected back.
    Slot(Slot),
    /// With every session.
    Everywhere,
    /// Without a place, but it stays in the ledger.
    Nowhere,
}

/// The facts known about one session. Each fact is stable, so old evidence stays true. The default
/// is empty and proves nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Evidence {
    /// The highest revision that it acknowledged in this incarnation of the ledger.
    pub acked: u64,
    /// A later revision that it acknowledged except for the listed jobs.
    pub stopping: Stopping,
    /// The jobs that it reported as finished, with the tokens under which they ran.
    pub finished: BTreeMap<JobName, Token>,
    /// The proof that the session has ended, if it has: closed, fenced, or its process ended.
    pub ended: Option<Proof>,
    /// The time for which its worker has been missing; `None` while the worker exists.
    pub gone_for: Option<Duration>,
    /// The job that crashed the session, if it crashed and one job is known to be at fault.
    pub culprit: Option<JobName>,
    /// The time for which it may act after a renewal, according to its own Lease; `None` if no
    /// Lease was seen.
    pub lease: Option<Duration>,
}

impl Evidence {
    /// Returns evidence that contains only the highest acknowledged revision.
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

    /// Returns the revision up to which the session has released `job`, according to its
    /// acknowledgements.
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

/// The inputs of one turn.
#[derive(Clone, Copy, Debug)]
pub struct StepInputs<'a> {
    /// The goal of every job. A job that is in the ledger and not in the goal is released.
    pub goal: &'a BTreeMap<JobName, Place>,
    /// The evidence about sessions. A session that is missing here has no evidence.
    pub evidence: &'a BTreeMap<SessionId, Evidence>,
    /// The time for which the observer has seen each cell unchanged; zero for a missing cell.
    pub ages: &'a BTreeMap<JobName, Duration>,
    /// The wanted jobs. Only a run-to-completion job can be finished. A finished job that does not
    /// run to completion any more is free again. A share counts at the worker that holds the job.
    pub jobs: &'a Jobs,
    /// The sessions of the pool. They include sessions that left it and may still run the jobs that
    /// all sessions run. A session that is missing here may hold any number of jobs, and runs none
    /// of these.
    pub seats: &'a BTreeMap<SessionId, Seat>,
}

/// The limits of one session of the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seat {
    /// The largest number of jobs that it may hold; `None` for any number.
    pub max_jobs: Option<u32>,
    /// The part of its worker that jobs can reserve; `None` for the whole worker.
    pub capacity: Option<Share>,
    /// The ledger's revision at which it joined the pool. It never ran a job that all sessions were
    /// asked to release before that revision.
    pub joined: u64,
}

impl StepInputs<'_> {
    /// Returns whether a wanted job has a share. O(jobs).
    pub(super) fn want_shares(&self) -> bool {
        self.jobs.values().any(|job| job.share.is_some())
    }

    /// Returns whether `job` is no longer wanted, so that its share is unknown.
    pub(super) fn is_leaving(&self, job: &JobName) -> bool {
        !self.jobs.contains_key(job) && !self.goal.contains_key(job)
    }

    /// Returns whether a session still holds a job that is no longer wanted. O(jobs · log jobs).
    fn any_leaves(&self, change: &Change<'_>) -> bool {
        let mut held = change.records().filter(|(_, record)| record.cell.holder().is_some());
        held.any(|(job, _)| self.is_leaving(job))
    }

    /// Returns the jobs that a session still stops, among the jobs that all sessions ran and were
    /// asked to release at revision `since`. Returns `None` if a session that counts has not
    /// acknowledged that revision at all. O(sessions + jobs that they list).
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
    /// Returns whether the release of a job that all sessions run waits for `session`. It never
    /// waits for a session that has ended. Under [`Policy::AtLeastOnce`] it does not wait for a
    /// plain worker or for a worker that has been missing for the return grace, either.
    pub(crate) fn waits_for(&self, session: &SessionId, known: Option<&Evidence>) -> bool {
        let has_ended = known.is_some_and(|known| known.ended.is_some());
        let gone_for = known.and_then(|known| known.gone_for);
        let is_gone = gone_for.is_some_and(|gone| self.return_grace <= gone);
        let is_excused = self.policy == Policy::AtLeastOnce && (session.is_plain() || is_gone);
        !has_ended && !is_excused
    }
}

/// Returns the next write that brings `cells` closer to the goal. Returns `None` if the goal is
/// reached, or if a session has to answer first.
///
/// A grant waits until the session has room for the job next to every job that it still holds,
/// including jobs that it is asked to release. So no session holds more jobs than its maximum, or
/// shares above its capacity (100 percent or less). A session whose shares use its whole capacity
/// holds no other job. Releases wait for no room, so this cannot end in a deadlock. A job that is
/// no longer wanted counts as if it had any share.
///
/// The same arguments give the same write. O(jobs · log sessions), and O(log jobs) for each job
/// that changes.
///
/// ```
/// use swarm_core::Slot;
/// use swarm_core::handover::{Cells, HandoverTerms, Place, SessionId, StepInputs, advance};
///
/// let session = SessionId::new("pod", 1);
/// let goal = [("job".parse()?, Place::Session(Slot(0), session.clone()))].into();
/// let (evidence, ages, jobs, seats) = Default::default();
/// let (evidence, ages, seats) = (&evidence, &ages, &seats);
/// let inputs = StepInputs { goal: &goal, evidence, ages, jobs: &jobs, seats };
/// let terms = HandoverTerms::default();
/// let save = advance(&Cells::new(0), &inputs, &terms).unwrap();
/// assert_eq!(save.touched, [session].into()); // publish to it after the save
/// assert_eq!(advance(&save.next, &inputs, &terms), None); // the goal is reached
/// # Ok::<(), swarm_core::JobNameError>(())
/// ```
#[must_use]
pub fn advance(cells: &Cells, inputs: &StepInputs<'_>, terms: &HandoverTerms) -> Option<Save> {
    let mut change = Change::of(cells);
    let fresh = Record { cell: Cell::Free { token: cells.first_token }, strikes: 0 };
    let released = Released::of(cells, inputs, terms);
    let mut grants = Vec::new();
    for (job, record, goal) in side_by_side(&cells.jobs, inputs.goal) {
        if record.is_none() {
            change.admit(job, fresh.clone());
        }
        let record = record.unwrap_or(&fresh);
        let turn = Turn { job, record, goal, inputs, terms, released: &released };
        // A refusal leaves the job unchanged; the next turn looks at it again.
        if let Ok(Next::Grant { slot, session }) = turn.take(&mut change) {
            grants.push((turn, slot, session));
        }
    }
    // Grants come last, when the jobs that each session still holds are known.
    let sessions = grants.iter().map(|(_, _, session)| *session);
    let mut room = Room::of(&change, inputs, cells.has_shares, sessions);
    for (turn, slot, session) in grants {
        let event = CellEvent::Grant { session: session.clone(), slot };
        if room.has(turn.job, session) && turn.step(&mut change, &event).is_ok() {
            room.take(turn.job, session);
        }
    }
    let has_shares = inputs.want_shares() || (cells.has_shares && inputs.any_leaves(&change));
    change.finish(has_shares)
}

/// The next step after a job's own part of a turn.
enum Next<'a> {
    /// The job has no holder; the session receives it if it has room.
    Grant { slot: Slot, session: &'a SessionId },
    /// Nothing further happens.
    Rest,
}

fn has_ended(inputs: &StepInputs<'_>, session: &SessionId) -> bool {
    inputs.evidence.get(session).is_some_and(|evidence| evidence.ended.is_some())
}

/// The jobs of all sessions that every session has released.
struct Released<'a> {
    /// The revisions of releases that every session has acknowledged, with the jobs that are still
    /// being stopped.
    since: BTreeMap<u64, BTreeSet<&'a JobName>>,
    /// Whether a release needs no acknowledgement at all.
    by_itself: bool,
}

impl<'a> Released<'a> {
    /// Finds the releases. O(jobs + (sessions + jobs that they list) · releases of different
    /// writes).
    fn of(cells: &Cells, inputs: &'a StepInputs<'_>, terms: &HandoverTerms) -> Self {
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
        let left = |since: u64| Some((since, inputs.left_of_all(since, terms)?));
        let since = since.into_iter().filter_map(left).collect();
        // No session has acknowledged the highest possible revision.
        let left_now = || inputs.left_of_all(u64::MAX, terms);
        let by_itself = has_everywhere && left_now().is_some_and(|left| left.is_empty());
        Self { since, by_itself }
    }

    /// Returns whether every session has released `job`, which it was asked to release at revision
    /// `since`.
    fn has(&self, job: &JobName, since: u64) -> bool {
        self.since.get(&since).is_some_and(|left| !left.contains(job))
    }
}

/// One job's part of a turn.
struct Turn<'a> {
    job: &'a JobName,
    record: &'a Record,
    goal: Option<&'a Place>,
    inputs: &'a StepInputs<'a>,
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

    /// Returns the time for which the cell has been seen unchanged.
    fn age(&self) -> Duration {
        self.inputs.ages.get(self.job).copied().unwrap_or_default()
    }

    fn runs_once(&self) -> bool {
        self.inputs.jobs.get(self.job).is_some_and(|job| job.run_once)
    }

    /// Returns whether the job is wanted as a job that does not run to completion.
    fn runs_again(&self) -> bool {
        self.inputs.jobs.get(self.job).is_some_and(|job| !job.run_once)
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

    /// Returns the slot and the live session where the job should be.
    fn place(&self) -> Option<(Slot, Option<&'a SessionId>)> {
        match self.goal? {
            Place::Session(slot, session) => {
                Some((*slot, Some(session).filter(|session| !has_ended(self.inputs, session))))
            }
            Place::Slot(slot) => Some((*slot, None)),
            Place::Everywhere | Place::Nowhere => None,
        }
    }

    /// Asks every session to release the job. If no session has to be waited for, the same write
    /// frees the job.
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
            // No session can take the job. A hold or a quarantine ends with its span anyway.
            // Otherwise the job would stay bound to an empty slot, or count as quarantined
            // permanently.
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
        let evidence = self.inputs.evidence.get(holder).unwrap_or(&nothing);
        let is_finished = evidence.finished.get(self.job) == Some(&token);
        if is_finished && self.runs_once() {
            return self.rest(change, &CellEvent::Finish { session: holder.clone(), token });
        }
        // A session that reports another job as finished does not run that job any more, for
        // example because `run_once` was removed meanwhile. The job is released, and granted again.
        let stays = self.place().is_some_and(|(_, session)| session == Some(holder));
        let stays = stays && !is_finished;
        let Some(proof) = self.proof(holder, evidence, since, stays) else {
            return if stays { Ok(Next::Rest) } else { self.rest(change, &CellEvent::Release) };
        };
        let strikes = match proof {
            // A holder that acknowledged was not crashed by the job.
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
            // The same write grants the job to all: no other event would cause the next write.
            None if self.is_for_all() && strikes <= self.record.strikes => {
                self.rest(change, &CellEvent::GrantToAll)
            }
            Some(_) | None if self.is_wanted() => Ok(Next::Rest),
            Some(_) | None => self.forget(change),
        }
    }

    /// Returns the proof that the holder no longer holds the job, if there is a proof.
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

    /// Returns the next state of the job after its ownership ended.
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
