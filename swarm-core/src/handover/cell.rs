//! One job in the ledger: its holder, and the events that change it.

use std::time::Duration;

use super::SessionId;
use crate::{Slot, Token};

/// The condition under which an ownership may end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
pub enum Policy {
    /// A proof or a timeout ends an ownership. Two workers may run a job for a while.
    #[default]
    AtLeastOnce,
    /// Only a proof ends an ownership. Without a proof, a job may wait without limit.
    Exclusive,
}

/// The state of one job. `token` is the token of its last grant.
///
/// The observer counts spans, from the moment when it first saw the cell unchanged. A restarted
/// operator counts from zero: it waits longer, never shorter, and needs no wall clock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Cell {
    /// The job has no holder.
    Free {
        /// The token of the last grant.
        token: Token,
    },
    /// A session holds it.
    Granted {
        /// The holder.
        session: SessionId,
        /// The token of the grant.
        token: Token,
    },
    /// A session holds it and is asked to release it.
    Releasing {
        /// The holder.
        session: SessionId,
        /// The token of the grant.
        token: Token,
        /// The ledger's revision at which the release began. An acknowledgement of this revision or
        /// a later one ends the ownership.
        since: u64,
    },
    /// The job has no holder, and waits for the worker of a slot to return.
    Hold {
        /// The slot whose worker is expected back.
        slot: Slot,
        /// The longest time to wait.
        span: Duration,
        /// The token of the last grant.
        token: Token,
    },
    /// The job has no holder, and is not granted for a while because it crashed too many workers.
    Quarantined {
        /// The duration of the quarantine.
        span: Duration,
        /// The token of the last grant.
        token: Token,
    },
    /// A run-to-completion job that has finished.
    Done {
        /// The token under which it finished.
        token: Token,
    },
    /// Every session runs the job, and no session holds it.
    Everywhere {
        /// The token under which all sessions run it.
        token: Token,
    },
    /// Every session ran the job and is asked to release it.
    ReleasingAll {
        /// The token under which all sessions ran it.
        token: Token,
        /// The ledger's revision at which the release began. The release ends when every session
        /// that may run the job has acknowledged this revision or a later one.
        since: u64,
    },
}

/// An event that may change a cell.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CellEvent {
    /// The job is granted to a session that fills `slot`.
    Grant {
        /// The session that receives the job.
        session: SessionId,
        /// The slot that the session fills.
        slot: Slot,
    },
    /// The job is granted to every session.
    GrantToAll,
    /// The holder, or every session that runs the job, is asked to release it. A hold or a
    /// quarantine whose span has elapsed becomes free.
    Release,
    /// An ownership ends, by proof.
    End {
        /// The holder whose ownership ends.
        session: SessionId,
        /// The proof that it has ended.
        proof: Proof,
        /// The state of the job after the same change.
        then: Then,
    },
    /// A job that all sessions ran is free, since no session runs it any more.
    EndAll {
        /// The proof: every session that may have run it has acknowledged a revision or ended, or
        /// the release timed out.
        proof: Proof,
    },
    /// A finished job does not run to completion any more, so it is free.
    Reopen,
    /// The holder reports that a run-to-completion job is finished.
    Finish {
        /// The holder that reports it.
        session: SessionId,
        /// The token under which the job ran.
        token: Token,
    },
}

/// A proof that an ownership has ended. Each is a stable fact: if it is seen late, it only delays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Proof {
    /// The session runs only what the ledger grants it at this revision or later.
    Acknowledged {
        /// The revision it acknowledged.
        revision: u64,
    },
    /// The session closed its lease, after all its jobs had ended.
    Closed,
    /// The session's lease was revoked by compare-and-set, and the grace has elapsed.
    Fenced,
    /// The session's process is known to have ended.
    ProcessEnded,
    /// The release was not acknowledged in time. Valid under [`Policy::AtLeastOnce`] only.
    TimedOut,
    /// The worker has been missing longer than its jobs wait for it. Valid under
    /// [`Policy::AtLeastOnce`] only.
    Gone,
    /// The holder is a plain worker, and a view without the job is about to be published. A plain
    /// worker is not waited for. Valid under [`Policy::AtLeastOnce`] only.
    Published,
}

/// The next state of a job whose ownership has ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Then {
    /// The job waits for a decision.
    Free,
    /// The job waits for the worker of its slot.
    Hold {
        /// The slot.
        slot: Slot,
        /// The longest time to wait.
        span: Duration,
    },
    /// The job is quarantined.
    Quarantine {
        /// The duration of the quarantine.
        span: Duration,
    },
}

