//! Where the core meets the world: what an adapter must promise.
//!
//! Every adapter passes the same contract tests. The traits are dyn-compatible, since the shells
//! choose between one machine and a cluster at run time.

use std::sync::Arc;

use async_trait::async_trait;

use crate::handover::{Lease, LeaseVersion, LeaseWrite};
use crate::session::WorkerView;
use crate::{Failing, Ledger, Position};

/// The cause of a failure, as the adapter knows it.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Names one stored state of a ledger; only its store can read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen(pub String);

/// The durable home of one pool's ledger.
///
/// The store is the only authority. [`save`](Self::save) is atomic and durable: a reader sees all
/// of a ledger or none of it, and what was acknowledged survives the end of every process.
#[async_trait]
pub trait LedgerStore: Send + Sync {
    /// The ledger and its state, or `None` if none was ever saved.
    ///
    /// What it returns may be the last ledger this store object read or saved: a stale one makes
    /// the next `save` fail with [`StoreError::Conflict`], after which it must be read again.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] or [`StoreError::Refused`].
    async fn load(&self) -> Result<Option<(Ledger, Seen)>, StoreError>;

    /// Replaces the ledger if its state is still `seen`; `None` means that there is none.
    ///
    /// # Errors
    ///
    /// [`StoreError::Conflict`] if another writer was faster: nothing was written.
    /// [`StoreError::Unavailable`] if there was no answer: it may or may not be written.
    /// [`StoreError::Refused`] if the same request can never succeed.
    async fn save(&self, ledger: &Ledger, seen: Option<&Seen>) -> Result<Seen, StoreError>;
}

/// The place where workers read their view.
///
/// A reader sees all of a view or none of it. Views may reach readers late or twice.
#[async_trait]
pub trait ViewStore: Send + Sync {
    /// Whether what follows from `ledger` could be published. It is asked before the ledger is
    /// saved: a ledger that can never be published must not replace one that was.
    ///
    /// # Errors
    ///
    /// [`StoreError::Refused`] if it never can.
    fn check(&self, ledger: &Ledger) -> Result<(), StoreError> {
        let _ = ledger;
        Ok(())
    }

    /// The version of what is published now, whoever published it; 0 if nothing is. Asked only
    /// while a ledger has published nothing itself.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] or [`StoreError::Refused`].
    async fn version(&self) -> Result<u64, StoreError>;

    /// Publishes what follows from `ledger` and returns once that is acknowledged. Publishing what
    /// is published already writes nothing.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] or [`StoreError::Refused`].
    async fn publish(&self, ledger: &Ledger) -> Result<(), StoreError>;

    /// Publishes to sessions only, and leaves the view that plain workers share as it is. Sessions of a
    /// lost ledger close by it. A store without sessions has nothing to do.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] or [`StoreError::Refused`].
    async fn publish_to_sessions(&self, ledger: &Ledger) -> Result<(), StoreError> {
        let _ = ledger;
        Ok(())
    }
}

/// The lease of one session, and how far its ledger is, as its worker writes and reads them.
///
/// Whoever drives a session bounds every call in time and abandons it then: a write that was
/// abandoned may have happened, or may still.
#[async_trait]
pub trait SessionStore: Send + Sync {
    /// Replaces the lease by what the session writes, or creates it. At most one write from each
    /// version succeeds, and a deleted lease is never recreated.
    ///
    /// # Errors
    ///
    /// [`StoreError::Conflict`] if the lease is not the one expected: read it.
    /// [`StoreError::Unavailable`] if there was no answer: it may or may not be written.
    /// [`StoreError::Refused`] if somebody has to correct the rights of the session.
    async fn write(&self, write: &LeaseWrite) -> Result<LeaseVersion, StoreError>;

    /// The lease as it is in the store itself, not in a copy; `None` if there is none.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] or [`StoreError::Refused`].
    async fn read(&self) -> Result<Option<Lease>, StoreError>;

    /// How far the ledger is, as the store itself says, not a copy; `None` if it does not say.
    /// What it says may be behind the ledger, but never behind a view that arrived before, unless
    /// the store was rolled back.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] or [`StoreError::Refused`].
    async fn position(&self) -> Result<Option<Position>, StoreError>;

    /// Tells which of the session's jobs fail. It goes out with the next write, and is for people: a
    /// store may leave it out.
    fn tell(&self, failing: Arc<Failing>) {
        let _ = failing;
    }
}

/// Follows what one session is to run.
#[async_trait]
pub trait SessionViews: Send {
    /// Waits for the next view, or for the complaint that there is none that makes sense. Views
    /// that were replaced meanwhile are skipped; one may come late or twice, or be older than the
    /// one before. Nothing is lost if the wait is abandoned.
    async fn changed(&mut self) -> ViewUpdate;

    /// Says that the store could not be reached for a while and can be again: what this follows it
    /// by may be broken without a sign, and is restarted.
    fn reconnect(&mut self) {}
}

/// What a look at the view of a session found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ViewUpdate {
    /// A view.
    View(Arc<WorkerView>),
    /// There is something else; the last view stays. A sentence says what is wrong.
    Unreadable(String),
}

/// Why a store did not do what it was asked for, by what the caller can do about it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another writer was faster. Read again, then plan again.
    #[error("{what} was changed by another writer")]
    Conflict {
        /// What was to be written.
        what: String,
    },
    /// There was no usable answer. Try again later; a write may have happened.
    #[error("{what} cannot be reached")]
    Unavailable {
        /// What was to be read or written.
        what: String,
        /// Why.
        source: BoxError,
    },
    /// The request is refused for good; only an edit by a person can help.
    #[error("{reason}")]
    Refused {
        /// The documented word for the refusal, as in `PoolClaimed`.
        code: &'static str,
        /// A sentence for that person.
        reason: String,
    },
}
