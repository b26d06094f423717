//! The jobs of a Swarm: the list in its spec, and the lists in the ConfigMaps that it names.
//!
//! - [`convert`]: what a Swarm asks for, in the terms of the core.
//! - `sources`: fetches lists of jobs; `reading`: where they are read.
//! - `cooldown` and `memory_budget`: how often lists are read that cost much, and how many are kept.
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

/// Fetches and reads the lists of jobs in ConfigMaps.
pub(crate) struct JobSources {
    client: Client,
    caches: Arc<Caches>,
    sharing: Sharing,
    metrics: Metrics,
    /// The threads that read lists.
    reading: Reading,
    /// The tenants whose lists rest.
    cooldowns: Cooldowns,
    /// The memory that kept lists take.
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
