//! The lives of the jobs of a Swarm in its history: the sum of the reports of its workers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use swarm_core::handover::{Cell, SessionId};
use swarm_core::history::JobMove;
use swarm_core::life::{Counts, Life, Lives, SummedLives};
use swarm_core::{FailingJob, JobName, Ledger};

/// The largest number of jobs in a pool that keeps all lives. In a larger pool only failing jobs get one.
const JOBS_MAX: usize = 200;
/// The largest size of the lives in JSON, in bytes: 64 KiB.
const BYTES_MAX: usize = 64 << 10;

/// The lives of one Swarm in this process.
#[derive(Default)]
pub(super) struct Kept {
    /// `None` until the object was read.
    summed: Option<SummedLives>,
    /// The number of the last change that is stored.
    stored: u64,
    /// The last reports, until the object was read.
    waiting: Option<Reports>,
}

/// The reports of the sessions of a Swarm in one turn.
#[derive(Clone, Default)]
pub(crate) struct Reports {
    of_sessions: Vec<Report>,
    /// The sessions whose Leases exist.
    known: BTreeSet<String>,
    /// The number of jobs of the Swarm.
    jobs: usize,
    /// The moves that were granted in these turns.
    moves: Vec<JobMove>,
}

/// Jobs that fail by their lives, also without a report of their present workers.
#[derive(Default)]
pub(crate) struct Carried {
    /// The jobs, and the workers of their last ends.
    pub(crate) jobs: Vec<(FailingJob, String)>,
    /// The time until the first of them does not fail any more, if it runs on.
    pub(crate) well_in: Option<Duration>,
}

#[derive(Clone)]
struct Report {
    session: String,
    worker: String,
    lives: Arc<Lives>,
    /// The jobs with a life that the session holds.
    holds: BTreeSet<JobName>,
}

impl Reports {
    /// Collects the reports of all sessions. They acted by the ledger `before` the turn.
    /// O(sessions + jobs with a life).
    pub(crate) fn of(lives: &BTreeMap<SessionId, Arc<Lives>>, before: &Ledger) -> Self {
        let slots = before.sessions();
        let worker = |session: &SessionId| {
            let record = slots.get(session).and_then(|slot| before.slots.get(slot));
            record.map(|record| record.worker.clone()).unwrap_or_default()
        };
        let reports = lives.iter().filter(|(_, lives)| lives.iter().next().is_some());
        let reports = reports.map(|(session, lives)| {
            let holds = lives.iter().map(|(job, _)| job).filter(|job| holds(before, session, job));
            let (holds, lives) = (holds.cloned().collect(), Arc::clone(lives));
            Report { session: session.to_string(), worker: worker(session), lives, holds }
        });
        Self {
            of_sessions: reports.collect(),
            known: lives.keys().map(ToString::to_string).collect(),
            jobs: before.cells.jobs.len(),
            moves: Vec::new(),
        }
    }
}

/// Whether a session holds a job, or still releases it.
fn holds(ledger: &Ledger, session: &SessionId, job: &JobName) -> bool {
    match ledger.cells.jobs.get(job).map(|record| &record.cell) {
        Some(Cell::Granted { session: holder, .. } | Cell::Releasing { session: holder, .. }) => {
            holder == session
        }
        cell => matches!(cell, Some(Cell::Everywhere { .. })),
    }
}

impl Kept {
    /// Takes the lives of the object, unless this process has newer ones.
    pub(super) fn read(&mut self, now_ms: u64, stored: Option<SummedLives>) {
        if self.summed.is_none() {
            let mut read = stored.unwrap_or_else(|| SummedLives::begin(now_ms));
            // A person may have edited the object.
            read.limit(now_ms, JOBS_MAX, BYTES_MAX);
            self.stored = read.lives().changes();
            self.summed = Some(read);
        }
        if let Some(reports) = self.waiting.take() {
            self.take(now_ms, reports);
        }
    }

    /// Takes the reports of a turn.
    pub(super) fn take(&mut self, now_ms: u64, reports: Reports) {
        let Some(summed) = &mut self.summed else {
            self.waiting = Some(reports);
            return;
        };
        let Reports { of_sessions, known, jobs, moves } = reports;
        for Report { session, worker, lives, holds } in of_sessions {
            let counts = |job: &JobName| {
                let fails = || lives.of(job.as_str()).is_some_and(|it| it.failing.is_some());
                jobs <= JOBS_MAX || summed.lives().of(job.as_str()).is_some() || fails()
            };
            let counted: BTreeSet<_> = holds.into_iter().filter(counts).collect();
            summed.take(now_ms, &session, &worker, &lives, |job| counted.contains(job));
        }
        summed.failed_over(now_ms, &moves);
        summed.retain(|session| known.contains(session), |_| true);
        summed.limit(now_ms, JOBS_MAX, BYTES_MAX);
    }

    /// Counts the moves of jobs that failed on their workers, after the reports of the turn.
    pub(super) fn failed_over(&mut self, now_ms: u64, moves: &[JobMove]) {
        match (&mut self.summed, &mut self.waiting) {
            (Some(summed), _) => summed.failed_over(now_ms, moves),
            (None, Some(waiting)) => waiting.moves.extend_from_slice(moves),
            (None, None) => {}
        }
    }

