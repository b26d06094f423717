//! What the workers of a pool on this machine read: a file for each session, and the shared view
//! for plain workers and for people.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use swarm_core::handover::{SessionId, SessionView};
use swarm_core::ports::{StoreError, ViewStore};
use swarm_core::session::{Granted, WorkerView};
use swarm_core::{JobName, Ledger, Token};
use tokio::task::spawn_blocking;

use crate::view::FileViewStore;
use crate::worker_view;

/// What a worker has to know of a job besides its name and token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobDetails {
    /// Whether the job is finite: once it ended well it is done.
    pub run_once: bool,
    /// What is handed to the program that runs it.
    pub params: BTreeMap<String, String>,
}

/// Publishes to the sessions of a pool, and to people.
///
/// A session's file is written only if what the session is to run has changed, and before the
/// shared view, since a handover waits for it. Sessions that have no directory (yet, or any more)
/// are passed over.
#[derive(Debug)]
pub struct PoolViews {
    dir: PathBuf,
    shared: FileViewStore,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    details: BTreeMap<JobName, JobDetails>,
    published: BTreeMap<SessionId, WorkerView>,
}

impl PoolViews {
    /// Publishes below `dir`; directories are made if they are missing.
    ///
    /// # Errors
    ///
    /// If they cannot be made.
    pub fn open(dir: &Path) -> io::Result<Self> {
        let shared = FileViewStore::open(dir)?;
        Ok(Self { dir: dir.to_owned(), shared, state: Mutex::default() })
    }

    /// The file of the shared view.
    #[must_use]
    pub fn shared(&self) -> &Path {
        self.shared.path()
    }

    /// Sets what is known of jobs that have more to them than their names.
    pub fn set_details(&self, details: BTreeMap<JobName, JobDetails>) {
        self.state().details = details;
    }

    /// The revision that was published to a session last; `None` if none was.
    #[must_use]
    pub fn published(&self, session: &SessionId) -> Option<u64> {
        self.state().published.get(session).map(|view| view.revision)
    }

    /// Whoever panicked while holding it cannot have left half an entry.
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What differs from what was published, for sessions that can read it.
    fn due(&self, ledger: &Ledger) -> Vec<WorkerView> {
        let mut state = self.state();
        let views = ledger.session_views();
        let is_done = |session: &SessionId, view: &WorkerView| {
            !views.contains_key(session) && view.jobs.is_empty()
        };
        state.published.retain(|session, view| !is_done(session, view));
        // Nothing is left to run for a session that the ledger does not name any more. It may wait
        // to be told so, since what all workers run is taken away in this way only.
        let gone = state.published.keys().filter(|session| !views.contains_key(*session));
        let gone = gone.map(|session| WorkerView {
            session: session.clone(),
            incarnation: ledger.cells.incarnation,
            revision: ledger.revision(),
            jobs: BTreeMap::new(),
        });
        let gone: Vec<_> = gone.collect();
        let views = views.into_values().filter(|view| !view.session.is_plain());
        let views = views.map(|view| worker_view(view, &state.details)).chain(gone);
        let releases = ledger.releases();
        let is_news = |view: &WorkerView| {
            let release = releases.get(&view.session).copied().unwrap_or_default();
            state.published.get(&view.session).is_none_or(|before| {
                // A grant that was never published may have been released again.
                before.revision < release
                    || (before.incarnation, &before.jobs) != (view.incarnation, &view.jobs)
            })
        };
        views.filter(is_news).collect()
    }
}

fn worker_view(view: SessionView, details: &BTreeMap<JobName, JobDetails>) -> WorkerView {
    let SessionView { session, incarnation, revision, jobs } = view;
    let granted = |(job, token): (JobName, Token)| {
        let JobDetails { run_once, params } = details.get(&job).cloned().unwrap_or_default();
        (job, Granted { token, run_once, params })
    };
    WorkerView { session, incarnation, revision, jobs: jobs.into_iter().map(granted).collect() }
}

#[async_trait]
impl ViewStore for PoolViews {
    async fn version(&self) -> Result<u64, StoreError> {
        self.shared.version().await
    }

    async fn publish(&self, ledger: &Ledger) -> Result<(), StoreError> {
        let (dir, due) = (self.dir.clone(), self.due(ledger));
        let write = move || {
            let publish = |view: WorkerView| match worker_view::publish(&dir, &view) {
                Ok(()) => Ok(Some(view)),
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
                Ok(view) => {
                    let written = view.map(|view| (view.session.clone(), view));
                    self.state().published.extend(written);
                }
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
    use swarm_core::{Slot, SlotRecord};

    use super::*;

    #[tokio::test]
    async fn a_session_that_the_ledger_names_no_more_is_told_to_run_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let views = PoolViews::open(dir.path()).unwrap();
        let session = SessionId::new("w-0", 1);
        let mut ledger = Ledger::new(0);
        let everywhere = Record { cell: Cell::Everywhere { token: Token(1) }, strikes: 0 };
        ledger.cells.jobs.insert("a".parse().unwrap(), everywhere);
        let (worker, session_id) = ("w-0".to_owned(), session.clone());
        let record = SlotRecord { worker, session: session_id, version: 1, gave: 0 };
        ledger.slots.insert(Slot(0), record);
        let told = || {
            let text = std::fs::read_to_string(worker_view::path(dir.path(), &session).unwrap());
            let view: serde_json::Value = serde_json::from_str(&text.unwrap()).unwrap();
            (view["revision"].as_u64().unwrap(), view["jobs"].as_object().unwrap().len())
        };
        ledger.cells.revision = 1;
        views.publish(&ledger).await.unwrap();
        assert_eq!(told(), (1, 1));
        ledger.slots.clear();
        for revision in [2, 3] {
            ledger.cells.revision = revision;
            views.publish(&ledger).await.unwrap();
            assert_eq!(told(), (2, 0), "once is enough");
        }
    }
}
