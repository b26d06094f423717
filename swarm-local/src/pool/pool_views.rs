//! Publishes to the workers of a pool on this machine: one view for each session, and the shared view
//! for plain workers and users.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use swarm_adapters_host::view::FileViewStore;
use swarm_adapters_host::worker_view;
use swarm_core::handover::SessionId;
use swarm_core::overseer::{Publication, ViewMark, publications};
use swarm_core::ports::{StoreError, ViewStore};
use swarm_core::session::{Details, WorkerView};
use swarm_core::{Ledger, SlotRecord};
use tokio::task::spawn_blocking;

/// Publishes the sessions' views and the shared view.
///
/// A session's view is written only if its jobs changed. It is written before the shared view, since
/// a handover waits for it. Sessions without a directory are skipped.
#[derive(Debug)]
pub(crate) struct PoolViews {
    dir: PathBuf,
    shared: FileViewStore,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Data for workers other than the names of their jobs.
    details: Details,
    published: BTreeMap<SessionId, Published>,
}

/// State of a session's last view.
#[derive(Clone, Copy, Debug)]
struct Published {
    mark: ViewMark,
    /// Whether the view has no jobs.
    is_empty: bool,
}

impl PoolViews {
    /// Publishes below `dir`; missing directories are created.
    ///
    /// # Errors
    ///
    /// A directory cannot be created.
    pub(crate) fn open(dir: &Path) -> io::Result<Self> {
        let shared = FileViewStore::open(dir)?;
        Ok(Self { dir: dir.to_owned(), shared, state: Mutex::default() })
    }

    /// Sets the data for workers other than the names of their jobs.
    pub(crate) fn set_details(&self, details: Details) {
        self.state().details = details;
    }

    /// Returns a mark of the last view of each session.
    #[must_use]
    pub(crate) fn marks(&self) -> Vec<(SessionId, ViewMark)> {
        let state = self.state();
        let marks = state.published.iter();
        marks.map(|(session, published)| (session.clone(), published.mark)).collect()
    }

    /// A thread that panicked while holding the lock cannot have left an incomplete entry.
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets sessions that get no further views.
    fn forget_ended(&self, ledger: &Ledger) {
        let named = ledger.sessions();
        self.state()
            .published
            .retain(|session, published| named.contains_key(session) || !published.is_empty);
    }

    /// Returns the changed views of sessions that use the protocol.
    fn due(&self, ledger: &Ledger) -> Vec<(ViewMark, WorkerView)> {
        let state = self.state();
        let marks = state.published.iter();
        let marks = marks.map(|(session, published)| (session.clone(), Some(published.mark)));
        let due = publications(ledger, &state.details, &marks.collect(), [], |_| true);
        let whole = |it: Publication| (it.mark, it.view.with_details(&state.details));
        due.into_iter().map(whole).collect()
    }
}

#[async_trait]
impl ViewStore for PoolViews {
    fn check(&self, ledger: &Ledger) -> Result<(), StoreError> {
        // An unchanged view fitted when it was published.
        for (_, view) in self.due(ledger) {
            worker_view::check(&view).map_err(|reason| {
                let is_its_own = |record: &&SlotRecord| record.session == view.session;
                let worker = ledger.slots.values().find(is_its_own);
                let worker = worker.map_or("a worker", |record| record.worker.as_str());
                let reason = format!("the view of {worker} is too large: {reason}");
                StoreError::Refused { code: "ViewTooLarge", reason }
            })?;
        }
        Ok(())
    }

    async fn version(&self) -> Result<u64, StoreError> {
        self.shared.version().await
    }

    async fn publish(&self, ledger: &Ledger) -> Result<(), StoreError> {
        let to_sessions = self.publish_to_sessions(ledger).await;
        self.shared.publish(ledger).await?;
        to_sessions
    }

    async fn publish_to_sessions(&self, ledger: &Ledger) -> Result<(), StoreError> {
        self.forget_ended(ledger);
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
        failure.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use swarm_core::handover::{Cell, Record};
    use swarm_core::{Job, Slot, Token};

    use super::*;

    /// A ledger that grants `jobs` to the one session `w-0`.
    fn granting(session: &SessionId, jobs: usize) -> Ledger {
        let mut ledger = Ledger::new(0);
        (ledger.version, ledger.cells.revision) = (1, 1);
        let (worker, cell) =
            ("w-0".to_owned(), Cell::Granted { session: session.clone(), token: Token(1) });
        let record = SlotRecord {
            worker,
            session: session.clone(),
            joined: 0,
            version: 1,
            last_handoff_version: 0,
        };
        ledger.slots.insert(Slot(0), record);
        for job in 0..jobs {
            let record = Record { cell: cell.clone(), strikes: 0 };
            ledger.cells.jobs.insert(format!("job-{job}").parse().unwrap(), record);
        }
        ledger
    }

    #[tokio::test]
    async fn a_ledger_is_refused_if_a_view_would_be_too_large_for_its_worker() {
        let dir = tempfile::tempdir().unwrap();
        let views = PoolViews::open(dir.path()).unwrap();
        let session = SessionId::new("w-0", 1);
        assert!(views.check(&granting(&session, worker_view::JOBS_MAX)).is_ok());
        let error = views.check(&granting(&session, worker_view::JOBS_MAX + 1)).unwrap_err();
        assert!(matches!(error, StoreError::Refused { code: "ViewTooLarge", .. }), "{error:?}");
        let expected = "the view of w-0 is too large: it has 100001 jobs, and one worker runs at most \
                        100000; add workers";
        assert_eq!(error.to_string(), expected);
        let params = [("text".to_owned(), "x".repeat(1 << 20))].into_iter().collect();
        let job = Job { params, ..Job::default() };
        let jobs = |count| (0..count).map(|n| (format!("job-{n}").parse().unwrap(), job.clone()));
        views.set_details(Details::of(&jobs(63).collect()));
        assert!(views.check(&granting(&session, 63)).is_ok());
        views.set_details(Details::of(&jobs(64).collect()));
        let error = views.check(&granting(&session, 64)).unwrap_err().to_string();
        assert!(error.contains("it would have more than 67108864 bytes"), "{error}");
    }

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
