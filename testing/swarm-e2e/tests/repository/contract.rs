//! The stores on files keep the same contract as the stores on an API server. The tests here use
//! the API server in memory, and a scenario uses the real one.

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
use swarm_core::{Decider, Desired, Ledger, Observed, Presence, Slot, WorkerSeen, jobs, turn};
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
        // Every write replaces the file, so the inode changes.
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
async fn a_lost_ledger_takes_nothing_away_before_it_assigns_again() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let views = FileViewStore::open(folder.path())?;
    let view = || fs::read_to_string(views.path());
    let want = Desired::new(jobs(["a", "b"])?);
    let seen = |presence| {
        let session = Some(SessionId::plain("w-0"));
        let worker = WorkerSeen::new("w-0", presence, session);
        Observed::new([(Slot(0), worker)], 1, [])
    };
    let ledgers = || FileLedgerStore::open(folder.path());
    let first =
        turn(&ledgers()?, &views, &mut Decider::default(), &want, &seen(Presence::Ready)).await?;
    let published = view()?;
    assert_eq!((first.decision.ledger.version, published.contains("\"a\"")), (1, true));

    fs::remove_file(folder.path().join("ledger.json"))?;
    let waits = turn(
        &ledgers()?,
        &views,
        &mut Decider::default(),
        &want,
        &seen(Presence::NotReady(std::time::Duration::ZERO)),
    )
    .await?;
    assert!(waits.changed && waits.decision.waiting.is_some(), "it is recreated, and waits");
    assert_eq!(view()?, published, "the worker keeps its jobs");
    let recreated =
        turn(&ledgers()?, &views, &mut Decider::default(), &want, &seen(Presence::Ready)).await?;
    assert_eq!(recreated.decision.ledger.version, 2, "a version that no worker has seen");
    assert_eq!(view()?, published.replace("version: 1", "version: 2"));
    Ok(())
}

mod in_memory {
    //! The comparison that needs a cluster is `the_api_in_memory_answers_as_the_real_one`.

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::DeleteParams;
    use kube::runtime::reflector;
    use serde_json::json;
    use swarm_adapters_k8s::ledger::{KubeLedgerStore, Lookups};
    use swarm_adapters_k8s::plain::view::ConfigMapViewStore;
    use swarm_apiserver::ApiServer;
    use swarm_client::api::{Claimant, Swarm};
    use swarm_client::client::Clients;
    use swarm_core::ports::{LedgerStore, Seen};
    use swarm_e2e::contract::{self, OnApiServer, api};

    #[expect(clippy::unwrap_used, reason = "the manifest is a literal")]
    fn swarm() -> Swarm {
        serde_json::from_value(json!({
            "apiVersion": "swarm.k8slab.info/v1alpha1", "kind": "Swarm",
            "metadata": {"name": "contract", "namespace": "n", "uid": "s"},
            "spec": {"pool": {"statefulSet": {"name": "nobody"}}},
        }))
        .unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn the_ledger_keeps_the_contract() -> anyhow::Result<()> {
        let client = ApiServer::new().client("n");
        let claimant = |kind: &str, name: &str| Claimant {
            kind: kind.into(),
            name: name.into(),
            uid: name.into(),
        };
        let open = || -> Box<dyn LedgerStore> {
            let (swarm, pool) = (claimant("Swarm", "s"), claimant("StatefulSet", "nobody"));
            let (is_alive, is_current) =
                (Box::new(|_: &str| true), Box::new(|_: &str, _: &Seen| true));
            let client = client.clone();
            Box::new(KubeLedgerStore::new(
                client,
                "n",
                swarm,
                pool,
                Lookups { is_alive, is_current },
            ))
        };
        contract::ledger_store(&open).await
    }

    #[tokio::test(start_paused = true)]
    async fn the_view_keeps_the_contract() -> anyhow::Result<()> {
        let client = ApiServer::new().client("n");
        let (cache, _writer) = reflector::store::<ConfigMap>();
        let open = || {
            let (swarm, cache) = (swarm(), cache.clone());
            ConfigMapViewStore::new(client.clone(), &swarm, cache, Box::new(|_| true))
        };
        let maps: kube::Api<ConfigMap> = kube::Api::namespaced(client.clone(), "n");
        let read = || async {
            let view = maps.get("contract-config").await?;
            let text = view.data.unwrap_or_default().remove("config.yml").unwrap_or_default();
            Ok((text, view.metadata.resource_version.unwrap_or_default()))
        };
        contract::view_store(&open(), read).await?;
        maps.delete("contract-config", &DeleteParams::default()).await?;
        contract::views_go_forward(&open(), &open(), read).await
    }

    #[tokio::test(start_paused = true)]
    async fn sessions_keep_the_contract() -> anyhow::Result<()> {
        let client = ApiServer::new().client("n");
        let clients = Clients::new(client.clone(), client.clone());
        let place = OnApiServer { client, clients, namespace: "n".to_owned() };
        contract::sessions(&place, "6f1c2a34-0000-4000-8000-0123456789ab").await
    }

    #[tokio::test(start_paused = true)]
    async fn the_server_keeps_the_contract() -> anyhow::Result<()> {
        let server = ApiServer::new();
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
        server.put(map);
        server.compact();
        let client = &server.client("n");
        api::api_server(&api::Place { client, namespace: "n", forgotten: "1" }).await
    }

    #[tokio::test(start_paused = true)]
    async fn random_operations_are_answered_the_same_again() -> anyhow::Result<()> {
        for seed in 1..=5 {
            let (one, other) = (ApiServer::new().client("n"), ApiServer::new().client("n"));
            let one = api::transcript(&one, "n", seed, 200).await?;
            let other = api::transcript(&other, "n", seed, 200).await?;
            assert_eq!(one, other);
        }
        Ok(())
    }
}
