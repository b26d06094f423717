//! Managed pools: the objects that the operator makes for a Swarm, as they should be and as they are.
//!
//! - [`wanted`]: which objects a pool is made of, and what each of them says. A pure function.
//! - `observed`: the objects as watches show them, and who has changed them.
//! - `keep`: writes the difference; `removal` removes what is not wanted any more.
//! - `rolls` and `rollouts`: how many pools get a newer template at a time.
//! - `events`: why pods are missing, as only Events say.

pub(crate) mod events;
pub(crate) mod keep;
pub(crate) mod observed;
mod removal;
mod rollouts;
mod rolls;
pub mod wanted;

use std::sync::Arc;

use kube::Client;

use crate::metrics::Metrics;
use crate::pool::Workloads;
use crate::sharing::Sharing;
use crate::status::publisher::EventPublisher;
use crate::watch::caches::Caches;
use observed::MadeObjects;

/// Makes the objects of managed pools, keeps them in shape, and removes them.
pub(crate) struct ManagedPools {
    pub(crate) client: Client,
    /// The image of their workers.
    pub(crate) worker_image: String,
    /// The objects as the watches show them.
    pub(crate) made: MadeObjects,
    pub(crate) caches: Arc<Caches>,
    pub(crate) sharing: Sharing,
    /// Scales a workload that was just made.
    pub(crate) workloads: Arc<Workloads>,
    pub(crate) metrics: Metrics,
    pub(crate) events: Arc<EventPublisher>,
}
