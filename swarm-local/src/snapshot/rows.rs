//! The parts of a snapshot: a worker, a job, a failure, and numbers of jobs.

use std::time::{Duration, Instant, UNIX_EPOCH};

use httpdate::fmt_http_date;
use serde::{Deserialize, Serialize};
use swarm_adapters_host::channel::JobNow;
use swarm_adapters_host::clock::unix_s;
use swarm_core::handover::SessionId;
use swarm_core::verdict::FailingShown;
use swarm_core::{FailingJob, FailingState, JobPhase, Progress, Slot, SlotRecord, Title};
use swarm_spec::manifest::Explained;
use swarm_view::age::age;
use swarm_view::shell;
use swarm_view::words::{counted, quoted};

use super::words::{Word, word};
use crate::processes::{Phase, WorkerProcess};
use crate::reports::Reports;

/// The time that a job must run to be good again; part of a sentence.
pub(crate) const RUNS_WELL: &str = "counts as failing until 30 s";

/// A failing job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FailingRow {
    pub(crate) job: String,
    /// The title of the job, if it has one.
    #[serde(default)]
    pub(crate) title: Option<String>,
    /// The worker that runs the job.
    pub(crate) worker: String,
    /// `restarting`, or `failed` if it is not restarted any more.
    #[serde(deserialize_with = "word")]
    pub(crate) state: Word,
    /// Number of its runs that ended by themselves, since its worker got it.
    pub(crate) restarts: u64,
    /// Time of its first end, in seconds of Unix time.
    pub(crate) since_unix_s: u64,
    /// Description of its last end.
    pub(crate) last_exit: String,
    /// Last lines of output before that end.
    pub(crate) last_output: Vec<String>,
}

/// A job that its previous worker still has to stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StoppingRow {
    pub(crate) job: String,
    /// The worker that stops the job.
    pub(crate) worker: String,
    /// Time of the request to stop, in seconds of Unix time.
    pub(crate) since_unix_s: u64,
}

/// The end of the year 9999, the latest time that is written.
const UNIX_S_MAX: u64 = 253_402_300_799;

/// Error of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InvalidFile {
    /// A sentence.
    pub(crate) message: String,
    /// The invalid line and a mark below the place, if known.
    pub(crate) excerpt: Option<String>,
    /// Time since which the file is invalid, in seconds of Unix time.
    pub(crate) since_unix_s: u64,
}

impl InvalidFile {
    /// Describes a file that has just become invalid.
    pub(crate) fn now(explained: Explained) -> Self {
        let Explained { sentence: message, excerpt } = explained;
        Self { message, excerpt, since_unix_s: unix_s() }
    }

    /// Returns the error, its time, and the state that runs meanwhile.
    pub(crate) fn sentence(&self, revision: u64) -> String {
        let Self { message, since_unix_s, excerpt: _ } = self;
        let since = Duration::from_secs((*since_unix_s).min(UNIX_S_MAX));
        let since = fmt_http_date(UNIX_EPOCH + since);
        format!("{message}; invalid since {since}, revision {revision} keeps running")
    }
}

/// The number of jobs in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct JobCounts {
    /// All jobs that are desired or still held.
    pub(crate) total: usize,
    /// Granted to a worker.
    pub(crate) granted: usize,
    /// Granted, confirmed by its worker, and not failing.
    #[serde(default)]
    pub(crate) running: usize,
    /// Granted, and not confirmed by its worker yet.
    #[serde(default)]
    pub(crate) published: usize,
    /// Moving from one worker to another.
    pub(crate) moving: usize,
    /// Waiting for a worker to return, or for a decision.
    pub(crate) waiting: usize,
    /// Finished.
    pub(crate) done: usize,
    /// Not granted for a while, since they crashed their workers.
    pub(crate) quarantined: usize,
    /// Suspended, so that no worker runs them.
    #[serde(default)]
    pub(crate) suspended: usize,
    /// Without a worker, for another reason.
    pub(crate) unassigned: usize,
    /// Granted, and failing.
    pub(crate) failing: usize,
}

