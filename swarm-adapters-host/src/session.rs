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
    /// What is to be told with the next write.
    untold: Arc<Mutex<Option<Arc<Failing>>>>,
}

impl FileSession {
    /// The session `id` of the pool in `dir`.
    ///
    /// # Errors
    ///
    /// If [its lease cannot be kept](Leases::open) there.
    pub fn open(dir: &Path, id: &SessionId) -> io::Result<Self> {
        let (id, dir, untold) = (id.clone(), dir.to_owned(), Arc::default());
        Ok(Self { leases: Leases::open(&dir)?, id, dir, untold })
    }

    /// Writes what is to be told. It is for people: a failure delays it to the next write.
    fn write_untold(&self) {
        let mut untold = self.untold.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(failing) = untold.take()
            && let Err(error) = failing::write(&self.dir, &self.id, &failing)
        {
            tracing::warn!(%error, "nobody is told which jobs fail");
            *untold = Some(failing);
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
            session.write_untold();
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

    fn report_failing(&self, failing: Arc<Failing>) {
        *self.untold.lock().unwrap_or_else(PoisonError::into_inner) = Some(failing);
    }
}
