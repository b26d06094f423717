//! Managed pools: their wanted objects, their observed objects, and the writes between the two.
//!
//! - [`wanted`]: lists the objects of a pool and their content. A pure function.
//! - `observed`: the objects as watches show them, and the clients that changed them.
//! - `keep`: writes the difference. `removal`: removes objects that are no longer wanted.
//! - `rolls` and `rollouts`: limit how many pools get a newer template at a time.
//! - `events`: finds the reason for missing pods, which only Events state.

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
use events::Explained;
use keep::Making;
use observed::MadeObjects;

/// State of this process about one managed pool.
#[derive(Default)]
pub(crate) struct KnownManaged {
    pub(crate) making: Making,
    pub(crate) explained: Explained,
}

/// Creates the objects of managed pools, reconciles them, and removes them.
pub(crate) struct ManagedPools {
    pub(crate) client: Client,
    /// The default image of workers.
    pub(crate) worker_image: String,
    /// The objects as the watches show them.
    pub(crate) made: MadeObjects,
    pub(crate) caches: Arc<Caches>,
    pub(crate) sharing: Sharing,
    /// Scales new workloads.
    pub(crate) workloads: Arc<Workloads>,
    pub(crate) metrics: Metrics,
    pub(crate) events: Arc<EventPublisher>,
}
