//! An independent judge of one write to the ledger. It knows the rules, and does not know how the
//! write was made.

use std::collections::BTreeMap;

use super::{
    Cell, Cells, Evidence, HandoverTerms, Policy, Record, SessionId, StepInputs, Stopping,
};
use crate::JobName;

/// A rule that a write breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StepViolation {
    /// The revision does not rise by one, or the ledger's incarnation or first token falls.
    #[error("the ledger does not go forward by one revision")]
    NotForward,
    /// A job's token falls, or the job changes hands under the same token.
    #[error("the token of job {0} does not rise with its grant")]
    Token(JobName),
    /// A job left its holder although nothing proves that the holder released it.
    #[error("job {0} left its holder without proof")]
    NoProof(JobName),
    /// A wanted job vanished, or a removed job could return under a token that it already had.
    #[error("job {0} was lost, or its tokens were")]
    Lost(JobName),
    /// A job became done although its holder did not finish it under its last grant, or although it
    /// does not run to completion. Or a run-to-completion job that was done is not done any more.
    #[error("job {0} is done without being finished, or not done although it was")]
    Done(JobName),
    /// A session was granted a job for which it has no room.
    #[error("session {0} was granted more than it has room for")]
    Overfull(SessionId),
    /// A job may have a share, and the ledger does not record that jobs may have shares.
    #[error("the ledger does not say that jobs may have shares")]
    SharesForgotten,
    /// A job was granted to a session that has ended, according to the evidence.
    #[error("job {0} was granted to a session that has ended")]
    GrantedToTheDead(JobName),
}

/// Judges the write that replaces `before` with `after`, given the known facts. O(jobs · log jobs).
///
/// # Errors
///
/// The first [`StepViolation`] in the order of job names.
///
/// ```
/// use swarm_core::Token;
/// use swarm_core::handover::*;
///
/// let granted = |revision, nonce, token| {
///     let cell = Cell::Granted { session: SessionId::new("pod", nonce), token: Token(token) };
///     let jobs = [("job".parse().unwrap(), Record { cell, strikes: 0 })].into();
///     Cells { revision, jobs, ..Cells::new(0) }
/// };
/// let (goal, evidence, ages, jobs, seats) = Default::default();
/// let (goal, evidence, ages) = (&goal, &evidence, &ages);
/// let inputs = StepInputs { goal, evidence, ages, jobs: &jobs, seats: &seats };
/// let terms = HandoverTerms::default();
/// let check = |after| check_step(&granted(1, 1, 7), &after, &inputs, &terms);
/// assert_eq!(check(granted(2, 1, 7)), Ok(()));
/// let taken = StepViolation::NoProof("job".parse()?);
/// assert_eq!(check(granted(2, 2, 8)), Err(taken)); // taken from its holder without a proof
/// # Ok::<(), swarm_core::JobNameError>(())
/// ```
pub fn check_step(
    before: &Cells,
    after: &Cells,
    inputs: &StepInputs<'_>,
    terms: &HandoverTerms,
) -> Result<(), StepViolation> {
    let forward = after.revision == before.revision + 1
        && before.incarnation <= after.incarnation
        && before.first_token <= after.first_token;
    if !forward {
        return Err(StepViolation::NotForward);
    }
    for (job, record) in &before.jobs {
        let judge = Judge { job, inputs, terms, cell: &record.cell };
        match after.jobs.get(job) {
            Some(next) => judge.step(&next.cell)?,
            None => judge.removal(after)?,
        }
    }
    let entered = after.jobs.iter().filter(|(job, _)| !before.jobs.contains_key(*job));
    for (job, record) in entered {
        let granted = matches!(record.cell, Cell::Granted { .. } | Cell::Everywhere { .. });
        if record.cell.token().0 != before.first_token.0 + u64::from(granted) {
            return Err(StepViolation::Token(job.clone()));
        }
        Judge { job, inputs, terms, cell: &record.cell }.alive(&record.cell)?;
    }
    if may_have_shares(before, after, inputs) && !after.has_shares {
        return Err(StepViolation::SharesForgotten);
    }
    has_room(before, after, inputs)
}

