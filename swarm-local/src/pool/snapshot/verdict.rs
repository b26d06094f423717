//! Judges a pool after a turn.

use swarm_core::verdict::{Reason, Summary, Verdict, failing_jobs, number, shortened};
use swarm_view::status::{FailingRow, SHOWN, Status};

use super::Snapshot;
use crate::processes::{Phase, Workers};

/// Returns the verdict if workers are ending, though no job waits for them.
fn leaving(workers: &Workers) -> Option<Verdict> {
    let names = workers.values().filter(|worker| matches!(worker.phase, Phase::Leaving(_)));
    let names: Vec<_> = names.map(|worker| worker.name.as_str()).collect();
    let are = number(names.len(), "this worker is", "these workers are");
    let message = format!("{are} not ready: {}", shortened(&names));
    (!names.is_empty()).then_some(Verdict { reason: Reason::WorkersNotReady, message })
}

impl Snapshot {
    /// Judges the pool after the last turn, as a cluster judges a Swarm. Failing and stopping jobs
    /// must be set before.
    pub(crate) fn judge(&mut self, turn: &Summary<'_>, workers: &Workers) {
        let Verdict { reason, message } = turn
            .start()
            .or_else(|| turn.unsettled())
            .or_else(|| self.all_failing())
            .or_else(|| leaving(workers))
            .or_else(|| turn.stale())
            .unwrap_or_else(|| turn.settled_on_all());
        (self.status.reason, self.status.message) = (reason.as_str().into(), message);
    }

    /// Returns the verdict if every job with a worker keeps ending by itself.
    fn all_failing(&self) -> Option<Verdict> {
        let Status { jobs, failing, .. } = &self.status;
        let shown = failing.iter().take(SHOWN).map(FailingRow::shown).collect::<Vec<_>>();
        let is_so = 0 < jobs.granted && jobs.granted <= jobs.failing;
        let message = || failing_jobs(jobs.failing, &shown);
        is_so.then(|| Verdict { reason: Reason::AllJobsFailing, message: message() })
    }
}
