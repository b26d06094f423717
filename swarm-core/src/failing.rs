//! Reports of workers about jobs that do not run as they should.
//!
//! The reports are for people. One decision depends on them, if the user asks for it: a job can try
//! another worker ([`Failover`](crate::Failover)). Otherwise a worker that lies only misleads its reader. A reader takes only a limited amount from a worker ([`Failing::limited`]).

use std::cmp::Reverse;

use crate::{JobName, Replication};

/// The largest number of characters of a reason or of a line of output.
const TEXT_MAX: usize = 256;

/// The largest number of output lines of one job.
const LINES_MAX: usize = 5;

/// The failing jobs of a worker, or of a pool.
///
/// A job fails from the moment when it ends by itself until it has run for half a minute, or is
/// stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
pub struct Failing {
    /// The number of failing jobs.
    pub count: usize,
    /// The worst of them: jobs that are not restarted any more first, then by the number of
    /// restarts, then by name.
    pub worst: Vec<FailingJob>,
}

/// A job that ended by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
pub struct FailingJob {
    /// The job.
    pub job: JobName,
    /// The reaction to the failure.
    pub state: FailingState,
    /// The number of restarts in a row.
    pub restarts: u64,
    /// The time when it first ended, in seconds of Unix time.
    pub since_unix_s: u64,
    /// The way it last ended; a part of a sentence, such as `ended with exit code 3`.
    pub last_exit: String,
    /// The last lines of its output before that, at most five. A long line is cut at its start.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub last_output: Vec<String>,
}

/// The reaction to a failing job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
pub enum FailingState {
    /// It has used all its restarts and does not run.
    Failed,
    /// It is being restarted, or was restarted less than half a minute ago.
    Restarting,
}

impl FailingState {
    /// Returns `failed` or `restarting`.
    ///
    /// ```
    /// assert_eq!(swarm_core::FailingState::Failed.as_str(), "failed");
    /// ```
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Restarting => "restarting",
        }
    }
}

impl FailingJob {
    /// Returns a sort key for the worst first: jobs that have failed before jobs that are restarted
    /// again and again, then by the number of restarts, then by name.
    ///
    /// ```
    /// use swarm_core::{FailingJob, FailingState::{Failed, Restarting}};
    ///
    /// let job = |name: &str, state, restarts| FailingJob {
    ///     job: name.parse().unwrap(),
    ///     state,
    ///     restarts,
    ///     since_unix_s: 0,
    ///     last_exit: "ended with exit code 3".into(),
    ///     last_output: Vec::new(),
    /// };
    /// let mut jobs = [job("a", Restarting, 1), job("b", Restarting, 7), job("c", Failed, 0)];
    /// jobs.sort_by_key(FailingJob::worst_first);
    /// assert_eq!(jobs.map(|failing| failing.job.to_string()), ["c", "b", "a"]);
    /// ```
    #[must_use]
    pub fn worst_first(&self) -> (FailingState, Reverse<u64>, JobName) {
        (self.state, Reverse(self.restarts), self.job.clone())
    }
}

