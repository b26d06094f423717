//! `status`: the state of a pool at one moment, as a document.
//!
//! A reader of another version may miss fields or get further ones. A field that is missing has its
//! default, so a new field needs one that means "not known" or "none".

mod standing;
mod text;

use std::borrow::Cow;
use std::time::Duration;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use swarm_core::life::Lives;
use swarm_core::verdict::FailingShown;
use swarm_core::{FailingJob, FailingState, JobPhase, Progress};
use swarm_spec::manifest::Explained;

pub use self::standing::{Mood, SHOWN, held_back};
pub use self::text::{FAILING_MAX, Place, Runs};
use crate::age::age;
use crate::jobs::JobFailure;
use crate::life::{JobLife, LifeRow};
use crate::replicas::OutOfDate;
use crate::shell;
use crate::words::{Word, counted, number, quoted, word};
use crate::workers::WorkerRow;

/// The time that a job must run to be good again; part of a sentence.
pub const RUNS_WELL: &str = "counts as failing until 30 s";

/// The end of the year 9999, the latest time that is written, in seconds of Unix time.
const UNIX_S_MAX: u64 = 253_402_300_799;

/// The state of a pool. Times are in seconds of Unix time, ages in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// The Swarm's name.
    pub name: String,
    /// Its namespace on a cluster.
    #[serde(default)]
    pub namespace: Option<String>,
    /// The replica of the operator that owns the Swarm, on a cluster.
    #[serde(default)]
    pub operator: Option<String>,
    /// The ledger's revision.
    pub revision: u64,
    /// The followed file, if edits are followed.
    #[serde(default)]
    pub file: Option<String>,
    /// Time of the start of the operator, on one machine.
    #[serde(default)]
    pub since_unix_s: Option<u64>,
    /// Number of publications of the view, on one machine.
    #[serde(default)]
    pub version: Option<u64>,
    /// The reason, or `Ending`.
    #[serde(default)]
    pub status: String,
    /// Whether the pool is as it is asked to be.
    #[serde(default)]
    pub ready: bool,
    /// Whether the pool has nothing to do and waits for nothing.
    pub settled: bool,
    /// Whether no job fails and no worker is silent.
    pub healthy: bool,
    /// The guarantee for the jobs, such as `Exclusive, lease 20s`.
    #[serde(default)]
    pub guarantee: String,
    /// First reason why the pool differs from the request, or `Settled`. A Swarm's condition `Ready`
    /// uses the same words.
    #[serde(default)]
    pub reason: Cow<'static, str>,
    /// The reason in a sentence.
    #[serde(default)]
    pub message: String,
    /// Conditions, as a Swarm on a cluster has them.
    #[serde(default)]
    pub conditions: Vec<Condition>,
    /// Reason why the desired state is not delivered to the workers, if it is not; a sentence.
    pub undelivered: Option<String>,
    /// Error of the file, while it is invalid; the last valid state stays.
    pub invalid_file: Option<InvalidFile>,
    /// Problems that are known as sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// An edit within the last hour that removed many jobs; a sentence. It is no problem by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removal: Option<String>,
    /// Leftovers of an earlier run, while the start waits for their end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier: Option<Earlier>,
    /// Progress of the end of the pool, once it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<Ending>,
    /// Reason why all of this may be wrong now, since no operator works on the Swarm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out_of_date: Option<OutOfDate>,
    /// Number of jobs in each state.
    pub jobs: JobCounts,
    /// The workers, by slot.
    pub workers: Vec<WorkerRow>,
    /// The worst failing jobs.
    pub failing: Vec<FailingRow>,
    /// Counts of the listed failing jobs, if they are known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lives: Vec<LifeRow>,
    /// Jobs that have been stopping for the longest time.
    #[serde(default)]
    pub stopping: Vec<StoppingRow>,
    /// The moves of these jobs.
    #[serde(default)]
    pub moving: Vec<MovingRow>,
    /// Jobs that are suspended by hand.
    #[serde(default)]
    pub by_hand: Vec<String>,
    /// Jobs without a worker with their reasons, by name.
    pub unassigned: Vec<UnassignedRow>,
}

