//! The pool of a Swarm: its workload, and the pods of that.
//!
//! - `pools`: which workload is the pool; `claims`: which pods, where a Swarm names them by labels.
//! - [`workload`]: all that is read of a workload, in one form; [`rollout`]: its progress.
//! - [`slots`]: which pod fills which slot; [`observe`]: the facts about pods.
//! - [`fit`]: whether pods suit their Swarm; [`trouble`]: why a pod does not run.
//! - `scaling` and `autoscale`: the number of workers; `deletion_cost`: which pod goes first.

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

/// Writes the workloads of pools, and the pods of pools by labels or of Deployments.
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