impl Failing {
    /// Returns the number of failing jobs that these reports of the workers count without their
    /// names. A job of all workers may be in each report, so the largest number counts then.
    /// O(reports).
    ///
    /// ```
    /// use swarm_core::{Failing, Replication};
    ///
    /// let report = |count| Failing { count, worst: Vec::new() };
    /// let reports = [report(3), report(1)];
    /// assert_eq!(Failing::unnamed(&reports, Replication::One), 4);
    /// assert_eq!(Failing::unnamed(&reports, Replication::All), 3);
    /// // A worker may report any number.
    /// assert_eq!(Failing::unnamed(&[report(usize::MAX), report(1)], Replication::One), usize::MAX);
    /// ```
    #[must_use]
    pub fn unnamed<'a>(
        reports: impl IntoIterator<Item = &'a Self>,
        replication: Replication,
    ) -> usize {
        let unnamed = reports.into_iter().map(|it| it.count.saturating_sub(it.worst.len()));
        match replication {
            Replication::One => unnamed.fold(0, usize::saturating_add),
            Replication::All => unnamed.max().unwrap_or_default(),
        }
    }

    /// Counts these jobs, and keeps the worst `most` of them. O(jobs · log jobs).
    ///
    /// ```
    /// use swarm_core::{Failing, FailingJob, FailingState};
    ///
    /// let job = |name: &str, restarts| FailingJob {
    ///     job: name.parse().unwrap(),
    ///     state: FailingState::Restarting,
    ///     restarts,
    ///     since_unix_s: 0,
    ///     last_exit: "ended with exit code 3".into(),
    ///     last_output: Vec::new(),
    /// };
    /// let failing = Failing::of(&[job("a", 1), job("b", 7)], 1);
    /// assert_eq!((failing.count, failing.worst[0].job.as_str()), (2, "b"));
    /// ```
    #[must_use]
    pub fn of<'a>(jobs: impl IntoIterator<Item = &'a FailingJob>, most: usize) -> Self {
        let mut worst: Vec<_> = jobs.into_iter().collect();
        let count = worst.len();
        worst.sort_by_cached_key(|job| job.worst_first());
        Self { count, worst: worst.into_iter().take(most).cloned().collect() }
    }

    /// Whether the report names all jobs that it counts.
    ///
    /// ```
    /// use swarm_core::Failing;
    ///
    /// assert!(Failing::default().is_whole());
    /// assert!(!Failing { count: 1, ..Failing::default() }.is_whole());
    /// ```
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.count <= self.worst.len()
    }

    /// Returns the part of the report about jobs for which `holds` returns true. A worker may still
    /// report a job that it has just lost. Jobs without names count.
    ///
    /// ```
    /// use swarm_core::Failing;
    ///
    /// let report = Failing { count: 2, ..Failing::default() };
    /// assert_eq!(report.held(|_| false).count, 2);
    /// ```
    #[must_use]
    pub fn held(&self, holds: impl Fn(&JobName) -> bool) -> Self {
        let worst: Vec<_> = self.worst.iter().filter(|it| holds(&it.job)).cloned().collect();
        let count = if self.is_whole() { worst.len() } else { self.count };
        Self { count, worst }
    }

    /// Adds up the failing jobs of several workers, and keeps the worst `most` of them.
    ///
    /// ```
    /// use swarm_core::Failing;
    ///
    /// let one = Failing { count: 2, ..Failing::default() };
    /// assert_eq!(Failing::sum([&one, &one], 10).count, 4);
    /// ```
    #[must_use]
    pub fn sum<'a>(parts: impl IntoIterator<Item = &'a Self>, most: usize) -> Self {
        let (mut count, mut jobs) = (0_usize, Vec::new());
        for part in parts {
            count = count.saturating_add(part.count);
            jobs.extend(&part.worst);
        }
        Self { count, ..Self::of(jobs, most) }
    }

    /// Returns the same report without the output of the jobs.
    ///
    /// ```
    /// use swarm_core::{Failing, FailingJob, FailingState};
    ///
    /// let job = FailingJob {
    ///     job: "a".parse()?,
    ///     state: FailingState::Failed,
    ///     restarts: 0,
    ///     since_unix_s: 0,
    ///     last_exit: "ended with exit code 3".into(),
    ///     last_output: vec!["no such camera".into()],
    /// };
    /// let silent = Failing::of(&[job], 1).without_output();
    /// assert!(silent.worst[0].last_output.is_empty());
    /// # Ok::<(), swarm_core::JobNameError>(())
    /// ```
    #[must_use]
    pub fn without_output(mut self) -> Self {
        for job in &mut self.worst {
            job.last_output.clear();
        }
        self
    }

    /// Returns the same report within bounds. At most `granted` jobs can fail, `most` are kept, and
    /// texts become short and printable.
    ///
    /// ```
    /// use swarm_core::Failing;
    ///
    /// let report = Failing { count: 1_000_000, ..Failing::default() };
    /// assert_eq!(report.limited(3, 10).count, 3);
    /// ```
    #[must_use]
    pub fn limited(&self, granted: usize, most: usize) -> Self {
        let mut worst = Self::of(&self.worst, most.min(granted)).worst;
        for job in &mut worst {
            job.last_exit = printable(&job.last_exit);
            job.last_output.truncate(LINES_MAX);
            job.last_output = job.last_output.iter().map(|line| end(line)).collect();
        }
        Self { count: self.count.min(granted), worst }
    }
}

