//! Describes the state of a pool in words, and judges it.

use std::collections::BTreeMap;
use std::iter;
use std::time::Duration;

use swarm_core::Unassigned;
use swarm_core::verdict::{Reason, number};

use super::{JobCounts, Status, StoppingRow, UnassignedRow};
use crate::age::age;
use crate::shell;
use crate::words::counted;
use crate::workers::WorkerRow;

/// Urgency of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    /// Nothing to do.
    Good,
    /// Nothing to do; the state will improve soon.
    Busy,
    /// A user should look.
    Bad,
}

/// Maximum number of workers or failing jobs that a sentence describes.
pub const SHOWN: usize = 3;

impl Status {
    /// Whether a turn ran, so that the state has content.
    #[must_use]
    pub fn is_known(&self) -> bool {
        !self.name.is_empty() && self.earlier.is_none()
    }

    /// Describes the state at a time in seconds of Unix time, in a few words; the worst problem comes
    /// first.
    #[must_use]
    pub fn standing(&self, now_unix_s: u64) -> (String, Mood) {
        if let Some(earlier) = &self.earlier {
            return (format!("starting: {}", earlier.sentence(now_unix_s)), Mood::Busy);
        }
        if !self.is_known() {
            return ("starting".to_owned(), Mood::Busy);
        }
        if let Some(out_of_date) = &self.out_of_date {
            return (out_of_date.to_string(), Mood::Bad);
        }
        if let Some(ending) = &self.ending {
            let mood = if ending.killed.is_empty() { Mood::Busy } else { Mood::Bad };
            return (format!("ending: {}", ending.sentence(now_unix_s)), mood);
        }
        let Self { undelivered, jobs, workers, .. } = self;
        let mut news = Vec::new();
        if undelivered.is_some() {
            news.push("not delivered to the workers".to_owned());
        }
        if 0 < jobs.failing && self.reason != Reason::AllJobsFailing.as_str() {
            news.push(format!("failing: {}", counted(jobs.failing, "job")));
        }
        let silent = self.silent_workers();
        if 0 < silent {
            news.push(format!("silent: {}", counted(silent, "worker")));
        }
        let held_back = self.held_back_jobs();
        if 0 < held_back {
            news.push(format!("held back: {}", counted(held_back, "job")));
        }
        let (course, mood) = self.course(now_unix_s);
        let previous: usize = workers.iter().filter_map(|row| row.previous).sum();
        if news.is_empty() && 0 < previous && mood == Mood::Good {
            let jobs = counted(previous, "job");
            return (format!("restarting in steps: {jobs} to go"), Mood::Busy);
        }
        if news.is_empty() {
            return (course, mood);
        }
        // While nothing is delivered, the pool waits for none of the desired changes.
        if undelivered.is_none() {
            news.push(course);
        }
        (news.join(" · "), Mood::Bad)
    }

    /// Returns the urgency of the state.
    #[must_use]
    pub fn mood(&self) -> Mood {
        // The time is in sentences only.
        self.standing(0).1
    }

