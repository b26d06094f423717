//! `plan`: the new assignment of a pool and its moves, as a document.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use swarm_core::verdict::Explainer;
use swarm_core::{JobName, Jobs, Move, Pool, Slot, Unassigned};

/// The plan: the new assignment and its moves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Plan {
    /// Number of workers.
    pub workers: u32,
    /// Slot of each assigned job.
    pub assignment: BTreeMap<String, u32>,
    /// Unassigned jobs, by name.
    pub unassigned: Vec<Without>,
    /// Changes from the previous assignment, by name of the job.
    pub moves: Vec<Step>,
    /// Minimum number of moves between existing workers for balance; `None` if any job has a share.
    pub minimum_moves: Option<usize>,
    /// Jobs that balance will move once the budget allows it. Only with `--step`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deferred: Option<Vec<String>>,
    /// Jobs that their worker restarts, since other params or another runner start them. Only for an
    /// edit of a live Swarm, or for a pool that runs on this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restarts: Option<Vec<String>>,
    /// The Swarm that the plan is for. Only with `--live`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live: Option<LiveDocument>,
    /// Present only if jobs are unassigned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers_enough: Option<Enough>,
}

/// The Swarm that a plan begins with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LiveDocument {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The number of workers that it should have now.
    pub workers: u32,
    /// Revision of its ledger.
    pub revision: u64,
    /// Version of the object. Each edit, and each change of its status, makes another one.
    pub resource_version: String,
}

/// Number of workers that would run all jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Enough {
    /// This number of workers.
    Workers(u32),
    /// No number of workers is enough: `null`.
    Never,
}

/// A job without a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Without {
    /// The name of the job.
    pub job: String,
    /// The reason in a word.
    pub reason: &'static str,
    /// The reason in a sentence.
    pub message: String,
}

/// A job that changes its holder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Step {
    /// The name of the job.
    pub job: String,
    /// The slot that has it.
    pub from: Option<u32>,
    /// The slot that gets it.
    pub to: Option<u32>,
    /// The reason in a word.
    pub reason: &'static str,
}

impl Plan {
    /// Makes the document of a plan of these jobs for this pool.
    #[must_use]
    pub fn new(jobs: &Jobs, pool: &Pool, plan: &swarm_core::Plan) -> Self {
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
    #[must_use]
    pub fn leaves_some(&self) -> bool {
        self.unassigned.iter().any(|job| job.reason != Unassigned::Suspended.as_str())
    }

    /// Returns the document as text that ends in a line break.
    ///
    /// # Errors
    ///
    /// Never: names and numbers can always be written.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self).map(|json| json + "\n")
    }
}
