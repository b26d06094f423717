//! The life of each job: how often it ended, and for which causes, over all its workers.
//!
//! It is for people, and no decision reads it. Times are milliseconds since the Unix epoch, and the
//! caller passes them in. A job without an event needs no room. [`Lives::limit`] bounds the rest.

mod moved;
mod size;
mod summed;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::history::JobMove;
use crate::{FailingJob, FailingState, JobName, MoveReason};

pub use moved::moved;
pub use summed::SummedLives;

/// The largest number of events that are listed for a job. Older events are only counted.
pub const EVENTS_MAX: usize = 16;

/// The time that a job has to run after an end by itself until it does not fail any more: half a
/// minute, in milliseconds. The time counts over all its workers.
pub const RUNS_WELL_MS: u64 = 30_000;

/// The largest number of characters of a detail.
const DETAIL_MAX: usize = 160;

/// The meaning of the causes, for the metric that counts events by them.
pub const CAUSES: &str = "Jobs of a pool that ended by themselves (`crash`), failed their check of liveness \
                          (`stall`), were restarted by a person (`by-hand`), did not stop in time \
                          (`killed`) or tried another worker (`failover`)";

/// The cause of an event in the life of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Cause {
    /// It ended by itself, or did not become ready in time.
    Crash,
    /// It failed its check of liveness, and its worker stopped it.
    Stall,
    /// A person restarted it.
    ByHand,
    /// It did not stop in time, and its processes were killed.
    Killed,
    /// It moved to another worker since it failed on its worker.
    Failover,
    /// A cause that only a later version knows.
    #[cfg_attr(feature = "serde", serde(other))]
    Other,
}

impl Cause {
    /// All causes that this version counts.
    pub const ALL: &[Self] =
        &[Self::Crash, Self::Stall, Self::ByHand, Self::Killed, Self::Failover];

    /// Returns the cause as a word in lower case.
    ///
    /// ```
    /// assert_eq!(swarm_core::life::Cause::ByHand.as_str(), "by-hand");
    /// ```
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Crash => "crash",
            Self::Stall => "stall",
            Self::ByHand => "by-hand",
            Self::Killed => "killed",
            Self::Failover => "failover",
            Self::Other => "other",
        }
    }
}

/// The number of events by cause.
///
/// With the feature `serde` it is an object that has the causes with events only.
pub type Counts = BTreeMap<Cause, u64>;

/// An event in the life of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
#[non_exhaustive]
pub struct LifeEvent {
    /// The time.
    pub at_ms: u64,
    /// The cause.
    pub cause: Cause,
    /// The name of the worker that had the job.
    pub worker: String,
    /// The end of the run, or the order; a part of a sentence. Empty if there is nothing to say.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "String::is_empty"))]
    pub detail: String,
}

/// The failure of a job: it has ended by itself, and has not [run well](RUNS_WELL_MS) since.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
#[non_exhaustive]
pub struct Fails {
    /// The time of the first end.
    pub since_ms: u64,
    /// The time for which it has run since the last end, but for the present run.
    pub ran_ms: u64,
    /// The name of the worker of the last end.
    pub worker: String,
    /// The last end; a part of a sentence.
    pub exit: String,
}

/// The life of one job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, rename_all = "camelCase"))]
#[non_exhaustive]
pub struct Life {
    /// The time from which its events were counted.
    pub since_ms: u64,
    /// The number of its runs that ended by themselves and were followed by another one.
    pub restarts: u64,
    /// The number of its events by cause.
    pub counts: Counts,
    /// Its newest events, at most [`EVENTS_MAX`], the newest last.
    pub events: Vec<LifeEvent>,
    /// Its failure, if it fails.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub failing: Option<Fails>,
    /// The worker of the present run of a failing job, and the start of that run.
    #[cfg_attr(feature = "serde", serde(skip))]
    run: Option<(String, u64)>,
    /// Whether its worker stops it since it stalled. The end of that run counts no crash.
    #[cfg_attr(feature = "serde", serde(skip))]
    is_stalled: bool,
}

