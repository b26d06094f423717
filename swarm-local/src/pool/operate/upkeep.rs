//! Keeps the right number of workers, and notes their ends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use swarm_core::{Autoscaler, Ledger};

use super::Operation;
use crate::processes::Workers;
use crate::settings::input::Wanted;

impl Operation {
    /// Updates the number of workers if it depends on the jobs. Returns the delay until the number
    /// falls if nothing changes.
    pub(super) fn follow_jobs(&mut self) -> Option<Duration> {
        let Wanted { desired, slots, .. } = &mut self.inputs.wanted;
        let Some(terms) = desired.autoscale else {
            self.scaler = Autoscaler::default();
            return None;
        };
        let none = Ledger::new(0);
        let ledger = self.decision.as_ref().map_or(&none, |(decision, _)| &decision.ledger);
        let need = self.needs.of(ledger, desired, slots.start)?;
        let present = slots.end.saturating_sub(slots.start);
        let scale = self.scaler.step(&terms, need.workers, present, self.started.elapsed());
        slots.end = slots.start.saturating_add(scale.workers);
        scale.requeue_after
    }

    /// Reports workers that ended without a request.
    pub(super) fn report_deaths(&mut self, workers: &Workers) {
        self.deaths_reported.retain(|slot, _| workers.contains_key(slot));
        for (slot, worker) in workers {
            let reported = self.deaths_reported.insert(*slot, worker.deaths).unwrap_or_default();
            if reported < worker.deaths {
                self.unsettled_since.get_or_insert_with(Instant::now);
                let end = worker.last_death.as_deref().unwrap_or("ended");
                self.outlets.voice.say(&format!("{} {end}; restarting it", worker.name));
                self.history.note(&format!("worker {} {end}", worker.name));
                let snapshot = Arc::clone(&self.outlets.snapshots.borrow());
                let wanted = &self.inputs.wanted;
                let noted = self.stores.note_death((*slot, worker), end, wanted, &snapshot);
                if let Err(error) = noted {
                    tracing::warn!(%error, "the logs of jobs do not say that their worker ended");
                }
            }
        }
    }
}
