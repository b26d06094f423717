//! The events that a session processes, and the effects that it requests.

use std::time::Duration;

use crate::handover::{Lease, LeaseVersion, LeaseWrite, SessionView};
use crate::{JobName, Token};

/// An event. Answers carry the number of the write they belong to; late answers are ignored.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SessionEvent {
    /// Time passed.
    Tick,
    /// The process ran again after it was stopped, or the machine after it was suspended.
    Resumed,
    /// A view arrived. It may be an older view, or a view for another session.
    View(SessionView),
    /// A write to the lease succeeded.
    Written {
        /// The number of the write.
        number: u64,
        /// The lease's version after the write.
        version: LeaseVersion,
    },
    /// A write was refused, since the lease has changed since the session read it.
    Conflict {
        /// The number of the write.
        number: u64,
    },
    /// No answer arrived in time; the write may have happened, or may still happen.
    Lost {
        /// The number of the write.
        number: u64,
    },
    /// The lease was read from the store itself; `None` if it does not exist.
    LeaseRead(Option<Lease>),
    /// The ledger was read from the store itself.
    LedgerRead {
        /// The number that came with [`SessionEffect::ReadLedger`].
        number: u64,
        /// Its incarnation.
        incarnation: u64,
        /// Its revision.
        revision: u64,
    },
    /// A job that was being stopped has ended, with everything it started. Or a job ended by itself
    /// and should be restarted.
    Joined(JobName),
    /// A run-to-completion job has succeeded.
    Finished(JobName),
    /// The worker was asked to end (SIGTERM), and will be killed after this span.
    Terminate {
        /// The time until it is killed.
        grace: Duration,
    },
}

/// An action for the driver, which carries out all effects in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SessionEffect {
    /// Start the job, and pass it the token.
    Start {
        /// The job.
        job: JobName,
        /// Its fencing token, for the sinks that check it.
        token: Token,
    },
    /// Stop the job, and report [`SessionEvent::Joined`] once none of its processes runs any more.
    Stop(JobName),
    /// Write to the session's lease. The answer is [`SessionEvent::Written`],
    /// [`SessionEvent::Conflict`] or [`SessionEvent::Lost`], within the time that
    /// [`Patience`](crate::handover::Patience) allows.
    Write(LeaseWrite),
    /// Read the session's lease from the store itself, not from a cache.
    ReadLease,
    /// Read the ledger from the store itself, not from a cache, and report
    /// [`SessionEvent::LedgerRead`]. Without an answer it is requested again after the next write.
    ReadLedger {
        /// The write that landed before the read. An earlier read does not count.
        number: u64,
    },
    /// Report that the ledger is older than a view that the session saw: its store was rolled back.
    ReportRollback {
        /// The largest revision that the session saw.
        seen: u64,
    },
    /// End the process, and with it every job, at once.
    Abort,
    /// The session is closed and nothing runs: end the process, or open another session.
    Over,
}
