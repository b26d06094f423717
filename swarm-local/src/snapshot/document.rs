//! The fields of the document of a pool that `status` shows in both homes.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use swarm_adapters_host::clock::{millis, unix_s};
use swarm_core::JobPhase;

use super::{Snapshot, StoppingRow};
use crate::reports::Reports;

impl Snapshot {
    /// Adds the fields to the document that are made of others. O(jobs without a worker), and O(jobs)
    /// if a job reserves a share of a worker.
    pub(crate) fn complete(&self, document: &mut Value, reports: &Reports) {
        document["namespace"] = Value::Null;
        document["operator"] = Value::Null;
        document["status"] = self.reason.clone().into();
        document["ready"] = self.is_ready().into();
        document["conditions"] = self.conditions();
        document["moving"] = self.stopping.iter().map(|row| self.moving(row, reports)).collect();
        for (row, failing) in
            document["failing"].as_array_mut().into_iter().flatten().zip(&self.failing)
        {
            let holder = self.job(&failing.job);
            let phase = holder.map(|holder| holder.phase(reports, None).0);
            if let Some(phase @ ("running" | "ready")) = phase {
                row["state"] = phase.into();
            }
        }
        if let Some(ending) = &self.ending {
            let of_ending =
                json!({"ready": false, "settled": false, "healthy": false, "status": "Ending"});
            for (field, value) in of_ending.as_object().into_iter().flatten() {
                document[field] = value.clone();
            }
            document["jobs"]["running"] = ending.left.into();
        }
        let unassigned = self
            .unassigned
            .iter()
            .map(|(job, reason)| json!({"job": job, "reason": reason, "message": self.why(job)}));
        document["unassigned"] = unassigned.collect();
        let loads = self.loads();
        let node = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let rows = document["workers"].as_array_mut().into_iter().flatten();
        for (row, worker) in rows.zip(&self.workers) {
            row["node"] = node.clone().into();
            row["state"] = worker.shown_state().into();
            row["stopping"] = worker.releasing.into();
            row["confirmed"] = Value::Null;
            // The rows begin with the oldest one.
            let oldest = self.stopping.iter().find(|it| it.worker == worker.name);
            let oldest = oldest.map(|it| unix_s().saturating_sub(it.since_unix_s));
            row["oldestReleaseMs"] = oldest.map(|seconds| seconds.saturating_mul(1_000)).into();
            let left = worker.silent_for().map(|silent| self.bounds.fence.saturating_sub(silent));
            row["replacedWithinMs"] = left.map(millis).into();
            let load = loads.as_ref().map(|loads| loads.get(&worker.slot).copied());
            row["load"] = load.map(Option::unwrap_or_default).into();
        }
    }

    /// Returns the move of a job that its worker stops.
    fn moving(&self, row: &StoppingRow, reports: &Reports) -> Value {
        let StoppingRow { job, worker, since_unix_s } = row;
        let leaving = self.leaving.get(job);
        let to = leaving.and_then(|(to, _)| Some(self.worker((*to)?)?.name.as_str()));
        let waited = Duration::from_secs(unix_s().saturating_sub(*since_unix_s));
        let phase = JobPhase::Stopping.as_str();
        let wait = self.job(job).and_then(|row| {
            let (_, now) = row.phase(reports, None);
            self.wait(row, phase, now.as_ref(), reports)
        });
        json!({
            "job": job,
            "from": worker,
            "to": to,
            "phase": phase,
            "reason": leaving.map(|(_, reason)| reason),
            "ageMs": millis(waited),
            "atMostMs": wait.and_then(|wait| wait.at_most_ms),
        })
    }

    /// Returns the conditions that a Swarm on a cluster has, too.
    fn conditions(&self) -> Value {
        let condition = |kind: &str, is_true: bool, reason: &str, message: &str| {
            let status = if is_true { "True" } else { "False" };
            json!({"type": kind, "status": status, "reason": reason, "message": message})
        };
        let (standing, _) = self.standing();
        let is_silent = self.workers.iter().any(|it| it.silent_since_unix_s.is_some());
        let healthy = match () {
            () if self.ending.is_some() => condition("Healthy", false, "Ending", &standing),
            () if self.is_healthy() => condition("Healthy", true, "NoneFailing", "no job fails"),
            () if 0 < self.jobs.failing => condition("Healthy", false, "JobsFailing", &standing),
            () if is_silent => condition("Healthy", false, "WorkersSilent", &standing),
            () if self.invalid_file.is_some() => {
                condition("Healthy", false, "FileInvalid", &standing)
            }
            () => condition("Healthy", false, &self.reason, &standing),
        };
        let ready = match &self.ending {
            Some(_) => condition("Ready", false, "Ending", &standing),
            None => condition("Ready", self.is_ready(), &self.reason, &self.message),
        };
        json!([ready, healthy])
    }

    /// Returns the sum of the shares of the jobs on each slot, in hundredths of a worker; `None` if no
    /// job has a share. O(jobs).
    fn loads(&self) -> Option<BTreeMap<u32, u64>> {
        self.wanted.values().any(|job| job.share.is_some()).then(|| {
            let mut loads = BTreeMap::<u32, u64>::new();
            for row in &self.holders {
                let job = self.wanted.get(row.name.as_str());
                let share = job.and_then(|job| job.share).map(|share| u64::from(share.percent()));
                let Some((slot, share)) = row.slot.zip(share) else { continue };
                *loads.entry(slot).or_default() += share;
            }
            loads
        })
    }
}
