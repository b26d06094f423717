//! The health of the workers and their jobs, as they report it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use swarm_adapters_host::channel::Versions;
use swarm_adapters_host::clock::unix_ms;
use swarm_core::session::JobOutput;
use swarm_core::{Decision, Failing, JobName, JobPhase, Ledger, Replication, Slot};

use super::stores::Stores;
use crate::pool::history::History;
use crate::pool::sessions::Sessions;
use crate::pool::snapshot::Snapshot;
use crate::processes::reports::Reports;
use crate::processes::{Phase, Workers};

/// The last known health.
#[derive(Debug, Default)]
pub(super) struct Health {
    /// Workers that may be frozen, and the times since which they are silent.
    pub(super) silent: BTreeMap<Slot, Instant>,
    /// Failing jobs that the workers report.
    failing: BTreeMap<Slot, Arc<Failing>>,
    /// Versions of jobs that the workers report.
    versions: BTreeMap<Slot, Versions>,
    /// Jobs that fail, over all their workers.
    lives: BTreeSet<JobName>,
    /// Last lines of output of the failing jobs that workers reported last.
    outputs: BTreeMap<String, Vec<String>>,
    /// Time since which each run of a job has been stopping, in seconds of Unix time.
    stopping: BTreeMap<(String, u64), u64>,
}

impl Health {
    /// Looks at the workers. Returns whether something changed.
    pub(super) fn look(
        &mut self,
        stores: &Stores,
        workers: &Workers,
        output: JobOutput,
        reports: &Reports,
    ) -> bool {
        let silent = stores.sessions.silent(workers);
        let (failing, versions) = (failing(stores, workers, output), reports.versions(workers));
        let lives = {
            let (mut lives, now_ms) = (reports.lives(), unix_ms());
            lives.settle(now_ms);
            lives.failing(now_ms).map(|(job, _)| job.clone()).collect::<BTreeSet<_>>()
        };
        if output == JobOutput::Hidden {
            self.outputs.clear();
        }
        let is_new = silent != self.silent || failing != self.failing || versions != self.versions;
        let is_new = is_new || lives != self.lives;
        (self.silent, self.failing, self.versions, self.lives) = (silent, failing, versions, lives);
        is_new
    }

    /// Returns the time since which the first silent worker is silent, in milliseconds of Unix time.
    pub(super) fn silent_since_ms(&self, now_ms: u64) -> Option<u64> {
        let longest = self.silent.values().map(Instant::elapsed).max()?;
        Some(now_ms.saturating_sub(u64::try_from(longest.as_millis()).ok()?))
    }

    /// Returns the failing jobs that each worker reports.
    pub(super) fn failing(&self) -> impl Iterator<Item = (Slot, &Failing)> {
        self.failing.iter().map(|(slot, failing)| (*slot, &**failing))
    }

    /// Adds the health to a snapshot.
    pub(super) fn mark(&mut self, snapshot: &mut Snapshot, ledger: &Ledger, reports: &Reports) {
        snapshot.mark_silent(&self.silent);
        snapshot.mark_stopping(&mut self.stopping);
        let by_life = (&self.lives, &self.outputs);
        snapshot.mark_failing(ledger, &self.failing, by_life, reports);
        let rows = snapshot.status.failing.iter();
        self.outputs = rows.map(|row| (row.job.clone(), row.last_output.clone())).collect();
        snapshot.mark_versions(&self.versions);
    }

    /// Returns the numbers of jobs by phase. A report names only the worst failing jobs. No job of a
    /// silent worker counts as running.
    pub(super) fn phases(
        &self,
        history: &History,
        sessions: &Sessions,
        decision: &Decision,
        replication: Replication,
    ) -> Vec<(&'static str, usize)> {
        let reports = || self.failing().map(|(_, it)| it);
        let moved = self.lives.iter().filter(|_| replication == Replication::One);
        let named = reports().flat_map(|it| &it.worst).map(|it| &it.job);
        let failing = named.chain(moved).cloned().collect();
        let unnamed = Failing::unnamed(reports(), replication);
        let unheard = sessions.unheard(&decision.ledger, &self.silent);
        let counts = history.phases(decision, &unheard, &failing, unnamed);
        let count = |phase: &JobPhase| counts.get(phase).copied().unwrap_or_default();
        JobPhase::ALL.iter().map(|phase| (phase.as_str(), count(phase))).collect()
    }
}

/// Returns the failing jobs of each worker from its events, or from its written reports if it has no
/// channel.
fn failing(stores: &Stores, workers: &Workers, output: JobOutput) -> BTreeMap<Slot, Arc<Failing>> {
    let mut failing = stores.sessions.failing(workers);
    for (slot, reported) in stores.processes.reported().iter() {
        let up = workers.get(slot).filter(|worker| worker.phase == Phase::Up);
        if up.is_none_or(|worker| worker.instance != reported.instance) {
            continue;
        }
        if reported.failing.count == 0 {
            failing.remove(slot);
        } else {
            failing.insert(*slot, Arc::clone(&reported.failing));
        }
    }
    match output {
        JobOutput::Shown => failing,
        // A worker of an earlier library reports output even if it is hidden.
        JobOutput::Hidden => {
            let silent = |it: Arc<Failing>| Arc::new(Arc::unwrap_or_clone(it).without_output());
            failing.into_iter().map(|(slot, reported)| (slot, silent(reported))).collect()
        }
    }
}