/// Returns the beginning of a text, without control characters.
fn printable(text: &str) -> String {
    text.chars().take(TEXT_MAX).map(plain).collect()
}

/// Returns the end of a line, which says more than its beginning, without control characters.
fn end(line: &str) -> String {
    match line.char_indices().rev().nth(TEXT_MAX - 1) {
        // The ellipsis replaces one character.
        Some((at, first)) if 0 < at => {
            std::iter::once('…').chain(line[at + first.len_utf8()..].chars().map(plain)).collect()
        }
        Some(_) | None => line.chars().map(plain).collect(),
    }
}

fn plain(c: char) -> char {
    if c.is_control() { ' ' } else { c }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(name: &str, state: FailingState, restarts: u64) -> FailingJob {
        let (since_unix_s, last_exit) = (7, "ended".to_owned());
        let job = name.parse().unwrap();
        FailingJob { job, state, restarts, since_unix_s, last_exit, last_output: Vec::new() }
    }

    #[test]
    fn the_worst_come_first() {
        use FailingState::{Failed, Restarting};
        let all =
            [("d", Restarting, 9), ("c", Restarting, 1), ("b", Restarting, 1), ("a", Failed, 0)];
        let failing = Failing::of(&all.map(|(name, state, n)| job(name, state, n)), 3);
        let names: Vec<_> = failing.worst.iter().map(|job| job.job.as_str()).collect();
        assert_eq!((failing.count, names), (4, vec!["a", "d", "b"]));
        let twice = Failing::sum([&failing, &Failing::of(&[job("e", Failed, 5)], 1)], 2);
        let names: Vec<_> = twice.worst.iter().map(|job| job.job.as_str()).collect();
        assert_eq!((twice.count, names), (5, vec!["e", "a"]));
    }

    #[test]
    fn a_worker_that_lies_cannot_report_more_than_the_limits() {
        let mut lie = job("a", FailingState::Failed, u64::MAX);
        lie.last_exit = "ä\n\u{1b}[2J".repeat(1_000);
        lie.last_output = vec![format!("{}\u{1b}äz", "x".repeat(10_000)); 100];
        let report = Failing { count: usize::MAX, worst: vec![lie; 1_000] }.limited(10, 3);
        assert_eq!((report.count, report.worst.len()), (10, 3));
        let job = &report.worst[0];
        assert_eq!(job.last_exit.chars().count(), TEXT_MAX);
        assert!(!job.last_exit.contains(char::is_control));
        let end = format!("…{} äz", "x".repeat(TEXT_MAX - 4));
        assert!(job.last_output.iter().all(|line| *line == end), "{:?}", job.last_output);
        assert_eq!(job.last_output.len(), LINES_MAX);
        assert_eq!(Failing::sum([&report; 3], 0).count, 30);
    }

    #[test]
    fn a_line_that_is_short_enough_stays_whole() {
        let mut report = job("a", FailingState::Failed, 0);
        report.last_output = vec!["ä".repeat(TEXT_MAX), String::new()];
        let report = Failing { count: 1, worst: vec![report] };
        assert_eq!(report.limited(1, 1), report);
    }
}
