//! The ledger of a pool in a file, for a pool on one machine.
//!
//! `DIR/ledger.json` is replaced as a whole, and only while `DIR/ledger.lock` is held. So the
//! comparison and the write of a [`save`](LedgerStore::save) are atomic among all processes. The
//! write is durable before `save` returns. A process that is killed at any point leaves either the
//! old ledger or the new one.
//!
//! The ledger that was read or saved last is cached, so that a turn does not read the file again.
//! If another writer was faster, the save conflicts, since it compares with the file itself.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use swarm_core::Ledger;
use swarm_core::ports::{BoxError, LedgerStore, Seen, StoreError};
use swarm_core::stored::Stored;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

use crate::file::{self, ReadError};

/// The format that this program writes, and the newest that it reads.
const FORMAT: u64 = 2;

/// The size limit of a ledger: about five million jobs.
const BYTES_MAX: u64 = 256 << 20;

/// Keeps a ledger in a directory.
#[derive(Clone, Debug)]
pub struct FileLedgerStore {
    path: PathBuf,
    lock: PathBuf,
    /// The ledger that this store read or saved last. A stale cache does no harm: the save would
    /// conflict.
    last: Arc<Mutex<Option<(Ledger, Seen)>>>,
}

impl FileLedgerStore {
    /// Opens a store in `dir`, and creates a missing directory.
    ///
    /// # Errors
    ///
    /// If the directory cannot be created.
    pub fn open(dir: &Path) -> io::Result<Self> {
        file::create_dir(dir)?;
        let (path, lock) = (dir.join("ledger.json"), dir.join("ledger.lock"));
        Ok(Self { path, lock, last: Arc::default() })
    }

    /// Reads the ledger in `dir` and the time of its last write, for an answer to a person; `None`
    /// without a ledger. Nothing is created.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or is not a ledger of a known format.
    pub fn peek(dir: &Path) -> Result<Option<(Ledger, SystemTime)>, StoreError> {
        let (path, lock) = (dir.join("ledger.json"), dir.join("ledger.lock"));
        let store = Self { path, lock, last: Arc::default() };
        // A write in between makes the time too early, by less than the time of the read.
        let written = fs::symlink_metadata(&store.path).and_then(|found| found.modified());
        let Some((ledger, _)) = store.read()? else { return Ok(None) };
        Ok(Some((ledger, written.map_err(|error| store.unavailable(error))?)))
    }

    /// Returns the ledger that this store read or saved last.
    pub async fn last(&self) -> Option<Ledger> {
        self.last.lock().await.as_ref().map(|(ledger, _)| ledger.clone())
    }

    /// Reads the text in the file.
    fn text(&self) -> Result<Option<String>, StoreError> {
        match file::read_regular_text(&self.path, BYTES_MAX) {
            Ok(text) => Ok(Some(text)),
            Err(ReadError::Missing) => Ok(None),
            Err(ReadError::Failed(error)) => Err(self.unavailable(error)),
            Err(error @ (ReadError::TooLarge { .. } | ReadError::NotText)) => {
                Err(self.unreadable(&error))
            }
        }
    }

    /// Reads the ledger in the file.
    fn read(&self) -> Result<Option<(Ledger, Seen)>, StoreError> {
        let Some(text) = self.text()? else { return Ok(None) };
        let Format { format } = self.parsed(&text)?;
        if format != FORMAT {
            let path = self.path.display();
            return Err(StoreError::Refused {
                code: "LedgerFormat",
                reason: format!(
                    "{path} has format {format} and this program knows format {FORMAT}; \
                     use the version of swarm that wrote it"
                ),
            });
        }
        let ledger = Ledger::try_from(self.parsed::<Document>(&text)?.ledger);
        Ok(Some((ledger.map_err(|e| self.unreadable(&e))?, seen(&text))))
    }

    /// Writes the ledger if the file still has the contents that were `seen`.
    fn write(&self, text: &str, seen_before: Option<&Seen>) -> Result<Seen, StoreError> {
        let lock = file::append(&self.lock).map_err(|e| self.unavailable(e))?;
        // Closing `lock` releases the lock, at the latest at the end of the process.
        lock.lock().map_err(|e| self.unavailable(e))?;
        let stored = self.text()?.map(|text| seen(&text));
        if stored.as_ref() != seen_before {
            return Err(StoreError::Conflict { what: self.what() });
        }
        file::replace(&self.path, text.as_bytes()).map_err(|e| self.unavailable(e))?;
        Ok(seen(text))
    }

    /// Refuses a ledger that would be too large to read.
    fn check_size(&self, bytes: usize, bytes_max: u64) -> Result<(), StoreError> {
        if u64::try_from(bytes).is_ok_and(|bytes| bytes <= bytes_max) {
            return Ok(());
        }
        let reason = format!(
            "{} would have {bytes} bytes, more than {bytes_max}; divide the jobs among several Swarms",
            self.what()
        );
        Err(StoreError::Refused { code: "LedgerTooLarge", reason })
    }

    fn parsed<'a, T: Deserialize<'a>>(&self, text: &'a str) -> Result<T, StoreError> {
        serde_json::from_str(text).map_err(|error| self.unreadable(&error))
    }

    fn what(&self) -> String {
        format!("ledger {}", self.path.display())
    }

    fn unavailable(&self, source: impl Into<BoxError>) -> StoreError {
        StoreError::Unavailable { what: self.what(), source: source.into() }
    }

    fn unreadable(&self, error: &dyn std::fmt::Display) -> StoreError {
        let path = self.path.display();
        StoreError::Refused {
            code: "LedgerUnreadable",
            reason: format!(
                "{path} is not a ledger: {error}; move it away to assign all jobs again"
            ),
        }
    }
}

#[async_trait]
impl LedgerStore for FileLedgerStore {
    async fn load(&self) -> Result<Option<(Ledger, Seen)>, StoreError> {
        let mut last = self.last.lock().await;
        if last.is_none() {
            let store = self.clone();
            let read = spawn_blocking(move || store.read()).await;
            *last = read.map_err(|error| self.unavailable(error))??;
        }
        Ok(last.clone())
    }

    async fn save(&self, ledger: &Ledger, seen: Option<&Seen>) -> Result<Seen, StoreError> {
        let mut last = self.last.lock().await;
        // The cached ledger counts as stale until the save succeeds.
        *last = None;
        let document = Document { format: FORMAT, ledger: Stored::from(ledger) };
        let document = serde_json::to_string(&document);
        let text = document.map_err(|error| self.unavailable(error))? + "\n";
        self.check_size(text.len(), BYTES_MAX)?;
        let (store, before) = (self.clone(), seen.cloned());
        let written = spawn_blocking(move || store.write(&text, before.as_ref())).await;
        let seen = written.map_err(|error| self.unavailable(error))??;
        *last = Some((ledger.clone(), seen.clone()));
        Ok(seen)
    }
}

/// Identifies the contents of the file. Only this process compares the value, so any good hash
/// suffices.
fn seen(text: &str) -> Seen {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    Seen(format!("{:016x}", hasher.finish()))
}

/// The format, which is a field of every document.
#[derive(Deserialize)]
struct Format {
    format: u64,
}

/// The contents of the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    format: u64,
    ledger: Stored,
}

#[cfg(test)]
mod tests;
