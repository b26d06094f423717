//! The rows of a snapshot: a job, and a worker.

use swarm_adapters_host::channel::JobNow;
use swarm_core::handover::SessionId;
use swarm_core::{Slot, SlotRecord, Title};
use swarm_view::words::Word;
use swarm_view::workers::WorkerRow;

use crate::processes::reports::Reports;
use crate::processes::{Phase, WorkerProcess};

/// One job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JobRow {
    pub(crate) name: String,
    pub(crate) title: Option<Title>,
    /// State of the job in the ledger.
    pub(crate) state: Word,
    /// The slot that holds the job.
    pub(crate) slot: Option<u32>,
    pub(crate) token: u64,
}

impl JobRow {
    /// Returns the phase of the job, and the report of its worker. `unassigned` is the reason why it
    /// has no worker, if it has none.
    pub(crate) fn phase(
        &self,
        reports: &Reports,
        unassigned: Option<&str>,
    ) -> (Word, Option<JobNow>) {
        reports.of(&self.name, self.slot, self.state, unassigned)
    }
}

/// Makes the row of the worker in a slot, with its numbers of granted jobs and of jobs to release.
pub(super) fn worker_row(
    slot: Slot,
    worker: &WorkerProcess,
    record: Option<&SlotRecord>,
    (jobs, releasing): (usize, usize),
) -> WorkerRow {
    let is_its_own = |session: &&SessionId| session.pod_uid() == worker.instance;
    let session = record.map(|record| &record.session).filter(is_its_own);
    WorkerRow {
        name: worker.name.clone(),
        slot: slot.0,
        state: match worker.phase {
            Phase::Up if session.is_some() => "ready",
            Phase::Up => "starting",
            Phase::Leaving(_) => "leaving",
            Phase::Ending(_) | Phase::Away(_) => "away",
        },
        session: session.map(ToString::to_string),
        jobs,
        releasing,
        previous: Some(0),
        restarts: Some(worker.deaths),
        pid: worker.pid,
        ..WorkerRow::default()
    }
}
