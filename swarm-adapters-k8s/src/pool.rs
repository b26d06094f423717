//! Pool of a Swarm: its workload, and the workload's pods.
//!
//! - `pools`: finds the workload that is the pool. `claims`: claims pods that a Swarm selects by
//!   labels.
//! - [`workload`]: the fields of any workload, in one form. [`rollout`]: its progress.
//! - [`slots`]: assigns pods to slots. [`observe`]: the facts about pods.
//! - [`fit`]: finds pods that do not suit their Swarm. [`trouble`]: finds the reason why a pod does
//!   not run.
//! - `scaling` and `autoscale`: the number of workers. `deletion_cost`: which pod is removed first.

pub(crate) mod autoscale;
pub(crate) mod claims;
pub(crate) mod deletion_cost;
pub mod fit;
pub mod observe;
pub(crate) mod pools;
pub mod rollout;
pub(crate) mod scaling;
pub mod slots;
pub mod trouble;
pub mod workload;

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use swarm_core::Desired;
use swarm_core::ports::StoreError;
use tokio::time::Instant;

use crate::ledger::KubeLedgerStore;
use crate::metrics::Metrics;
use crate::status::publisher::EventPublisher;
use autoscale::Autoscaling;
use observe::FirstSeen;
use scaling::Scaling;
use workload::Workload;

/// State of this process about the pool of one Swarm.
pub(crate) struct KnownPool {
    pub(crate) first_seen: FirstSeen,
    pub(crate) scaling: Scaling,
    pub(crate) autoscaling: Autoscaling,
}

impl KnownPool {
    /// Nothing is known before `now`.
    pub(crate) fn since(now: Instant) -> Self {
        let (scaling, autoscaling) = Default::default();
        Self { first_seen: FirstSeen::new(now), scaling, autoscaling }
    }

    /// Decides the number of workers. Returns the time until the number falls.
    pub(crate) async fn decide_size(
        &mut self,
        ledgers: &KubeLedgerStore,
        pool: &Workload,
        desired: &mut Desired,
    ) -> Result<Option<Duration>, StoreError> {
        let scale_in = self.autoscaling.decide(ledgers, pool, desired).await?;
        self.scaling.note_takeover(desired.replicas, pool);
        Ok(scale_in)
    }
}

/// Writes workloads of pools. Also writes pods that a Swarm selects by labels, and pods of
/// Deployments.
pub(crate) struct Workloads {
    client: Client,
    metrics: Metrics,
    events: Arc<EventPublisher>,
}

impl Workloads {
    /// Writes through `client`.
    pub(crate) fn new(client: Client, metrics: Metrics, events: Arc<EventPublisher>) -> Self {
        Self { client, metrics, events }
    }
}
