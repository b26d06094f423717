//! The services that all turns share, one a concern. No service has state of a single turn.

use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt as _, stream};
use kube::runtime::reflector::ObjectRef;
use kube::{Client, Resource as _};
use swarm_client::api::Swarm;
use swarm_replicas::{Bucket, Buckets};
use tokio::sync::watch;

use crate::fairness::background::{self, Background};
use crate::fairness::slots::{FairSlot, FairSlots};
use crate::health::Health;
use crate::jobs::JobSources;
use crate::jobs::reading::Reading;
use crate::ledger::stores::Ledgers;
use crate::managed::ManagedPools;
use crate::managed::observed::MadeObjects;
use crate::metrics::Metrics;
use crate::plain::PlainWorkers;
use crate::pool::Workloads;
use crate::pool::workload::Kind;
use crate::sessions::Sessions;
use crate::sessions::alarms::Alarms;
use crate::sessions::seen::SeenSessions;
use crate::sharing::Sharing;
use crate::status::publisher::EventPublisher;
use crate::watch::caches::Caches;
use crate::watch::foreign_swarms;

/// From how many jobs on a turn is a large one.
const LARGE: usize = 20_000;

/// Settings of the operator that no object of the cluster has.
#[derive(Clone, Debug)]
pub struct Options {
    /// The image of workers of managed pools.
    pub worker_image: String,
    /// Where large turns go on.
    pub background: Background,
}

/// The services of all turns.
pub(crate) struct Services {
    /// Never retries on its own, and writes by the permit of a turn only.
    pub(crate) client: Client,
    /// Which Swarms are this operator's.
    pub(crate) sharing: Sharing,
    pub(crate) caches: Arc<Caches>,
    /// Where Events are published.
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
    /// Where large turns go on.
    pub(crate) background: Background,
    /// The lists of jobs in ConfigMaps.
    pub(crate) jobs: JobSources,
    /// Where large turns go one by one.
    pub(crate) large_turns: FairSlots,
    /// Which turns are under way.
    pub(crate) health: Health,
    /// Whether the caches are filled.
    pub(crate) filled: watch::Sender<bool>,
    /// Whether those are that only pools other than StatefulSets need.
    pub(crate) filled_wide: watch::Sender<bool>,
}

impl Services {
    pub(crate) fn new(
        client: Client,
        options: Options,
        sharing: Sharing,
        caches: Caches,
        metrics: Metrics,
        seen: SeenSessions,
        filled: watch::Sender<bool>,
    ) -> Self {
        let Options { worker_image, background } = options;
        let member = sharing.writing.member.clone();
        let events = Arc::new(EventPublisher::new(client.clone(), member, metrics.clone()));
        let workloads = Workloads::new(client.clone(), metrics.clone(), events.clone());
        let workloads = Arc::new(workloads);
        let (caches, filled_wide) = (Arc::new(caches), watch::Sender::new(false));
        let reading = Reading::new(background.clone());
        let ledgers = Ledgers::new(
            client.clone(),
            caches.clone(),
            sharing.clone(),
            reading.clone(),
            events.clone(),
        );
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
        Self {
            client,
            sharing,
            caches,
            events,
            workloads,
            ledgers,
            metrics,
            sessions,
            managed,
            plain,
            jobs,
            background,
            large_turns: FairSlots::new(1),
            health: Health::default(),
            filled,
            filled_wide,
        }
    }

    /// The Swarms that become this operator's.
    pub(crate) fn gained(&self) -> impl Stream<Item = ObjectRef<Swarm>> + Send + use<> {
        let swarms = self.caches.swarms.store.clone();
        self.sharing.share.follow().flat_map(move |gained: Buckets| {
            let is_gained = |swarm: &Arc<Swarm>| {
                let uid = swarm.meta().uid.as_deref();
                uid.is_some_and(|uid| gained.contains(Bucket::of(uid)))
            };
            let found: Vec<_> = swarms.state().into_iter().filter(is_gained).collect();
            stream::iter(found.into_iter().map(|swarm| ObjectRef::from_obj(&*swarm)))
        })
    }

