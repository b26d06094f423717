//! The lines of jobs: each job of a Swarm as a part of a document.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use swarm_core::{JobName, JobPhase, Unassigned};
use swarm_view::jobs::{JobEntry, JobFailure, JobLine};
use swarm_view::picture::{JobFacts, Picture, Run, Step};

use super::objects::SwarmObject;
use super::pool::{JobState, LivePool, LiveWorker};

/// Condition that is true if every job has a worker.
pub(super) const ALL_ASSIGNED: &str = "AllJobsAssigned";
/// Reason of a job without a worker that the operator does not name, where jobs have several reasons.
const UNASSIGNED: &str = "unassigned";

/// The picture of a Swarm, and the facts about each of its jobs.
pub(super) struct Entries<'a> {
    pool: &'a LivePool,
    pub(super) picture: Picture,
    /// The jobs in the spec, by name.
    inline: BTreeMap<&'a str, &'a Value>,
    /// The moments since which workers have jobs, in milliseconds of Unix time.
    held: BTreeMap<&'a str, u64>,
}

impl<'a> Entries<'a> {
    /// O(jobs + episodes).
    pub(super) fn of(pool: &'a LivePool) -> Self {
        let (inline, held) = (pool.swarm.inline_jobs(), pool.past().held_since());
        Self { pool, picture: pool.picture(), inline, held }
    }

    /// Returns a job with its pool. O(log jobs).
    pub(super) fn line(&self, state: &JobState<'a>) -> JobLine {
        JobLine { entry: self.entry(state), pool: self.pool.named() }
    }

    /// Returns a job. O(log jobs).
    pub(super) fn entry(&self, state: &JobState<'a>) -> JobEntry<String> {
        self.picture.entry(self.facts(state))
    }

    /// Returns a job with its pool by its name, if the Swarm has it. O(log jobs).
    pub(super) fn find(&self, job: &JobName) -> Option<JobLine> {
        Some(self.line(&self.pool.job(job)?))
    }

    /// Returns what is known of a job without a plan. O(log jobs), and O(moves of an episode) for a job
    /// that stops.
    pub(super) fn facts(&self, state: &JobState<'a>) -> JobFacts<'a> {
        let (pool, name, failing) = (self.pool, state.name.as_str(), state.failing);
        let (unassigned, message) = match state.phase {
            JobPhase::Suspended => (Some(Unassigned::Suspended.as_str()), None),
            JobPhase::Unassigned => {
                (Some(why_unassigned(&pool.swarm, name)), message_of_unassigned(&pool.swarm))
            }
            _ => (None, None),
        };
        let stops = state.phase == JobPhase::Stopping;
        let under_way = stops.then(|| pool.past().under_way(name)).flatten();
        let worker = state.session.and_then(|session| pool.worker(session));
        let confirmed = |worker: &LiveWorker| {
            let report = worker.report.as_ref()?;
            Some(report.is_stopping(name) && !pool.is_lost(worker))
        };
        let held = || Some(self.held.get(name)? / 1_000);
        JobFacts {
            name,
            title: self.inline.get(name).and_then(|job| job["title"].as_str()),
            state: state.state,
            phase: state.phase.as_str(),
            slot: state.slot.map(|slot| slot.0),
            token: state.token,
            worker: worker.map(|worker| pool.facts_of(worker)),
            step: under_way.map(|(to, reason, _)| Step { to, reason }),
            unassigned,
            unassigned_message: message.map(str::to_owned),
            stopping_for: under_way.map(|(_, _, ms)| Duration::from_millis(ms)),
            is_confirmed: worker.filter(|_| stops).and_then(confirmed),
            failing: failing.map(JobFailure::of),
            last_output: failing.map(|it| it.last_output.as_slice()),
            run: Run {
                since_unix_s: failing.map(|it| it.since_unix_s).or_else(held),
                restarts: failing.map(|it| it.restarts),
                last_exit: failing.map(|it| it.last_exit.clone()),
                ..Run::default()
            },
            ..JobFacts::default()
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
