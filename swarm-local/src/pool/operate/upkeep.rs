//! Keeps the right number of workers, and their files small.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use swarm_adapters_host::job_log::{self, JobLogs, Kind, Line, Pruned, file_name};
use swarm_core::{Autoscaler, JobName, Ledger, Slot};

use super::Operation;
use crate::pool::snapshot::JobRow;
use crate::processes::Workers;
use crate::settings::input::Wanted;

/// Maximum number of jobs whose logs say that their worker has ended.
const NOTED_MAX: usize = 1_000;

impl Operation {
    /// Rotates large logs, and removes files of sessions that the ledger does not list.
    pub(super) fn tidy(&mut self) {
        if let Err(error) = self.worker.run_log().rotate(self.dir.path()) {
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
                self.history.note(&format!("worker {} {end}", worker.name));
                if let Err(error) = self.note_death(*slot, &worker.name, end) {
                    tracing::warn!(%error, "the logs of jobs do not say that their worker ended");
                }
            }
        }
    }

    /// Notes in the logs of the jobs of a worker that the worker has ended. Jobs without a log get
    /// none: the programs of a library's worker write theirs elsewhere.
    fn note_death(&self, slot: Slot, worker: &str, end: &str) -> io::Result<()> {
        let (dir, per_worker) = (self.processes.job_logs(), self.wanted.job_logs().per_worker);
        let snapshot = Arc::clone(&self.outlets.snapshots.borrow());
        let has_it = |row: &&JobRow| match row.slot {
            Some(holder) => holder == slot.0,
            None => row.state == "everywhere",
        };
        let jobs = snapshot.holders.iter().filter(has_it);
        let jobs = jobs.filter_map(|row| JobName::new(&row.name).ok());
        let file = |job: &JobName| dir.join(file_name(job, per_worker.then_some(worker)));
        let mut jobs = jobs.filter(|job| file(job).exists()).take(NOTED_MAX).peekable();
        if jobs.peek().is_none() {
            return Ok(());
        }
        let logs = JobLogs::open(dir.clone(), worker)?;
        for job in jobs {
            let mut line = String::new();
            Line::now(worker, Kind::Remark, &format!("its worker {worker} {end}"))
                .append_to(&mut line);
            // A disk that is too slow for the line is too slow for the output as well.
            let _ = logs.append(&job, line, 1);
        }
        Ok(())
    }
}
