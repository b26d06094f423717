//! The document of a pool, as `status` shows it in both homes.

use std::collections::BTreeMap;

use swarm_adapters_host::clock::{millis, unix_s};
use swarm_view::status::{Condition, Status};
use swarm_view::workers::{WorkerRow, add_title};

use super::Snapshot;
use crate::processes::reports::Reports;

impl Snapshot {
    /// Returns the document at this moment: the state, with the facts that depend on the time or on the
    /// reports. O(jobs).
    pub(crate) fn answer(&self, reports: &Reports) -> Status {
        let mut status = self.status.clone();
        // A client of an earlier version reads numbers only.
        status.version.get_or_insert_default();
        status.since_unix_s.get_or_insert_default();
        status.status = self.status.reason.to_string();
        status.ready = self.status.is_ready();
        status.conditions = self.conditions();
        let picture = self.picture();
        let stopping = self.status.stopping.iter().filter_map(|row| self.job(&row.job));
        status.moving =
            stopping.map(|row| picture.moving(&self.facts(row, None, reports))).collect();
        for row in &mut status.failing {
            let phase = self.job(&row.job).map(|holder| holder.phase(reports, None).0);
            if let Some(phase @ ("running" | "ready")) = phase {
                row.state = phase;
            }
        }
        for row in &mut status.unassigned {
            row.message = self.why(&row.job);
        }
        let (loads, mut titles) = (self.loads(), self.titles());
        let node = rustix::system::uname().nodename().to_string_lossy().into_owned();
        for row in &mut status.workers {
            row.node = Some(node.clone());
            row.load =
                loads.as_ref().map(|loads| loads.get(&row.slot).copied().unwrap_or_default());
            row.titles = titles.remove(&row.slot).unwrap_or_default();
            self.complete(row, reports);
        }
        if let Some(ending) = &self.status.ending {
            status.status = "Ending".into();
            (status.ready, status.settled, status.healthy) = (false, false, false);
            status.jobs.running = ending.left;
        }
        status
    }

    /// Adds the facts about a worker that depend on the time.
    fn complete(&self, row: &mut WorkerRow, reports: &Reports) {
        row.stopping = row.releasing;
        // The rows begin with the oldest one.
        let oldest = self.status.stopping.iter().find(|it| it.worker == row.name);
        let oldest = oldest.map(|it| unix_s().saturating_sub(it.since_unix_s));
        row.oldest_release_ms = oldest.map(|seconds| seconds.saturating_mul(1_000));
        let silent = row.silent_for(unix_s());
        let left = silent.map(|silent| self.bounds.fence.saturating_sub(silent));
        row.replaced_within_ms = left.map(millis);
        row.last_heard_ms = self.heard(row, reports).map(|heard| millis(heard.elapsed()));
        row.state = row.shown_state();
    }

    /// Returns the conditions that a Swarm on a cluster has, too.
    fn conditions(&self) -> Vec<Condition> {
        let status = &self.status;
        let (standing, _) = status.standing(unix_s());
        let healthy = |is_true, reason: &str, message: &str| {
            Condition::new("Healthy", is_true, reason, message)
        };
        let healthy = match () {
            () if status.ending.is_some() => healthy(false, "Ending", &standing),
            () if status.is_healthy() => healthy(true, "NoneFailing", "no job fails"),
            () if 0 < status.jobs.failing => healthy(false, "JobsFailing", &standing),
            () if 0 < status.silent_workers() => healthy(false, "WorkersSilent", &standing),
            () if status.invalid_file.is_some() => healthy(false, "FileInvalid", &standing),
            () => healthy(false, &status.reason, &standing),
        };
        let ready = match &status.ending {
            Some(_) => Condition::new("Ready", false, "Ending", &standing),
            None => Condition::new("Ready", status.is_ready(), &status.reason, &status.message),
        };
        vec![ready, healthy]
    }

    /// Returns the titles of the jobs on each slot. O(jobs).
    fn titles(&self) -> BTreeMap<u32, Vec<String>> {
        let mut titles = BTreeMap::<u32, Vec<String>>::new();
        for row in &self.holders {
            let Some((slot, title)) = row.slot.zip(row.title.as_ref()) else { continue };
            add_title(titles.entry(slot).or_default(), title.as_str());
        }
        titles
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
