//! The document that `plan -o json` prints. Scripts depend on it, so fields are added, but never
//! changed.

use std::collections::BTreeMap;

use serde::Serialize;
use swarm_core::{Move, Plan, Slot, Unassigned};

/// The plan: what would run where, and what would move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Document {
    /// How many workers there are.
    pub(crate) workers: u32,
    /// The slot of every job that has one.
    pub(crate) assignment: BTreeMap<String, u32>,
    /// The jobs that have none, by name.
    pub(crate) unassigned: Vec<Without>,
    /// The difference to what was held, by name of the job.
    pub(crate) moves: Vec<Step>,
    /// The fewest moves between existing workers that balance needs; `None` if any job has a share.
    pub(crate) minimum_moves: Option<usize>,
    /// Only with `--step`: the jobs that balance will move once the budget allows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) deferred: Option<Vec<String>>,
    /// Only if jobs are unassigned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) workers_enough: Option<Enough>,
}

/// How many workers would leave no job out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum Enough {
    /// This many workers.
    Workers(u32),
    /// No number of workers: `null`.
    Never,
}

/// A job without a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Without {
    pub(crate) job: String,
    pub(crate) reason: &'static str,
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
    /// The document of a plan for this many workers.
    pub(crate) fn new(workers: u32, plan: &Plan) -> Self {
        let number = |slot: Option<Slot>| slot.map(|slot| slot.0);
        let step = |step: &Move| Step {
            job: step.job.to_string(),
            from: number(step.from),
            to: number(step.to),
            reason: step.reason.as_str(),
        };
        let without =
            |(job, why): (_, &Unassigned)| Without { job: format!("{job}"), reason: why.as_str() };
        Self {
            workers,
            assignment: plan.assignment.iter().map(|(job, at)| (job.to_string(), at.0)).collect(),
            unassigned: plan.unassigned.iter().map(without).collect(),
            moves: plan.moves.iter().map(step).collect(),
            minimum_moves: plan.minimum_moves,
            deferred: None,
            workers_enough: None,
        }
    }

    /// Whether a job has no worker that is to have one.
    pub(super) fn leaves_some(&self) -> bool {
        self.unassigned.iter().any(|job| job.reason != Unassigned::Suspended.as_str())
    }

    /// The document as text that ends in a line break.
    pub(crate) fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self).map(|json| json + "\n")
    }
}
