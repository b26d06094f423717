//! What happens to a session, and what it asks for.

use std::time::Duration;

use crate::handover::{Lease, LeaseVersion, LeaseWrite, SessionView};
use crate::{JobName, Token};

/// What happened. Answers carry the number of the write they belong to; late ones do no harm.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SessionEvent {
    /// Time passed.
    Tick,
    /// The process ran again after it was stopped, or the machine after it was suspended.
    Resumed,
    /// A view arrived, perhaps an old one, or one for somebody else.
    View(SessionView),
    /// A write to the lease succeeded.
    Written {
        /// Which.
        number: u64,
        /// The version it made.
        version: LeaseVersion,
    },
    /// A write was refused, since the lease is not what we saw.
    Conflict {
        /// Which.
        number: u64,
    },
    /// There was no answer in time; the write may have happened, or may still.
    Lost {
        /// Which.
        number: u64,
    },
    /// The lease was read afresh; `None` if there is none.
    LeaseRead(Option<Lease>),
    /// The ledger was read afresh.
    LedgerRead {
        /// Its life.
        incarnation: u64,
        /// Its revision.
        revision: u64,
    },
    /// A job that was to stop has ended, with all that belongs to it; or one ended by itself and
    /// is to be started again.
    Joined(JobName),
    /// A finite job has ended well.
    Finished(JobName),
    /// The worker was told to end (SIGTERM), and is killed after this span.
    Terminate {
        /// How long it has.
        grace: Duration,
    },
}

/// What to do. Effects are carried out in order; none may be left out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SessionEffect {
    /// Start the job, and hand it the token.
    Start {
        /// Which.
        job: JobName,
        /// For the sinks that can check it.
        token: Token,
    },
    /// Stop the job, and report [`SessionEvent::Joined`] once nothing of it is left.
    Stop(JobName),
    /// Write to our lease. The answer is [`SessionEvent::Written`], [`SessionEvent::Conflict`] or
    /// [`SessionEvent::Lost`]; ask for one within half a renewal interval.
    Write(LeaseWrite),
    /// Read our lease from the store itself, not from a copy.
    ReadLease,
    /// Read the ledger from the store itself, not from a copy.
    ReadLedger,
    /// The ledger is older than what we were told: its store was rolled back. Tell somebody.
    ReportRollback {
        /// The largest revision we saw.
        seen: u64,
    },
    /// End the process, and with it every job, at once.
    Abort,
    /// The session is closed and nothing runs: end the process, or open another session.
    Over,
}
