//! The state of a pool in words, for every view of it.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use swarm_adapters_host::clock::unix_s;
use swarm_core::Unassigned;

use super::snapshot::{JobCounts, Snapshot, StoppingRow, Word, WorkerRow};
use super::text::{age, counted};

/// Whether something has to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mood {
    /// No.
    Good,
    /// No, it will be better soon.
    Busy,
    /// Somebody should look.
    Bad,
}

impl Snapshot {
    /// The state in a few words. The worst news comes first.
    pub(super) fn standing(&self) -> (String, Mood) {
        if let Some(earlier) = &self.earlier {
            return (format!("starting: {}", earlier.sentence(unix_s())), Mood::Busy);
        }
        if !self.is_known() {
            return ("starting".to_owned(), Mood::Busy);
        }
        if let Some(ending) = &self.ending {
            let mood = if ending.killed.is_empty() { Mood::Busy } else { Mood::Bad };
            return (format!("ending: {}", ending.sentence(unix_s())), mood);
        }
        let Self { settled, undelivered, jobs, workers, .. } = self;
        let mut news = Vec::new();
        if undelivered.is_some() {
            news.push("not delivered to the workers".to_owned());
        }
        if 0 < jobs.failing {
            news.push(format!("failing: {}", counted(jobs.failing, "job")));
        }
        let silent = workers.iter().filter(|it| it.silent_since_unix_s.is_some()).count();
        if 0 < silent {
            news.push(format!("silent: {}", counted(silent, "worker")));
        }
        if *settled && 0 < jobs.unassigned {
            news.push(format!("without a worker: {}", counted(jobs.unassigned, "job")));
        }
        let (course, mood) = self.course();
        if news.is_empty() {
            return (course, mood);
        }
        // While nothing is delivered, the pool waits for none of the wanted changes.
        if undelivered.is_none() {
            news.push(course);
        }
        (news.join(" · "), Mood::Bad)
    }

    /// The wait of the pool in a few words, or that it is settled.
    fn course(&self) -> (String, Mood) {
        let Self { settled, jobs, workers, .. } = self;
        let coming = workers.iter().filter(|worker| worker.state != "ready").count();
        if *settled {
            ("settled".to_owned(), Mood::Good)
        } else if 0 < jobs.moving {
            (format!("moving {}{}", counted(jobs.moving, "job"), self.slowest()), Mood::Busy)
        } else if 0 < coming {
            (format!("waiting for {}", counted(coming, "worker")), Mood::Busy)
        } else if 0 < jobs.waiting {
            (format!("{} waiting", counted(jobs.waiting, "job")), Mood::Busy)
        } else if 0 < jobs.quarantined {
            (format!("{} quarantined", counted(jobs.quarantined, "job")), Mood::Bad)
        } else {
            ("waiting until all workers confirm".to_owned(), Mood::Busy)
        }
    }

    /// The job that has been stopping for the longest time, for the end of a sentence.
    fn slowest(&self) -> String {
        let Some(StoppingRow { job, worker, since_unix_s }) = self.stopping.first() else {
            return String::new();
        };
        let since = UNIX_EPOCH + Duration::from_secs(*since_unix_s);
        let since = age(since.elapsed().unwrap_or_default());
        format!(": {job} has been stopping on {worker} for {since}")
    }

    /// How many jobs have no worker, by reason. O(jobs without a worker).
    pub(super) fn unassigned_by_reason(&self) -> BTreeMap<Word, usize> {
        let mut counts = BTreeMap::new();
        let suspended = Unassigned::Suspended.as_str();
        for reason in self.unassigned.values().copied().filter(|why| *why != suspended) {
            *counts.entry(reason).or_default() += 1;
        }
        counts
    }

    /// The numbers of jobs and workers, and of jobs that do not run, with the reasons.
    pub(super) fn counts(&self, unassigned_by_reason: &BTreeMap<Word, usize>) -> String {
        let Self { jobs, workers, .. } = self;
        let JobCounts {
            total,
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

    /// What somebody has to mend, in sentences, for as long as it is so.
    pub(super) fn problems(&self) -> Vec<String> {
        let Self { undelivered, invalid_file, revision, .. } = self;
        let keeps = |problem| format!("{problem}; revision {revision} keeps running");
        let undelivered = undelivered.as_ref().map(keeps);
        let invalid = invalid_file.as_ref().map(|file| file.sentence(*revision));
        [undelivered, invalid].into_iter().flatten().collect()
    }
}

impl WorkerRow {
    /// What is unusual about a worker, if anything is.
    pub(super) fn remarks(&self, silent_for: Option<Duration>) -> String {
        let mut parts = Vec::new();
        if let Some(silent_for) = silent_for {
            parts.push(format!("silent for {}", age(silent_for)));
        }
        if 0 < self.releasing {
            parts.push(format!("{} releasing", self.releasing));
        }
        if 0 < self.failing {
            parts.push(format!("{} failing", self.failing));
        }
        if 0 < self.restarts {
            parts.push(counted(self.restarts.try_into().unwrap_or(usize::MAX), "restart"));
        }
        parts.join(", ")
    }
}
