//! Keeps the right number of workers, and their files small.

use std::time::{Duration, Instant};

use swarm_adapters_host::job_log::{self, Pruned};
use swarm_core::{Autoscaler, Ledger, Slot};

use super::Operation;
use crate::input::Wanted;
use crate::processes::Workers;

impl Operation {
    /// Rotates large logs, and removes files of sessions that the ledger does not list.
    pub(super) fn tidy(&mut self) {
        if let Err(error) = self.run_log.rotate(&self.dir) {
            tracing::warn!(%error, "the run log cannot be rotated and keeps growing");
        }
        self.processes.rotate_logs();
        self.prune_job_logs();
        let Some((decision, _)) = &self.decision else { return };
        if let Err(error) = self.sessions.collect_garbage(&decision.ledger, &self.workers) {
            tracing::warn!(%error, "files of ended sessions cannot be removed");
        }
    }

    /// Tells all workers the settings of the jobs' logs.
    pub(super) fn set_job_logs(&self) {
        if let Err(error) = self.wanted.job_logs().write(&self.processes.job_logs()) {
            tracing::warn!(%error, "the settings of the jobs' logs cannot be written and stay");
        }
    }

    /// Removes old logs of jobs, first of removed jobs, while all logs together are too large.
    fn prune_job_logs(&self) {
        let jobs = self.wanted.desired.jobs.keys();
        match job_log::prune(&self.processes.job_logs(), self.wanted.logs.total_max, jobs) {
            Ok(Pruned { files: 0, .. }) => {}
            Ok(Pruned { files, bytes }) => {
                tracing::info!(
                    files,
                    bytes,
                    "removed old logs of jobs, since all need too much room"
                );
            }
            Err(error) => tracing::warn!(%error, "old logs of jobs cannot be removed"),
        }
    }

    /// Updates the number of workers if it depends on the jobs. Returns the delay until the number
    /// falls if nothing changes.
    pub(super) fn follow_jobs(&mut self) -> Option<Duration> {
        let Wanted { desired, slots, .. } = &mut self.wanted;
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

    /// Starts missing workers, and asks surplus workers to end.
    pub(super) fn fill_slots(&mut self) {
        let surplus = |slot: &Slot| !self.wanted.slots.contains(&slot.0);
        let leaving: Vec<_> = self.workers.borrow().keys().copied().filter(surplus).collect();
        for slot in leaving {
            self.processes.leave(slot, self.wanted.desired.timing.release_timeout);
        }
        for slot in self.wanted.slots.clone() {
            self.processes.start(Slot(slot), &format!("{}-{slot}", self.wanted.worker_name));
        }
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
            }
        }
    }
}
