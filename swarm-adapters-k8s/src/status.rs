//! Status of a Swarm. Each turn derives and writes it; no decision reads it back.

mod after_refusal;
mod autoscale;
mod degraded;
mod event_reason;
pub(crate) mod events;
#[cfg(test)]
#[path = "../tests/controller/kstatus.rs"]
mod kstatus;
mod misfits;
mod missing;
mod overdue;
mod pool;
pub(crate) mod publisher;
mod reason;
mod refreshed;
mod refusals;
mod rollout;
mod sessions;
mod shares;
#[cfg(test)]
mod tests;

pub use after_refusal::after_refusal;
pub use autoscale::desired_workers;
pub use degraded::{DEGRADED, trouble};
pub use event_reason::EventReason;
pub(crate) use overdue::NotReadyTooLong;
pub use reason::Reason;
pub use refreshed::{KnownBy, Refreshed};
pub use refusals::{Refusals, RefusedRequest};
pub(crate) use sessions::HEALTHY;
pub(crate) use sessions::SHOWN;
pub use sessions::{Fenced, SessionReport, StillStopping, Unanswered};
pub(crate) use swarm_core::verdict::{counted, number, shortened};

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use swarm_client::api::{SwarmStatus, UNASSIGNED_JOBS_MAX, UnassignedJob};
use swarm_core::verdict::{self, Reason as Shared, Summary, Wanted};
use swarm_core::{
    Decision, Desired, Need, Observed, Progress, Replication, Reservations, Unassigned, Waiting,
    digest_jobs,
};

use crate::pool::rollout::RolloutReport;
use crate::pool::workload::{Kind, Workload};

/// A reason with its sentence for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The reason.
    pub reason: Reason,
    /// The sentence.
    pub message: String,
}

impl Verdict {
    /// The verdict on a completed turn.
    #[must_use]
    pub fn of(facts: &TurnSummary<'_>) -> Self {
        let ready = facts.progress.workers_ready;
        let of_turn = rollout::verdict(facts.pool, facts.rollout, Self::of_turn(facts), ready);
        let of_turn = of_turn.naming(facts.sessions);
        let waits_for_pods = [
            Reason::RollingOut,
            Reason::RolloutStalled,
            Reason::Shared(Shared::PoolIncomplete),
            Reason::Shared(Shared::NoWorkers),
            Reason::Shared(Shared::JobsUnassigned),
            Reason::PinnedOutside,
            Reason::Shared(Shared::WorkersMissing),
            Reason::Shared(Shared::WorkersNotReady),
            Reason::Shared(Shared::Scaling),
        ];
        match &facts.pool.trouble {
            Some(trouble) if waits_for_pods.contains(&of_turn.reason) => {
                let message = format!("{}; {trouble}", of_turn.message);
                Self { message, ..of_turn }
            }
            _ => of_turn,
        }
    }

    /// Adds the jobs that still stop, if a person waits for them.
    fn naming(self, sessions: &SessionReport) -> Self {
        let waits_for_stops = [
            Reason::Shared(Shared::JobsWaiting),
            Reason::Shared(Shared::JobsUnassigned),
            Reason::PinnedOutside,
            Reason::Shared(Shared::NoWorkers),
            Reason::ScaledToZero,
            Reason::Shared(Shared::WorkersNotReady),
            Reason::Shared(Shared::Rebalancing),
            Reason::Shared(Shared::Refreshing),
            Reason::RollingOut,
            Reason::RolloutStalled,
            Reason::RevocationHeld,
            Reason::ReleaseUnanswered,
            Reason::Shared(Shared::Scaling),
        ];
        match sessions.still_stopping() {
            Some(stopping) if waits_for_stops.contains(&self.reason) => {
                let message = format!("{}; {stopping}", self.message);
                Self { message, ..self }
            }
            _ => self,
        }
    }