    /// Waits for a slot for a turn of `swarm`; `None` if no turn begins any more. With
    /// `is_taken_over`, the Swarm waits for other Swarms of its tenant, until a user edits it.
    pub(crate) async fn reconcile_slot(
        &self,
        swarm: &Swarm,
        is_taken_over: bool,
    ) -> Option<FairSlot> {
        let (slots, tenant) = (&self.sharing.reconcile_slots, self.sharing.tenant(swarm));
        if is_taken_over && !foreign_swarms::is_edited(swarm) {
            slots.one_later(&tenant, swarm.metadata.uid.as_deref().unwrap_or_default()).await
        } else {
            slots.one(&tenant).await
        }
    }

    /// Waits until a turn of `swarm` with so many jobs may go on; it may until the value is dropped, and
    /// most wait for nothing. Large ones go on in the background, one by one, and tenants take turns: the plan
    /// and the ledger of 200,000 jobs take 90 MB and a thread meanwhile.
    pub(crate) async fn large_turn_slot(&self, swarm: &Swarm, jobs: usize) -> Option<FairSlot> {
        if jobs < LARGE {
            return None;
        }
        background::go_on().await;
        self.large_turns.one(&self.sharing.tenant(swarm)).await
    }

    /// Returns when the caches are filled that all Swarms need.
    pub(crate) async fn wait_until_filled(&self) {
        // The sender lives as long as these services, so the wait cannot fail.
        let _ = self.filled.subscribe().wait_for(|filled| *filled).await;
    }

    /// Whether the caches are filled that only `swarm` may need. It waits for them a little: not
    /// longer, since a turn that waits keeps others from theirs.
    pub(crate) async fn is_filled_for(&self, swarm: &Swarm) -> bool {
        const FILL_TIMEOUT: Duration = Duration::from_millis(500);
        const FILL_POLL: Duration = Duration::from_millis(10);
        let wide = async {
            if swarm.pool().0 == Kind::StatefulSet {
                return true;
            }
            self.caches.pools.non_statefulset.ask();
            self.filled_wide.subscribe().wait_for(|filled| *filled).await.is_ok()
        };
        let made = async {
            // A pool that is released may be one that the operator has no rights for.
            if swarm.spec.pool.managed.is_some() && swarm.metadata.deletion_timestamp.is_none() {
                self.managed.made.ask();
                self.managed.made.wait_until_filled().await;
            }
        };
        let sources = async {
            if swarm.spec.job_sources.is_empty() || swarm.metadata.deletion_timestamp.is_some() {
                return;
            }
            self.caches.asked_sources.ask();
            while !self.caches.sources.is_filled() {
                tokio::time::sleep(FILL_POLL).await;
            }
        };
        let all = async { tokio::join!(wide, made, sources).0 };
        tokio::time::timeout(FILL_TIMEOUT, all).await.unwrap_or(false)
    }

    /// Forgets what runs beside the turns of a Swarm.
    pub(crate) fn forget(&self, namespace: &str, name: &str) {
        self.sessions.alarms.set(namespace, name, None);
        self.plain.version_polls.forget(namespace, name);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use serde_json::json;

    use super::*;
    use crate::testing::{World, swarm};

    #[tokio::test]
    async fn large_turns_go_one_by_one_and_small_ones_wait_for_nobody() {
        let of = |name: &str| swarm(name, &json!({"pool": {"statefulSet": {"name": name}}}));
        let scene = World { swarms: vec![of("a"), of("b")], ..World::default() };
        let scene = scene.with(|_| (500, json!({})));
        let (services, a, b) = (&scene.services, scene.swarm("a"), scene.swarm("b"));
        let large = services.large_turn_slot(&a, LARGE).await;
        assert!(large.is_some() && services.large_turn_slot(&b, LARGE).now_or_never().is_none());
        assert!(
            services
                .large_turn_slot(&b, LARGE - 1)
                .now_or_never()
                .is_some_and(|large_turn_slot| large_turn_slot.is_none())
        );
        drop(large);
        assert!(services.large_turn_slot(&b, LARGE).now_or_never().flatten().is_some());
    }
}
