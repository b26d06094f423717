//! Notes the ends of workers.

use std::sync::Arc;
use std::time::Instant;

use super::Operation;
use crate::processes::Workers;

impl Operation {
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