    /// Returns the jobs that fail. O(jobs with a life).
    pub(super) fn carried(&self, now_ms: u64) -> Carried {
        let Some(summed) = &self.summed else { return Carried::default() };
        let lives = summed.lives();
        let job = |(job, life): (&JobName, &Life)| {
            let (failing, worker) = life.failing_job(job)?;
            Some((failing, worker.to_owned()))
        };
        let jobs = lives.failing(now_ms).filter_map(job).collect();
        Carried { jobs, well_in: lives.well_in(now_ms).map(Duration::from_millis) }
    }

    /// Follows the jobs with a life in the ledger after a turn. `runs` returns whether the grant of a job
    /// is acknowledged. O(slots + jobs with a life) if any job has a life.
    pub(super) fn follow(&mut self, now_ms: u64, ledger: &Ledger, runs: impl Fn(&JobName) -> bool) {
        let Some(summed) = &mut self.summed else { return };
        if summed.lives().iter().next().is_none() {
            return;
        }
        let slots = ledger.sessions();
        let holder = |job: &JobName| {
            let Cell::Granted { session, .. } = &ledger.cells.jobs.get(job)?.cell else {
                return None;
            };
            let slot = ledger.slots.get(slots.get(session)?)?;
            runs(job).then(|| (session.to_string(), slot.worker.clone()))
        };
        summed.follow(now_ms, holder);
        summed.retain(|_| true, |job| ledger.cells.jobs.contains_key(job));
    }

    /// The lives to write; `None` while there are none.
    pub(super) fn to_write(&self) -> Option<SummedLives> {
        self.summed.clone().filter(|summed| summed.lives().iter().next().is_some())
    }

    /// Whether there is something to write.
    pub(super) fn has_news(&self) -> bool {
        self.summed.as_ref().is_some_and(|summed| summed.lives().changes() != self.stored)
    }

    /// Notes that these lives were written.
    pub(super) fn written(&mut self, written: Option<&SummedLives>) {
        let changes = written.map(|it| it.lives().changes());
        // Without lives to write, everything that was is forgotten.
        let now = self.summed.as_ref().map(|it| it.lives().changes());
        self.stored = changes.or(now).unwrap_or_default();
    }

    /// The number of events of all jobs, by cause, that this process has learned.
    pub(super) fn learned(&self) -> Counts {
        self.summed.as_ref().map(|it| it.lives().learned().clone()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use swarm_core::life::{Cause, News};

    use super::*;

    fn job(name: &str) -> JobName {
        name.parse().unwrap()
    }

    /// A turn in which a session of worker `w-0` has reported these news, and holds job `a`. The pool has this number of jobs.
    fn reports(session: &str, news: &[(u64, &str)], jobs: usize) -> Reports {
        let mut lives = Lives::begin(1);
        for (at, of) in news {
            lives.learn(*at, &job(of), "", News::Failed("ended with exit code 3"));
        }
        let report = Report {
            session: session.to_owned(),
            worker: "w-0".to_owned(),
            lives: Arc::new(lives),
            holds: [job("a")].into(),
        };
        let known = [session.to_owned()].into();
        Reports { of_sessions: vec![report], known, jobs, ..Reports::default() }
    }

    #[test]
    fn nothing_is_counted_before_the_object_was_read_and_everything_once_after_that() {
        let mut kept = Kept::default();
        kept.take(5, reports("s", &[(2, "a"), (3, "unheld")], 3));
        assert!(!kept.has_news() && kept.to_write().is_none());
        kept.read(6, None);
        assert!(kept.has_news());
        let written = kept.to_write().unwrap();
        assert_eq!(written.lives().iter().map(|(job, _)| job.as_str()).collect::<Vec<_>>(), ["a"]);
        kept.written(Some(&written));
        assert!(!kept.has_news());
        kept.take(7, reports("s", &[(2, "a")], 3));
        assert!(!kept.has_news(), "nothing has changed");
        assert_eq!(kept.learned(), [(Cause::Crash, 1)].into());

        // Another replica takes over, and the pod was replaced.
        let written = serde_json::to_value(&written).unwrap();
        let written = serde_json::from_value(written).unwrap();
        let mut other = Kept::default();
        other.take(8, reports("t", &[(8, "a")], 3));
        other.read(9, Some(written));
        let found = other.to_write().unwrap();
        let life = found.lives().of("a").unwrap();
        assert_eq!((life.counts[&Cause::Crash], life.fails(9)), (2, true));
        assert_eq!(other.learned(), [(Cause::Crash, 1)].into(), "a counter of this process");
    }

    #[test]
    fn of_a_large_pool_only_jobs_that_fail_get_a_life() {
        let mut kept = Kept::default();
        kept.read(1, None);
        let mut reports = reports("s", &[], JOBS_MAX + 1);
        let mut lives = Lives::begin(1);
        lives.learn(2, &job("a"), "", News::Event(Cause::Killed, ""));
        reports.of_sessions[0].lives = Arc::new(lives.clone());
        kept.take(3, reports.clone());
        assert!(kept.to_write().is_none());
        lives.learn(4, &job("a"), "", News::Failed("ended"));
        reports.of_sessions[0].lives = Arc::new(lives);
        kept.take(5, reports);
        assert_eq!(kept.to_write().unwrap().lives().of("a").unwrap().counts.len(), 2);
    }
}
