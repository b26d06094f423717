//! Sessions that fell silent and were revoked. An Event reports how long their jobs did not run.

use std::collections::{BTreeMap, BTreeSet};

use swarm_core::handover::{Cell, Moment, SessionId};
use swarm_core::{JobName, Ledger};

use super::report::{ago, worker};
use crate::status::Fenced;

/// The revoked sessions that still hold jobs.
#[derive(Default)]
pub(super) struct Standing(BTreeMap<SessionId, Still>);

struct Still {
    /// The last renewal that was seen.
    since: Moment,
    worker: String,
    jobs: BTreeSet<JobName>,
}

impl Standing {
    /// Records a revoked session whose last renewal was seen at `since`. `worker` is the name of
    /// its pod, if known.
    pub(super) fn begins(&mut self, session: SessionId, worker: Option<String>, since: Moment) {
        let worker = worker.unwrap_or_default();
        let still = || Still { since, worker, jobs: BTreeSet::new() };
        self.0.entry(session).or_insert_with(still);
    }

    /// The sessions that hold no job of the ledger any more, each once. O(jobs) while there are any.
    pub(super) fn ended(&mut self, now: Moment, ledger: &Ledger) -> Vec<Fenced> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let mut holders = BTreeSet::new();
        for (job, record) in &ledger.cells.jobs {
            let (Cell::Granted { session, .. } | Cell::Releasing { session, .. }) = &record.cell
            else {
                continue;
            };
            if let Some(still) = self.0.get_mut(session) {
                still.jobs.insert(job.clone());
                holders.insert(session);
            }
        }
        let slots = ledger.sessions();
        for (session, still) in &mut self.0 {
            if still.worker.is_empty() && holders.contains(session) {
                still.worker = worker(ledger, &slots, session);
            }
        }
        let ended = self.0.extract_if(.., |session, _| !holders.contains(session));
        let fenced = ended.filter(|(_, still)| !still.jobs.is_empty()).map(|(_, still)| {
            let stood = now.since(still.since);
            let jobs = still.jobs.iter().map(ToString::to_string).collect();
            Fenced { worker: still.worker, since: ago(stood), stood, jobs }
        });
        fenced.collect()
    }
}
