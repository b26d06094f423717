//! The state of a pool at one moment, for the terminal and HTTP.

mod answer;
pub(crate) mod entries;
mod facts;
mod rows;
mod verdict;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use swarm_adapters_host::channel::Versions;
use swarm_adapters_host::clock::unix_s;
use swarm_adapters_host::failing::WORST_MAX;
use swarm_core::handover::Cell;
use swarm_core::life::moved;
use swarm_core::verdict::Explainer;
use swarm_core::{
    Decision, Desired, Failing, JobName, Jobs, Ledger, Observed, Progress, Slot, Unassigned,
};
use swarm_view::picture::Bounds;
use swarm_view::shell;
use swarm_view::starts::Runners;
use swarm_view::status::{FailingRow, JobCounts, Status, StoppingRow, UnassignedRow};
use swarm_view::workers::WorkerRow;

pub(crate) use self::rows::JobRow;
use self::rows::worker_row;
use crate::processes::reports::Reports;
use crate::processes::{WorkerProcess, Workers};

/// The state of a pool, with what only its operator or its view knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// The document, without the facts that depend on the time. [`Snapshot::answer`] adds them.
    pub(crate) status: Status,
    /// The longest times of a handover.
    pub(crate) bounds: Bounds,
    /// Options that name the pool in a command, such as ` --pool streams`.
    pub(crate) options: String,
    /// Holder of each job, by name. Served separately, since there may be many.
    pub(crate) holders: Vec<JobRow>,
    /// Desired jobs with their params.
    pub(crate) wanted: Jobs,
    /// Runners of these jobs. Served separately, to the user of the pool.
    pub(crate) runners: Runners,
    /// Whether no job is to run.
    pub(crate) is_suspended: bool,
    /// Whether nothing moves.
    pub(crate) is_paused: bool,
    /// Jobs that balance moves later, once other moves are done.
    pub(crate) deferred: BTreeSet<JobName>,
    /// Jobs that their worker stops: the slot that gets each, and the reason.
    pub(crate) leaving: BTreeMap<String, (Option<u32>, String)>,
    /// Explains why jobs have no worker.
    pub(crate) explainer: Explainer,
    /// The identities of the workers' processes, by slot.
    pub(crate) instances: BTreeMap<u32, String>,
}

impl Snapshot {
    /// Returns the index of the job with this name. O(log jobs).
    pub(crate) fn place(&self, name: &str) -> Option<usize> {
        self.holders.binary_search_by(|row| row.name.as_str().cmp(name)).ok()
    }

    /// Returns the job with this name. O(log jobs).
    pub(crate) fn job(&self, name: &str) -> Option<&JobRow> {
        self.holders.get(self.place(name)?)
    }

    /// Sets the desired jobs, and the facts that explain where they are.
    pub(super) fn explain(&mut self, decision: &Decision, desired: &Desired, observed: &Observed) {
        self.set_wanted(desired.jobs.clone());
        (self.is_suspended, self.is_paused) = (desired.suspend, desired.paused);
        self.deferred.clone_from(&decision.plan.deferred);
        if !self.status.unassigned.is_empty() {
            self.explainer = Explainer::of_turn(decision, desired, observed);
        }
    }

    /// Returns the reason why this job has no worker, in a sentence; `None` if it has one.
    /// O(log jobs).
    pub(crate) fn why(&self, job: &str) -> Option<String> {
        let reason = &*self.status.unassigned(job)?.reason;
        if self.status.by_hand.binary_search_by(|name| name.as_str().cmp(job)).is_ok() {
            let (options, job) = (&self.options, shell::operand(job));
            return Some(format!("suspended by hand; undo: swarm resume{options} {job}"));
        }
        let why = Unassigned::ALL.iter().find(|why| why.as_str() == reason)?;
        Some(self.explainer.sentence(self.wanted.get(job)?, *why))
    }

