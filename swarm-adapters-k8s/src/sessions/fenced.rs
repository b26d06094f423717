//! Sessions that fell silent and were revoked. An Event reports how long their jobs did not run.

use std::collections::BTreeMap;

use swarm_core::handover::{Cell, Moment, SessionId};
use swarm_core::{JobName, Ledger};

use super::report::{ago, worker};
use crate::status::Fenced;

/// The revoked sessions whose jobs do not run elsewhere yet.
#[derive(Default)]
pub(super) struct Standing(BTreeMap<SessionId, Still>);

struct Still {
    /// The last renewal that was seen.
    since: Moment,
    worker: String,
    /// The jobs that it held. Each has the revision of the ledger that first had it elsewhere, once it
    /// is.
    jobs: BTreeMap<JobName, Option<u64>>,
}

impl Standing {
    /// Records a revoked session whose last renewal was seen at `since`. `worker` is the name of
    /// its pod, if known.
    pub(super) fn begins(&mut self, session: SessionId, worker: Option<String>, since: Moment) {
        let worker = worker.unwrap_or_default();
        let still = || Still { since, worker, jobs: BTreeMap::new() };
        self.0.entry(session).or_insert_with(still);
    }

    /// The sessions that hold no job of the ledger any more, each once. Workers have acknowledged the
    /// jobs that they got from such a session. A job that no worker has may wait for long, so it
    /// does not count. `acknowledged` is [`Overseer::acknowledged`]. O(jobs) while there are any.
    ///
    /// [`Overseer::acknowledged`]: swarm_core::overseer::Overseer::acknowledged
    pub(super) fn ended(
        &mut self,
        now: Moment,
        ledger: &Ledger,
        acknowledged: impl Fn(&SessionId, &str) -> u64,
    ) -> Vec<Fenced> {
        if self.0.is_empty() {
            return Vec::new();
        }
        for (job, record) in &ledger.cells.jobs {
            let (Cell::Granted { session, .. } | Cell::Releasing { session, .. }) = &record.cell
            else {
                continue;
            };
            if let Some(still) = self.0.get_mut(session) {
                still.jobs.insert(job.clone(), None);
            }
        }
        let slots = ledger.sessions();
        let ended = self.0.extract_if(.., |session, still| {
            if still.worker.is_empty() && !still.jobs.is_empty() {
                still.worker = worker(ledger, &slots, session);
            }
            let mut is_awaited = false;
            for (job, elsewhere) in &mut still.jobs {
                let cell = ledger.cells.jobs.get(job).map(|record| &record.cell);
                is_awaited |= match cell {
                    Some(Cell::Granted { session: next, .. }) if next != session => {
                        let since = *elsewhere.get_or_insert(ledger.revision());
                        !next.is_plain() && acknowledged(next, job.as_str()) < since
                    }
                    Some(Cell::Granted { .. }) => true,
                    Some(Cell::Releasing { session: next, .. }) => next == session,
                    _ => false,
                };
            }
            !is_awaited
        });
        let fenced = ended.filter(|(_, still)| !still.jobs.is_empty()).map(|(_, still)| {
            let stood = now.since(still.since);
            let jobs = still.jobs.keys().map(ToString::to_string).collect();
            Fenced { worker: still.worker, since: ago(stood), stood, jobs }
        });
        fenced.collect()
    }
}