    /// Whether no job fails, every worker is ready, and the file is valid and delivered. Every job
    /// that should run has a worker then, or is about to get one.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        let is_good = self.mood() != Mood::Bad && self.healthy && self.has_ready_workers();
        is_good && self.problems().is_empty()
    }

    /// Whether the pool is healthy, and no edit has just removed many jobs.
    #[must_use]
    pub fn is_all_well(&self) -> bool {
        self.is_healthy() && self.removal.is_none()
    }

    /// Returns the reasons why the pool is not healthy at a time in seconds of Unix time, in sentences.
    /// Empty for a healthy pool.
    #[must_use]
    pub fn troubles(&self, now_unix_s: u64) -> Vec<String> {
        if self.is_healthy() && self.ending.is_none() {
            return Vec::new();
        }
        let (standing, _) = self.standing(now_unix_s);
        iter::once(standing).chain(self.problems()).collect()
    }

    /// Whether every worker that stays is ready. A pool that moves jobs may have such workers.
    fn has_ready_workers(&self) -> bool {
        let is_incomplete =
            [Reason::PoolIncomplete, Reason::WorkersMissing, Reason::WorkersNotReady];
        let is_incomplete = is_incomplete.map(Reason::as_str);
        let is_ready = |row: &WorkerRow| matches!(row.state, "ready" | "leaving");
        let are_ready = || self.workers.iter().all(is_ready);
        self.settled || (!is_incomplete.contains(&&*self.reason) && are_ready())
    }

    /// Whether every worker is ready, and the first jobs have their workers. What is wrong then does
    /// not pass by itself.
    #[must_use]
    pub fn has_started(&self) -> bool {
        self.is_known() && self.has_ready_workers() && self.mood() != Mood::Busy
    }

    /// Whether the pool is healthy, and has nothing to do and waits for nothing.
    #[must_use]
    pub fn is_settled_and_healthy(&self) -> bool {
        self.is_healthy() && self.mood() == Mood::Good
    }

    /// Whether the reason is one of a pool that is as it is asked to be.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let ready = [Reason::Settled, Reason::Suspended, Reason::Paused { is_ready: true }];
        ready.map(Reason::as_str).contains(&&*self.reason)
    }

    /// Returns the reason for the state and its sentence, at a time in seconds of Unix time.
    fn course(&self, now_unix_s: u64) -> (String, Mood) {
        let Self { settled, reason, message, jobs, .. } = self;
        if self.is_ready() && *settled {
            return (reason.to_string(), Mood::Good);
        }
        let is_bad = *settled || 0 < jobs.quarantined;
        let mood = if is_bad { Mood::Bad } else { Mood::Busy };
        (format!("{reason}: {}{message}", self.slowest(now_unix_s)), mood)
    }

    /// Describes the job that has been stopping for the longest time, as the beginning of a sentence.
    fn slowest(&self, now_unix_s: u64) -> String {
        let Some(StoppingRow { job, worker, since_unix_s }) = self.stopping.first() else {
            return String::new();
        };
        let since = age(Duration::from_secs(now_unix_s.saturating_sub(*since_unix_s)));
        format!("{job} has been stopping on {worker} for {since}; ")
    }

    /// Returns the reason why this job has no worker, if it has none. O(log jobs without a worker).
    #[must_use]
    pub fn unassigned(&self, job: &str) -> Option<&UnassignedRow> {
        let at = self.unassigned.binary_search_by(|row| row.job.as_str().cmp(job)).ok()?;
        self.unassigned.get(at)
    }

    /// Returns the worker in a slot. O(log workers).
    #[must_use]
    pub fn worker(&self, slot: u32) -> Option<&WorkerRow> {
        let at = self.workers.binary_search_by_key(&slot, |worker| worker.slot).ok()?;
        self.workers.get(at)
    }

    /// Counts the jobs without a worker, by reason. O(jobs without a worker).
    #[must_use]
    pub fn unassigned_by_reason(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        let suspended = Unassigned::Suspended.as_str();
        for reason in self.unassigned.iter().map(|it| &*it.reason).filter(|why| *why != suspended) {
            *counts.entry(reason.to_owned()).or_default() += 1;
        }
        counts
    }

    /// Returns the numbers of jobs and workers, and of jobs that do not run, by reason.
    #[must_use]
    pub fn counts(&self, unassigned_by_reason: &BTreeMap<String, usize>) -> String {
        let Self { jobs, workers, .. } = self;
        let JobCounts {
            total,
            published,
            moving,
            waiting,
            done,
            quarantined,
            suspended,
            unassigned,
            failing,
            ..
        } = *jobs;
        let (jobs, workers) = (counted(total, "job"), counted(workers.len(), "worker"));
        let mut parts = vec![format!("{jobs} on {workers}")];
        let states = [
            (published, "published"),
            (moving, "moving"),
            (waiting, "waiting"),
            (done, "done"),
            (quarantined, "quarantined"),
            (suspended, "suspended"),
            (failing, "failing"),
            (unassigned, "unassigned"),
        ];
        let some = states.iter().filter(|(count, _)| 0 < *count);
        parts.extend(some.map(|(count, state)| format!("{count} {state}")));
        let reasons =
            unassigned_by_reason.iter().map(|(reason, count)| format!("{reason} {count}"));
        let reasons = reasons.collect::<Vec<_>>().join(", ");
        if let Some(last) = parts.last_mut().filter(|_| !reasons.is_empty()) {
            last.extend([" (", &*reasons, ")"]);
        }
        parts.join(" · ")
    }

    /// Returns sentences about present problems that a user must fix.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let Self { undelivered, invalid_file, revision, .. } = self;
        let is_up = |row: &WorkerRow| !["starting", "leaving"].contains(&row.state);
        let runs = if self.workers.iter().any(is_up) {
            format!("revision {revision} keeps running")
        } else {
            "no job runs".to_owned()
        };
        let keeps = |problem| format!("{problem}; {runs}");
        let undelivered = undelivered.as_ref().map(keeps);
        let invalid = invalid_file.as_ref().map(|file| file.sentence(*revision));
        let held_back = held_back(self.held_back());
        let known = [undelivered, invalid].into_iter().flatten();
        known.chain(self.warnings.iter().cloned()).chain(held_back).collect()
    }

    /// Returns the workers whose jobs keep a previous version, with the job that failed.
    pub fn held_back(&self) -> impl Iterator<Item = (&WorkerRow, &str)> {
        self.workers.iter().filter_map(|row| Some((row, row.held_back_by.as_deref()?)))
    }

    /// Returns the number of jobs on those workers that keep a previous version. O(workers).
    #[must_use]
    pub fn held_back_jobs(&self) -> usize {
        self.held_back().filter_map(|(row, _)| row.previous).sum()
    }

    /// Returns the number of workers that may be frozen. O(workers).
    #[must_use]
    pub fn silent_workers(&self) -> usize {
        self.workers.iter().filter(|row| row.silent_since_unix_s.is_some()).count()
    }
}

