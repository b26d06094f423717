//! Judges a run log: finds jobs that take a whole worker and ran together with another job. A pure
//! function of the lines.

use std::collections::{BTreeMap, BTreeSet};

use super::judge::{Event, Line};

/// The largest number of listed findings.
const LISTED_MAX: usize = 1_000;

/// Two jobs that ran on one worker at once, although one of them should run alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Company {
    /// The worker.
    pub worker: String,
    /// The job that should run alone.
    pub job: String,
    /// The other job.
    pub other: String,
    /// The start of the time in which both ran, in nanoseconds since boot.
    pub from: u64,
    /// The last known moment of that time, on the same clock.
    pub until: u64,
}

/// A judge that reads lines one after the other. Its memory is bounded by the jobs that each worker
/// ran.
#[derive(Debug, Default)]
pub struct Solitude {
    alone: BTreeSet<String>,
    /// The newest run of each job, by worker.
    runs: BTreeMap<String, BTreeMap<String, Run>>,
    found: BTreeMap<(String, String, String, u64), u64>,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    start: u64,
    last: u64,
}

impl Solitude {
    /// Creates a judge for these jobs, which should run alone.
    #[must_use]
    pub fn of(alone: impl IntoIterator<Item = String>) -> Self {
        Self { alone: alone.into_iter().collect(), ..Self::default() }
    }

    /// Judges the next line. O(jobs of its worker).
    pub fn take(&mut self, line: &Line<'_>) {
        if self.alone.is_empty() {
            return;
        }
        let Line { t, job, worker, event, .. } = *line;
        let jobs = self.runs.entry(worker.to_owned()).or_default();
        let run = jobs.entry(job.to_owned()).or_insert(Run { start: t, last: t });
        if event == Event::Start {
            *run = Run { start: t, last: t };
        }
        run.last = run.last.max(t);
        let run = *run;
        for (other, its) in jobs.iter().filter(|(other, _)| *other != job) {
            let (from, until) = (run.start.max(its.start), run.last.min(its.last));
            let (alone, companion) = match (self.alone.contains(job), self.alone.contains(other)) {
                (true, _) => (job, other.as_str()),
                (false, true) => (other.as_str(), job),
                (false, false) => continue,
            };
            if until <= from {
                continue;
            }
            let key = (worker.to_owned(), alone.to_owned(), companion.to_owned(), from);
            if LISTED_MAX <= self.found.len() && !self.found.contains_key(&key) {
                continue;
            }
            let known = self.found.entry(key).or_insert(until);
            *known = until.max(*known);
        }
    }

    /// Records that the machine was rebooted: all runs have ended.
    pub fn machine_started(&mut self) {
        self.runs.clear();
    }

    /// Returns the first thousand findings.
    #[must_use]
    pub fn company(self) -> Vec<Company> {
        let found = self.found.into_iter();
        let company =
            |((worker, job, other, from), until)| Company { worker, job, other, from, until };
        found.map(company).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines such as `5 w/a start`: second 5, worker `w`, job `a`.
    fn company(lines: &[&str]) -> Vec<(String, String, u64)> {
        let mut solitude = Solitude::of(["whole".to_owned()]);
        for line in lines {
            let [t, at, event] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
            let (worker, job) = at.split_once('/').unwrap();
            let event = match event {
                "start" => Event::Start,
                "tick" => Event::Tick,
                _ => Event::Stop,
            };
            let t = t.parse().unwrap();
            solitude.take(&Line { t, job, worker, session: "s", token: 1, event });
        }
        let found = solitude.company().into_iter();
        found.map(|it| (it.job, it.other, it.until - it.from)).collect()
    }

    #[test]
    fn whatever_runs_together_with_a_job_that_is_to_run_alone_is_found() {
        let clean = ["1 w/a start", "2 v/whole start", "5 w/a stop", "5 w/whole start"];
        assert_eq!(company(&clean), []);
        let others = ["1 w/a start", "2 w/b start", "3 w/a tick", "4 w/b tick"];
        assert_eq!(company(&others), [], "neither is to run alone");
        let found = |other: &str, ns| [("whole".to_owned(), other.to_owned(), ns)];
        let early = ["1 w/a start", "3 w/whole start", "5 w/a stop", "9 w/whole tick"];
        assert_eq!(company(&early), found("a", 2));
        let late = ["1 w/whole start", "3 w/a start", "5 w/whole tick", "9 w/a tick"];
        assert_eq!(company(&late), found("a", 2));
        let again =
            ["1 w/a start", "2 w/a stop", "3 w/whole start", "4 w/whole stop", "5 w/a start"];
        assert_eq!(company(&again), []);
    }
}
