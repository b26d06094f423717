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

use jiff::Timestamp;
use kube::Client;
use swarm_core::Jobs;
use swarm_core::ports::{LedgerStore as _, StoreError};

use crate::ledger::KubeLedgerStore;
use crate::metrics::Metrics;
use crate::sharing::Sharing;
use crate::turn::Turn;
use crate::watch::caches::Caches;
use cooldown::Cooldowns;
use listed::Listed;
use memory_budget::MemoryBudget;
use reading::Reading;
use sources::Loaded;

/// State of this process about the jobs of one Swarm.
#[derive(Default)]
pub(crate) struct KnownJobs {
    pub(crate) loaded: Loaded,
    pub(crate) listed: Listed,
}

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

    /// Records the `jobs` that the Swarm lists, for an Event if many were removed. The first call
    /// compares them with the jobs of the ledger.
    pub(crate) async fn note_listed(
        &self,
        turn: &Turn<'_>,
        KnownJobs { loaded, listed }: &mut KnownJobs,
        ledgers: &KubeLedgerStore,
        jobs: &Jobs,
    ) -> Result<(), StoreError> {
        if listed.is_first_look() {
            listed.take_over(turn.swarm.status.as_ref(), Timestamp::now());
        }
        if listed.is_first_look() && self.caches.has_ledger(turn.swarm, ledgers.name()) {
            match ledgers.load().await {
                Ok(Some((ledger, _))) => listed.begin(&ledger, jobs),
                Ok(None) | Err(StoreError::Refused { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        listed.note(turn.swarm.metadata.generation, loaded.read(), jobs);
        Ok(())
    }
}