/// News about a job, from the worker that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News<'a> {
    /// A run has begun.
    Started,
    /// A run is stopped, or has ended since it was stopped.
    Stopped,
    /// A run has ended by itself, and another one follows.
    Restarting(&'a str),
    /// A run has ended by itself, and no other one follows.
    Failed(&'a str),
    /// A run has succeeded, and another one follows. The job does not fail any more.
    Succeeded,
    /// The check of liveness failed, with this reason. The end of the run follows.
    Stalled(&'a str),
    /// Anything else, with a detail.
    Event(Cause, &'a str),
}

/// The lives of the jobs of a pool, or of a worker.
///
/// ```
/// use swarm_core::life::{Cause, Lives, News};
///
/// let mut lives = Lives::begin(1_000);
/// let a = "a".parse()?;
/// lives.learn(2_000, &a, "w-0", News::Restarting("ended with exit code 3"));
/// // It moves, and fails still.
/// lives.learn(3_000, &a, "w-1", News::Started);
/// assert!(lives.of("a").unwrap().fails(32_999));
/// assert!(!lives.of("a").unwrap().fails(33_000));
/// assert_eq!(lives.learned()[&Cause::Crash], 1);
/// # Ok::<(), swarm_core::JobNameError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, rename_all = "camelCase"))]
pub struct Lives {
    /// The time from which the events of all jobs without a life were counted.
    since_ms: u64,
    jobs: BTreeMap<JobName, Life>,
    /// Rises with each change that should be kept.
    #[cfg_attr(feature = "serde", serde(skip))]
    changes: u64,
    /// The number of events of all jobs, by cause, that this value has learned.
    #[cfg_attr(feature = "serde", serde(skip))]
    learned: Counts,
}

impl Life {
    /// Whether the job fails at a time.
    #[must_use]
    pub fn fails(&self, now_ms: u64) -> bool {
        self.well_in(now_ms).is_some_and(|left| 0 < left)
    }

    /// Returns the time for which the job has to run on until it does not fail any more, in
    /// milliseconds; `None` if it does not fail.
    fn well_in(&self, now_ms: u64) -> Option<u64> {
        let Fails { ran_ms, .. } = self.failing.as_ref()?;
        let runs = self.run.as_ref().map_or(0, |(_, since)| now_ms.saturating_sub(*since));
        Some(RUNS_WELL_MS.saturating_sub(ran_ms.saturating_add(runs)))
    }

    /// Returns the last end of a run by itself, if it is listed.
    #[must_use]
    pub fn last_end(&self) -> Option<&str> {
        let ends = |it: &&LifeEvent| matches!(it.cause, Cause::Crash | Cause::Stall);
        let listed = || self.events.iter().rfind(ends).map(|it| it.detail.as_str());
        self.failing.as_ref().map(|it| it.exit.as_str()).or_else(listed)
    }

    /// Describes its failure as a worker would, without output and over all workers, and names the worker
    /// of its last end; `None` if it does not fail.
    #[must_use]
    pub fn failing_job(&self, job: &JobName) -> Option<(FailingJob, &str)> {
        let fails = self.failing.as_ref()?;
        let failing = FailingJob {
            job: job.clone(),
            state: FailingState::Restarting,
            restarts: self.restarts,
            since_unix_s: fails.since_ms / 1_000,
            last_exit: fails.exit.clone(),
            last_output: Vec::new(),
        };
        Some((failing, &fails.worker))
    }

    /// Returns the time of the newest event; 0 if none is listed.
    fn last_ms(&self) -> u64 {
        self.events.last().map_or(0, |it| it.at_ms)
    }

    fn count(&mut self, at_ms: u64, cause: Cause, worker: &str, detail: &str) -> Cause {
        let count = self.counts.entry(cause).or_default();
        *count = count.saturating_add(1);
        if EVENTS_MAX <= self.events.len() {
            self.events.remove(0);
        }
        let (worker, detail) = (worker.to_owned(), plain(detail));
        self.events.push(LifeEvent { at_ms, cause, worker, detail });
        cause
    }

    /// Records the end of a run by itself. Returns its cause, unless a stall was counted before.
    fn ended(&mut self, at_ms: u64, worker: &str, exit: &str, is_restarted: bool) -> Option<Cause> {
        self.restarts = self.restarts.saturating_add(u64::from(is_restarted));
        let is_crash = !std::mem::take(&mut self.is_stalled);
        let cause = is_crash.then(|| self.count(at_ms, Cause::Crash, worker, exit));
        let since_ms = self.failing.as_ref().map_or(at_ms, |it| it.since_ms);
        let (worker, exit) = (worker.to_owned(), plain(exit));
        (self.failing, self.run) = (Some(Fails { since_ms, ran_ms: 0, worker, exit }), None);
        cause
    }

    /// Records that the run is over, if it is one on this worker.
    fn stopped(&mut self, at_ms: u64, worker: Option<&str>) {
        let run = self.run.take_if(|(by, _)| worker.is_none_or(|worker| by == worker));
        if let (Some(fails), Some((_, since))) = (&mut self.failing, run) {
            fails.ran_ms = fails.ran_ms.saturating_add(at_ms.saturating_sub(since));
        }
    }
}

impl Lives {
    /// Begins to count at a time.
    #[must_use]
    pub fn begin(now_ms: u64) -> Self {
        Self { since_ms: now_ms, ..Self::default() }
    }

    /// Returns the time from which the events of jobs without a life were counted.
    #[must_use]
    pub fn since_ms(&self) -> u64 {
        self.since_ms
    }

    /// Returns a number that rises with each change that should be kept.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns the number of events of all jobs, by cause, since it was begun or read. A job that is
    /// forgotten takes none of them away.
    #[must_use]
    pub fn learned(&self) -> &Counts {
        &self.learned
    }

    /// Returns the life of a job; `None` if nothing has happened to it. O(log jobs).
    #[must_use]
    pub fn of(&self, job: &str) -> Option<&Life> {
        self.jobs.get(job)
    }

    /// Returns the jobs with a life, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&JobName, &Life)> {
        self.jobs.iter()
    }

    /// Returns the jobs that fail at a time, by name. O(jobs).
    pub fn failing(&self, now_ms: u64) -> impl Iterator<Item = (&JobName, &Life)> {
        self.jobs.iter().filter(move |(_, life)| life.fails(now_ms))
    }

    /// Returns the time until a job that runs now does not fail any more, in milliseconds; `None`
    /// if no job that fails runs. O(jobs).
    #[must_use]
    pub fn well_in(&self, now_ms: u64) -> Option<u64> {
        let runs = self.jobs.values().filter(|life| life.run.is_some());
        runs.filter_map(|life| life.well_in(now_ms)).min()
    }

    /// Takes news about a job. O(log jobs).
    pub fn learn(&mut self, at_ms: u64, job: &JobName, worker: &str, news: News<'_>) {
        let cause = match news {
            // Jobs that run well have no life.
            News::Started | News::Stopped => {
                let Some(life) = self.jobs.get_mut(job) else { return };
                let is_start = news == News::Started;
                life.is_stalled = false;
                life.stopped(at_ms, Some(worker).filter(|_| !is_start));
                let begins = is_start && life.failing.is_some();
                life.run = life.run.take().or_else(|| begins.then(|| (worker.to_owned(), at_ms)));
                return;
            }
            News::Succeeded => {
                let Some(life) = self.jobs.get_mut(job) else { return };
                life.is_stalled = false;
                self.changes += u64::from(life.failing.is_some());
                (life.failing, life.run) = (None, None);
                return;
            }
            News::Restarting(exit) => self.life(job).ended(at_ms, worker, exit, true),
            News::Failed(exit) => self.life(job).ended(at_ms, worker, exit, false),
            News::Stalled(reason) => {
                let life = self.life(job);
                life.is_stalled = true;
                Some(life.count(at_ms, Cause::Stall, worker, reason))
            }
            News::Event(cause, detail) => Some(self.life(job).count(at_ms, cause, worker, detail)),
        };
        self.changes += 1;
        if let Some(cause) = cause {
            *self.learned.entry(cause).or_default() += 1;
        }
    }

    /// Counts the moves of jobs that failed on their workers. O(moves · log jobs).
    pub fn failed_over(&mut self, at_ms: u64, moves: &[JobMove]) {
        for it in moves.iter().filter(|it| it.reason == MoveReason::Failing.as_str()) {
            let (from, to) = (it.from.as_deref().unwrap_or_default(), it.to.as_deref());
            let to = to.map(|to| format!("to {to}")).unwrap_or_default();
            self.learn(at_ms, &it.job, from, News::Event(Cause::Failover, &to));
        }
    }

    fn life(&mut self, job: &JobName) -> &mut Life {
        let since_ms = self.since_ms;
        let life = || Life { since_ms, ..Life::default() };
        self.jobs.entry(job.clone()).or_insert_with(life)
    }

    /// Records that a worker has ended, with all runs of its jobs. O(jobs).
    pub fn gone(&mut self, at_ms: u64, worker: &str) {
        for life in self.jobs.values_mut() {
            life.stopped(at_ms, Some(worker));
        }
    }

    /// Forgets the failures of jobs that have run well until now. O(jobs).
    pub fn settle(&mut self, now_ms: u64) {
        for life in self.jobs.values_mut() {
            if life.well_in(now_ms) == Some(0) {
                (life.failing, life.run) = (None, None);
                self.changes += 1;
            }
        }
    }

    /// Forgets the jobs for which `is_wanted` returns false. O(jobs).
    pub fn retain(&mut self, mut is_wanted: impl FnMut(&JobName) -> bool) {
        let before = self.jobs.len();
        self.jobs.retain(|job, _| is_wanted(job));
        self.changes += u64::from(self.jobs.len() < before);
    }
}

/// Returns the beginning of a text, without control characters.
fn plain(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().take(DETAIL_MAX).map(plain).collect()
}