/// Returns whether a job has a share, or a job that leaves may have had a share.
fn may_have_shares(before: &Cells, after: &Cells, inputs: &StepInputs<'_>) -> bool {
    let is_wanted = |job: &JobName| inputs.jobs.contains_key(job) || inputs.goal.contains_key(job);
    let goes =
        |(job, record): (&JobName, &Record)| record.cell.holder().is_some() && !is_wanted(job);
    let has_shares = inputs.jobs.values().any(|job| job.share.is_some());
    has_shares || (before.has_shares && after.jobs.iter().any(goes))
}

/// Checks that every session that was granted a job has room for all jobs that it holds.
fn has_room(before: &Cells, after: &Cells, inputs: &StepInputs<'_>) -> Result<(), StepViolation> {
    let is_new = |(job, cell): &(&JobName, &Cell)| {
        matches!(cell, Cell::Granted { .. })
            && before.jobs.get(*job).is_none_or(|it| it.cell != **cell)
    };
    let cells = || after.jobs.iter().map(|(job, record)| (job, &record.cell));
    let granted = cells().filter(is_new).filter_map(|(_, cell)| cell.holder());
    let mut held: BTreeMap<_, Vec<_>> = granted.map(|session| (session, vec![])).collect();
    for (job, cell) in cells() {
        if let Some(jobs) = cell.holder().and_then(|holder| held.get_mut(holder)) {
            jobs.push(job);
        }
    }
    let has_shares = before.has_shares || inputs.jobs.values().any(|job| job.share.is_some());
    for (session, jobs) in held {
        let seat = inputs.seats.get(session).copied().unwrap_or_default();
        let max = seat.max_jobs.unwrap_or(u32::MAX);
        let whole = seat.capacity.map_or(100, |capacity| u32::from(capacity.percent()));
        let known = jobs.iter().filter_map(|job| inputs.jobs.get(*job));
        let shares: Vec<_> = known.filter_map(|job| job.share).collect();
        let sum: u32 = shares.iter().map(|share| u32::from(share.percent())).sum();
        // A job that leaves may have had any share.
        let goes =
            |job: &&&JobName| !inputs.jobs.contains_key(**job) && !inputs.goal.contains_key(**job);
        let is_alone = shares.len() == jobs.len();
        let fits = sum < whole || (sum == whole && is_alone);
        let is_known = !jobs.iter().any(|job| goes(&job));
        if (max as usize) < jobs.len() || (has_shares && !(fits && is_known)) {
            return Err(StepViolation::Overfull(session.clone()));
        }
    }
    Ok(())
}

struct Judge<'a> {
    job: &'a JobName,
    inputs: &'a StepInputs<'a>,
    terms: &'a HandoverTerms,
    cell: &'a Cell,
}