impl Status {
    /// Adds the counts of the listed failing jobs. A job has failed since its first end, on any worker.
    /// O(listed jobs · log jobs).
    pub fn mark_lives(&mut self, lives: &Lives) {
        for row in &mut self.failing {
            let Some(life) = lives.of(&row.job) else { continue };
            let since = life.failing.as_ref().map(|fails| fails.since_ms / 1_000);
            row.since_unix_s = since.map_or(row.since_unix_s, |it| it.min(row.since_unix_s));
            let (job, life) = (row.job.clone(), JobLife::counts(life));
            self.lives.push(LifeRow { job, life });
        }
    }
}

/// A condition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// The name, such as `Ready`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// The reason in a word.
    pub reason: String,
    /// The reason in a sentence.
    pub message: String,
    /// The time of its last change, on a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Timestamp>,
}

impl Condition {
    /// Makes a condition that is true or false.
    #[must_use]
    pub fn new(kind: &str, is_true: bool, reason: &str, message: &str) -> Self {
        Self {
            kind: kind.to_owned(),
            status: if is_true { "True" } else { "False" }.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            last_transition_time: None,
        }
    }
}

/// A failing job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailingRow {
    /// The name of the job.
    pub job: String,
    /// The title of the job, if it has one.
    #[serde(default)]
    pub title: Option<String>,
    /// The worker that runs the job.
    pub worker: String,
    /// `restarting`, or `failed` if it is not restarted any more. A document of the pool has the phase
    /// of a job that runs again.
    #[serde(deserialize_with = "word")]
    pub state: Word,
    /// Number of its runs that ended by themselves, over all its workers. On a cluster since its worker got
    /// it.
    pub restarts: u64,
    /// Time of its first end.
    pub since_unix_s: u64,
    /// Description of its last end.
    pub last_exit: String,
    /// Last lines of output before that end.
    pub last_output: Vec<String>,
}

impl FailingRow {
    /// Makes the row of a job that this worker reports.
    #[must_use]
    pub fn of(failing: FailingJob, worker: &str) -> Self {
        let FailingJob { job, state, restarts, since_unix_s, last_exit, last_output } = failing;
        let (job, worker, state) = (job.to_string(), worker.to_owned(), state.as_str());
        Self { job, title: None, worker, state, restarts, since_unix_s, last_exit, last_output }
    }

    /// Describes the failure at a time in seconds of Unix time, without output. `runs_since_unix_s` is
    /// the start of the present run, if the job runs again. A pool that is only read cannot retry a job.
    #[must_use]
    pub fn sentence(
        &self,
        now_unix_s: u64,
        runs_since_unix_s: Option<u64>,
        can_retry: bool,
    ) -> String {
        let Self { job, state, restarts, last_exit, .. } = self;
        let restarts = counted((*restarts).try_into().unwrap_or(usize::MAX), "restart");
        let since = age(Duration::from_secs(now_unix_s.saturating_sub(self.since_unix_s)));
        let course = match runs_since_unix_s {
            _ if *state == FailingState::Failed.as_str() => {
                let retry = || format!(" swarm retry {};", shell::word(job));
                let retry = if can_retry { retry() } else { String::new() };
                format!("not restarted any more;{retry}")
            }
            Some(runs_since) => {
                let runs_for = Duration::from_secs(now_unix_s.saturating_sub(runs_since).max(1));
                format!("running again for {}; {RUNS_WELL};", age(runs_for))
            }
            None => format!("{state},"),
        };
        format!("{course} {restarts}, failing for {since}: {last_exit}")
    }

    /// Returns the last line of output before the end, in the form that follows its description.
    #[must_use]
    pub fn last_line(&self) -> String {
        quoted(self.last_output.last().map(String::as_str))
    }

    /// Returns the failure as a part of the line of the job.
    #[must_use]
    pub fn failure(&self) -> JobFailure<&str> {
        JobFailure {
            restarts: self.restarts,
            last_exit: &self.last_exit,
            last_line: self.last_output.last().map(String::as_str),
            state: self.state,
            since_unix_s: Some(self.since_unix_s),
        }
    }

    /// Returns the job in the form that a sentence shows.
    #[must_use]
    pub fn shown(&self) -> FailingShown<'_> {
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
}

/// A job that its previous worker still has to stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoppingRow {
    /// The name of the job.
    pub job: String,
    /// The worker that stops the job.
    pub worker: String,
    /// Time of the request to stop.
    pub since_unix_s: u64,
}

