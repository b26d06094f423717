//! The stores of one Swarm: its ledger and the view that its plain workers share.

use std::sync::Arc;
use std::time::Duration;

use kube::runtime::reflector::ObjectRef;
use kube::{Client, ResourceExt};
use swarm_client::api::{Claimant, Swarm};
use swarm_core::Decider;
use swarm_core::ports::Seen;

use super::{KubeLedgerStore, Lookups};
use crate::jobs::reading::Reading;
use crate::metrics::Metrics;
use crate::plain::view::ConfigMapViewStore;
use crate::pool::workload::Workload;
use crate::sharing::Sharing;
use crate::status::publisher::EventPublisher;
use crate::status::{Reason, Verdict};
use crate::turn::Turn;
use crate::watch::cached::with_uid;
use crate::watch::caches::Caches;

/// The stores that a Swarm keeps from one turn to the next.
#[derive(Default)]
pub(crate) struct Stores {
    pub(crate) ledgers: Option<KubeLedgerStore>,
    pub(crate) views: Option<ConfigMapViewStore>,
    /// The core's cache of decisions about the ledger.
    decider: Decider,
}

/// The stores of one turn.
pub(crate) struct OpenStores<'a> {
    pub(crate) ledgers: &'a mut KubeLedgerStore,
    pub(crate) views: &'a mut ConfigMapViewStore,
    pub(crate) decider: &'a mut Decider,
}

/// Opens the stores of ledgers and of the views that plain workers share.
pub(crate) struct Ledgers {
    pub(crate) client: Client,
    pub(crate) caches: Arc<Caches>,
    pub(crate) sharing: Sharing,
    /// Reads large views of other programs.
    pub(crate) reading: Reading,
    pub(crate) metrics: Metrics,
    pub(crate) events: Arc<EventPublisher>,
}

impl Stores {
    /// The report about a writer that keeps overwriting the view, and the remaining time of that
    /// contest.
    pub(crate) fn views_contest(&self) -> Option<(Duration, Verdict)> {
        let (contest, message) = self.views.as_ref()?.contest()?;
        Some((contest.ends_in, Verdict { reason: Reason::ViewContested, message }))
    }

    /// Drops the stores of another pool or view. Returns whether the ledger has changed to another
    /// one.
    pub(crate) fn drop_others(&mut self, swarm: &Swarm, pool: &Workload) -> bool {
        self.views.take_if(|views| !views.is_for(swarm));
        self.ledgers.take_if(|ledgers| pool.uid != ledgers.pool_uid()).is_some()
    }
}

impl Ledgers {
    /// The stores of the Swarm on `pool`. Reuses the stores of an earlier turn, with their memory.
    pub(crate) fn open<'s>(
        &self,
        turn: &Turn<'_>,
        pool: &Workload,
        stores: &'s mut Stores,
    ) -> OpenStores<'s> {
        let Stores { ledgers, views, decider } = stores;
        OpenStores {
            ledgers: ledgers.get_or_insert_with(|| self.ledger_store(turn, pool)),
            views: views.get_or_insert_with(|| self.view_store(turn)),
            decider,
        }
    }

    /// The ledger store for the Swarm on `pool`, claimed under both UIDs.
    fn ledger_store(&self, turn: &Turn<'_>, pool: &Workload) -> KubeLedgerStore {
        let claimant = Claimant {
            kind: "Swarm".into(),
            name: turn.name.to_owned(),
            uid: turn.swarm.uid().unwrap_or_default(),
        };
        let swarms = self.caches.swarms.clone();
        let is_alive = move |uid: &str| !swarms.with(&with_uid(uid)).is_empty();
        let (known, within) = (self.caches.ledgers.clone(), turn.namespace.to_owned());
        let is_current = move |name: &str, seen: &Seen| {
            let found = known.get(&ObjectRef::new(name).within(&within));
            let found = found.and_then(|ledger| ledger.resource_version());
            let number = |version: &str| version.parse::<u64>().unwrap_or(u64::MAX);
            // A cached version that is older only lags behind our own write.
            found.is_some_and(|found| number(&found) <= number(&seen.0))
        };
        KubeLedgerStore::new(
            self.client.clone(),
            turn.namespace,
            claimant,
            pool.claimant(),
            Lookups { is_alive: Box::new(is_alive), is_current: Box::new(is_current) },
        )
        .noticing(self.caches.rollbacks.clone())
        .written_by(self.sharing.writing.clone())
    }

    /// The view store for the Swarm.
    pub(crate) fn view_store(&self, turn: &Turn<'_>) -> ConfigMapViewStore {
        let (swarms, namespace) = (self.caches.swarms.clone(), turn.namespace.to_owned());
        let exists = move |name: &str| swarms.get(&namespace, name).is_some();
        let views = self.caches.views.store.clone();
        ConfigMapViewStore::new(self.client.clone(), turn.swarm, views, Box::new(exists))
            .reading_by(self.reading.clone(), self.sharing.tenant(turn.swarm))
    }
}