impl Judge<'_> {
    fn step(&self, next: &Cell) -> Result<(), StepViolation> {
        let job = || self.job.clone();
        let is_new_grant = match (self.cell, next) {
            (Cell::Granted { session: a, token: m }, Cell::Granted { session: b, token: n }) => {
                (a, m) != (b, n)
            }
            (Cell::Everywhere { .. }, Cell::Everywhere { .. }) => false,
            (_, Cell::Granted { .. } | Cell::Everywhere { .. }) => true,
            _ => false,
        };
        if next.token().0 != self.cell.token().0 + u64::from(is_new_grant) {
            return Err(StepViolation::Token(job()));
        }
        let was_done = matches!(self.cell, Cell::Done { .. });
        let is_done = matches!(next, Cell::Done { .. });
        let may_change = if was_done { !self.runs_once() } else { self.is_finished() };
        if was_done != is_done && !may_change {
            return Err(StepViolation::Done(job()));
        }
        // A job without a holder needs no proof.
        let leaves = self.cell.holder() != next.holder() || is_new_grant;
        let ends = match (self.cell, next) {
            (Cell::Everywhere { .. }, Cell::Everywhere { .. } | Cell::ReleasingAll { .. })
            | (Cell::ReleasingAll { .. }, Cell::ReleasingAll { .. }) => false,
            (Cell::Everywhere { .. } | Cell::ReleasingAll { .. }, _) => true,
            _ => leaves && !is_done,
        };
        if ends && !self.is_proved() {
            return Err(StepViolation::NoProof(job()));
        }
        if is_new_grant { self.alive(next) } else { Ok(()) }
    }

    fn removal(&self, after: &Cells) -> Result<(), StepViolation> {
        let is_wanted = self.inputs.goal.contains_key(self.job);
        if is_wanted || after.first_token < self.cell.token() {
            return Err(StepViolation::Lost(self.job.clone()));
        }
        if !self.is_proved() && !self.is_finished() {
            return Err(StepViolation::NoProof(self.job.clone()));
        }
        Ok(())
    }

    fn alive(&self, granted: &Cell) -> Result<(), StepViolation> {
        let ended = |to: &SessionId| self.evidence(to).is_some_and(|known| known.ended.is_some());
        match granted {
            Cell::Granted { session, .. } if ended(session) => {
                Err(StepViolation::GrantedToTheDead(self.job.clone()))
            }
            _ => Ok(()),
        }
    }

    fn evidence(&self, session: &SessionId) -> Option<&Evidence> {
        self.inputs.evidence.get(session)
    }

    fn runs_once(&self) -> bool {
        self.inputs.jobs.get(self.job).is_some_and(|job| job.run_once)
    }

    fn is_finished(&self) -> bool {
        let says_so = |holder| self.evidence(holder)?.finished.get(self.job).copied();
        self.runs_once() && self.cell.holder().and_then(says_so) == Some(self.cell.token())
    }

    /// Returns the revision up to which a session has released the job. The plain acknowledgement
    /// counts for all jobs; an acknowledgement in part counts for the jobs that it does not list.
    fn released(&self, session: &SessionId) -> u64 {
        let Some(known) = self.evidence(session) else { return 0 };
        let Stopping { reads, jobs } = &known.stopping;
        let is_named = jobs.keys().any(|it| it == self.job);
        if is_named || *reads < known.acked { known.acked } else { *reads }
    }

    /// Returns whether the release of a job that all sessions run does not wait for `session`.
    fn is_out(&self, session: &SessionId) -> bool {
        let known = self.evidence(session);
        let gone = known.and_then(|known| known.gone_for);
        known.is_some_and(|known| known.ended.is_some())
            || (self.terms.policy == Policy::AtLeastOnce
                && (session.is_plain() || gone.is_some_and(|it| self.terms.return_grace <= it)))
    }

    /// Returns whether the known facts end the ownership.
    fn is_proved(&self) -> bool {
        let waited = self.inputs.ages.get(self.job).copied().unwrap_or_default();
        match self.cell {
            Cell::Everywhere { .. } => return self.inputs.seats.keys().all(|it| self.is_out(it)),
            Cell::ReleasingAll { since, .. } => {
                let has_waited = self.terms.policy == Policy::AtLeastOnce
                    && self.terms.release_timeout <= waited;
                let before = self.inputs.seats.iter().filter(|(_, seat)| seat.joined < *since);
                let mut before = before.map(|(session, _)| session);
                let acked = |it| *since <= self.released(it);
                return has_waited || before.all(|it| self.is_out(it) || acked(it));
            }
            _ => {}
        }
        let Some(holder) = self.cell.holder() else { return true };
        let known = self.evidence(holder);
        if known.is_some_and(|known| known.ended.is_some()) {
            return true;
        }
        let since = match self.cell {
            Cell::Releasing { since, .. } => Some(*since),
            _ => None,
        };
        if since.is_some_and(|since| since <= self.released(holder)) {
            return true;
        }
        let gone = known.and_then(|known| known.gone_for);
        self.terms.policy == Policy::AtLeastOnce
            && (holder.is_plain()
                || gone.is_some_and(|gone| self.terms.return_grace <= gone)
                || (since.is_some() && self.terms.release_timeout <= waited))
    }
}

#[cfg(test)]
mod tests;