/// One worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WorkerRow {
    pub(crate) name: String,
    pub(crate) slot: u32,
    /// `ready`, `starting`, `leaving` or `away`.
    #[serde(deserialize_with = "word")]
    pub(crate) state: Word,
    /// Its session, once it has one.
    pub(crate) session: Option<String>,
    /// Number of granted jobs.
    pub(crate) jobs: usize,
    /// Number of jobs that it is asked to release.
    pub(crate) releasing: usize,
    /// Number of failing jobs.
    pub(crate) failing: usize,
    /// Number of jobs that still run a previous version.
    #[serde(default)]
    pub(crate) previous: usize,
    /// A job whose new version failed, so that those jobs wait.
    #[serde(default)]
    pub(crate) held_back_by: Option<String>,
    /// Number of ends without a request.
    pub(crate) restarts: u32,
    /// Time of the last lease renewal, in seconds of Unix time, if the worker may be frozen.
    pub(crate) silent_since_unix_s: Option<u64>,
    /// Time since its oldest request to stop a job that it has not acknowledged. Only an answer has it.
    #[serde(default)]
    pub(crate) oldest_release_ms: Option<u64>,
    /// The time within which it is replaced, if it is silent. Only an answer has it.
    #[serde(default)]
    pub(crate) replaced_within_ms: Option<u64>,
    /// The same time for the terminal.
    #[serde(skip)]
    pub(crate) silent_since: Option<Instant>,
    /// Time since its last sign: an event, or a renewal of its lease. Only an answer has it.
    #[serde(default)]
    pub(crate) last_heard_ms: Option<u64>,
    /// Its process.
    #[serde(default)]
    pub(crate) pid: Option<i32>,
    /// The identity of its process.
    #[serde(skip)]
    pub(crate) instance: String,
}

/// One job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JobRow {
    pub(crate) name: String,
    pub(crate) title: Option<Title>,
    /// State of the job in the ledger.
    pub(crate) state: Word,
    /// The slot that holds the job.
    pub(crate) slot: Option<u32>,
    pub(crate) token: u64,
}

impl JobRow {
    /// Returns the phase of the job, and the report of its worker. `unassigned` is the reason why it
    /// has no worker, if it has none.
    pub(crate) fn phase(
        &self,
        reports: &Reports,
        unassigned: Option<&str>,
    ) -> (Word, Option<JobNow>) {
        reports.of(&self.name, self.slot, self.state, unassigned)
    }
}

impl WorkerRow {
    /// Makes the row of the worker in a slot, with its numbers of granted jobs and of jobs to
    /// release.
    pub(crate) fn of(
        slot: Slot,
        worker: &WorkerProcess,
        record: Option<&SlotRecord>,
        (jobs, releasing): (usize, usize),
    ) -> Self {
        let is_its_own = |session: &&SessionId| session.pod_uid() == worker.instance;
        let session = record.map(|record| &record.session).filter(is_its_own);
        Self {
            name: worker.name.clone(),
            slot: slot.0,
            state: match worker.phase {
                Phase::Up if session.is_some() => "ready",
                Phase::Up => "starting",
                Phase::Leaving(_) => "leaving",
                Phase::Away(_) => "away",
            },
            session: session.map(ToString::to_string),
            jobs,
            releasing,
            restarts: worker.deaths,
            pid: worker.pid,
            instance: worker.instance.clone(),
            ..Self::default()
        }
    }
}

impl FailingRow {
    /// Describes the failure, without output. `runs_since_unix_s` is the start of the present run,
    /// if the job runs again. A pool that is only read cannot retry a job.
    pub(crate) fn sentence(&self, runs_since_unix_s: Option<u64>, can_retry: bool) -> String {
        let Self { job, state, restarts, last_exit, .. } = self;
        let restarts = counted((*restarts).try_into().unwrap_or(usize::MAX), "restart");
        let since = age(Duration::from_secs(unix_s().saturating_sub(self.since_unix_s)));
        let course = match runs_since_unix_s {
            _ if *state == FailingState::Failed.as_str() => {
                let retry = || format!(" swarm retry {};", shell::word(job));
                let retry = if can_retry { retry() } else { String::new() };
                format!("not restarted any more;{retry}")
            }
            Some(runs_since) => {
                let runs_for = Duration::from_secs(unix_s().saturating_sub(runs_since).max(1));
                format!("running again for {}; {RUNS_WELL};", age(runs_for))
            }
            None => format!("{state},"),
        };
        format!("{course} {restarts}, failing for {since}: {last_exit}")
    }

