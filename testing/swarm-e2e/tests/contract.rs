//! The stores on files keep the same contract as those on the API server, which a story tells.

use std::fs;
use std::sync::Arc;

use anyhow::Context as _;
use swarm_adapters_host::leases::Leases;
use swarm_adapters_host::ledger::FileLedgerStore;
use swarm_adapters_host::session::FileSession;
use swarm_adapters_host::view::FileViewStore;
use swarm_adapters_host::worker_view::{self, WorkerViewWatch};
use swarm_core::handover::{LeaseVersion, SessionId};
use swarm_core::ports::{LedgerStore, SessionStore, SessionViews};
use swarm_core::session::WorkerView;
use swarm_core::{Desired, Ledger, Observed, Presence, Slot, WorkerSeen, jobs, turn};
use swarm_e2e::contract::{self, Done, SessionPlace};

#[tokio::test]
async fn the_ledger_file_keeps_the_contract() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let open =
        || -> Box<dyn LedgerStore> { Box::new(FileLedgerStore::open(folder.path()).unwrap()) };
    contract::ledger_store(&open).await
}

#[tokio::test]
async fn the_view_file_keeps_the_contract() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let views = FileViewStore::open(folder.path())?;
    let file = folder.path().join("view/config.yml");
    contract::view_store(&views, || async {
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        // Every write is a new file that takes the name.
        let mark = std::os::unix::fs::MetadataExt::ino(&fs::metadata(&file)?);
        Ok((text, mark.to_string()))
    })
    .await
}

/// Sessions in the state directory of a pool.
struct Directory(tempfile::TempDir);

impl SessionPlace for Directory {
    fn open(
        &self,
        session: &SessionId,
    ) -> anyhow::Result<(Arc<dyn SessionStore>, Box<dyn SessionViews>)> {
        let dir = self.0.path();
        let views = WorkerViewWatch::follow(dir, session)?;
        Ok((Arc::new(FileSession::open(dir, session)?), Box::new(views)))
    }

    fn publish<'a>(&'a self, view: &'a WorkerView) -> Done<'a> {
        Box::pin(async move {
            let store = FileLedgerStore::open(self.0.path())?;
            let before = store.load().await?;
            let mut ledger = Ledger::new(0);
            ledger.cells.incarnation = view.incarnation;
            ledger.cells.revision = view.revision;
            store.save(&ledger, before.as_ref().map(|(_, seen)| seen)).await?;
            Ok(worker_view::publish(self.0.path(), view)?)
        })
    }

    fn spoil<'a>(&'a self, session: &'a SessionId) -> Done<'a> {
        Box::pin(async move {
            let path = worker_view::path(self.0.path(), session)?;
            Ok(swarm_adapters_host::file::swap(&path, b"{}")?)
        })
    }

    fn revoke<'a>(&'a self, session: &'a SessionId, seen: LeaseVersion) -> Done<'a> {
        Box::pin(async move {
            Leases::open(self.0.path())?.revoke(session, seen)?;
            Ok(())
        })
    }

    fn remove<'a>(&'a self, session: &'a SessionId) -> Done<'a> {
        Box::pin(async move { Ok(Leases::open(self.0.path())?.remove(session)?) })
    }
}

#[tokio::test]
async fn the_files_of_sessions_keep_the_contract() -> anyhow::Result<()> {
    contract::sessions(&Directory(tempfile::tempdir()?), "worker-0").await
}

#[tokio::test]
async fn a_lost_ledger_takes_nothing_away_before_it_assigns_anew() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let views = FileViewStore::open(folder.path())?;
    let view = || fs::read_to_string(views.path());
    let want = Desired { jobs: jobs(["a", "b"])?, ..Desired::default() };
    let seen = |presence| {
        let session = Some(SessionId::plain("w-0"));
        let worker = WorkerSeen { name: "w-0".into(), presence, session };
        let workers = [(Slot(0), worker)].into();
        Observed { workers, workers_desired: 1, ..Observed::default() }
    };
    let ledgers = || FileLedgerStore::open(folder.path());
    let first = turn(&ledgers()?, &views, &want, &seen(Presence::Ready)).await?;
    let told = view()?;
    assert_eq!((first.decision.ledger.version, told.contains("\"a\"")), (1, true));

    fs::remove_file(folder.path().join("ledger.json"))?;
    let waits = turn(&ledgers()?, &views, &want, &seen(Presence::NotReady)).await?;
    assert!(waits.changed && waits.decision.waiting.is_some(), "it is made anew, and waits");
    assert_eq!(view()?, told, "the worker goes on with what it has");
    let anew = turn(&ledgers()?, &views, &want, &seen(Presence::Ready)).await?;
    assert_eq!(anew.decision.ledger.version, 2, "a version that no worker has seen");
    assert_eq!(view()?, told.replace("version: 1", "version: 2"));
    Ok(())
}
