//! Lists of jobs: the list in a Swarm's spec, and the lists in the ConfigMaps that the spec names.
//!
//! - [`convert`]: translates a Swarm's spec into the terms of the core.
//! - `sources`: fetches lists of jobs. `reading`: parses them on threads of its own.
//! - `cooldown`: limits how often costly lists are read. `memory_budget`: limits how many are kept.
//! - `listed`: notices edits that remove most jobs.

pub mod convert;
pub(crate) mod cooldown;
pub(crate) mod listed;
pub(crate) mod memory_budget;
pub(crate) mod reading;
pub(crate) mod sources;

use std::sync::Arc;

use kube::Client;

use crate::metrics::Metrics;
use crate::sharing::Sharing;
use crate::watch::caches::Caches;
use cooldown::Cooldowns;
use memory_budget::MemoryBudget;
use reading::Reading;

/// Fetches and parses the lists of jobs in ConfigMaps.
pub(crate) struct JobSources {
    client: Client,
    caches: Arc<Caches>,
    sharing: Sharing,
    metrics: Metrics,
    /// The threads that parse lists.
    reading: Reading,
    /// The end of each tenant's shared cooldown.
    cooldowns: Cooldowns,
    /// The memory that kept lists use.
    memory_budget: MemoryBudget,
}

impl JobSources {
    /// Fetches lists through `client`.
    pub(crate) fn new(
        client: Client,
        caches: Arc<Caches>,
        sharing: Sharing,
        metrics: Metrics,
        reading: Reading,
    ) -> Self {
        let (cooldowns, memory_budget) = (Cooldowns::default(), MemoryBudget::default());
        Self { client, caches, sharing, metrics, reading, cooldowns, memory_budget }
    }
}