    /// Sets the failing jobs that the workers in these slots report, and jobs in `lives` that moved
    /// since they failed, with their last `outputs`. Reports about jobs that a worker does not hold are
    /// ignored. A failure has the counts over all workers that `reports` has, or else the number of
    /// restarts in a row.
    pub(super) fn mark_failing(
        &mut self,
        ledger: &Ledger,
        reported: &BTreeMap<Slot, Arc<Failing>>,
        (lives, outputs): (&BTreeSet<JobName>, &BTreeMap<String, Vec<String>>),
        reports: &Reports,
    ) {
        let holds = |job: &JobName, slot: u32| {
            let found = self.job(job.as_str());
            found.is_some_and(|row| row.slot.is_none_or(|holder| holder == slot))
        };
        let part = |row: &WorkerRow| {
            let part = reported.get(&Slot(row.slot))?.held(|job| holds(job, row.slot));
            Some((Slot(row.slot), part.limited(row.jobs + row.releasing, WORST_MAX)))
        };
        let parts: BTreeMap<_, _> = self.status.workers.iter().filter_map(part).collect();
        let slots = ledger.sessions();
        let moved = moved(
            ledger,
            lives,
            parts.iter().map(|(slot, part)| (*slot, part)),
            |job| self.status.unassigned(job.as_str()).is_some(),
            |session| slots.get(session).copied().unwrap_or(Slot::NOBODY),
        );
        let mut all = Vec::new();
        for row in &mut self.status.workers {
            let Some(part) = parts.get(&Slot(row.slot)) else { continue };
            row.failing = part.count;
            all.extend(part.worst.iter().map(|job| {
                let restarts = reports.restarts(Slot(row.slot), job.job.as_str());
                let order = job.worst_first();
                let mut failing = FailingRow::of(job.clone(), &row.name);
                failing.restarts = restarts.unwrap_or(failing.restarts);
                (order, failing)
            }));
        }
        let (lives, mut homeless) = (reports.lives(), 0);
        for (job, slot) in moved {
            let life = lives.of(job.as_str());
            let Some((mut failing, last)) = life.and_then(|it| it.failing_job(job)) else {
                continue;
            };
            failing.last_output = outputs.get(job.as_str()).cloned().unwrap_or_default();
            let is_holder = |row: &&mut WorkerRow| slot == Some(Slot(row.slot));
            let holder = self.status.workers.iter_mut().find(is_holder);
            homeless += usize::from(holder.is_none());
            let worker = holder.map_or(last, |row| {
                row.failing += 1;
                &*row.name
            });
            all.push((failing.worst_first(), FailingRow::of(failing, worker)));
        }
        let failing = self.status.workers.iter().map(|row| row.failing).sum::<usize>() + homeless;
        self.status.jobs.failing = failing;
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        self.status.failing = all.into_iter().map(|(_, row)| row).take(WORST_MAX).collect();
        self.status.healthy &= failing == 0;
        self.status.mark_lives(&lives);
    }

    /// Sets how many jobs of the workers in these slots run a previous version.
    pub(super) fn mark_versions(&mut self, reported: &BTreeMap<Slot, Versions>) {
        for row in &mut self.status.workers {
            let Some(Versions { previous, failed }) = reported.get(&Slot(row.slot)) else {
                continue;
            };
            let previous = (*previous).min(row.jobs + row.releasing);
            row.previous = Some(previous);
            row.held_back_by = failed.first().filter(|_| 0 < previous).cloned();
        }
    }

    /// Sets the times since which jobs have been stopping. Known times come from `before`, which is
    /// updated.
    pub(super) fn mark_stopping(&mut self, before: &mut BTreeMap<(String, u64), u64>) {
        let releasing = self.holders.iter().filter(|row| row.state == "releasing");
        let since = |row: &JobRow| {
            let key = (row.name.clone(), row.token);
            let since = before.get(&key).copied().unwrap_or_else(unix_s);
            (key, since)
        };
        let known: BTreeMap<_, _> = releasing.clone().map(since).collect();
        let rows = releasing.filter_map(|row| {
            Some(StoppingRow {
                job: row.name.clone(),
                worker: self.status.worker(row.slot?)?.name.clone(),
                since_unix_s: *known.get(&(row.name.clone(), row.token))?,
            })
        });
        let mut rows: Vec<_> = rows.collect();
        rows.sort_by(|one, other| {
            (one.since_unix_s, &one.job).cmp(&(other.since_unix_s, &other.job))
        });
        rows.truncate(WORST_MAX);
        self.status.stopping = rows;
        *before = known;
    }

    /// Sets the desired jobs, and the titles in all rows. O(jobs · log jobs).
    fn set_wanted(&mut self, wanted: Jobs) {
        let title = |name: &str| wanted.get(name).and_then(|job| job.title.clone());
        for row in &mut self.holders {
            row.title = title(&row.name);
        }
        for row in &mut self.status.failing {
            row.title = title(&row.job).map(|title| title.to_string());
        }
        self.wanted = wanted;
    }

