//! The state of a pool in words, for every view of it.

use std::collections::BTreeMap;
use std::time::Duration;

use swarm_core::Unassigned;

use super::snapshot::{JobCounts, Snapshot, Word, WorkerRow};
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
    /// The state in a few words.
    pub(super) fn standing(&self) -> (String, Mood) {
        let Self { settled, undelivered, jobs, workers, .. } = self;
        let coming = workers.iter().filter(|worker| worker.state != "ready").count();
        if !self.is_known() {
            ("starting".to_owned(), Mood::Busy)
        } else if undelivered.is_some() {
            ("not delivered to the workers".to_owned(), Mood::Bad)
        } else if *settled && jobs.unassigned == 0 && jobs.failing == 0 {
            ("settled".to_owned(), Mood::Good)
        } else if *settled && jobs.unassigned == 0 {
            let verb = if jobs.failing == 1 { "fails" } else { "fail" };
            (format!("settled, but {} {verb}", counted(jobs.failing, "job")), Mood::Bad)
        } else if *settled {
            let left = counted(jobs.unassigned, "job");
            (format!("settled, but {left} without a worker"), Mood::Bad)
        } else if 0 < jobs.moving {
            (format!("moving {}", counted(jobs.moving, "job")), Mood::Busy)
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