    /// Returns the last line of output before the end, in the form that follows its description.
    pub(crate) fn last_line(&self) -> String {
        quoted(self.last_output.last().map(String::as_str))
    }

    /// Returns the job in the form that a sentence shows.
    pub(crate) fn shown(&self) -> FailingShown<'_> {
        let Self { job, worker, state, last_exit, last_output, .. } = self;
        let is_failed = *state == FailingState::Failed.as_str();
        FailingShown {
            job,
            worker,
            state: if is_failed { FailingState::Failed } else { FailingState::Restarting },
            last_exit,
            last_line: last_output.last().map(String::as_str),
        }
    }

    pub(crate) fn of(failing: FailingJob, worker: &str) -> Self {
        let FailingJob { job, state, restarts, since_unix_s, last_exit, last_output } = failing;
        let (job, worker, state) = (job.to_string(), worker.to_owned(), state.as_str());
        Self { job, title: None, worker, state, restarts, since_unix_s, last_exit, last_output }
    }
}

impl JobCounts {
    /// Sets how many jobs their workers have confirmed, from the numbers of jobs by phase.
    pub(crate) fn confirm(&mut self, phases: &[(Word, usize)]) {
        let count = |phase: JobPhase| {
            let found = phases.iter().find(|(word, _)| *word == phase.as_str());
            found.map_or(0, |(_, count)| *count)
        };
        (self.running, self.published) = (count(JobPhase::Running), count(JobPhase::Published));
    }

    pub(crate) fn of(progress: &Progress, total: usize) -> Self {
        let jobs = progress.jobs;
        Self {
            total,
            granted: jobs.granted,
            running: 0,
            published: 0,
            moving: jobs.releasing,
            waiting: jobs.held + jobs.free,
            done: jobs.done,
            quarantined: jobs.quarantined + jobs.recovering,
            suspended: jobs.suspended,
            unassigned: jobs.unassigned,
            failing: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_has_its_course_its_end_and_the_last_line() {
        let mut row = FailingRow {
            job: "camera 1".to_owned(),
            title: None,
            worker: "w-0".to_owned(),
            state: "restarting",
            restarts: 3,
            since_unix_s: unix_s(),
            last_exit: "ended with exit code 127".to_owned(),
            last_output: vec!["one".to_owned(), "sh: rec: not found\u{1b}[2J".to_owned()],
        };
        let sentence = row.sentence(None, true);
        assert_eq!(sentence, "restarting, 3 restarts, failing for 0 s: ended with exit code 127");
        let line = row.last_line();
        assert!(line.starts_with(" (`sh: rec: not found") && line.ends_with("[2J`)"), "{line}");
        assert!(!line.contains('\u{1b}'), "{line}");
        let runs = row.sentence(Some(unix_s() - 5), true);
        assert!(runs.starts_with("running again for "), "{runs}");
        assert!(
            runs.contains(" s; counts as failing until 30 s; 3 restarts, failing for "),
            "{runs}"
        );
        row.state = "failed";
        let given_up = row.sentence(None, true);
        assert!(
            given_up.starts_with("not restarted any more; swarm retry 'camera 1'; 3 restarts"),
            "{given_up}"
        );
        assert!(row.sentence(None, false).starts_with("not restarted any more; 3 restarts"));
        row.last_output = vec!["x".repeat(500)];
        assert_eq!(row.last_line().chars().count(), 256 + "… (``)".chars().count());
        row.last_output.clear();
        assert_eq!(row.last_line(), "");
    }
}