    /// The verdict on a turn, without problems of single pods.
    fn of_turn(facts: &TurnSummary<'_>) -> Self {
        let TurnSummary { decision, desired, progress, refreshed, sessions, refusals, .. } = *facts;
        let common = facts.common();
        let is_incomplete = matches!(decision.waiting, Some(Waiting::PoolIncomplete { .. }));
        refusals
            .verdict()
            .or_else(|| pool::scaled_to_zero(facts, common.wanted()))
            // Workers that get no jobs do not count as ready. So they are the reason for the
            // incomplete pool.
            .or_else(|| sessions.excluded().filter(|_| is_incomplete))
            .or_else(|| common.start().map(Self::from))
            .or_else(|| sessions.verdict())
            .or_else(|| Self::unsettled(facts, &common))
            .or_else(|| sessions.all_failing(desired, progress))
            .or_else(|| refreshed.verdict())
            .unwrap_or_else(|| missing::verdict(facts, &common))
    }

    /// The verdict on a turn after which jobs have no worker, or the pool changes. A job that is
    /// pinned to a worker that cannot exist waits for an edit.
    fn unsettled(facts: &TurnSummary<'_>, common: &Summary<'_>) -> Option<Self> {
        let verdict = Self::from(common.unsettled()?);
        let is_unassigned = verdict.reason == Reason::Shared(Shared::JobsUnassigned);
        // Pods with given labels may become more at any time.
        let is_sized = facts.pool.kind != Kind::Pods;
        if is_unassigned && is_sized && common.pinned_outside().is_some() {
            return Some(Self { reason: Reason::PinnedOutside, ..verdict });
        }
        Some(verdict)
    }
}

impl From<verdict::Verdict> for Verdict {
    fn from(verdict::Verdict { reason, message }: verdict::Verdict) -> Self {
        Self { reason: Reason::Shared(reason), message }
    }
}

/// Inputs and results of a turn, from which its status follows.
#[derive(Clone, Copy, Debug)]
pub struct TurnSummary<'a> {
    /// The name of the Swarm.
    pub swarm: &'a str,
    /// The turn's decision.
    pub decision: &'a Decision,
    /// The desired state.
    pub desired: &'a Desired,
    /// The number of workers that the jobs need; `None` if every worker runs all jobs.
    pub need: Option<Need>,
    /// The observed state.
    pub observed: &'a Observed,
    /// Progress of the pool.
    pub progress: &'a Progress,
    /// The pool's workload.
    pub pool: &'a Workload,
    /// Progress of the pool's workload with its newest template.
    pub rollout: &'a RolloutReport,
    /// The workers that have their newest jobs, and the workers that do not.
    pub refreshed: &'a Refreshed,
    /// The report on sessions.
    pub sessions: &'a SessionReport,
    /// Writes that the API server refused during the turn.
    pub refusals: &'a Refusals,
    /// The announcement of an edit that removed many jobs, within the last hour.
    pub removed: Option<&'a str>,
}

impl<'a> TurnSummary<'a> {
    /// The part that a pool on one machine has as well.
    fn common(&self) -> Summary<'a> {
        let Self { decision, desired, observed, progress, .. } = *self;
        Summary::of(decision, desired, observed, progress)
    }
}

