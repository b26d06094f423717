//! The picture of a pool on one machine, and the facts about each of its jobs.

use std::time::Duration;

use swarm_adapters_host::channel::{JobNow, JobPhase};
use swarm_adapters_host::clock::unix_s;
use swarm_core::{Params, Title};
use swarm_view::jobs::EVERYWHERE;
use swarm_view::life::JobLife;
use swarm_view::picture::{JobFacts, Picture, Run, Step, WorkerFacts};
use swarm_view::status::FailingRow;
use swarm_view::workers::WorkerRow;

use super::{JobRow, Snapshot};
use crate::processes::reports::Reports;

impl Snapshot {
    /// Returns what is known of the pool. O(workers).
    pub(crate) fn picture(&self) -> Picture {
        let loads = || self.status.workers.iter().map(|row| row.jobs);
        let ends_at = self.status.ending.as_ref().map(|ending| ending.until_unix_s);
        Picture {
            bounds: self.bounds,
            ends_within: ends_at.map(|at| Duration::from_secs(at.saturating_sub(unix_s()))),
            is_suspended: self.is_suspended,
            is_paused: self.is_paused,
            loads: loads().min().zip(loads().max()),
        }
    }

    /// Returns what is known of a job; `failing` is its failure. The params of the job are left out.
    /// O(log jobs), and more for a job that stops.
    pub(crate) fn facts<'a>(
        &'a self,
        row: &'a JobRow,
        failing: Option<&'a FailingRow>,
        reports: &Reports,
    ) -> JobFacts<'a> {
        let unassigned = self.status.unassigned(&row.name).map(|it| &*it.reason);
        let (phase, now) = row.phase(reports, unassigned);
        // An ended worker has no report any more.
        let has_ended = self.status.ending.is_some() && now.is_none() && phase == "starting";
        let is_stopping = phase == "stopping";
        let stopping = || self.status.stopping.iter().find(|it| it.job == row.name);
        let stopping = is_stopping.then(stopping).flatten();
        let worker = row.slot.and_then(|slot| self.status.worker(slot));
        let wanted = self.wanted.get(row.name.as_str());
        let step = self.leaving.get(&row.name).map(|(to, reason)| {
            let to = to.and_then(|slot| Some(self.status.worker(slot)?.name.as_str()));
            Step { to, reason }
        });
        let reported = now.as_ref().map(|now| now.phase);
        let now = now.unwrap_or_default();
        let JobNow { pid, version, since_unix_s, mut restarts, mut last_exit, .. } = now;
        let life = reports.lives().of(&row.name).map(|life| {
            // A job of all workers has a report of each.
            if row.state != EVERYWHERE {
                restarts = restarts.max(life.restarts);
                last_exit = last_exit.take().or_else(|| life.last_end().map(str::to_owned));
            }
            JobLife::counts(life)
        });
        JobFacts {
            name: &row.name,
            title: row.title.as_ref().map(Title::as_str),
            state: row.state,
            phase: if has_ended { "ended" } else { phase },
            slot: row.slot,
            token: row.token,
            worker: worker.map(|worker| self.worker_facts(worker, reports)),
            pin: wanted.and_then(|job| job.pin).map(|slot| slot.0),
            step,
            is_deferred: self.deferred.contains(row.name.as_str()),
            unassigned,
            unassigned_message: self.why(&row.name),
            stopping_for: stopping
                .map(|it| Duration::from_secs(unix_s().saturating_sub(it.since_unix_s))),
            is_confirmed: reported.filter(|_| is_stopping).map(|phase| phase == JobPhase::Stopping),
            failing: failing.map(|failing| {
                let mut failure = failing.failure();
                if reported.is_some() || life.is_some() {
                    failure.restarts = restarts;
                }
                failure
            }),
            life,
            last_output: failing.map(|row| row.last_output.as_slice()),
            run: Run {
                version: version.as_str(),
                pid,
                since_unix_s,
                restarts: Some(restarts),
                last_exit,
            },
            params: Params::default(),
            runner: None,
        }
    }

    fn worker_facts<'a>(&self, worker: &'a WorkerRow, reports: &Reports) -> WorkerFacts<'a> {
        WorkerFacts {
            name: &worker.name,
            heard: self.heard(worker, reports).map(|heard| heard.elapsed()),
            silent: worker.silent_for(unix_s()),
            silent_since_unix_s: worker.silent_since_unix_s,
            has_ended: false,
            confirms: true,
        }
    }
}