/// The context of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepContext {
    /// The revision that the ledger will have after the change that contains this step.
    pub revision: u64,
    /// The time for which the observer has seen the cell unchanged.
    pub age: Duration,
    /// The condition under which an ownership may end.
    pub policy: Policy,
}

/// The reason why an event does not apply to a cell. The cell stays unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A job that has a holder is not granted.
    #[error("session {session} still holds the job")]
    Held {
        /// The present holder.
        session: SessionId,
    },
    /// The session does not hold the job, or not under this token.
    #[error("session {session} does not hold the job under that token")]
    NotHolder {
        /// The session that was named.
        session: SessionId,
    },
    /// An acknowledgement of a revision before the release proves nothing.
    #[error("the release is not acknowledged")]
    NotAcknowledged,
    /// The policy does not accept this proof.
    #[error("{proof:?} does not end an ownership under {policy:?}")]
    NoProof {
        /// The proof that was given.
        proof: Proof,
        /// The policy in force.
        policy: Policy,
    },
    /// A hold or a quarantine of the job has not elapsed yet.
    #[error("the job is kept free for another {left:?}")]
    Waiting {
        /// The time that remains.
        left: Duration,
    },
    /// The job has finished and never runs again.
    #[error("the job is done")]
    Done,
    /// A job that every session runs, or may still run, has no single holder.
    #[error("every session may run the job")]
    Everywhere,
    /// The ledger does not contain the job.
    #[error("the ledger has no such job")]
    Unknown,
    /// The token cannot rise any further, so writes under the next grant could not be distinguished
    /// from older ones.
    #[error("the job has the highest token that there is; give it another name")]
    LastToken,
}

/// Returns the token of the next grant.
fn next(token: Token) -> Result<Token, Refusal> {
    token.0.checked_add(1).map(Token).ok_or(Refusal::LastToken)
}

impl Cell {
    /// The token of the last grant.
    ///
    /// ```
    /// use swarm_core::Token;
    /// use swarm_core::handover::Cell;
    ///
    /// assert_eq!(Cell::Free { token: Token(7) }.token(), Token(7));
    /// ```
    #[must_use]
    pub fn token(&self) -> Token {
        match self {
            Self::Free { token }
            | Self::Granted { token, .. }
            | Self::Releasing { token, .. }
            | Self::Hold { token, .. }
            | Self::Quarantined { token, .. }
            | Self::Done { token }
            | Self::Everywhere { token }
            | Self::ReleasingAll { token, .. } => *token,
        }
    }

