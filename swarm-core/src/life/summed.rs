//! Sums what workers report about their own jobs into the lives of a pool.
//!
//! A worker counts from the begin of its session, so a report that is read twice, or late, adds nothing.
//! For that, the sum keeps how much of each session it has taken. A worker is believed about jobs that it
//! holds only, and within bounds.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::{Cause, Counts, EVENTS_MAX, Fails, Life, LifeEvent, Lives, RUNS_WELL_MS, plain};
use crate::JobName;
use crate::history::JobMove;

/// The causes that a worker sees. The others are known to the operator alone.
const OF_WORKERS: [Cause; 3] = [Cause::Crash, Cause::Stall, Cause::Killed];

/// The largest number of events of a cause that a session may report of a job.
const COUNT_MAX: u64 = 1_000_000;

/// The largest number of pairs of a session and a job with a mark.
const MARKS_MAX: usize = 2_000;

/// The lives of the jobs of a pool, summed over all sessions of its workers.
///
/// ```
/// use swarm_core::life::{Cause, Lives, News, SummedLives};
///
/// let (mut worker, mut pool) = (Lives::begin(1_000), SummedLives::begin(500));
/// let a = "a".parse()?;
/// worker.learn(2_000, &a, "w-0", News::Restarting("ended with exit code 3"));
/// for _ in 0..2 {
///     pool.take(3_000, "session-1", "w-0", &worker, |_| true);
/// }
/// // Its pod was replaced, and the next session counts from the begin.
/// let mut worker = Lives::begin(60_000);
/// worker.learn(61_000, &a, "w-0", News::Failed("ended with exit code 3"));
/// pool.take(62_000, "session-2", "w-0", &worker, |_| true);
/// assert_eq!(pool.lives().of("a").unwrap().counts[&Cause::Crash], 2);
/// assert!(pool.lives().of("a").unwrap().fails(62_000));
/// # Ok::<(), swarm_core::JobNameError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, rename_all = "camelCase"))]
pub struct SummedLives {
    #[cfg_attr(feature = "serde", serde(flatten))]
    lives: Lives,
    /// By session and job.
    taken: BTreeMap<String, BTreeMap<JobName, Mark>>,
}

/// The part of a life in a report of a session that was taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, rename_all = "camelCase"))]
struct Mark {
    /// The time from which the session counts. It rises if the session had to forget the life.
    since_ms: u64,
    restarts: u64,
    counts: Counts,
    /// Whether the session reported that the job fails.
    fails: bool,
}

impl Mark {
    /// Takes a life, and returns the events by cause and the restarts that are new. `None` for a life that
    /// is older than one that was taken.
    fn take(&mut self, life: &Life) -> Option<(Counts, u64)> {
        if life.since_ms < self.since_ms {
            return None;
        }
        if self.since_ms < life.since_ms {
            *self = Self { since_ms: life.since_ms, fails: self.fails, ..Self::default() };
        }
        let reported = |cause| life.counts.get(&cause).copied().unwrap_or_default().min(COUNT_MAX);
        let taken = |cause: &Cause| self.counts.get(cause).copied().unwrap_or_default();
        let restarts = life.restarts.min(COUNT_MAX);
        let is_older = OF_WORKERS.iter().any(|cause| reported(*cause) < taken(cause));
        if is_older || restarts < self.restarts {
            return None;
        }
        let new = OF_WORKERS.iter().map(|cause| (*cause, reported(*cause) - taken(cause)));
        let new: Counts = new.filter(|(_, count)| 0 < *count).collect();
        let again = restarts - self.restarts;
        add(&mut self.counts, &new);
        self.restarts = restarts;
        Some((new, again))
    }
}

impl SummedLives {
    /// Begins to count at a time.
    #[must_use]
    pub fn begin(now_ms: u64) -> Self {
        Self { lives: Lives::begin(now_ms), taken: BTreeMap::new() }
    }

    /// Returns the lives.
    #[must_use]
    pub fn lives(&self) -> &Lives {
        &self.lives
    }

    /// Takes the report of a session, whose worker has this name. `holds` returns whether the session
    /// holds a job; it is not believed about others. O(jobs of the report · log jobs).
    pub fn take(
        &mut self,
        now_ms: u64,
        session: &str,
        worker: &str,
        report: &Lives,
        mut holds: impl FnMut(&JobName) -> bool,
    ) {
        for (job, life) in report.iter() {
            if holds(job) {
                self.take_life(now_ms, session, worker, (job, life));
            }
        }
    }

