//! The lines of jobs: each job of a Swarm as a part of a document.

use std::collections::BTreeMap;

use serde_json::Value;
use swarm_core::{JobName, JobPhase, Unassigned};
use swarm_view::jobs::{JobEntry, JobFailure, JobLine};

use super::objects::SwarmObject;
use super::pool::{JobState, LivePool};

/// Condition that is true if every job has a worker.
pub(super) const ALL_ASSIGNED: &str = "AllJobsAssigned";
/// Reason of a job without a worker that the operator does not name, where jobs have several reasons.
const UNASSIGNED: &str = "unassigned";

/// Makes the entries of the jobs of a Swarm.
pub(super) struct Entries<'a> {
    pool: &'a LivePool,
    /// The jobs in the spec, by name.
    inline: BTreeMap<&'a str, &'a Value>,
    /// The moments since which workers have jobs, in milliseconds of Unix time.
    held: BTreeMap<&'a str, u64>,
}

impl<'a> Entries<'a> {
    /// O(jobs + episodes).
    pub(super) fn of(pool: &'a LivePool) -> Self {
        Self { pool, inline: pool.swarm.inline_jobs(), held: pool.past().held_since() }
    }

    /// Returns a job with its pool. O(log jobs).
    pub(super) fn line(&self, state: &JobState<'_>) -> JobLine {
        JobLine { entry: self.entry(state), pool: self.pool.named() }
    }

    /// Returns a job with its pool by its name, if the Swarm has it. O(log jobs).
    pub(super) fn find(&self, job: &JobName) -> Option<JobLine> {
        Some(self.line(&self.pool.job(job)?))
    }

    /// Returns a job. O(log jobs).
    pub(super) fn entry(&self, state: &JobState<'_>) -> JobEntry<String> {
        let name = state.name.as_str();
        let failing = state.failing;
        let title = self.inline.get(name).and_then(|job| job["title"].as_str());
        let swarm = &self.pool.swarm;
        let (unassigned, message) = match state.phase {
            JobPhase::Suspended => (Some(Unassigned::Suspended.as_str()), None),
            JobPhase::Unassigned => {
                (Some(why_unassigned(swarm, name)), message_of_unassigned(swarm))
            }
            _ => (None, None),
        };
        let held = || Some(self.held.get(name)? / 1_000);
        JobEntry {
            name: name.to_owned(),
            title: title.map(str::to_owned),
            state: state.state,
            slot: state.slot.map(|slot| slot.0),
            worker: state.worker.map(str::to_owned),
            everywhere: state.is_everywhere,
            token: state.token,
            phase: state.phase.as_str(),
            since_unix_s: failing.map(|it| it.since_unix_s).or_else(held),
            restarts: failing.map(|it| it.restarts),
            last_exit: failing.map(|it| it.last_exit.clone()),
            last_output: failing.map(|it| it.last_output.clone()),
            unassigned: unassigned.map(str::to_owned),
            unassigned_message: message.map(str::to_owned),
            failing: failing.map(|it| JobFailure {
                restarts: it.restarts,
                last_exit: it.last_exit.clone(),
                last_line: it.last_output.last().cloned(),
                state: it.state.as_str(),
                since_unix_s: Some(it.since_unix_s),
            }),
            ..JobEntry::default()
        }
    }
}

/// Returns the reason for which a job has no worker. If the operator does not name the job, it is the
/// reason of all of them, or [`UNASSIGNED`] if they have several.
pub(super) fn why_unassigned<'a>(swarm: &'a SwarmObject, job: &str) -> &'a str {
    let status = &swarm.status;
    let of_all = || match status.unassigned.keys().collect::<Vec<_>>().as_slice() {
        [one] => one.as_str(),
        _ => UNASSIGNED,
    };
    status.reason_of(job).unwrap_or_else(of_all)
}

/// Returns the sentence of the operator about jobs without a worker.
pub(super) fn message_of_unassigned(swarm: &SwarmObject) -> Option<&str> {
    let condition = swarm.condition(ALL_ASSIGNED).filter(|it| it.status == "False");
    condition.map(|it| it.message.as_str())
}
