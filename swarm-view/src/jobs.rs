//! `jobs`: a line for each job of a pool.

use std::fmt::Display;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use swarm_core::Params;

use crate::age::age;
use crate::table::EVERY_WORKER;
use crate::waits::Wait;
use crate::words::{Word, word};

/// The state of a job that every worker runs.
pub const EVERYWHERE: Word = "everywhere";

/// A job, as `/api/v1/jobs` of a pool on one machine has it. Times are in seconds of Unix time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobEntry<S> {
    /// The name of the job.
    #[serde(rename = "job")]
    pub name: S,
    /// Title of the job, if it has one.
    #[serde(default)]
    pub title: Option<S>,
    /// Its state in the ledger.
    #[serde(deserialize_with = "word")]
    pub state: Word,
    /// The slot that holds it.
    pub slot: Option<u32>,
    /// Name of the worker in that slot.
    pub worker: Option<S>,
    /// Time since which that worker is silent; the phase may be old then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_silent_since_unix_s: Option<u64>,
    /// The token of its grant.
    pub token: u64,
    /// Phase of the job, as its worker reports it.
    #[serde(default, deserialize_with = "word")]
    pub phase: Word,
    /// Name of the worker that gets the job once its present worker has stopped it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moves_to: Option<S>,
    /// Reason for which its worker stops the job, while it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moves_for: Option<S>,
    /// The things that the job waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<Wait>,
    /// Version of the job that runs: `newest`, `previous` while it waits for its restart, or
    /// `failed` if the newest version failed.
    #[serde(default, deserialize_with = "word")]
    pub version: Word,
    /// First process of the job, if it is a program that runs.
    #[serde(default)]
    pub pid: Option<i32>,
    /// Time of its last start, if it runs.
    #[serde(default)]
    pub since_unix_s: Option<u64>,
    /// Number of its runs that ended by themselves, since its worker got it.
    #[serde(default)]
    pub restarts: u64,
    /// Last end of a run by itself; part of a sentence.
    #[serde(default)]
    pub last_exit: Option<String>,
    /// Reason why no worker runs the job, if none does.
    pub unassigned: Option<S>,
    /// That reason in a sentence.
    #[serde(default)]
    pub unassigned_message: Option<String>,
    /// Failure of the job, if it is one of the listed failures.
    pub failing: Option<JobFailure<S>>,
    /// Params of the job, for the user of the pool.
    #[serde(default, skip_serializing_if = "is_none")]
    pub params: Params,
    /// Name of its runner, if it names one, for the user of the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner: Option<String>,
}

impl<S: AsRef<str>> JobEntry<S> {
    /// Whether every worker runs the job.
    #[must_use]
    pub fn is_everywhere(&self) -> bool {
        self.state == EVERYWHERE
    }

    /// Returns the worker as tables show it.
    #[must_use]
    pub fn shown_worker(&self) -> &str {
        if self.is_everywhere() {
            return EVERY_WORKER;
        }
        self.worker.as_ref().map_or("-", AsRef::as_ref)
    }
}

impl<S: Display> JobEntry<S> {
    /// Returns a sentence about the worker of the job at a time in seconds of Unix time, if the worker is
    /// silent.
    #[must_use]
    pub fn unanswered(&self, now_unix_s: u64) -> Option<String> {
        let since = self.worker_silent_since_unix_s?;
        let silent_for = age(Duration::from_secs(now_unix_s.saturating_sub(since)));
        Some(format!("{} has not answered for {silent_for}", self.worker.as_ref()?))
    }
}

impl JobEntry<String> {
    /// Describes the move of a job that its worker stops.
    #[must_use]
    pub fn leaving(&self) -> String {
        let reason = self.moves_for.as_deref().unwrap_or_default();
        match &self.moves_to {
            Some(worker) => format!("it moves to {worker}, with the reason `{reason}`"),
            None => {
                format!("its worker stops it, with the reason `{reason}`; no worker is to get it")
            }
        }
    }
}

/// Whether a job has no params.
fn is_none(params: &Params) -> bool {
    params.is_empty()
}

/// Failure of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobFailure<S> {
    /// Number of its runs that ended by themselves.
    pub restarts: u64,
    /// Description of its last end.
    pub last_exit: S,
    /// Last line of output before that end, unless output is hidden.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_line: Option<S>,
}