    fn take_life(&mut self, now_ms: u64, session: &str, worker: &str, of: (&JobName, &Life)) {
        let (job, reported) = of;
        let is_known = self.taken.get(session).is_some_and(|jobs| jobs.contains_key(job));
        if !is_known && MARKS_MAX <= self.taken.values().map(BTreeMap::len).sum() {
            return;
        }
        let marks = self.taken.entry(session.to_owned()).or_default();
        let mark = marks.entry(job.clone()).or_default();
        let Some((new, again)) = mark.take(reported) else { return };
        let has_failed = std::mem::replace(&mut mark.fails, fails(reported).is_some());
        let life = self.lives.life(job);
        let before = life.failing.clone();
        match fails(reported) {
            Some(fails) => {
                let since_ms = fails.since_ms.min(now_ms);
                let since_ms = before.as_ref().map_or(since_ms, |it| it.since_ms.min(since_ms));
                let (worker, exit) = (worker.to_owned(), plain(&fails.exit));
                life.failing = Some(Fails { since_ms, ran_ms: fails.ran_ms, worker, exit });
                life.run = None;
            }
            // It has run well on the worker that had reported it.
            None if has_failed => (life.failing, life.run) = (None, None),
            None => {}
        }
        let is_changed = before != life.failing || 0 < again || !new.is_empty();
        life.restarts = life.restarts.saturating_add(again);
        add(&mut life.counts, &new);
        life.add(now_ms, worker, &reported.events, new.values().sum());
        let is_empty = life.counts.is_empty() && life.restarts == 0 && life.failing.is_none();
        if is_empty {
            self.lives.jobs.remove(job);
        }
        add(&mut self.lives.learned, &new);
        self.lives.changes += u64::from(is_changed);
    }

    /// Counts the moves of jobs that failed on their workers, as [`Lives::failed_over`] does.
    pub fn failed_over(&mut self, at_ms: u64, moves: &[JobMove]) {
        self.lives.failed_over(at_ms, moves);
    }

    /// Follows the jobs that fail to their present workers, and forgets the failures of jobs that have run
    /// well there. `holder` returns the session that runs a job, and the name of its worker.
    /// O(jobs with a life).
    pub fn follow(
        &mut self,
        now_ms: u64,
        mut holder: impl FnMut(&JobName) -> Option<(String, String)>,
    ) {
        for (job, life) in &mut self.lives.jobs {
            if life.failing.is_none() {
                continue;
            }
            let Some((session, worker)) = holder(job) else {
                life.stopped(now_ms, None);
                continue;
            };
            // The session itself measures how long the job runs well.
            let marks = self.taken.get(&session);
            if marks.and_then(|jobs| jobs.get(job)).is_some_and(|mark| mark.fails) {
                continue;
            }
            if life.run.as_ref().is_none_or(|(by, _)| *by != worker) {
                life.stopped(now_ms, None);
                life.run = Some((worker, now_ms));
            }
        }
        self.lives.settle(now_ms);
    }

    /// Forgets what was taken of sessions for which `is_known` returns false, and the jobs for which
    /// `is_wanted` does. A session that is forgotten must never report again. O(sessions · jobs).
    pub fn retain(
        &mut self,
        is_known: impl Fn(&str) -> bool,
        mut is_wanted: impl FnMut(&JobName) -> bool,
    ) {
        let count = |taken: &BTreeMap<String, BTreeMap<JobName, Mark>>| {
            taken.values().map(BTreeMap::len).sum::<usize>()
        };
        let before = count(&self.taken);
        self.taken.retain(|session, _| is_known(session));
        for jobs in self.taken.values_mut() {
            jobs.retain(|job, _| is_wanted(job));
        }
        self.taken.retain(|_, jobs| !jobs.is_empty());
        self.lives.changes += u64::from(count(&self.taken) < before);
        self.lives.retain(is_wanted);
    }

    /// Shortens the lives as [`Lives::limit`] does. What was taken stays, so that nothing is taken twice.
    pub fn limit(&mut self, now_ms: u64, jobs_max: usize, bytes_max: usize) {
        self.lives.limit(now_ms, jobs_max, bytes_max);
    }
}

/// Adds up counts.
fn add(to: &mut Counts, new: &Counts) {
    for (cause, count) in new {
        let sum = to.entry(*cause).or_default();
        *sum = sum.saturating_add(*count);
    }
}

/// Returns the failure in a report, unless the job has run well since.
fn fails(life: &Life) -> Option<&Fails> {
    life.failing.as_ref().filter(|fails| fails.ran_ms < RUNS_WELL_MS)
}

impl Life {
    /// Adds the newest `new` of these events, in the order of their times.
    fn add(&mut self, now_ms: u64, worker: &str, events: &[LifeEvent], new: u64) {
        let of_workers = events.iter().rev().filter(|it| OF_WORKERS.contains(&it.cause));
        let new = of_workers.take(usize::try_from(new).unwrap_or(EVENTS_MAX).min(EVENTS_MAX));
        let added = new.map(|LifeEvent { at_ms, cause, detail, .. }| LifeEvent {
            at_ms: (*at_ms).min(now_ms),
            cause: *cause,
            worker: worker.to_owned(),
            detail: plain(detail),
        });
        let added: Vec<_> = added.collect();
        self.events.extend(added.into_iter().rev());
        self.events.sort_by_key(|it| it.at_ms);
        let surplus = self.events.len().saturating_sub(EVENTS_MAX);
        self.events.drain(..surplus);
    }
}
