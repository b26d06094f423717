//! The store of a worker's session on one machine: its lease, and the file of the ledger.

use std::io;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use swarm_core::Position;
use swarm_core::handover::{Lease, LeaseVersion, LeaseWrite, SessionId};
use swarm_core::ports::{BoxError, LedgerStore as _, SessionStore, StoreError};
use tokio::task::spawn_blocking;

use crate::leases::{LeaseWriteError, Leases};
use crate::ledger::FileLedgerStore;

/// The files of one session below the state directory of its pool.
#[derive(Clone, Debug)]
pub struct FileSession {
    id: SessionId,
    dir: PathBuf,
    leases: Leases,
}

impl FileSession {
    /// The session `id` of the pool in `dir`.
    ///
    /// # Errors
    ///
    /// If [its lease cannot be kept](Leases::open) there.
    pub fn open(dir: &Path, id: &SessionId) -> io::Result<Self> {
        Ok(Self { id: id.clone(), dir: dir.to_owned(), leases: Leases::open(dir)? })
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
        let (leases, id, write) = (self.leases.clone(), self.id.clone(), write.clone());
        match spawn_blocking(move || leases.write(&id, &write)).await {
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
        // A new store: one that is kept may answer from its cache.
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
}
