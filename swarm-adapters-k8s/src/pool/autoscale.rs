//! Autoscaling: gives the pool of a Swarm with `autoscale` the number of workers that its jobs
//! need.

use std::time::Duration;

use swarm_core::ports::{LedgerStore as _, StoreError};
use swarm_core::{Autoscaler, Desired, Ledger, Need, Needs, Scale};

use super::workload::Workload;
use crate::clock;
use crate::ledger::{KubeLedgerStore, LARGE_POOL_JOBS};

/// State of this process about the number of workers that a Swarm needs. A process that has lost it
/// begins with the pool's current size and a whole cooldown. The status is never read back.
#[derive(Debug, Default)]
pub(crate) struct Autoscaling {
    scaler: Autoscaler,
    needs: Needs,
}

impl Autoscaling {
    /// The number of workers that the jobs of `desired` need on `pool`.
    pub(crate) fn need(
        &mut self,
        ledger: &Ledger,
        desired: &Desired,
        pool: &Workload,
    ) -> Option<Need> {
        if desired.jobs.len() < LARGE_POOL_JOBS {
            // The number is quick to compute, and a cache would use memory for each of many pools.
            self.needs = Needs::default();
            return Need::of(ledger, desired, pool.first_slot);
        }
        self.needs.of(ledger, desired, pool.first_slot)
    }

    /// Sets the number of workers in `desired`, if the number follows the jobs. Returns the time
    /// until a reduction.
    pub(crate) async fn decide(
        &mut self,
        ledgers: &KubeLedgerStore,
        pool: &Workload,
        desired: &mut Desired,
    ) -> Result<Option<Duration>, StoreError> {
        let ledger = match desired.autoscale {
            Some(_) => ledgers.load().await?,
            None => None,
        };
        let ledger = ledger.map_or_else(|| Ledger::new(0), |(ledger, _)| ledger);
        let Some(scale) = self.step(&ledger, desired, pool) else { return Ok(None) };
        desired.replicas = Some(scale.workers);
        Ok(scale.requeue_after)
    }

    /// The number of workers for `pool`, and the time until a reduction.
    fn step(&mut self, ledger: &Ledger, desired: &Desired, pool: &Workload) -> Option<Scale> {
        let Some(terms) = desired.autoscale else {
            self.scaler = Autoscaler::default();
            return None;
        };
        let need = self.need(ledger, desired, pool)?;
        Some(self.scaler.step(&terms, need.workers, pool.replicas, clock::now().0))
    }
}
