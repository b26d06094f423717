//! The document that `plan -o json` prints. Scripts depend on it: fields may be added, but never
//! changed.

use std::collections::BTreeMap;

use serde::Serialize;
use swarm_core::verdict::Explainer;
use swarm_core::{JobName, Jobs, Move, Plan, Pool, Slot, Unassigned};

/// The plan: the new assignment and its moves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Document {
    /// Number of workers.
    pub(crate) workers: u32,
    /// Slot of each assigned job.
    pub(crate) assignment: BTreeMap<String, u32>,
    /// Unassigned jobs, by name.
    pub(crate) unassigned: Vec<Without>,
    /// Changes from the previous assignment, by name of the job.
    pub(crate) moves: Vec<Step>,
    /// Minimum number of moves between existing workers for balance; `None` if any job has a share.
    pub(crate) minimum_moves: Option<usize>,
    /// Jobs that balance will move once the budget allows it. Only with `--step`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) deferred: Option<Vec<String>>,
    /// Jobs that their worker restarts, since other params or another runner start them. Only for an
    /// edit of a live Swarm, or for a pool that runs on this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) restarts: Option<Vec<String>>,
    /// The Swarm that the plan is for. Only with `--live`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) live: Option<LiveDocument>,
    /// Present only if jobs are unassigned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) workers_enough: Option<Enough>,
}

/// The Swarm that a plan begins with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LiveDocument {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The number of workers that it should have now.
    pub(crate) workers: u32,
    /// Revision of its ledger.
    pub(crate) revision: u64,
    /// Version of the object. Each edit, and each change of its status, makes another one.
    pub(crate) resource_version: String,
}

/// Number of workers that would run all jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum Enough {
    /// This number of workers.
    Workers(u32),
    /// No number of workers is enough: `null`.
    Never,
}

/// A job without a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Without {
    pub(crate) job: String,
    pub(crate) reason: &'static str,
    /// The reason in a sentence.
    pub(crate) message: String,
}

/// A job that changes its holder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Step {
    pub(crate) job: String,
    pub(crate) from: Option<u32>,
    pub(crate) to: Option<u32>,
    pub(crate) reason: &'static str,
}

impl Document {
    /// Makes the document of a plan of these jobs for this pool.
    pub(crate) fn new(jobs: &Jobs, pool: &Pool, plan: &Plan) -> Self {
        let explainer = Explainer::of_plan(jobs, plan, pool);
        let number = |slot: Option<Slot>| slot.map(|slot| slot.0);
        let step = |step: &Move| Step {
            job: step.job.to_string(),
            from: number(step.from),
            to: number(step.to),
            reason: step.reason.as_str(),
        };
        let without = |(job, why): (&JobName, &Unassigned)| Without {
            job: job.to_string(),
            reason: why.as_str(),
            message: jobs.get(job).map(|job| explainer.sentence(job, *why)).unwrap_or_default(),
        };
        Self {
            workers: u32::try_from(pool.0.len()).unwrap_or(u32::MAX),
            assignment: plan.assignment.iter().map(|(job, at)| (job.to_string(), at.0)).collect(),
            unassigned: plan.unassigned.iter().map(without).collect(),
            moves: plan.moves.iter().map(step).collect(),
            minimum_moves: plan.minimum_moves,
            deferred: None,
            restarts: None,
            live: None,
            workers_enough: None,
        }
    }

    /// Whether a job that should run has no worker.
    pub(super) fn leaves_some(&self) -> bool {
        self.unassigned.iter().any(|job| job.reason != Unassigned::Suspended.as_str())
    }

    /// Returns the document as text that ends in a line break.
    pub(crate) fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self).map(|json| json + "\n")
    }
}
