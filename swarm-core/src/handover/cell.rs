//! One job in the ledger: who holds it, and what may happen to it next.

use std::time::Duration;

use super::SessionId;
use crate::{Slot, Token};

/// What it takes to end an ownership.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
pub enum Policy {
    /// A proof, or having waited long enough. Two workers may run a job for a while.
    #[default]
    AtLeastOnce,
    /// A proof. A job may stand still for as long as there is none.
    Exclusive,
}

/// The state of one job. `token` is the one of its last grant.
///
/// Spans are counted by whoever watches, from when it first saw the cell as it is. A restarted
/// operator counts from zero: it waits longer, never shorter, and no wall clock is needed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Cell {
    /// Nobody holds it.
    Free {
        /// The last grant's token.
        token: Token,
    },
    /// A session holds it.
    Granted {
        /// Who.
        session: SessionId,
        /// The grant's token.
        token: Token,
    },
    /// A session holds it and is asked to release it.
    Releasing {
        /// Who.
        session: SessionId,
        /// The grant's token.
        token: Token,
        /// The ledger's revision at which the release began. An acknowledgement of this one or a
        /// later one ends the ownership.
        since: u64,
    },
    /// Nobody holds it; it waits for the worker of a slot to come back.
    Hold {
        /// For whom.
        slot: Slot,
        /// For how long.
        span: Duration,
        /// The last grant's token.
        token: Token,
    },
    /// Nobody holds it; it has crashed too many workers to be granted for a while.
    Quarantined {
        /// For how long.
        span: Duration,
        /// The last grant's token.
        token: Token,
    },
    /// A run-to-completion job that is done.
    Done {
        /// The token it finished under.
        token: Token,
    },
    /// Every session runs it; nobody holds it.
    Everywhere {
        /// The token all of them run it under.
        token: Token,
    },
    /// Every session ran it and is asked to release it.
    ReleasingAll {
        /// The token all of them ran it under.
        token: Token,
        /// The ledger's revision at which the release began. It ends when every session that may run
        /// the job has acknowledged this one or a later one.
        since: u64,
    },
}

/// What may happen to a cell.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CellEvent {
    /// The job is granted to a session that fills `slot`.
    Grant {
        /// To whom.
        session: SessionId,
        /// Where it is.
        slot: Slot,
    },
    /// The job is given to every session.
    GrantToAll,
    /// The holder, or everybody who runs it, is asked to release it. One that has waited for its slot
    /// as long as it should is free.
    Release,
    /// An ownership ends, by proof.
    End {
        /// Whose.
        session: SessionId,
        /// Why it has ended.
        proof: Proof,
        /// What becomes of the job in the same change.
        then: Then,
    },
    /// Nobody runs a job any more that all ran: it is free.
    EndAll {
        /// Why: every session that may have run it has acknowledged a revision or ended, or the
        /// release timed out.
        proof: Proof,
    },
    /// A job that is done is no run-to-completion job any more: it is free.
    Reopen,
    /// The holder reports that a run-to-completion job is finished.
    Finish {
        /// Who says so.
        session: SessionId,
        /// Under which token it ran.
        token: Token,
    },
}

/// Why an ownership has ended. Each is a stable fact: seen late, it only delays.
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
    /// The release was not acknowledged in time. At least once only.
    TimedOut,
    /// The worker has been gone longer than its jobs wait for it. At least once only.
    Gone,
    /// The holder is a plain worker, and a view without the job is about to be published; nobody
    /// waits for it. At least once only.
    Published,
}

/// What becomes of a job whose ownership has ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Then {
    /// It waits for a decision.
    Free,
    /// It waits for its slot.
    Hold {
        /// Which.
        slot: Slot,
        /// For how long.
        span: Duration,
    },
    /// It is kept away from workers for a while.
    Quarantine {
        /// For how long.
        span: Duration,
    },
}

/// The circumstances of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepContext {
    /// The revision that the ledger will have after the change this step is part of.
    pub revision: u64,
    /// How long the observer has seen the cell as it is.
    pub age: Duration,
    /// What it takes to end an ownership.
    pub policy: Policy,
}

/// Why an event does not apply to a cell. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A job that somebody holds is not granted.
    #[error("session {session} still holds the job")]
    Held {
        /// Who.
        session: SessionId,
    },
    /// The session does not hold the job, or not under this token.
    #[error("session {session} does not hold the job under that token")]
    NotHolder {
        /// Who.
        session: SessionId,
    },
    /// An acknowledgement from before the release proves nothing.
    #[error("the release is not acknowledged")]
    NotAcknowledged,
    /// The policy does not take this for a proof.
    #[error("{proof:?} does not end an ownership under {policy:?}")]
    NoProof {
        /// What was brought forward.
        proof: Proof,
        /// The policy in force.
        policy: Policy,
    },
    /// The job waits for something else first.
    #[error("the job is kept free for another {left:?}")]
    Waiting {
        /// For how much longer.
        left: Duration,
    },
    /// The job is finished; it never runs again.
    #[error("the job is done")]
    Done,
    /// What every session runs, or ran until a moment ago, none holds.
    #[error("every session may run the job")]
    Everywhere,
    /// There is no such job in the ledger.
    #[error("the ledger has no such job")]
    Unknown,
    /// The next token would not be higher, so what the job wrote before could not be told apart.
    #[error("the job has the highest token that there is; give it another name")]
    LastToken,
}

/// The token of the next grant.
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

    /// Who may be running the job. Nobody holds what everybody runs, or ran.
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

    /// The cell after `event`. An event that is already true gives the same cell.
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
            // Sessions that have not released it would run it under two tokens.
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

    /// Frees a job that everybody ran, if `proof` says that nobody does any more.
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
