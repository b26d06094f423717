//! What all turns share: the client, the caches, and what goes on beside turns. It knows no turn, and
//! nothing that belongs to a single Swarm.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::runtime::events::Recorder;
use tokio::sync::watch;

use super::Options;
use super::alarms::Alarms;
use super::caches::Caches;
use super::made::MadeObjects;
use super::managed::Rolls;
use super::questions::Questions;
use super::seen::{Ended, Leases, SeenSessions, Views};
use crate::api::Swarm;
use crate::health::Health;
use crate::metrics::{Metrics, RefusalLabels};
use crate::status::RefusedRequest;
use crate::workload::Kind;

/// What all turns share.
pub(super) struct Context {
    /// Never retries on its own.
    pub(super) client: Client,
    /// The image of workers of managed pools.
    pub(super) worker_image: String,
    pub(super) caches: Arc<Caches>,
    pub(super) recorder: Recorder,
    pub(super) metrics: Metrics,
    /// The Leases of sessions.
    pub(super) leases: Leases,
    /// The views of sessions.
    pub(super) views: Views,
    /// The pods that were seen to have ended.
    pub(super) ended: Ended,
    /// What was made for managed pools.
    pub(super) made: MadeObjects,
    /// The pools that roll because of the operator.
    pub(super) rolls: Rolls,
    /// What wakes pools at rest.
    pub(super) alarms: Alarms,
    /// What plain workers are asked.
    pub(super) questions: Questions,
    /// Which turns are under way.
    pub(super) health: Health,
    /// Whether the caches are filled.
    pub(super) filled: watch::Sender<bool>,
    /// Whether those are that only pools other than StatefulSets need.
    pub(super) filled_wide: watch::Sender<bool>,
}

impl Context {
    pub(super) fn new(
        client: Client,
        options: Options,
        caches: Caches,
        recorder: Recorder,
        metrics: Metrics,
        seen: SeenSessions,
        filled: watch::Sender<bool>,
    ) -> Self {
        let Options { worker_image } = options;
        let SeenSessions { leases, views, ended } = seen;
        let (caches, filled_wide) = (Arc::new(caches), watch::Sender::new(false));
        Self {
            client,
            worker_image,
            caches,
            recorder,
            metrics,
            leases,
            views,
            ended,
            made: MadeObjects::default(),
            rolls: Rolls::default(),
            alarms: Alarms::default(),
            questions: Questions::default(),
            health: Health::default(),
            filled,
            filled_wide,
        }
    }

    /// Returns when the caches are filled that all Swarms need.
    pub(super) async fn wait_until_filled(&self) {
        // The sender lives as long as this context, so the wait cannot fail.
        let _ = self.filled.subscribe().wait_for(|filled| *filled).await;
    }

    /// Whether the caches are filled that only `swarm` may need. It waits for them a little: not
    /// longer, since a turn that waits keeps others from theirs.
    pub(super) async fn is_filled_for(&self, swarm: &Swarm) -> bool {
        const WITHIN: Duration = Duration::from_millis(500);
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
                self.made.ask();
                self.made.wait_until_filled().await;
            }
        };
        let both = async { tokio::join!(wide, made).0 };
        tokio::time::timeout(WITHIN, both).await.unwrap_or(false)
    }

    /// Forgets what runs beside the turns of a Swarm.
    pub(super) fn forget(&self, namespace: &str, name: &str) {
        self.alarms.set(namespace, name, None);
        self.questions.forget(namespace, name);
    }

    /// Counts that the API server refused a request for good.
    pub(super) fn count_refused(&self, request: RefusedRequest) {
        let request = request.as_str();
        self.metrics.refusals.get_or_create(&RefusalLabels { request }).inc();
    }
}
