//! The services that all turns share, one for each concern. No service has state of a single turn.

use std::sync::Arc;

use kube::Client;
use tokio::sync::watch;

use crate::fairness::TurnSlots;
use crate::fairness::background::Background;
use crate::health::Health;
use crate::history::Histories;
use crate::jobs::JobSources;
use crate::jobs::reading::Reading;
use crate::ledger::stores::Ledgers;
use crate::managed::ManagedPools;
use crate::managed::observed::MadeObjects;
use crate::metrics::Metrics;
use crate::outages::SeenOutages;
use crate::plain::PlainWorkers;
use crate::pool::Workloads;
use crate::readiness::Readiness;
use crate::sessions::Sessions;
use crate::sessions::alarms::Alarms;
use crate::sessions::seen::SeenSessions;
use crate::sharing::Sharing;
use crate::status::publisher::EventPublisher;
use crate::watch::caches::Caches;

/// Settings of the operator that no object of the cluster has.
#[derive(Clone, Debug)]
pub struct Options {
    /// The image of workers of managed pools.
    pub worker_image: String,
    /// The threads on which large turns go on.
    pub background: Background,
}

/// The states that watches fill.
pub(crate) struct Watched {
    pub(crate) caches: Caches,
    pub(crate) seen: SeenSessions,
    /// Whether the caches for all Swarms are filled.
    pub(crate) filled: watch::Sender<bool>,
}

/// The services of all turns.
pub(crate) struct Services {
    /// The client of turns. It never retries on its own, and writes only with the permit of a turn.
    pub(crate) client: Client,
    /// The Swarms that this operator owns.
    pub(crate) sharing: Sharing,
    pub(crate) caches: Arc<Caches>,
    /// Keeps the histories of Swarms.
    pub(crate) histories: Histories,
    /// The outages of this process.
    pub(crate) outages: SeenOutages,
    /// Publishes Events.
    pub(crate) events: Arc<EventPublisher>,
    pub(crate) metrics: Metrics,
    /// The workloads of pools, and their pods.
    pub(crate) workloads: Arc<Workloads>,
    /// The stores of Swarms.
    pub(crate) ledgers: Ledgers,
    /// The sessions of workers.
    pub(crate) sessions: Sessions,
    /// The objects of managed pools.
    pub(crate) managed: ManagedPools,
    /// Workers that read a mounted view.
    pub(crate) plain: PlainWorkers,
    /// The threads on which large turns go on.
    pub(crate) background: Background,
    /// The lists of jobs in ConfigMaps.
    pub(crate) jobs: JobSources,
    /// The slots of turns.
    pub(crate) slots: TurnSlots,
    /// The turns that are under way.
    pub(crate) health: Health,
    /// Whether the caches are filled.
    pub(crate) readiness: Readiness,
}

impl Services {
    /// Makes all services. They write through `client`.
    pub(crate) fn new(
        client: Client,
        options: Options,
        sharing: Sharing,
        metrics: Metrics,
        watched: Watched,
    ) -> Self {
        let Watched { caches, seen, filled } = watched;
        let Options { worker_image, background } = options;
        let member = sharing.writing.member.clone();
        let events = Arc::new(EventPublisher::new(client.clone(), member, metrics.clone()));
        let workloads = Workloads::new(client.clone(), metrics.clone(), events.clone());
        let workloads = Arc::new(workloads);
        let caches = Arc::new(caches);
        let reading = Reading::new(background.clone());
        let ledgers = Ledgers {
            client: client.clone(),
            caches: caches.clone(),
            sharing: sharing.clone(),
            reading: reading.clone(),
            metrics: metrics.clone(),
            events: events.clone(),
        };
        let jobs = JobSources::new(
            client.clone(),
            caches.clone(),
            sharing.clone(),
            metrics.clone(),
            reading,
        );
        let SeenSessions { leases, views, ended } = seen;
        let sessions = Sessions {
            client: client.clone(),
            caches: caches.clone(),
            metrics: metrics.clone(),
            leases,
            views,
            ended,
            alarms: Alarms::default(),
        };
        let managed = ManagedPools {
            client: client.clone(),
            worker_image,
            made: MadeObjects::default(),
            caches: caches.clone(),
            sharing: sharing.clone(),
            workloads: workloads.clone(),
            metrics: metrics.clone(),
            events: events.clone(),
        };
        let plain = PlainWorkers::new(client.clone(), metrics.clone());
        let slots = TurnSlots::new(sharing.clone());
        let readiness = Readiness::new(caches.clone(), managed.made.clone(), filled);
        Self {
            client,
            sharing,
            caches,
            histories: Histories::default(),
            outages: SeenOutages::default(),
            events,
            workloads,
            ledgers,
            metrics,
            sessions,
            managed,
            plain,
            jobs,
            background,
            slots,
            health: Health::default(),
            readiness,
        }
    }

    /// Forgets the tasks of a Swarm that run between its turns.
    pub(crate) fn forget(&self, namespace: &str, name: &str) {
        self.sessions.alarms.set(namespace, name, None);
        self.plain.version_polls.forget(namespace, name);
    }
}
