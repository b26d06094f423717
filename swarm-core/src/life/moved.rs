//! The jobs that fail still after a move.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use crate::handover::{Cell, SessionId};
use crate::{Failing, JobName, Ledger};

/// Returns the jobs that fail though no worker reports it, since they moved or their workers were
/// replaced. Each comes with the worker that has it now, if one does.
///
/// `fails` are the jobs that [fail by their lives](super::Lives::failing). `reports` are the reports of
/// workers about jobs that they [hold](Failing::held). `is_unassigned` returns whether a job without a
/// worker stays without one, and `worker` the worker of a session. O(reports + jobs · log jobs).
pub fn moved<'a, 'b, W: Ord>(
    ledger: &Ledger,
    fails: impl IntoIterator<Item = &'a JobName>,
    reports: impl IntoIterator<Item = (W, &'b Failing)>,
    is_unassigned: impl Fn(&JobName) -> bool,
    worker: impl Fn(&SessionId) -> W,
) -> Vec<(&'a JobName, Option<W>)> {
    let (mut named, mut silent) = (BTreeSet::new(), BTreeSet::new());
    for (worker, report) in reports {
        named.extend(report.worst.iter().map(|it| &it.job));
        silent.extend((!report.is_whole()).then_some(worker));
    }
    let place = |job: &JobName| match &ledger.cells.jobs.get(job)?.cell {
        Cell::Granted { session, .. } | Cell::Releasing { session, .. } => {
            // A worker that counts more jobs than it names may count this one.
            Some(worker(session)).filter(|worker| !silent.contains(worker)).map(Some)
        }
        Cell::Free { .. } | Cell::Hold { .. } => (!is_unassigned(job)).then_some(None),
        // A job of all workers fails where its workers say so, and no other job runs.
        Cell::Everywhere { .. }
        | Cell::ReleasingAll { .. }
        | Cell::Quarantined { .. }
        | Cell::Done { .. } => None,
    };
    let unnamed = fails.into_iter().filter(|job| !named.contains(job));
    unnamed.filter_map(|job| Some((job, place(job)?))).collect()
}