/// The move of a job that its worker stops.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MovingRow {
    /// The name of the job.
    pub job: String,
    /// The worker that stops the job.
    #[serde(default)]
    pub from: Option<String>,
    /// The worker that gets the job, if one does.
    #[serde(default)]
    pub to: Option<String>,
    /// The phase of the job.
    pub phase: String,
    /// The reason of the move.
    #[serde(default)]
    pub reason: Option<String>,
    /// Time since the request to stop.
    #[serde(default)]
    pub age_ms: Option<u64>,
    /// The longest time until the job has stopped; `None` without such a bound.
    #[serde(default)]
    pub at_most_ms: Option<u64>,
}

/// A job without a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnassignedRow {
    /// The name of the job.
    pub job: String,
    /// The reason in a word.
    pub reason: Cow<'static, str>,
    /// The reason in a sentence.
    #[serde(default)]
    pub message: Option<String>,
}

/// Error of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InvalidFile {
    /// A sentence.
    pub message: String,
    /// The invalid line and a mark below the place, if known.
    pub excerpt: Option<String>,
    /// Time since which the file is invalid.
    pub since_unix_s: u64,
}

impl InvalidFile {
    /// Describes a file that became invalid at a time in seconds of Unix time.
    #[must_use]
    pub fn of(explained: Explained, since_unix_s: u64) -> Self {
        let Explained { sentence: message, excerpt } = explained;
        Self { message, excerpt, since_unix_s }
    }

    /// Returns the error, its time, and the state that runs meanwhile.
    #[must_use]
    pub fn sentence(&self, revision: u64) -> String {
        let Self { message, since_unix_s, excerpt: _ } = self;
        let since = i64::try_from((*since_unix_s).min(UNIX_S_MAX)).unwrap_or_default();
        let since = Timestamp::from_second(since).unwrap_or_default();
        let since = since.strftime("%a, %d %b %Y %H:%M:%S GMT");
        format!("{message}; invalid since {since}, revision {revision} keeps running")
    }
}

/// Processes that an earlier run left behind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Earlier {
    /// Number of workers.
    pub workers: usize,
    /// Number of other processes: guards and jobs.
    pub others: usize,
    /// Time at which the last process is killed.
    pub until_unix_s: u64,
    /// Sentence about processes that cannot be ended, once no other is left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<String>,
}

impl Earlier {
    /// Returns a sentence about the wait, at a time in seconds of Unix time.
    #[must_use]
    pub fn sentence(&self, now_unix_s: u64) -> String {
        if let Some(held) = &self.held {
            return held.clone();
        }
        let verb = if self.workers + self.others == 1 { "is" } else { "are" };
        let (all, at_most) = (self.all(), self.until_unix_s.saturating_sub(now_unix_s));
        format!("{all} of an earlier run {verb} still ending, at most {at_most} s")
    }

    /// Returns the number of processes in words.
    #[must_use]
    pub fn all(&self) -> String {
        let Self { workers, others, .. } = *self;
        let plural = if others == 1 { "" } else { "es" };
        match (counted(workers, "worker"), number(others)) {
            (workers, _) if others == 0 => workers,
            (_, others) if workers == 0 => format!("{others} process{plural}"),
            (workers, others) => format!("{workers} and {others} other process{plural}"),
        }
    }
}

/// The progress of the end of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ending {
    /// Number of jobs that ran when the end began.
    pub jobs: usize,
    /// Number of these jobs that have not stopped yet.
    pub left: usize,
    /// Number of workers that have not ended yet.
    pub workers_left: usize,
    /// Time at which the last of them is killed.
    pub until_unix_s: u64,
    /// Some of the awaited jobs, with their workers and processes.
    pub waits_for: Vec<String>,
    /// Sentences about processes that cannot be ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<String>,
    /// Jobs and workers that did not end in time and were killed.
    pub killed: Vec<String>,
    /// Sentence about the end, once no process is left.
    #[serde(skip)]
    pub last: Option<String>,
}

