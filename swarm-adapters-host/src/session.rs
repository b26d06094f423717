//! The store of a worker's session on one machine: its lease, and the file of the ledger.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use swarm_core::handover::{Lease, LeaseVersion, LeaseWrite, SessionId};
use swarm_core::ports::{BoxError, LedgerStore as _, SessionStore, StoreError};
use swarm_core::{Failing, Position};
use tokio::task::spawn_blocking;

use crate::failing;
use crate::leases::{LeaseWriteError, Leases};
use crate::ledger::FileLedgerStore;

/// The files of one session below the state directory of its pool.
#[derive(Clone, Debug)]
pub struct FileSession {
    id: SessionId,
    dir: PathBuf,
    leases: Leases,
    /// The report about failing jobs that the next write publishes.
    pending: Arc<Mutex<Option<Arc<Failing>>>>,
}

impl FileSession {
    /// Opens the session `id` of the pool in `dir`.
    ///
    /// # Errors
    ///
    /// If [its lease cannot be stored](Leases::open) there.
    pub fn open(dir: &Path, id: &SessionId) -> io::Result<Self> {
        let (id, dir, pending) = (id.clone(), dir.to_owned(), Arc::default());
        Ok(Self { leases: Leases::open(&dir)?, id, dir, pending })
    }

    /// Publishes the pending report. It is for people, so a failure only delays it to the next
    /// write.
    fn write_pending(&self) {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(failing) = pending.take()
            && let Err(error) = failing::write(&self.dir, &self.id, &failing)
        {
            tracing::warn!(%error, "the failing jobs cannot be reported");
            *pending = Some(failing);
        }
    }

    fn what(&self) -> String {
        format!("the lease of session `{}`", self.id)
    }

    fn unavailable(&self, source: impl Into<BoxError>) -> StoreError {
        StoreError::Unavailable { what: self.what(), source: source.into() }
    }
}

#[async_trait]
impl SessionStore for FileSession {
    async fn write(&self, write: &LeaseWrite) -> Result<LeaseVersion, StoreError> {
        let (session, write) = (self.clone(), write.clone());
        let written = spawn_blocking(move || {
            session.write_pending();
            session.leases.write(&session.id, &write)
        });
        match written.await {
            Ok(Ok(version)) => Ok(version),
            Ok(Err(LeaseWriteError::Conflict)) => Err(StoreError::Conflict { what: self.what() }),
            Ok(Err(LeaseWriteError::Failed(error))) => Err(self.unavailable(error)),
            Err(error) => Err(self.unavailable(error)),
        }
    }

    async fn read(&self) -> Result<Option<Lease>, StoreError> {
        let (leases, id) = (self.leases.clone(), self.id.clone());
        let read = spawn_blocking(move || leases.read(&id)).await;
        read.map_err(|error| self.unavailable(error))?.map_err(|error| self.unavailable(error))
    }

    async fn position(&self) -> Result<Option<Position>, StoreError> {
        // The store is new, since an existing one may answer from its cache.
        let store = FileLedgerStore::open(&self.dir).map_err(|source| StoreError::Unavailable {
            what: "the ledger".to_owned(),
            source: source.into(),
        })?;
        let ledger = store.load().await?;
        Ok(ledger.map(|(ledger, _)| Position {
            incarnation: ledger.cells.incarnation,
            revision: ledger.cells.revision,
        }))
    }

    fn report_failing(&self, failing: Arc<Failing>) {
        *self.pending.lock().unwrap_or_else(PoisonError::into_inner) = Some(failing);
    }
}
