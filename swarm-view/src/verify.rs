//! `verify`: the judgement of run logs. Times are in nanoseconds since the machine started, and
//! durations in milliseconds.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The judgement of run logs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verification {
    /// First time that the logs cover; `null` without any line.
    pub from: Option<u64>,
    /// Last line, on the clock of the last boot; `null` without any line.
    pub until: Option<u64>,
    /// Number of boots in between.
    pub reboots: u32,
    /// Times with missing lines.
    pub gaps: Vec<Missing>,
    /// Number of further such times.
    pub gaps_left_out: u64,
    /// Time after which the pool ran without a run log.
    pub off_since: Option<u64>,
    /// Number of sessions that stopped without their last line.
    pub sessions_without_end: u64,
    /// Number of jobs.
    pub jobs: usize,
    /// Number of runs.
    pub runs: u64,
    /// Number of runs whose start is in no log.
    pub runs_without_start: u64,
    /// Number of runs whose end is in no log.
    pub runs_without_stop: u64,
    /// Number of lines that several logs have.
    pub repeated_lines: u64,
    /// Runs of one job at the same time.
    pub overlaps: Vec<Overlap>,
    /// Number of further such runs.
    pub overlaps_left_out: u64,
    /// Starts whose token is not higher than an earlier one.
    pub token_regressions: Vec<Regression>,
    /// Number of further such starts.
    pub token_regressions_left_out: u64,
    /// Jobs that ran beside a job that must run alone.
    pub beside: Vec<Company>,
    /// Runs whose processes could not be ended, and whose end was not seen.
    #[serde(default)]
    pub unseen_ends: Vec<Unseen>,
    /// Longest time between two runs of a job.
    pub longest_gap_ms: f64,
    /// The job of that time.
    pub longest_gap_job: Option<String>,
    /// Number of damaged lines.
    pub torn_lines: u64,
    /// Number of damaged lines that a killed writer does not explain.
    pub torn_lines_unexplained: u64,
}

/// Identity of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "RunName")]
pub struct RunName {
    /// The worker.
    pub worker: String,
    /// Its session.
    pub session: String,
    /// The token of the grant.
    pub token: u64,
}

/// An older run that was active after a newer one had started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Overlap {
    /// The job.
    pub job: String,
    /// The run that should have ended earlier.
    pub older: RunName,
    /// The run that started meanwhile.
    pub newer: RunName,
    /// Start of the newer run.
    pub from: u64,
    /// Last event of the older run.
    pub until: u64,
    /// Time from one to the other.
    pub ms: f64,
}

/// A start whose token is not higher than the token of an earlier session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Regression {
    /// The job.
    pub job: String,
    /// Time of the start.
    pub t: u64,
    /// Its token.
    pub token: u64,
    /// Highest earlier token.
    pub after: u64,
    /// The session that started the job.
    pub session: String,
}

/// A run whose processes could not be ended, and whose end was not seen. It may still run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "UnseenEnd")]
pub struct Unseen {
    /// The job.
    pub job: String,
    /// The run.
    pub run: RunName,
    /// Time at which it should have ended.
    pub since: u64,
}

/// A job that ran beside a job that must run alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Company {
    /// The worker of both.
    pub worker: String,
    /// The job that must run alone.
    pub job: String,
    /// The other job.
    pub other: String,
    /// Beginning of the time of both.
    pub from: u64,
    /// Its end.
    pub until: u64,
    /// Its length.
    pub ms: f64,
}

/// A time with missing lines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Missing {
    /// The session whose lines are missing; `null` if it is not known.
    pub session: Option<String>,
    /// Beginning of the time.
    pub from: u64,
    /// Its end.
    pub until: u64,
    /// Its length.
    pub ms: f64,
}
