//! The ports between the core and its adapters, with the promises of an adapter.
//!
//! Every adapter passes the same contract tests. The traits are dyn-compatible, since the programs
//! choose between one machine and a cluster at run time.

use std::sync::Arc;

use async_trait::async_trait;

use crate::handover::{Lease, LeaseVersion, LeaseWrite};
use crate::life::Lives;
use crate::session::WorkerView;
use crate::{Failing, Ledger, Position};

/// The cause of a failure, in the adapter's own type.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Names one stored state of a ledger; only its store can read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen(pub String);

/// The durable home of one pool's ledger.
///
/// The store is the only authority. [`save`](Self::save) is atomic and durable: a reader sees all
/// of a ledger or none of it, and an acknowledged write survives the end of every process.
#[async_trait]
pub trait LedgerStore: Send + Sync {
    /// Loads the ledger and its state, or `None` if no ledger was ever saved.
    ///
    /// The result may be the last ledger that this store object read or saved. If it is stale, the
    /// next `save` fails with [`StoreError::Conflict`], and the ledger must be loaded again.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] or [`StoreError::Refused`].
    async fn load(&self) -> Result<Option<(Ledger, Seen)>, StoreError>;

    /// Replaces the ledger if its state is still `seen`; `None` means that no ledger exists.
    ///
    /// # Errors
    ///
    /// [`StoreError::Conflict`] if another writer was faster: nothing was written.
    /// [`StoreError::Unavailable`] if there was no answer: it may or may not have been written.
    /// [`StoreError::Refused`] if the same request can never succeed.
    async fn save(&self, ledger: &Ledger, seen: Option<&Seen>) -> Result<Seen, StoreError>;
}

/// The place where workers read their view.
///
/// A reader sees all of a view or none of it. Views may reach readers late or twice.
#[async_trait]
pub trait ViewStore: Send + Sync {
    /// Checks whether the views of `ledger` could be published. It is called before the ledger is
    /// saved: a ledger that can never be published must not replace one that was.
    ///
    /// # Errors
    ///
    /// [`StoreError::Refused`] if they can never be published.
    fn check(&self, ledger: &Ledger) -> Result<(), StoreError> {
        let _ = ledger;
        Ok(())
    }

    /// Returns the version of the present publication, by any publisher; 0 without a publication.
    /// Called only while a ledger has published nothing itself.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] or [`StoreError::Refused`].
    async fn version(&self) -> Result<u64, StoreError>;

    /// Publishes the views of `ledger`, and returns once that is acknowledged. Views that are
    /// already published are not written again.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] or [`StoreError::Refused`].
    async fn publish(&self, ledger: &Ledger) -> Result<(), StoreError>;

    /// Publishes to sessions only, and leaves the view that plain workers share unchanged. It makes
    /// the sessions of a lost ledger close. A store without sessions has nothing to do.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] or [`StoreError::Refused`].
    async fn publish_to_sessions(&self, ledger: &Ledger) -> Result<(), StoreError> {
        let _ = ledger;
        Ok(())
    }
}

/// The lease of one session and the position of its ledger, as its worker writes and reads them.
///
/// The driver of a session bounds every call in time and then abandons it. An abandoned write may
/// have happened, or may still happen.
#[async_trait]
pub trait SessionStore: Send + Sync {
    /// Replaces the lease with the session's write, or creates it. At most one write from each
    /// version succeeds, and a deleted lease is never recreated.
    ///
    /// # Errors
    ///
    /// [`StoreError::Conflict`] if the lease is not the expected one: read it.
    /// [`StoreError::Unavailable`] if there was no answer: it may or may not have been written.
    /// [`StoreError::Refused`] if a person has to correct the rights of the session.
    async fn write(&self, write: &LeaseWrite) -> Result<LeaseVersion, StoreError>;

    /// Reads the lease from the store itself, not from a copy; `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] or [`StoreError::Refused`].
    async fn read(&self) -> Result<Option<Lease>, StoreError>;

    /// Reads the position of the ledger from the store itself, not from a copy; `None` if the store
    /// does not have it. It may be behind the ledger, but never behind a view that arrived before,
    /// unless the store was rolled back.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] or [`StoreError::Refused`].
    async fn position(&self) -> Result<Option<Position>, StoreError>;

    /// Records which of the session's jobs fail. The next write contains it. It is for people, so a
    /// store may leave it out.
    fn report_failing(&self, failing: Arc<Failing>) {
        let _ = failing;
    }

    /// Records the lives of the session's jobs since its begin. The next write contains them. They are
    /// for people, so a store may leave them out.
    fn report_lives(&self, lives: Arc<Lives>) {
        let _ = lives;
    }
}

/// Follows the views of one session.
#[async_trait]
pub trait SessionViews: Send {
    /// Waits for the next view, or for the report of an unreadable one. Views that were replaced
    /// meanwhile are skipped. A view may come late or twice, or be older than the previous one.
    /// Abandoning the wait loses nothing.
    async fn changed(&mut self) -> ViewUpdate;

    /// Reports that the store was unreachable for a while and is reachable again. The watch behind
    /// this may be broken without a sign, and is restarted.
    fn reconnect(&mut self) {}
}

/// The result of a look at the view of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ViewUpdate {
    /// A view.
    View(Arc<WorkerView>),
    /// There is something else than a view; the last view stays. The text says what is wrong.
    Unreadable(String),
}

/// The reason why a store did not carry out a request, classified by the caller's next action.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another writer was faster. Read again, then plan again.
    #[error("{what} was changed by another writer")]
    Conflict {
        /// The object of the write.
        what: String,
    },
    /// There was no usable answer. Try again later; a write may have happened.
    #[error("{what} cannot be reached")]
    Unavailable {
        /// The object of the read or write.
        what: String,
        /// The cause.
        source: BoxError,
    },
    /// The request is refused permanently; only an edit by a person can help.
    #[error("{reason}")]
    Refused {
        /// The documented word for the refusal, as in `PoolClaimed`.
        code: &'static str,
        /// A sentence for that person.
        reason: String,
    },
}
