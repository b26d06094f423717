//! Whether the caches that a turn needs are filled.

use std::sync::Arc;
use std::time::Duration;

use swarm_client::api::Swarm;
use tokio::sync::watch;

use crate::managed::observed::MadeObjects;
use crate::pool::workload::Kind;
use crate::watch::caches::Caches;

/// Waits for caches. Some are filled only once a Swarm needs them.
pub(crate) struct Readiness {
    caches: Arc<Caches>,
    made: MadeObjects,
    /// Whether the caches for all Swarms are filled.
    pub(crate) filled: watch::Sender<bool>,
    /// Whether the caches for pools other than StatefulSets are filled.
    pub(crate) filled_wide: watch::Sender<bool>,
}

impl Readiness {
    /// Makes the service for `caches` and `made`. `filled` becomes true once `caches` are filled
    /// for all Swarms.
    pub(crate) fn new(caches: Arc<Caches>, made: MadeObjects, filled: watch::Sender<bool>) -> Self {
        Self { caches, made, filled, filled_wide: watch::Sender::new(false) }
    }

    /// Waits until the caches for all Swarms are filled.
    pub(crate) async fn wait_until_filled(&self) {
        // The sender lives as long as this service, so the wait cannot fail.
        let _ = self.filled.subscribe().wait_for(|filled| *filled).await;
    }

    /// Whether the caches for `swarm` in particular are filled. Waits for them only briefly, since
    /// a waiting turn delays other turns.
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
            // The operator may lack the rights for a pool that is released.
            if swarm.spec.pool.managed.is_some() && swarm.metadata.deletion_timestamp.is_none() {
                self.made.ask();
                self.made.wait_until_answered().await;
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
}
