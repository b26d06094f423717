//! Reports jobs that begin to fail, are given up, and recover.

use std::collections::BTreeMap;
use std::time::Duration;

use swarm_view::status::{FailingRow, Status, held_back};
use swarm_view::words::counted;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::processes::Processes;

/// Maximum number of jobs in one report.
const NAMED_MAX: usize = 3;

/// Time to collect further news after the first: examining a large pool takes a while.
const GATHER: Duration = Duration::from_millis(30);

/// News of the workers that is shown at once.
#[derive(Debug)]
pub(super) struct News {
    heard: watch::Receiver<u64>,
    quiet_until: Instant,
}

impl News {
    /// Subscribes to the news of the workers.
    pub(super) fn of(processes: &Processes) -> Self {
        Self { heard: processes.news(), quiet_until: Instant::now() }
    }

    /// Waits for the next news. This function is cancel safe.
    pub(super) async fn heard(&mut self) {
        sleep_until(self.quiet_until).await;
        if self.heard.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        self.quiet_until = Instant::now() + GATHER;
    }
}

/// Failures that were already reported.
#[derive(Debug, Default)]
pub(super) struct Failures {
    /// Last known state of each failing job.
    known: BTreeMap<String, &'static str>,
    /// Number of failing jobs.
    count: usize,
    /// Workers whose jobs keep a previous version, with the job that failed.
    held_back: BTreeMap<String, String>,
}

impl Failures {
    /// Returns sentences about changes in `status`. A job is named once when it begins to fail, and
    /// again when it is given up.
    pub(super) fn news(&mut self, status: &Status) -> Vec<String> {
        let is_news = |row: &&FailingRow| self.known.get(&row.job) != Some(&row.state);
        let news: Vec<_> = status.failing.iter().filter(is_news).collect();
        let mut sentences: Vec<_> = news.iter().take(NAMED_MAX).map(|row| sentence(row)).collect();
        if NAMED_MAX < news.len() {
            let rest = counted(news.len() - NAMED_MAX, "more job");
            sentences.push(format!("… and {rest}: {} in all fail", status.jobs.failing));
        }
        if 0 < self.count && status.jobs.failing == 0 {
            sentences.push("no job fails any more".to_owned());
        }
        let is_known =
            |worker: &str, job: &str| self.held_back.get(worker).is_some_and(|known| known == job);
        let held = status.held_back().filter(|(row, job)| !is_known(&row.name, job));
        sentences.extend(held_back(held));
        let all = status.held_back();
        self.held_back = all.map(|(row, job)| (row.name.clone(), job.to_owned())).collect();
        self.count = status.jobs.failing;
        let rows = status.failing.iter();
        self.known = rows.map(|row| (row.job.clone(), row.state)).collect();
        sentences
    }
}

/// Describes the failure of a job, and the reaction to it.
pub(super) fn sentence(row: &FailingRow) -> String {
    let FailingRow { job, worker, last_exit, last_output, .. } = row;
    let what = if row.state == "failed" { "it is not restarted any more" } else { "restarting it" };
    let last = last_output.last().map(|line| format!(" (`{line}`)")).unwrap_or_default();
    let colon = if goes_on(last_exit) { "" } else { ":" };
    format!("{job} on {worker}{colon} {last_exit}{last}; {what}")
}

/// Whether a reason continues a sentence that begins with the job's name.
fn goes_on(last_exit: &str) -> bool {
    const VERBS: [&str; 6] = ["ended", "was", "is", "has", "did", "cannot"];
    VERBS.contains(&last_exit.split(' ').next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(failing: &[(&str, &'static str)]) -> Status {
        let row = |(job, state): &(&str, &'static str)| FailingRow {
            title: None,
            job: (*job).to_owned(),
            worker: "w-0".to_owned(),
            state,
            restarts: 1,
            since_unix_s: 0,
            last_exit: "ended with exit code 3".to_owned(),
            last_output: vec!["no such camera".to_owned()],
        };
        let failing_rows = failing.iter().map(row).collect();
        let mut status = Status { failing: failing_rows, ..Status::default() };
        status.jobs.failing = failing.len();
        status
    }

    #[test]
    fn a_job_is_named_when_it_begins_to_fail_and_when_it_is_given_up() {
        let mut failures = Failures::default();
        let said = failures.news(&status(&[("a", "restarting")]));
        assert_eq!(said, ["a on w-0 ended with exit code 3 (`no such camera`); restarting it"]);
        assert!(failures.news(&status(&[("a", "restarting")])).is_empty());
        let said = failures.news(&status(&[("a", "failed")]));
        let given_up = "it is not restarted any more";
        assert_eq!(
            said,
            [format!("a on w-0 ended with exit code 3 (`no such camera`); {given_up}")]
        );
        assert_eq!(failures.news(&status(&[])), ["no job fails any more"]);
        assert!(failures.news(&status(&[])).is_empty());
    }

    #[test]
    fn a_reason_that_is_a_sentence_of_its_own_follows_a_colon() {
        let mut one = status(&[("a", "restarting")]);
        one.failing[0].last_output.clear();
        one.failing[0].last_exit = "there is no program rec.sh".to_owned();
        let expected = "a on w-0: there is no program rec.sh; restarting it";
        assert_eq!(sentence(&one.failing[0]), expected);
    }

    #[test]
    fn many_are_counted() {
        let names: Vec<_> = (0..9).map(|n| format!("job-{n}")).collect();
        let all: Vec<_> = names.iter().map(|name| (name.as_str(), "restarting")).collect();
        let said = Failures::default().news(&status(&all));
        assert_eq!((said.len(), said[3].as_str()), (4, "… and 6 more jobs: 9 in all fail"));
    }
}
