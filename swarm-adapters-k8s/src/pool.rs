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

use kube::Client;

use crate::metrics::Metrics;
use crate::status::publisher::EventPublisher;

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
