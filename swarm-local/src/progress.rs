//! The progress of ending processes, as snapshots contain it.

use std::time::Instant;

use serde::{Deserialize, Serialize};
use swarm_adapters_host::clock::unix_s;
use swarm_view::words::{counted, number};

use crate::processes::Remaining;

/// Processes that an earlier run left behind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Earlier {
    /// Number of workers.
    pub(super) workers: usize,
    /// Number of other processes: guards and jobs.
    pub(super) others: usize,
    /// Time at which the last process is killed, in seconds of Unix time.
    pub(super) until_unix_s: u64,
}

impl Earlier {
    pub(super) fn of(remaining: &Remaining) -> Self {
        let Remaining { workers, others, until } = *remaining;
        let rest = until.saturating_duration_since(Instant::now());
        Self { workers, others, until_unix_s: unix_s() + rest.as_secs() }
    }

    /// Returns a sentence about the wait, at a time in seconds of Unix time.
    pub(super) fn sentence(&self, now: u64) -> String {
        let verb = if self.workers + self.others == 1 { "is" } else { "are" };
        let (all, at_most) = (self.all(), self.until_unix_s.saturating_sub(now));
        format!("{all} of an earlier run {verb} still ending, at most {at_most} s")
    }

    /// Returns the number of processes in words.
    pub(super) fn all(&self) -> String {
        let Self { workers, others, until_unix_s: _ } = *self;
        let plural = if others == 1 { "" } else { "es" };
        match (counted(workers, "worker"), number(others)) {
            (workers, _) if others == 0 => workers,
            (_, others) if workers == 0 => format!("{others} process{plural}"),
            (workers, others) => format!("{workers} and {others} other process{plural}"),
        }
    }
}

/// The progress of the end of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Ending {
    /// Number of jobs that ran when the end began.
    pub(super) jobs: usize,
    /// Number of these jobs that have not stopped yet.
    pub(super) left: usize,
    /// Number of workers that have not ended yet.
    pub(super) workers_left: usize,
    /// Time at which the last of them is killed, in seconds of Unix time.
    pub(super) until_unix_s: u64,
    /// Some of the awaited jobs, with their workers and processes.
    pub(super) waits_for: Vec<String>,
    /// Jobs and workers that did not end in time and were killed.
    pub(super) killed: Vec<String>,
    /// Sentence about the end, once no process is left.
    #[serde(skip)]
    pub(super) last: Option<String>,
}

impl Ending {
    /// Returns a sentence about the wait, at a time in seconds of Unix time.
    pub(super) fn sentence(&self, now: u64) -> String {
        let Self { jobs, left, workers_left, until_unix_s, .. } = self;
        let at_most = until_unix_s.saturating_sub(now);
        if *left == 0 {
            let workers = counted(*workers_left, "worker");
            let verb = if *workers_left == 1 { "is" } else { "are" };
            return format!(
                "no job runs any more; {workers} {verb} still ending, at most {at_most} s"
            );
        }
        let verb = if *left == 1 { "is" } else { "are" };
        format!("{left} of {} {verb} still stopping, at most {at_most} s", counted(*jobs, "job"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_one_sentence() {
        let sentence =
            |workers, others| Earlier { workers, others, until_unix_s: 1_012 }.sentence(1_000);
        let rest = "of an earlier run are still ending, at most 12 s";
        assert_eq!(sentence(2, 6), format!("2 workers and 6 other processes {rest}"));
        assert_eq!(sentence(1, 1), format!("1 worker and 1 other process {rest}"));
        assert_eq!(sentence(0, 3), format!("3 processes {rest}"));
        assert!(sentence(0, 1).starts_with("1 process of an earlier run is still"));
        assert!(sentence(1, 0).starts_with("1 worker of an earlier run is still"));
    }

    #[test]
    fn what_is_waited_for_is_one_sentence() {
        let ending = |left, workers_left| Ending {
            jobs: 40,
            left,
            workers_left,
            until_unix_s: 1_012,
            ..Ending::default()
        };
        let sentence = |left, workers| ending(left, workers).sentence(1_000);
        assert_eq!(sentence(3, 2), "3 of 40 jobs are still stopping, at most 12 s");
        assert_eq!(sentence(1, 2), "1 of 40 jobs is still stopping, at most 12 s");
        let last = "no job runs any more; 1 worker is still ending, at most 12 s";
        assert_eq!(sentence(0, 1), last);
        assert!(ending(3, 1).sentence(9_999).ends_with("at most 0 s"));
    }
}