/// The status after a turn.
#[must_use]
pub fn after_turn(
    generation: Option<i64>,
    before: Option<&SwarmStatus>,
    facts: &TurnSummary<'_>,
    verdict: &Verdict,
) -> SwarmStatus {
    let TurnSummary { decision, desired, observed, progress, pool, .. } = *facts;
    let TurnSummary { refreshed, sessions, refusals, .. } = *facts;
    let common = facts.common();
    let (plan, wanted) = (&decision.plan, common.wanted());
    let reservations = shares::reservations(facts);
    let mut unassigned = BTreeMap::<String, i32>::new();
    let mut unassigned_jobs = Vec::new();
    let without = plan.unassigned.iter().filter(|(_, why)| **why != Unassigned::Suspended);
    for (job, reason) in without {
        let reason = reason.as_str().to_owned();
        *unassigned.entry(reason.clone()).or_default() += 1;
        if unassigned_jobs.len() < UNASSIGNED_JOBS_MAX {
            unassigned_jobs.push(UnassignedJob { job: job.to_string(), reason });
        }
    }
    let status = SwarmStatus {
        observed_generation: None,
        as_of: None,
        revision: counter(decision.ledger.revision()),
        version: counter(decision.ledger.version),
        source_digest: Some(format!("{:016x}", digest_jobs(&desired.jobs))),
        jobs: count(wanted.jobs),
        assigned: count(wanted.assigned()),
        unassigned,
        unassigned_jobs,
        missing_workers: missing::workers(facts, before),
        ready: format!("{}/{}", progress.workers_ready, progress.workers_wanted),
        workers_ready: count(progress.workers_ready),
        workers_desired: count(progress.workers_wanted),
        workers_stale: count(progress.stale.len()),
        progress: shown_progress(wanted.jobs, sessions.running, sessions.published),
        suspended: count(wanted.suspended),
        shares: reservations.as_ref().map(shares::status),
        running: count(sessions.running),
        published: count(sessions.published),
        moving: count(progress.jobs.releasing),
        done: count(progress.jobs.done),
        quarantined: count(progress.jobs.quarantined),
        failing: count(sessions.failing_jobs()),
        desired_workers: Some(desired_workers(facts)),
        replicas: pool.pods,
        selector: pool.selector.clone(),
        conditions: Vec::new(),
    };
    let assigned = all_assigned(facts, &common, reservations.as_ref());
    let mut extra = vec![pool::ready(facts, wanted), assigned];
    extra.extend(rollout::part(pool, facts.rollout));
    extra.push(refreshed.converged());
    extra.push(sessions.healthy(observed));
    // In the order of their importance.
    let troubles = refusals.trouble().into_iter().chain(sessions.troubles());
    let troubles = troubles
        .chain(NotReadyTooLong::of(facts).map(NotReadyTooLong::trouble))
        .chain(autoscale::trouble(facts, wanted))
        .chain(refreshed.trouble())
        .chain(misfits::trouble(pool));
    extra.extend(degraded::part(&troubles.collect::<Vec<_>>()));
    let removed = facts.removed.map(str::to_owned);
    extra.extend(removed.map(|message| Part::new(JOBS_REMOVED, true, JOBS_REMOVED, message)));
    judged(generation, before, status, verdict, extra)
}

/// Describes the running jobs for the column of `kubectl get`. Jobs that are only published are
/// counted by that word if no job runs.
fn shown_progress(jobs: usize, running: usize, published: usize) -> String {
    match (running, published) {
        (0, 1..) => format!("{published} published"),
        (running, _) => format!("{running}/{jobs}"),
    }
}

/// Returns the status `before` if only the ledger's revision differs. A replica that takes over a
/// ledger increments its revision. Users do not need that number: after the loss of a replica it would
/// cost a write for every Swarm.
#[must_use]
pub fn unless_only_taken_over(before: Option<&SwarmStatus>, status: SwarmStatus) -> SwarmStatus {
    match before {
        Some(before)
            if *before == (SwarmStatus { revision: before.revision, ..status.clone() }) =>
        {
            before.clone()
        }
        _ => status,
    }
}

const JOBS_REMOVED: &str = EventReason::JobsRemoved.as_str();
const POOL_READY: &str = "PoolReady";
const ALL_ASSIGNED: &str = "AllJobsAssigned";
const CONVERGED: &str = "Converged";

/// A condition, without the fields that all conditions share.
struct Part {
    kind: &'static str,
    status: &'static str,
    reason: String,
    message: String,
}

impl Part {
    fn new(kind: &'static str, is_true: bool, reason: &str, message: String) -> Self {
        let status = if is_true { "True" } else { "False" };
        Self { kind, status, reason: reason.to_owned(), message }
    }
}