    /// Sets the times since which these workers are silent.
    pub(super) fn mark_silent(&mut self, silent: &BTreeMap<Slot, Instant>) {
        for row in &mut self.status.workers {
            let ago = |since: &Instant| unix_s().saturating_sub(since.elapsed().as_secs());
            row.silent_since_unix_s = silent.get(&Slot(row.slot)).map(ago);
        }
        self.status.healthy &= silent.is_empty();
    }

    /// Returns the time of the last sign of a worker.
    fn heard(&self, worker: &WorkerRow, reports: &Reports) -> Option<Instant> {
        reports.heard(self.instances.get(&worker.slot)?)
    }

    /// Makes the snapshot of a pool after a turn. O(jobs).
    pub(super) fn of(
        name: &str,
        decision: &Decision,
        workers: &Workers,
        progress: &Progress,
        settled: bool,
    ) -> Self {
        let ledger = &decision.ledger;
        let assignment = ledger.assignment();
        let unassigned = decision.plan.unassigned.iter().map(|(job, reason)| UnassignedRow {
            job: job.to_string(),
            reason: reason.as_str().into(),
            message: None,
        });
        let unassigned = unassigned.collect();
        let mut loads = BTreeMap::<Slot, (usize, usize)>::new();
        let (mut everywhere, mut leaving) = (0, BTreeMap::new());
        let mut holders = Vec::with_capacity(ledger.cells.jobs.len());
        for (job, record) in &ledger.cells.jobs {
            let slot = assignment.holder(job);
            let mut nowhere = (0_usize, 0_usize);
            let (granted, releasing) = match slot {
                Some(slot) => loads.entry(slot).or_default(),
                None => &mut nowhere,
            };
            match &record.cell {
                Cell::Granted { .. } => *granted += 1,
                Cell::Releasing { .. } => *releasing += 1,
                Cell::Everywhere { .. } => everywhere += 1,
                Cell::Free { .. }
                | Cell::ReleasingAll { .. }
                | Cell::Hold { .. }
                | Cell::Quarantined { .. }
                | Cell::Done { .. } => {}
            }
            let moves = &decision.plan.moves;
            if matches!(record.cell, Cell::Releasing { .. })
                && let Ok(at) = moves.binary_search_by(|step| step.job.cmp(job))
            {
                let step = (moves[at].to.map(|slot| slot.0), moves[at].reason.as_str().to_owned());
                leaving.insert(job.to_string(), step);
            }
            holders.push(JobRow {
                name: job.to_string(),
                title: None,
                state: record.cell.state(),
                slot: slot.map(|slot| slot.0),
                token: record.cell.token().0,
            });
        }
        let row = |(slot, worker): (&Slot, &WorkerProcess)| {
            let (jobs, releasing) = loads.get(slot).copied().unwrap_or_default();
            let record = ledger.slots.get(slot);
            worker_row(*slot, worker, record, (jobs + everywhere, releasing))
        };
        let instances = workers.iter().map(|(slot, it)| (slot.0, it.instance.clone())).collect();
        let status = Status {
            name: name.to_owned(),
            revision: ledger.revision(),
            version: Some(ledger.version),
            settled,
            healthy: true,
            jobs: JobCounts::of(progress, ledger.cells.jobs.len()),
            workers: workers.iter().map(row).collect(),
            unassigned,
            ..Status::default()
        };
        Self { status, holders, leaving, instances, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use swarm_adapters_host::channel::{JobNow, WorkerState};
    use swarm_core::handover::{Record, SessionId};
    use swarm_core::life::News;
    use swarm_core::{FailingJob, FailingState, SlotRecord, Token};

    use super::*;
    use crate::processes::Phase;

    fn failing(names: &[&str], count: usize) -> Arc<Failing> {
        let job = |name: &&str| FailingJob {
            job: name.parse().unwrap(),
            state: FailingState::Failed,
            restarts: 0,
            since_unix_s: 0,
            last_exit: "ended with exit code 3".to_owned(),
            last_output: Vec::new(),
        };
        Arc::new(Failing { count, worst: names.iter().map(job).collect() })
    }

    #[test]
    fn a_job_that_its_worker_does_not_hold_any_more_does_not_fail() {
        let worker = WorkerProcess {
            name: "w-0".to_owned(),
            instance: String::new(),
            pid: None,
            phase: Phase::Up,
            deaths: 0,
            last_death: None,
            unstarted: None,
            held: Vec::new(),
        };
        let row = |name: &str| JobRow {
            name: name.to_owned(),
            title: None,
            state: "granted",
            slot: Some(0),
            token: 1,
        };
        // Seven runs have ended since the worker got the job, none of them since the last edit.
        let reports = Reports::default();
        let now = JobNow { restarts: 7, ..JobNow::default() };
        let state =
            WorkerState { jobs: [("fails".to_owned(), now)].into(), ..WorkerState::default() };
        reports.lock().insert(Slot(0), state);
        let snapshot = |reported| {
            let mut snapshot = Snapshot {
                status: Status {
                    workers: vec![worker_row(Slot(0), &worker, None, (2, 0))],
                    ..Status::default()
                },
                holders: vec![row("fails"), row("works")],
                ..Snapshot::default()
            };
            let none = (&BTreeSet::new(), &BTreeMap::new());
            let (ledger, reported) = (Ledger::new(0), BTreeMap::from([(Slot(0), reported)]));
            snapshot.mark_failing(&ledger, &reported, none, &reports);
            let named: Vec<_> =
                snapshot.status.failing.iter().map(|row| (row.job.clone(), row.restarts)).collect();
            (snapshot.status.jobs.failing, snapshot.status.workers[0].failing, named)
        };
        let removed = failing(&["a", "b", "c", "fails"], 4);
        assert_eq!(snapshot(removed), (1, 1, vec![("fails".to_owned(), 7)]));
        // The names of the other jobs are unknown.
        let many = failing(&["a", "fails"], 9);
        assert_eq!(snapshot(many), (2, 2, vec![("fails".to_owned(), 7)]));
    }

    #[test]
    fn a_failing_job_that_moves_fails_still_with_its_counts_and_its_last_output() {
        let reports = Reports::default();
        let moves: JobName = "moves".parse().unwrap();
        let crash = News::Restarting("ended with exit code 3");
        for at_ms in [5_000, 9_000] {
            reports.lives().learn(at_ms, &moves, "w-0", crash);
        }
        let output = vec!["no camera".to_owned()];
        let outputs = BTreeMap::from([("moves".to_owned(), output.clone())]);
        let session = SessionId::new("w-1", 1);
        let mut ledger = Ledger::new(0);
        let record = SlotRecord {
            worker: "w-1".to_owned(),
            session: session.clone(),
            joined: 0,
            version: 1,
            last_handoff_version: 0,
        };
        ledger.slots.insert(Slot(1), record);
        let mut failing = |cell: Cell, slot, reported: Failing| {
            let (title, token, name) = (None, 1, "moves".to_owned());
            let state = cell.state();
            ledger.cells.jobs.insert(moves.clone(), Record { cell, strikes: 0 });
            let worker = |slot, name: &str| WorkerRow {
                slot,
                name: name.to_owned(),
                jobs: 9,
                ..WorkerRow::default()
            };
            let workers = vec![worker(0, "w-0"), worker(1, "w-1")];
            let mut snapshot = Snapshot {
                status: Status { workers, ..Status::default() },
                holders: vec![JobRow { name, title, state, slot, token }],
                ..Snapshot::default()
            };
            let reported = BTreeMap::from([(Slot(1), Arc::new(reported))]);
            let by_life = (&[moves.clone()].into(), &outputs);
            snapshot.mark_failing(&ledger, &reported, by_life, &reports);
            let Status { jobs, workers, failing, .. } = snapshot.status;
            let row = failing.first().map(|row| {
                assert_eq!((row.restarts, row.since_unix_s, &row.last_output), (2, 5, &output));
                row.worker.clone()
            });
            (jobs.failing, workers[1].failing, row.unwrap_or_default())
        };
        let none = Failing::default;
        let granted = || Cell::Granted { session: session.clone(), token: Token(1) };
        assert_eq!(failing(granted(), Some(1), none()), (1, 1, "w-1".to_owned()));
        let free = Cell::Free { token: Token(1) };
        assert_eq!(failing(free, None, none()), (1, 0, "w-0".to_owned()), "on its way");
        assert_eq!(failing(Cell::Done { token: Token(1) }, None, none()), (0, 0, String::new()));
        // One of the two that its worker does not name.
        let many = Failing { count: 2, worst: Vec::new() };
        assert_eq!(failing(granted(), Some(1), many), (2, 2, String::new()));
    }
}