/// Describes why jobs of these workers keep a previous version. The last sentence counts the workers
/// that no other one names.
pub fn held_back<'a>(rows: impl Iterator<Item = (&'a WorkerRow, &'a str)>) -> Vec<String> {
    let rows: Vec<_> = rows.collect();
    let shown = rows.iter().take(SHOWN).map(|(row, job)| held_back_on(row, job));
    let mut sentences: Vec<_> = shown.collect();
    if let Some(more) = rows.len().checked_sub(SHOWN).filter(|more| 0 < *more) {
        let (workers, hold) = (counted(more, "more worker"), number(more, "holds", "hold"));
        sentences.push(format!("… and {workers} {hold} a new version back"));
    }
    sentences
}

fn held_back_on(row: &WorkerRow, job: &str) -> String {
    let (name, previous) = (&row.name, row.previous.unwrap_or_default());
    let run = if previous == 1 { "runs" } else { "run" };
    format!(
        "{} on {name} still {run} the previous version, since the new version of {job} failed; \
         correct it in the file, or try it again: swarm restart {}",
        counted(previous, "job"),
        shell::word(job)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::Word;

    fn worker(state: Word) -> WorkerRow {
        WorkerRow { name: "w-0".to_owned(), state, jobs: 1, ..WorkerRow::default() }
    }

    #[test]
    fn workers_that_hold_a_version_back_are_named_or_counted() {
        let row = |name: &str| {
            let (name, job) = (name.to_owned(), Some("a".to_owned()));
            WorkerRow { name, previous: Some(2), held_back_by: job, ..worker("ready") }
        };
        let all = |count: usize| {
            let workers =
                ["w-0", "w-1", "w-2", "w-3"].iter().take(count).map(|it| row(it)).collect();
            Status { workers, ..Status::default() }.problems()
        };
        assert_eq!(all(3).len(), 3);
        let four = all(4);
        assert!(four[2].starts_with("2 jobs on w-2 still run the previous version"), "{four:?}");
        assert_eq!(four[3], "… and 1 more worker holds a new version back");
    }

    #[test]
    fn a_pool_whose_workers_are_not_all_ready_is_neither_healthy_nor_started() {
        let judged = |reason: Reason, state, settled| {
            let reason = reason.as_str().into();
            let (name, workers) = ("cams".to_owned(), vec![worker(state)]);
            let status =
                Status { name, reason, workers, settled, healthy: true, ..Status::default() };
            (status.is_healthy(), status.has_started())
        };
        assert_eq!(judged(Reason::PoolIncomplete, "ready", false), (false, false));
        assert_eq!(judged(Reason::WorkersNotReady, "ready", false), (false, false));
        assert_eq!(judged(Reason::WorkersMissing, "ready", false), (false, false));
        assert_eq!(judged(Reason::JobsWaiting, "starting", false), (false, false));
        assert_eq!(judged(Reason::JobsWaiting, "away", false), (false, false));
        assert_eq!(judged(Reason::JobsWaiting, "ready", false), (true, false));
        assert_eq!(judged(Reason::Rebalancing, "leaving", false), (true, false));
        assert_eq!(judged(Reason::Settled, "ready", true), (true, true));
        // It is wrong, and waiting does not help.
        assert_eq!(judged(Reason::JobsUnassigned, "ready", true), (false, true));
    }
}
