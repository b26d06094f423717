//! Publishes to the workers of a pool on this machine: one view for each session, and the shared view
//! for plain workers and people.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use swarm_core::handover::SessionId;
use swarm_core::overseer::{Publication, ViewMark, publications};
use swarm_core::ports::{StoreError, ViewStore};
use swarm_core::session::{WorkerView, details};
use swarm_core::{Jobs, Ledger};
use tokio::task::spawn_blocking;

use crate::view::FileViewStore;
use crate::worker_view;

/// Publishes to the sessions of a pool, and to people.
///
/// A session's view is written only if the jobs of the session have changed, and before the shared
/// view, since a handover waits for it. Sessions that have no directory (yet, or any more) are
/// skipped.
#[derive(Debug)]
pub struct PoolViews {
    dir: PathBuf,
    shared: FileViewStore,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The jobs with more than a name.
    details: Jobs,
    published: BTreeMap<SessionId, Published>,
}

/// What a session was given last.
#[derive(Clone, Copy, Debug)]
struct Published {
    mark: ViewMark,
    /// Whether there is nothing to run.
    is_empty: bool,
}

impl PoolViews {
    /// Publishes below `dir`; directories are created if they are missing.
    ///
    /// # Errors
    ///
    /// If they cannot be created.
    pub fn open(dir: &Path) -> io::Result<Self> {
        let shared = FileViewStore::open(dir)?;
        Ok(Self { dir: dir.to_owned(), shared, state: Mutex::default() })
    }

    /// The file of the shared view.
    #[must_use]
    pub fn shared(&self) -> &Path {
        self.shared.path()
    }

    /// Sets the wanted jobs. Views contain what workers need of them besides the names. O(jobs).
    pub fn set_jobs(&self, jobs: &Jobs) {
        self.state().details = details(jobs);
    }

    /// What was last published to each session, in short.
    #[must_use]
    pub fn marks(&self) -> Vec<(SessionId, ViewMark)> {
        let state = self.state();
        let marks = state.published.iter();
        marks.map(|(session, published)| (session.clone(), published.mark)).collect()
    }

    /// A thread that panicked while holding the lock cannot have left an incomplete entry.
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The views that say anything new, for sessions that speak the protocol.
    fn due(&self, ledger: &Ledger) -> Vec<(ViewMark, WorkerView)> {
        let mut state = self.state();
        let named = ledger.sessions();
        state
            .published
            .retain(|session, published| named.contains_key(session) || !published.is_empty);
        let marks = state.published.iter();
        let marks = marks.map(|(session, published)| (session.clone(), Some(published.mark)));
        let due = publications(ledger, &state.details, &marks.collect(), [], |_| true);
        let whole = |it: Publication| (it.mark, it.view.with_details(&state.details));
        due.into_iter().map(whole).collect()
    }
}

#[async_trait]
impl ViewStore for PoolViews {
    async fn version(&self) -> Result<u64, StoreError> {
        self.shared.version().await
    }

    async fn publish(&self, ledger: &Ledger) -> Result<(), StoreError> {
        let (dir, due) = (self.dir.clone(), self.due(ledger));
        let write = move || {
            let publish =
                |(mark, view): (ViewMark, WorkerView)| match worker_view::publish(&dir, &view) {
                    Ok(()) => {
                        Ok(Some((view.session, Published { mark, is_empty: view.jobs.is_empty() })))
                    }
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                    Err(error) => Err((view.session.to_string(), error)),
                };
            due.into_iter().map(publish).collect::<Vec<_>>()
        };
        let unavailable = |what: String, source| StoreError::Unavailable { what, source };
        let written = spawn_blocking(write).await;
        let written =
            written.map_err(|error| unavailable("the workers' views".into(), error.into()))?;
        let mut failure = None;
        for result in written {
            match result {
                Ok(published) => self.state().published.extend(published),
                Err((session, error)) => {
                    failure =
                        Some(unavailable(format!("the view of session {session}"), error.into()));
                }
            }
        }
        self.shared.publish(ledger).await?;
        failure.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use swarm_core::handover::{Cell, Record};
    use swarm_core::{Slot, SlotRecord, Token};

    use super::*;

    #[tokio::test]
    async fn a_session_that_the_ledger_no_longer_names_gets_an_empty_view() {
        let dir = tempfile::tempdir().unwrap();
        let views = PoolViews::open(dir.path()).unwrap();
        let session = SessionId::new("w-0", 1);
        let mut ledger = Ledger::new(0);
        ledger.version = 1;
        let everywhere = Record { cell: Cell::Everywhere { token: Token(1) }, strikes: 0 };
        ledger.cells.jobs.insert("a".parse().unwrap(), everywhere);
        let (worker, session_id) = ("w-0".to_owned(), session.clone());
        let record = SlotRecord {
            worker,
            session: session_id,
            joined: 0,
            version: 1,
            last_handoff_version: 0,
        };
        ledger.slots.insert(Slot(0), record);
        let published = || {
            let text = std::fs::read_to_string(worker_view::path(dir.path(), &session).unwrap());
            let view: serde_json::Value = serde_json::from_str(&text.unwrap()).unwrap();
            (view["revision"].as_u64().unwrap(), view["jobs"].as_object().unwrap().len())
        };
        ledger.cells.revision = 1;
        views.publish(&ledger).await.unwrap();
        assert_eq!(published(), (1, 1));
        ledger.slots.clear();
        for revision in [2, 3] {
            ledger.cells.revision = revision;
            views.publish(&ledger).await.unwrap();
            assert_eq!(published(), (2, 0), "it is published once");
        }
    }
}