    /// The state's name, for counts that people read.
    ///
    /// ```
    /// use swarm_core::Token;
    /// use swarm_core::handover::Cell;
    ///
    /// assert_eq!(Cell::Done { token: Token(7) }.state(), "done");
    /// ```
    #[must_use]
    pub fn state(&self) -> &'static str {
        match self {
            Self::Free { .. } => "free",
            Self::Granted { .. } => "granted",
            Self::Releasing { .. } | Self::ReleasingAll { .. } => "releasing",
            Self::Hold { .. } => "hold",
            Self::Quarantined { .. } => "quarantined",
            Self::Done { .. } => "done",
            Self::Everywhere { .. } => "everywhere",
        }
    }

    /// Returns the session that may be running the job. A job that every session runs, or may still
    /// run, has no holder.
    ///
    /// ```
    /// use swarm_core::Token;
    /// use swarm_core::handover::{Cell, SessionId};
    ///
    /// let session = SessionId::new("pod", 1);
    /// let releasing = Cell::Releasing { session: session.clone(), token: Token(7), since: 3 };
    /// assert_eq!(releasing.holder(), Some(&session)); // it may run the job until it acknowledges
    /// assert_eq!(Cell::Everywhere { token: Token(7) }.holder(), None);
    /// ```
    #[must_use]
    pub fn holder(&self) -> Option<&SessionId> {
        match self {
            Self::Granted { session, .. } | Self::Releasing { session, .. } => Some(session),
            Self::Free { .. }
            | Self::Hold { .. }
            | Self::Quarantined { .. }
            | Self::Done { .. }
            | Self::Everywhere { .. }
            | Self::ReleasingAll { .. } => None,
        }
    }

    /// Whether `session` has the job: it is the [holder](Self::holder), or every session has the job.
    ///
    /// ```
    /// use swarm_core::Token;
    /// use swarm_core::handover::{Cell, SessionId};
    ///
    /// let [session, other] = [1, 2].map(|nonce| SessionId::new("pod", nonce));
    /// let granted = Cell::Granted { session: session.clone(), token: Token(7) };
    /// assert!(granted.is_with(&session) && !granted.is_with(&other));
    /// assert!(Cell::Everywhere { token: Token(7) }.is_with(&other));
    /// ```
    #[must_use]
    pub fn is_with(&self, session: &SessionId) -> bool {
        matches!(self, Self::Everywhere { .. }) || self.holder() == Some(session)
    }

    /// Whether every session may be running the job.
    ///
    /// ```
    /// use swarm_core::Token;
    /// use swarm_core::handover::Cell;
    ///
    /// assert!(Cell::ReleasingAll { token: Token(7), since: 3 }.is_for_all());
    /// assert!(!Cell::Free { token: Token(7) }.is_for_all());
    /// ```
    #[must_use]
    pub fn is_for_all(&self) -> bool {
        matches!(self, Self::Everywhere { .. } | Self::ReleasingAll { .. })
    }

    /// Returns the cell after `event`. An event that is already true gives the same cell.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if the event does not apply, or would take a job from its holder without proof.
    ///
    /// ```
    /// use std::time::Duration;
    /// use swarm_core::handover::{Cell, CellEvent, Policy, Proof, SessionId, StepContext, Then};
    /// use swarm_core::{Slot, Token};
    ///
    /// let [old, new] = [1, 2].map(|nonce| SessionId::new("pod", nonce));
    /// let now = StepContext { revision: 5, age: Duration::ZERO, policy: Policy::Exclusive };
    /// let free = Cell::Free { token: Token(7) };
    /// let granted = free.step(&CellEvent::Grant { session: old.clone(), slot: Slot(0) }, &now)?;
    /// assert_eq!(granted.token(), Token(8));
    ///
    /// // The release begins at revision 5, and its acknowledgement ends the ownership.
    /// let releasing = granted.step(&CellEvent::Release, &now)?;
    /// let end = |revision| {
    ///     let proof = Proof::Acknowledged { revision };
    ///     let then = Then::Free;
    ///     releasing.step(&CellEvent::End { session: old.clone(), proof, then }, &now)
    /// };
    /// assert!(end(4).is_err());
    /// let granted = end(5)?.step(&CellEvent::Grant { session: new, slot: Slot(0) }, &now)?;
    /// assert_eq!(granted.token(), Token(9));
    /// # Ok::<(), swarm_core::handover::Refusal>(())
    /// ```
    pub fn step(&self, event: &CellEvent, circumstances: &StepContext) -> Result<Self, Refusal> {
        match event {
            CellEvent::Grant { session, slot } => self.grant(session, *slot, circumstances),
            CellEvent::GrantToAll => self.grant_to_all(),
            CellEvent::Release => Ok(self.release(circumstances)),
            CellEvent::End { session, proof, then } => {
                self.end(session, *proof, circumstances.policy)?;
                Ok(self.then(then))
            }
            CellEvent::EndAll { proof } => self.end_all(*proof, circumstances.policy),
            CellEvent::Reopen => Ok(self.reopen()),
            CellEvent::Finish { session, token } => self.finish(session, *token),
        }
    }

    fn grant(&self, to: &SessionId, at: Slot, now: &StepContext) -> Result<Self, Refusal> {
        let still = |span: Duration| span.checked_sub(now.age).filter(|left| !left.is_zero());
        match self {
            Self::Granted { session, .. } if session == to => return Ok(self.clone()),
            Self::Granted { session, .. } | Self::Releasing { session, .. } => {
                return Err(Refusal::Held { session: session.clone() });
            }
            Self::Done { .. } => return Err(Refusal::Done),
            Self::Everywhere { .. } | Self::ReleasingAll { .. } => {
                return Err(Refusal::Everywhere);
            }
            Self::Hold { slot, .. } if *slot == at => (),
            Self::Hold { span, .. } | Self::Quarantined { span, .. } => {
                if let Some(left) = still(*span) {
                    return Err(Refusal::Waiting { left });
                }
            }
            Self::Free { .. } => (),
        }
        Ok(Self::Granted { session: to.clone(), token: next(self.token())? })
    }

    fn grant_to_all(&self) -> Result<Self, Refusal> {
        match self {
            Self::Granted { session, .. } | Self::Releasing { session, .. } => {
                Err(Refusal::Held { session: session.clone() })
            }
            Self::Done { .. } => Err(Refusal::Done),
            Self::Everywhere { .. } => Ok(self.clone()),
            // Sessions that have not released the job would run it under two tokens.
            Self::ReleasingAll { .. } => Err(Refusal::Everywhere),
            Self::Free { token } | Self::Hold { token, .. } | Self::Quarantined { token, .. } => {
                Ok(Self::Everywhere { token: next(*token)? })
            }
        }
    }

    fn release(&self, now: &StepContext) -> Self {
        let revision = now.revision;
        match self {
            Self::Hold { span, token, .. } | Self::Quarantined { span, token }
                if *span <= now.age =>
            {
                Self::Free { token: *token }
            }
            Self::Everywhere { token } => Self::ReleasingAll { token: *token, since: revision },
            Self::Granted { session, token } => {
                Self::Releasing { session: session.clone(), token: *token, since: revision }
            }
            Self::Releasing { .. }
            | Self::ReleasingAll { .. }
            | Self::Free { .. }
            | Self::Hold { .. }
            | Self::Quarantined { .. }
            | Self::Done { .. } => self.clone(),
        }
    }

    /// Checks that the ownership of `by` ends with `proof`.
    fn end(&self, by: &SessionId, proof: Proof, policy: Policy) -> Result<(), Refusal> {
        if self.holder() != Some(by) {
            return Err(Refusal::NotHolder { session: by.clone() });
        }
        let since = match self {
            Self::Releasing { since, .. } => Some(*since),
            Self::Granted { .. }
            | Self::Free { .. }
            | Self::Hold { .. }
            | Self::Quarantined { .. }
            | Self::Done { .. }
            | Self::Everywhere { .. }
            | Self::ReleasingAll { .. } => None,
        };
        let at_least_once = policy == Policy::AtLeastOnce;
        match proof {
            Proof::Acknowledged { revision } if since.is_some_and(|since| since <= revision) => {
                Ok(())
            }
            Proof::Acknowledged { .. } => Err(Refusal::NotAcknowledged),
            Proof::Closed | Proof::Fenced | Proof::ProcessEnded => Ok(()),
            Proof::TimedOut if at_least_once && since.is_some() => Ok(()),
            Proof::Gone if at_least_once => Ok(()),
            Proof::Published if at_least_once && by.is_plain() => Ok(()),
            Proof::TimedOut | Proof::Gone | Proof::Published => {
                Err(Refusal::NoProof { proof, policy })
            }
        }
    }

    /// Frees a job that every session ran, if `proof` shows that no session runs it any more.
    fn end_all(&self, proof: Proof, policy: Policy) -> Result<Self, Refusal> {
        let Self::ReleasingAll { token, since } = self else { return Err(Refusal::Everywhere) };
        match proof {
            Proof::Acknowledged { revision } if *since <= revision => Ok(()),
            Proof::Acknowledged { .. } => Err(Refusal::NotAcknowledged),
            Proof::TimedOut if policy == Policy::AtLeastOnce => Ok(()),
            Proof::Closed
            | Proof::Fenced
            | Proof::ProcessEnded
            | Proof::TimedOut
            | Proof::Gone
            | Proof::Published => Err(Refusal::NoProof { proof, policy }),
        }
        .map(|()| Self::Free { token: *token })
    }

    fn then(&self, then: &Then) -> Self {
        let token = self.token();
        match then {
            Then::Free => Self::Free { token },
            Then::Hold { slot, span } => Self::Hold { slot: *slot, span: *span, token },
            Then::Quarantine { span } => Self::Quarantined { span: *span, token },
        }
    }

    fn reopen(&self) -> Self {
        match self {
            Self::Done { token } => Self::Free { token: *token },
            Self::Free { .. }
            | Self::Granted { .. }
            | Self::Releasing { .. }
            | Self::Hold { .. }
            | Self::Quarantined { .. }
            | Self::Everywhere { .. }
            | Self::ReleasingAll { .. } => self.clone(),
        }
    }

    fn finish(&self, by: &SessionId, under: Token) -> Result<Self, Refusal> {
        match self {
            Self::Done { token } if *token == under => Ok(self.clone()),
            Self::Granted { session, token } | Self::Releasing { session, token, .. }
                if session == by && *token == under =>
            {
                Ok(Self::Done { token: under })
            }
            Self::Granted { .. }
            | Self::Releasing { .. }
            | Self::Free { .. }
            | Self::Hold { .. }
            | Self::Quarantined { .. }
            | Self::Done { .. }
            | Self::Everywhere { .. }
            | Self::ReleasingAll { .. } => Err(Refusal::NotHolder { session: by.clone() }),
        }
    }
}