fn all_assigned(
    facts: &TurnSummary<'_>,
    common: &Summary<'_>,
    reservations: Option<&Reservations>,
) -> Part {
    let wanted = common.wanted();
    let Wanted { jobs: all, without, suspended } = wanted;
    let suspended_note = wanted.are_suspended();
    if without == 0 {
        let run = all - suspended;
        let does = match facts.desired.replication {
            Replication::One => "has a worker",
            Replication::All => "is for every worker",
        };
        let message = match run {
            0 => format!("no job has to run{suspended_note}"),
            1 => format!("the only job {does}{suspended_note}"),
            run => format!("each of {run} jobs {does}{suspended_note}"),
        };
        return Part::new(ALL_ASSIGNED, true, "AllAssigned", message);
    }
    let words = common.reasons_without_worker();
    let (words, waits) = (words.join(", "), reservations.map_or_else(String::new, shares::waits));
    let message = format!("{}: {words}{waits}{suspended_note}", wanted.no_worker());
    Part::new(ALL_ASSIGNED, false, "JobsUnassigned", message)
}

fn judged(
    generation: Option<i64>,
    before: Option<&SwarmStatus>,
    status: SwarmStatus,
    verdict: &Verdict,
    extra: Vec<Part>,
) -> SwarmStatus {
    let Verdict { reason, message } = verdict;
    let of_verdict = |kind, is_true| Part::new(kind, is_true, reason.as_str(), message.clone());
    let mut parts = vec![of_verdict("Ready", reason.is_ready())];
    if reason.is_stalled() {
        parts.push(of_verdict("Stalled", true));
    } else if reason.is_reconciling() {
        parts.push(of_verdict("Reconciling", true));
    }
    parts.extend(extra);
    let before = before.into_iter().flat_map(|status| &status.conditions);
    let condition = |part: Part| {
        let Part { kind, status, reason, message } = part;
        let same = before.clone().find(|old| old.type_ == kind && old.status == status);
        let now = || Time(Timestamp::now());
        Condition {
            type_: kind.into(),
            status: status.into(),
            reason,
            message,
            observed_generation: generation,
            last_transition_time: same.map_or_else(now, |same| same.last_transition_time.clone()),
        }
    };
    let conditions = parts.into_iter().map(condition).collect();
    SwarmStatus { observed_generation: generation, conditions, ..status }
}

fn counter(counter: u64) -> i64 {
    i64::try_from(counter).unwrap_or(i64::MAX)
}

fn count(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

/// The message of the condition about failing jobs, if jobs fail.
#[must_use]
pub fn failing_jobs(status: &SwarmStatus) -> Option<&str> {
    let mut healthy = status.conditions.iter().filter(|it| it.type_ == HEALTHY);
    healthy
        .find(|it| it.status == "False" && it.reason == EventReason::JobsFailing.as_str())
        .map(|it| it.message.as_str())
}

/// The message of the condition about an edit that removed many jobs, if it is present, and since
/// when it is.
pub(crate) fn jobs_removed(status: &SwarmStatus) -> Option<(&str, Timestamp)> {
    condition_of(status, JOBS_REMOVED).map(|it| (&*it.message, it.last_transition_time.0))
}

/// The condition of this type, if it is present.
pub(crate) fn condition_of<'a>(status: &'a SwarmStatus, kind: &str) -> Option<&'a Condition> {
    status.conditions.iter().find(|condition| condition.type_ == kind)
}

/// Whether the condition `Ready` was last written with this verdict.
#[must_use]
pub fn says(status: Option<&SwarmStatus>, verdict: &Verdict) -> bool {
    ready(status)
        .is_some_and(|it| it.reason == verdict.reason.as_str() && it.message == verdict.message)
}

/// The last written reason of the condition `Ready`.
#[must_use]
pub fn ready_reason(status: Option<&SwarmStatus>) -> Option<&str> {
    ready(status).map(|condition| condition.reason.as_str())
}

/// The condition `Ready`, as it was last written.
pub(crate) fn ready(status: Option<&SwarmStatus>) -> Option<&Condition> {
    condition_of(status?, "Ready")
}
