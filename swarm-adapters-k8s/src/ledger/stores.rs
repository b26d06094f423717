//! The stores of one Swarm: its ledger and the view that its plain workers share.

use std::time::Duration;

use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;
use swarm_client::api::{Claimant, Swarm};
use swarm_core::ports::Seen;

use super::KubeLedgerStore;
use crate::plain::view::ConfigMapViewStore;
use crate::pool::workload::Workload;
use crate::services::Services;
use crate::status::{Reason, Verdict};
use crate::watch::cached::with_uid;

/// The stores, each made when it is first needed.
#[derive(Default)]
pub(crate) struct Stores {
    pub(crate) ledgers: Option<KubeLedgerStore>,
    pub(crate) views: Option<ConfigMapViewStore>,
}

impl Stores {
    /// The ledger of `swarm` on `pool`.
    pub(crate) fn ledgers(
        &mut self,
        services: &Services,
        swarm: &Swarm,
        pool: &Workload,
    ) -> &mut KubeLedgerStore {
        self.ledgers.get_or_insert_with(|| services.ledger_store(swarm, pool))
    }

    /// The view of the plain workers of `swarm`.
    pub(crate) fn views(&mut self, services: &Services, swarm: &Swarm) -> &mut ConfigMapViewStore {
        self.views.get_or_insert_with(|| services.view_store(swarm))
    }

    /// Both.
    pub(crate) fn both(
        &mut self,
        services: &Services,
        swarm: &Swarm,
        pool: &Workload,
    ) -> (&KubeLedgerStore, &ConfigMapViewStore) {
        let ledgers = self.ledgers.get_or_insert_with(|| services.ledger_store(swarm, pool));
        let views = self.views.get_or_insert_with(|| services.view_store(swarm));
        (ledgers, views)
    }

    /// What there is to say while somebody keeps writing over the view, and how long that goes on.
    pub(crate) fn views_contest(&self) -> Option<(Duration, Verdict)> {
        let (contest, message) = self.views.as_ref()?.contest()?;
        Some((contest.ends_in, Verdict { reason: Reason::ViewContested, message }))
    }

    /// Drops the stores of another pool or view; returns whether the ledger is another one.
    pub(crate) fn drop_others(&mut self, swarm: &Swarm, pool: &Workload) -> bool {
        self.views.take_if(|views| !views.is_for(swarm));
        self.ledgers.take_if(|ledgers| pool.uid != ledgers.pool_uid()).is_some()
    }
}

impl Services {
    /// The ledger store for `swarm` on `pool`, claimed under both UIDs.
    pub(crate) fn ledger_store(&self, swarm: &Swarm, pool: &Workload) -> KubeLedgerStore {
        let claimant = Claimant {
            kind: "Swarm".into(),
            name: swarm.name_any(),
            uid: swarm.uid().unwrap_or_default(),
        };
        let swarms = self.caches.swarms.clone();
        let is_alive = move |uid: &str| !swarms.with(&with_uid(uid)).is_empty();
        let namespace = swarm.namespace().unwrap_or_default();
        let (known, within) = (self.caches.ledgers.clone(), namespace.clone());
        let is_current = move |name: &str, seen: &Seen| {
            let found = known.get(&ObjectRef::new(name).within(&within));
            let found = found.and_then(|ledger| ledger.resource_version());
            let number = |version: &str| version.parse::<u64>().unwrap_or(u64::MAX);
            // One that is older only lags behind our own write.
            found.is_some_and(|found| number(&found) <= number(&seen.0))
        };
        KubeLedgerStore::new(
            self.client.clone(),
            &namespace,
            claimant,
            pool.claimant(),
            Box::new(is_alive),
            Box::new(is_current),
        )
        .noticing(self.caches.rollbacks.clone())
        .written_by(self.sharing.writing.clone())
    }

    /// The view store for `swarm`.
    pub(crate) fn view_store(&self, swarm: &Swarm) -> ConfigMapViewStore {
        let (swarms, namespace) = (self.caches.swarms.clone(), swarm.namespace());
        let exists =
            move |name: &str| swarms.get(namespace.as_deref().unwrap_or_default(), name).is_some();
        let views = self.caches.views.store.clone();
        ConfigMapViewStore::new(self.client.clone(), swarm, views, Box::new(exists))
            .reading_by(self.reading.clone(), self.sharing.tenant(swarm))
    }
}