impl Ending {
    /// Returns a sentence about the wait, at a time in seconds of Unix time.
    #[must_use]
    pub fn sentence(&self, now_unix_s: u64) -> String {
        let Self { jobs, left, workers_left, until_unix_s, .. } = self;
        let at_most = until_unix_s.saturating_sub(now_unix_s);
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

/// The number of jobs in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobCounts {
    /// All jobs that are desired or still held.
    pub total: usize,
    /// Granted to a worker.
    pub granted: usize,
    /// Granted, confirmed by its worker, and not failing.
    #[serde(default)]
    pub running: usize,
    /// Granted, and not confirmed by its worker yet.
    #[serde(default)]
    pub published: usize,
    /// Moving from one worker to another.
    pub moving: usize,
    /// Waiting for a worker to return, or for a decision.
    pub waiting: usize,
    /// Finished.
    pub done: usize,
    /// Not granted for a while, since they crashed their workers.
    pub quarantined: usize,
    /// Suspended, so that no worker runs them.
    #[serde(default)]
    pub suspended: usize,
    /// Without a worker, for another reason.
    pub unassigned: usize,
    /// Granted, and failing.
    pub failing: usize,
}

impl JobCounts {
    /// Makes the numbers of a pool with this progress.
    #[must_use]
    pub fn of(progress: &Progress, total: usize) -> Self {
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

    /// Sets how many jobs their workers have confirmed, from the numbers of jobs by phase.
    pub fn confirm(&mut self, phases: &[(Word, usize)]) {
        let count = |phase: JobPhase| {
            let found = phases.iter().find(|(word, _)| *word == phase.as_str());
            found.map_or(0, |(_, count)| *count)
        };
        (self.running, self.published) = (count(JobPhase::Running), count(JobPhase::Published));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The document of the first version that had one, with an unknown word and an unknown field.
    const OLDEST: &str = r#"{"name": "cams", "revision": 3, "version": 4, "settled": true,
        "healthy": true, "undelivered": null, "invalidFile": null, "later": {"x": 1},
        "jobs": {"total": 2, "granted": 1, "moving": 0, "waiting": 0, "done": 0, "quarantined": 0,
            "unassigned": 1, "failing": 0},
        "workers": [{"name": "w-0", "slot": 0, "state": "dozing", "session": null, "jobs": 1,
            "releasing": 0, "failing": 0, "restarts": 0, "silentSinceUnixS": null}],
        "failing": [], "unassigned": [{"job": "b", "reason": "moon-phase"}]}"#;

    #[test]
    fn a_document_of_another_version_is_read() {
        let status: Status = serde_json::from_str(OLDEST).unwrap();
        assert_eq!((status.workers[0].state, status.jobs.running), ("unknown", 0));
        assert_eq!(status.unassigned("b").unwrap().reason, "moon-phase");
        assert_eq!((status.since_unix_s, &*status.reason, status.moving.len()), (None, "", 0));
        let again = serde_json::to_string(&status).unwrap();
        assert_eq!(serde_json::from_str::<Status>(&again).unwrap(), status);
    }

    #[test]
    fn a_failure_has_its_course_its_end_and_the_last_line() {
        let mut row = FailingRow {
            job: "camera 1".to_owned(),
            title: None,
            worker: "w-0".to_owned(),
            state: "restarting",
            restarts: 3,
            since_unix_s: 1_000,
            last_exit: "ended with exit code 127".to_owned(),
            last_output: vec!["one".to_owned(), "sh: rec: not found\u{1b}[2J".to_owned()],
        };
        let sentence = row.sentence(1_000, None, true);
        assert_eq!(sentence, "restarting, 3 restarts, failing for 0 s: ended with exit code 127");
        let line = row.last_line();
        assert!(line.starts_with(" (`sh: rec: not found") && line.ends_with("[2J`)"), "{line}");
        assert!(!line.contains('\u{1b}'), "{line}");
        let runs = row.sentence(1_000, Some(995), true);
        assert!(runs.starts_with("running again for "), "{runs}");
        assert!(
            runs.contains(" s; counts as failing until 30 s; 3 restarts, failing for "),
            "{runs}"
        );
        row.state = "failed";
        let given_up = row.sentence(1_000, None, true);
        assert!(given_up.contains("; swarm retry 'camera 1'; 3 restarts"), "{given_up}");
        assert!(row.sentence(1_000, None, false).starts_with("not restarted any more; 3 restarts"));
        row.last_output = vec!["x".repeat(500)];
        assert_eq!(row.last_line().chars().count(), 256 + "… (``)".chars().count());
        row.last_output.clear();
        assert_eq!(row.last_line(), "");
    }

    #[test]
    fn what_is_left_is_one_sentence() {
        let sentence = |workers, others| {
            Earlier { workers, others, until_unix_s: 1_012, held: None }.sentence(1_000)
        };
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
