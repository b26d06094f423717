//! What a Swarm's status says: derived from one turn, written, and never read back for a decision.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use swarm_core::{Decision, Observed, Presence, Unassigned, Waiting};

use crate::api::SwarmStatus;

/// Why a Swarm is ready or not: the reasons of the condition `Ready` and of Events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Every job has a worker that is ready, and the view is published.
    Settled,
    /// The pool is new and not complete; nothing is assigned yet.
    PoolIncomplete,
    /// No worker can take jobs.
    NoWorkers,
    /// Some jobs are pinned to a worker that does not take jobs, or found all workers full.
    JobsUnassigned,
    /// Workers that hold jobs are not ready or away.
    WorkersNotReady,
    /// Somebody asked for everything to stay as it is.
    Paused,
    /// The pool's workload does not exist.
    PoolNotFound,
    /// The spec cannot be used.
    InvalidSpec,
    /// A store refuses for good; the word is the store's.
    Refused(&'static str),
}

impl Reason {
    /// The word that stands in conditions and Events.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Settled => "Settled",
            Self::PoolIncomplete => "PoolIncomplete",
            Self::NoWorkers => "NoWorkers",
            Self::JobsUnassigned => "JobsUnassigned",
            Self::WorkersNotReady => "WorkersNotReady",
            Self::Paused => "Paused",
            Self::PoolNotFound => "PoolNotFound",
            Self::InvalidSpec => "InvalidSpec",
            Self::Refused(code) => code,
        }
    }

    /// Whether only an edit by a person can help.
    #[must_use]
    pub fn is_stalled(self) -> bool {
        match self {
            Self::Settled
            | Self::PoolIncomplete
            | Self::NoWorkers
            | Self::JobsUnassigned
            | Self::WorkersNotReady
            | Self::Paused => false,
            Self::PoolNotFound | Self::InvalidSpec | Self::Refused(_) => true,
        }
    }
}

/// A reason with its sentence for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The reason.
    pub reason: Reason,
    /// The sentence.
    pub message: String,
}

impl Verdict {
    /// The verdict on a turn that was carried out.
    #[must_use]
    pub fn of(decision: &Decision, observed: &Observed) -> Self {
        let jobs = decision.plan.assignment.len() + decision.plan.unassigned.len();
        match decision.waiting {
            Some(Waiting::PoolIncomplete { ready, desired }) => {
                let message = format!(
                    "{ready} of {desired} workers are ready; {jobs} jobs wait until all are, \
                     or until initialWait has passed"
                );
                return Self { reason: Reason::PoolIncomplete, message };
            }
            Some(Waiting::Paused) => {
                let message = "paused: every job stays where it is".to_owned();
                return Self { reason: Reason::Paused, message };
            }
            None => {}
        }
        if !decision.plan.unassigned.is_empty() {
            return Self::without_worker(decision, jobs);
        }
        let holders = decision.plan.assignment.by_slot();
        let not_ready = holders.keys().filter_map(|slot| observed.workers.get(slot));
        let not_ready = not_ready.filter(|seen| seen.presence != Presence::Ready);
        let names: Vec<_> = not_ready.map(|seen| seen.name.as_str()).collect();
        if names.is_empty() {
            let message = format!("{jobs} jobs on {} workers", decision.ledger.slots.len());
            return Self { reason: Reason::Settled, message };
        }
        let message = format!("these workers hold jobs and are not ready: {}", shortened(&names));
        Self { reason: Reason::WorkersNotReady, message }
    }

    /// The verdict when some of `jobs` jobs have no worker.
    fn without_worker(decision: &Decision, jobs: usize) -> Self {
        let without = decision.plan.unassigned.len();
        let reasons: BTreeSet<_> = decision.plan.unassigned.values().copied().collect();
        if reasons.iter().eq([&Unassigned::NoWorkers]) {
            let message = format!("{without} of {jobs} jobs have no worker: none is ready");
            return Self { reason: Reason::NoWorkers, message };
        }
        let words: Vec<_> = reasons.into_iter().map(Unassigned::as_str).collect();
        let message = format!("{without} of {jobs} jobs have no worker: {}", words.join(", "));
        Self { reason: Reason::JobsUnassigned, message }
    }
}

/// A list of names of bounded length.
fn shortened(names: &[&str]) -> String {
    const SHOWN: usize = 5;
    let shown = names[..names.len().min(SHOWN)].join(", ");
    match names.len().checked_sub(SHOWN) {
        None | Some(0) => shown,
        Some(more) => format!("{shown} and {more} more"),
    }
}

/// The status after a turn.
#[must_use]
pub fn after_turn(
    generation: Option<i64>,
    before: Option<&SwarmStatus>,
    decision: &Decision,
    observed: &Observed,
    verdict: &Verdict,
) -> SwarmStatus {
    let plan = &decision.plan;
    let mut unassigned = BTreeMap::<String, i32>::new();
    for reason in plan.unassigned.values() {
        *unassigned.entry(reason.as_str().to_owned()).or_default() += 1;
    }
    let status = SwarmStatus {
        observed_generation: None,
        revision: i64::try_from(decision.ledger.revision()).unwrap_or(i64::MAX),
        jobs: count(plan.assignment.len() + plan.unassigned.len()),
        assigned: count(plan.assignment.len()),
        unassigned,
        workers_ready: count(observed.ready()),
        workers_desired: count(observed.workers_desired),
        conditions: Vec::new(),
    };
    judged(generation, before, status, verdict)
}

/// The status after a turn that could not be carried out: the counts of the last good one stay.
#[must_use]
pub fn after_refusal(
    generation: Option<i64>,
    before: Option<&SwarmStatus>,
    verdict: &Verdict,
) -> SwarmStatus {
    judged(generation, before, before.cloned().unwrap_or_default(), verdict)
}

fn judged(
    generation: Option<i64>,
    before: Option<&SwarmStatus>,
    status: SwarmStatus,
    verdict: &Verdict,
) -> SwarmStatus {
    let Verdict { reason, message } = verdict;
    let before = before.into_iter().flat_map(|status| &status.conditions);
    let condition = |kind: &str, is_true: bool| {
        let status = if is_true { "True" } else { "False" };
        let same = before.clone().find(|old| old.type_ == kind && old.status == status);
        let now = || Time(Timestamp::now());
        Condition {
            type_: kind.into(),
            status: status.into(),
            reason: reason.as_str().into(),
            message: message.clone(),
            observed_generation: generation,
            last_transition_time: same.map_or_else(now, |same| same.last_transition_time.clone()),
        }
    };
    let is_ready = *reason == Reason::Settled;
    let mut conditions = vec![condition("Ready", is_ready)];
    if reason.is_stalled() {
        conditions.push(condition("Stalled", true));
    } else if !is_ready {
        conditions.push(condition("Reconciling", true));
    }
    SwarmStatus { observed_generation: generation, conditions, ..status }
}

fn count(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

/// The reason of the condition `Ready`, as it was last written.
#[must_use]
pub fn ready_reason(status: Option<&SwarmStatus>) -> Option<&str> {
    let ready = status?.conditions.iter().find(|condition| condition.type_ == "Ready");
    ready.map(|condition| condition.reason.as_str())
}
