//! The stores and processes of a pool, which keep their state in its directory.

use std::io;
use std::path::Path;

use anyhow::Context as _;
use swarm_adapters_host::job_log::{self, JobLogs, Kind, Line, Pruned, file_name};
use swarm_adapters_host::ledger::FileLedgerStore;
use swarm_core::{JobName, Ledger, Slot};
use tokio::sync::watch;

use crate::pool::failures::News;
use crate::pool::outlets::Outlets;
use crate::pool::pool_views::PoolViews;
use crate::pool::sessions::Sessions;
use crate::pool::snapshot::{JobRow, Snapshot};
use crate::pool::until::NotUp;
use crate::processes::worker::WorkerProgram;
use crate::processes::{Processes, WorkerProcess, Workers};
use crate::settings::input::Wanted;

/// Maximum number of jobs whose logs say that their worker has ended.
const NOTED_MAX: usize = 1_000;

/// The stores and processes of a pool, open in one directory.
pub(super) struct Stores {
    pub(super) ledgers: FileLedgerStore,
    pub(super) views: PoolViews,
    pub(super) sessions: Sessions,
    pub(super) processes: Processes,
    pub(super) workers: watch::Receiver<Workers>,
    /// News of the workers.
    pub(super) news: News,
}

impl Stores {
    /// Opens the stores in `dir`.
    pub(super) fn open(
        dir: &Path,
        wanted: &Wanted,
        worker: &WorkerProgram,
        outlets: &Outlets,
    ) -> anyhow::Result<Self> {
        let cannot = || format!("the state directory {} cannot be used", dir.display());
        let ledgers = FileLedgerStore::open(dir).with_context(cannot)?;
        let views = PoolViews::open(dir).with_context(cannot)?;
        views.set_details(wanted.details());
        let sessions =
            Sessions::open(dir, wanted.lease, outlets.reports.clone()).with_context(cannot)?;
        worker.run_log().begin(dir).with_context(cannot)?;
        let command = worker.command(dir, sessions.terms());
        let processes =
            Processes::open(dir, command, wanted.lease.stop_timeout, outlets.reports.clone())
                .with_context(cannot)?;
        wanted.job_logs().write(&processes.job_logs()).with_context(cannot)?;
        let (workers, news) = (processes.watch(), News::of(&processes));
        Ok(Self { ledgers, views, sessions, processes, workers, news })
    }

    /// Tells all workers the settings of their jobs.
    pub(super) fn set_details(&self, wanted: &Wanted) {
        self.views.set_details(wanted.details());
        if let Err(error) = wanted.job_logs().write(&self.processes.job_logs()) {
            tracing::warn!(%error, "the settings of the jobs' logs cannot be written and stay");
        }
    }

    /// Starts missing workers, and asks surplus workers to end.
    pub(super) fn fill_slots(&mut self, wanted: &Wanted) {
        let surplus = |slot: &Slot| !wanted.slots.contains(&slot.0);
        let leaving: Vec<_> = self.workers.borrow().keys().copied().filter(surplus).collect();
        for slot in leaving {
            self.processes.leave(slot, wanted.desired.timing.release_timeout);
        }
        for slot in wanted.slots.clone() {
            self.processes.start(Slot(slot), &format!("{}-{slot}", wanted.worker_name));
        }
    }

    /// Rotates large logs, and removes files of sessions that the ledger does not list.
    pub(super) fn tidy(&mut self, wanted: &Wanted, ledger: Option<&Ledger>) {
        self.processes.reap();
        self.processes.rotate_logs();
        self.prune_job_logs(wanted);
        let Some(ledger) = ledger else { return };
        if let Err(error) = self.sessions.collect_garbage(ledger, &self.workers) {
            tracing::warn!(%error, "files of ended sessions cannot be removed");
        }
    }

    /// Removes old logs of jobs, first of removed jobs, while all logs together are too large.
    fn prune_job_logs(&self, wanted: &Wanted) {
        let jobs = wanted.desired.jobs.keys();
        match job_log::prune(&self.processes.job_logs(), wanted.logs.total_max, jobs) {
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

    /// Notes in the logs of the jobs of a worker that the worker has ended. Jobs without a log get
    /// none: the programs of a library's worker write theirs elsewhere.
    pub(super) fn note_death(
        &self,
        (slot, worker): (Slot, &WorkerProcess),
        end: &str,
        wanted: &Wanted,
        snapshot: &Snapshot,
    ) -> io::Result<()> {
        let (dir, per_worker) = (self.processes.job_logs(), wanted.job_logs().per_worker);
        let worker = worker.name.as_str();
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

    /// Returns the granted jobs that are not up.
    pub(super) fn not_up(&self, ledger: &Ledger) -> NotUp {
        self.sessions.not_up(ledger, &self.views.marks())
    }

    /// Returns the newest ledger of this run. `decided` is the one of the last turn; a turn may have
    /// failed after its ledger was saved.
    pub(super) async fn newest(&self, decided: Option<&Ledger>) -> Option<Ledger> {
        let saved = self.ledgers.last().await;
        let Some(decided) = decided else { return saved };
        let saved = saved.filter(|saved| continues(saved, decided));
        Some(saved.unwrap_or_else(|| decided.clone()))
    }
}

/// Whether a ledger is `earlier` or a later state of it. Revisions of another incarnation, such as an
/// earlier directory has, compare with nothing.
pub(super) fn continues(ledger: &Ledger, earlier: &Ledger) -> bool {
    ledger.cells.incarnation == earlier.cells.incarnation && earlier.revision() <= ledger.revision()
}
