//! What a Swarm's status says: derived from one turn, written, and never read back for a decision.

mod after_refusal;
mod autoscale;
pub(crate) mod events;
#[cfg(test)]
#[path = "../tests/controller/kstatus.rs"]
mod kstatus;
mod misfits;
mod overdue;
mod pool;
mod reason;
mod refreshed;
mod refusals;
mod rollout;
mod sessions;
mod shares;
#[cfg(test)]
mod tests;
mod words;

pub use after_refusal::after_refusal;
pub(crate) use autoscale::AUTOSCALE_LIMITED;
pub use autoscale::desired_workers;
pub(crate) use misfits::MISCONFIGURED;
pub(crate) use overdue::{NOT_READY_TOO_LONG, NotReadyTooLong};
pub use reason::Reason;
pub use refreshed::{KnownBy, Refreshed};
pub use refusals::{Refusals, RefusedRequest};
pub(crate) use sessions::SHOWN;
pub use sessions::{Fenced, SessionReport, StillStopping, Unanswered};
pub(crate) use sessions::{HEALTHY, JOBS_FAILING, SESSIONS_UNPROTECTED};
pub(crate) use shares::displaced;
pub(crate) use words::{counted, number};

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use swarm_core::handover::Cell;
use swarm_core::{
    Decision, Desired, JobCounts, JobName, Need, Observed, Progress, Replication, Reservations,
    Unassigned, Waiting, digest_jobs,
};

use crate::api::SwarmStatus;
use crate::pool::rollout::RolloutReport;
use crate::pool::workload::Workload;

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
    pub fn of(facts: &TurnSummary<'_>) -> Self {
        let of_turn = rollout::verdict(facts.pool, facts.rollout, Self::of_turn(facts));
        let of_turn = of_turn.naming(facts.sessions);
        let waits_for_pods = [
            Reason::RollingOut,
            Reason::RolloutStalled,
            Reason::PoolIncomplete,
            Reason::NoWorkers,
            Reason::JobsUnassigned,
            Reason::WorkersNotReady,
            Reason::Scaling,
        ];
        match &facts.pool.trouble {
            Some(trouble) if waits_for_pods.contains(&of_turn.reason) => {
                let message = format!("{}; {trouble}", of_turn.message);
                Self { message, ..of_turn }
            }
            _ => of_turn,
        }
    }

    /// The same with the jobs that still stop, where that is what a person waits for.
    fn naming(self, sessions: &SessionReport) -> Self {
        let waits_for_stops = [
            Reason::JobsWaiting,
            Reason::JobsUnassigned,
            Reason::NoWorkers,
            Reason::ScaledToZero,
            Reason::WorkersNotReady,
            Reason::Rebalancing,
            Reason::Refreshing,
            Reason::RollingOut,
            Reason::RolloutStalled,
            Reason::RevocationHeld,
            Reason::ReleaseUnanswered,
            Reason::Scaling,
        ];
        match sessions.still_stopping() {
            Some(stopping) if waits_for_stops.contains(&self.reason) => {
                let message = format!("{}; {stopping}", self.message);
                Self { message, ..self }
            }
            _ => self,
        }
    }

    /// The same without what is wrong with single pods.
    fn of_turn(facts: &TurnSummary<'_>) -> Self {
        let TurnSummary { decision, desired, progress, refreshed, sessions, refusals, .. } = *facts;
        if let Some(verdict) = refusals.verdict() {
            return verdict;
        }
        let all = Wanted::of(facts);
        let jobs = all.jobs;
        if let Some(verdict) = pool::scaled_to_zero(facts, all) {
            return verdict;
        }
        match decision.waiting {
            // Workers that get nothing do not count as ready, so this is the reason behind it.
            Some(Waiting::PoolIncomplete { .. }) if let Some(verdict) = sessions.excluded() => {
                return verdict;
            }
            Some(Waiting::PoolIncomplete { ready, desired }) => {
                let message = format!(
                    "{}; {} {} until all are, or until initialWait has passed",
                    pool::workers_ready(ready, desired),
                    counted(jobs, "job"),
                    number(jobs, "waits", "wait")
                );
                return Self { reason: Reason::PoolIncomplete, message };
            }
            Some(Waiting::Paused) => return Self::paused(decision, desired, progress),
            Some(Waiting::LedgerReset) => return Self::recovering(jobs),
            Some(Waiting::Renewals { sessions }) => return Self::starting(sessions),
            Some(Waiting::Gathering) | None => {}
        }
        if 0 < progress.jobs.recovering {
            return Self::recovering(progress.jobs.recovering);
        }
        if let Some(verdict) = sessions.verdict() {
            return verdict;
        }
        if 0 < all.without {
            return Self::without_worker(decision, all);
        }
        let names: Vec<_> = progress.not_ready.iter().map(String::as_str).collect();
        if !names.is_empty() {
            let who = number(names.len(), "this worker holds jobs and is", WORKERS_THAT_HOLD);
            let message = format!("{who} not ready: {}", shortened(&names));
            return Self { reason: Reason::WorkersNotReady, message };
        }
        if 0 < progress.deferred {
            let (left, most) = (progress.deferred, desired.rules.moves_max.unwrap_or_default());
            let (left, are) = (counted(left, "job"), number(left, "is", "are"));
            let message = format!("{left} {are} still to move, at most {most} at a time");
            return Self { reason: Reason::Rebalancing, message };
        }
        let (now, wanted) = (progress.workers_now, progress.workers_wanted);
        let scaling = format!("the pool goes from {now} to {}", counted(wanted, "worker"));
        match wanted.cmp(&now) {
            Ordering::Less => {
                let message = format!("{scaling}, as soon as the surplus ones are emptied");
                Self { reason: Reason::Scaling, message }
            }
            Ordering::Greater => Self { reason: Reason::Scaling, message: scaling },
            Ordering::Equal if let Some(verdict) = sessions.all_failing(desired, progress) => {
                verdict
            }
            Ordering::Equal if let Some(verdict) = refreshed.verdict() => verdict,
            Ordering::Equal if 0 < progress.jobs.waiting() => Self::waiting(progress.jobs, jobs),
            Ordering::Equal => {
                let is_settled = progress.is_settled() || decision.waiting.is_some();
                debug_assert!(is_settled, "no verdict on {progress:?}");
                all.settled(progress.workers_ready)
            }
        }
    }

    /// The verdict on a Swarm whose ledger started another incarnation.
    fn recovering(jobs: usize) -> Self {
        let message = format!(
            "the ledger was lost or rolled back, so it is unknown who runs what; {} {} until each \
             earlier session has closed, or its Lease is revoked and the grace elapsed",
            counted(jobs, "job"),
            number(jobs, "waits", "wait")
        );
        Self { reason: Reason::Recovering, message }
    }

    /// The verdict on a Swarm whose operator has just started, and grants nothing yet.
    fn starting(sessions: usize) -> Self {
        let message = format!(
            "the operator has just started and grants jobs once {} {}, since a rollback of the \
             store may have lost grants",
            counted(sessions, "session"),
            number(sessions, "has renewed its Lease", "have renewed their Leases")
        );
        Self { reason: Reason::JobsWaiting, message }
    }

    /// The verdict when some of `jobs` jobs are not granted yet, and nobody is known to be late.
    fn waiting(counts: JobCounts, jobs: usize) -> Self {
        let why = [
            (counts.releasing, "for a release by the former worker"),
            (counts.held, "for the worker of the slot to come back"),
            (counts.quarantined, "for a while, after crashing several workers"),
            (counts.free, "to be granted"),
        ];
        let why = why.iter().filter(|(count, _)| 0 < *count);
        let why: Vec<_> = why.map(|(count, why)| format!("{count} {why}")).collect();
        let (waiting, jobs) = (counts.waiting(), counted(jobs, "job"));
        let wait = number(waiting, "waits", "wait");
        let message = format!("{waiting} of {jobs} {wait}: {}", why.join(", "));
        Self { reason: Reason::JobsWaiting, message }
    }

    /// The verdict on a Swarm where everything stays as it is.
    fn paused(decision: &Decision, desired: &Desired, progress: &Progress) -> Self {
        let without = progress.jobs.unassigned;
        let is_run =
            |cell: &Cell| cell.holder().is_some() || matches!(cell, Cell::Everywhere { .. });
        let run = decision.ledger.cells.jobs.iter().filter(|(_, record)| is_run(&record.cell));
        let gone = run.filter(|(job, _)| !desired.jobs.contains_key(*job)).count();
        let not_ready = progress.not_ready.len();
        let is_ready = without == 0 && gone == 0 && not_ready == 0;
        let message = if is_ready {
            "paused: every job stays where it is".to_owned()
        } else {
            format!(
                "paused: every job stays where it is; {} {} no worker, {gone} that {} no longer \
                 wanted {} one, {} that {} not ready",
                counted(without, "job"),
                number(without, "has", "have"),
                number(gone, "is", "are"),
                number(gone, "has", "have"),
                counted(not_ready, "worker"),
                number(not_ready, "holds jobs is", "hold jobs are")
            )
        };
        Self { reason: Reason::Paused { is_ready }, message }
    }

    /// The verdict when some of `jobs` jobs have no worker.
    fn without_worker(decision: &Decision, wanted: Wanted) -> Self {
        let without = wanted.no_worker();
        let mut reasons: BTreeSet<_> = decision.plan.unassigned.values().copied().collect();
        reasons.remove(&Unassigned::Suspended);
        if reasons.iter().eq([&Unassigned::NoWorkers]) {
            let message = format!("{without}: none is ready");
            return Self { reason: Reason::NoWorkers, message };
        }
        let words: Vec<_> = reasons.into_iter().map(Unassigned::as_str).collect();
        let message = format!("{without}: {}", words.join(", "));
        Self { reason: Reason::JobsUnassigned, message }
    }
}

/// A list of names of bounded length.
pub(crate) fn shortened(names: &[&str]) -> String {
    const SHOWN: usize = 5;
    let shown = names[..names.len().min(SHOWN)].join(", ");
    match names.len().checked_sub(SHOWN) {
        None | Some(0) => shown,
        Some(more) => format!("{shown} and {more} more"),
    }
}

/// What a turn came to.
#[derive(Clone, Copy, Debug)]
pub struct TurnSummary<'a> {
    /// The name of the Swarm.
    pub swarm: &'a str,
    /// What was decided.
    pub decision: &'a Decision,
    /// What was wanted.
    pub desired: &'a Desired,
    /// How many workers the jobs need; `None` if their number says nothing.
    pub need: Option<Need>,
    /// What was seen.
    pub observed: &'a Observed,
    /// How far the pool is.
    pub progress: &'a Progress,
    /// The pool's workload.
    pub pool: &'a Workload,
    /// Progress of the pool's workload with its newest template.
    pub rollout: &'a RolloutReport,
    /// Which workers have what was published.
    pub refreshed: &'a Refreshed,
    /// What there is to say about sessions.
    pub sessions: &'a SessionReport,
    /// What was refused while the turn went on.
    pub refusals: &'a Refusals,
}

/// How many jobs there are to run, those apart that are done.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    jobs: usize,
    /// How many of them have no worker, and should have one.
    without: usize,
    /// How many of them nobody is to run for now.
    suspended: usize,
}

impl Wanted {
    /// A plan for all workers names no job but those that nobody runs.
    fn of(facts: &TurnSummary<'_>) -> Self {
        let TurnSummary { decision, desired, progress, .. } = *facts;
        let is_done = |job: &&JobName| {
            let record = decision.ledger.cells.jobs.get(*job);
            record.is_some_and(|record| matches!(record.cell, Cell::Done { .. }))
        };
        let has_done = 0 < progress.jobs.done;
        let done = if has_done { desired.jobs.keys().filter(is_done).count() } else { 0 };
        let JobCounts { unassigned: without, suspended, .. } = progress.jobs;
        Self { jobs: desired.jobs.len() - done, without, suspended }
    }

    fn assigned(self) -> usize {
        self.jobs.saturating_sub(self.without + self.suspended)
    }

    /// The verdict where there is nothing else to say.
    fn settled(self, workers: usize) -> Verdict {
        let Self { jobs, suspended, .. } = self;
        if 0 < jobs && suspended == jobs {
            let message = match jobs {
                1 => "the only job is suspended".to_owned(),
                jobs => format!("all {jobs} jobs are suspended"),
            };
            return Verdict { reason: Reason::Suspended, message };
        }
        let (run, beside) = (jobs - suspended, self.are_suspended());
        let (run, workers) = (counted(run, "job"), counted(workers, "worker"));
        let message = format!("{run} on {workers}{beside}");
        Verdict { reason: Reason::Settled, message }
    }

    /// The end of a sentence.
    fn are_suspended(self) -> String {
        if self.suspended == 0 {
            String::new()
        } else {
            format!("; {} {} suspended", self.suspended, number(self.suspended, "is", "are"))
        }
    }

    /// That some of the jobs have no worker; the beginning of a sentence.
    fn no_worker(self) -> String {
        let (without, jobs) = (self.without, counted(self.jobs, "job"));
        format!("{without} of {jobs} {} no worker", number(without, "has", "have"))
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
    let (plan, wanted) = (&decision.plan, Wanted::of(facts));
    let reservations = shares::reservations(facts);
    let mut unassigned = BTreeMap::<String, i32>::new();
    let without = plan.unassigned.values().filter(|why| **why != Unassigned::Suspended);
    for reason in without {
        *unassigned.entry(reason.as_str().to_owned()).or_default() += 1;
    }
    let status = SwarmStatus {
        observed_generation: None,
        revision: counter(decision.ledger.revision()),
        version: counter(decision.ledger.version),
        source_digest: Some(format!("{:016x}", digest_jobs(&desired.jobs))),
        jobs: count(wanted.jobs),
        assigned: count(wanted.assigned()),
        unassigned,
        ready: format!("{}/{}", progress.workers_ready, progress.workers_wanted),
        workers_ready: count(progress.workers_ready),
        workers_desired: count(progress.workers_wanted),
        workers_stale: count(progress.stale.len()),
        suspended: count(wanted.suspended),
        shares: reservations.as_ref().map(shares::status),
        moving: count(progress.jobs.releasing),
        done: count(progress.jobs.done),
        quarantined: count(progress.jobs.quarantined),
        failing: count(sessions.failing_jobs()),
        desired_workers: Some(desired_workers(facts)),
        replicas: pool.pods,
        selector: pool.selector.clone(),
        conditions: Vec::new(),
    };
    let assigned = all_assigned(facts, wanted, reservations.as_ref());
    let mut extra = vec![pool::ready(facts, wanted), assigned];
    extra.extend(rollout::part(pool, facts.rollout));
    extra.extend(autoscale::part(facts, wanted));
    extra.extend(refreshed.parts());
    extra.push(sessions.healthy(observed));
    extra.extend(sessions.parts());
    extra.extend(NotReadyTooLong::of(facts).map(NotReadyTooLong::part));
    extra.extend(misfits::part(pool));
    extra.extend(refusals.part());
    judged(generation, before, status, verdict, extra)
}

/// The status that was there `before` if only the ledger's revision is another. Whoever takes a ledger over
/// counts it up, and nobody needs to be told: of a replica that is gone it would be a write for every Swarm.
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

/// The beginning of a sentence about several workers.
const WORKERS_THAT_HOLD: &str = "these workers hold jobs and are";

const POOL_READY: &str = "PoolReady";
const ALL_ASSIGNED: &str = "AllJobsAssigned";
const CONVERGED: &str = "Converged";

/// A condition without what all have in common.
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
    wanted: Wanted,
    reservations: Option<&Reservations>,
) -> Part {
    let Wanted { jobs: all, without, suspended } = wanted;
    let beside = wanted.are_suspended();
    if without == 0 {
        let run = all - suspended;
        let does = match facts.desired.replication {
            Replication::One => "has a worker",
            Replication::All => "is for every worker",
        };
        let message = match run {
            0 => format!("there are no jobs to run{beside}"),
            1 => format!("the only job {does}{beside}"),
            run => format!("each of {run} jobs {does}{beside}"),
        };
        return Part::new(ALL_ASSIGNED, true, "AllAssigned", message);
    }
    let mut reasons: BTreeSet<_> = facts.decision.plan.unassigned.values().copied().collect();
    reasons.remove(&Unassigned::Suspended);
    let words: Vec<_> = reasons.into_iter().map(Unassigned::as_str).collect();
    let (words, waits) = (words.join(", "), reservations.map_or_else(String::new, shares::waits));
    let message = format!("{}: {words}{waits}{beside}", wanted.no_worker());
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

/// The message of the condition about refused writes, while it is true.
#[must_use]
pub fn refused_writes(status: &SwarmStatus) -> Option<&str> {
    message_of(status, refusals::REFUSED)
}

/// The message of the condition about too few workers, while it is true.
#[must_use]
pub fn autoscale_limited(status: &SwarmStatus) -> Option<&str> {
    message_of(status, AUTOSCALE_LIMITED)
}

/// The message of the condition about failing jobs, while some fail.
#[must_use]
pub fn failing_jobs(status: &SwarmStatus) -> Option<&str> {
    let mut healthy = status.conditions.iter().filter(|it| it.type_ == HEALTHY);
    healthy
        .find(|it| it.status == "False" && it.reason == JOBS_FAILING)
        .map(|it| it.message.as_str())
}

/// The message of the condition about pods that do not suit the Swarm, while it is true.
#[must_use]
pub fn misconfigured(status: &SwarmStatus) -> Option<&str> {
    message_of(status, MISCONFIGURED)
}

/// The message of the condition about workers that no policy keeps to their own Leases.
#[must_use]
pub fn unprotected_sessions(status: &SwarmStatus) -> Option<&str> {
    message_of(status, SESSIONS_UNPROTECTED)
}

fn message_of<'a>(status: &'a SwarmStatus, kind: &str) -> Option<&'a str> {
    let found = status.conditions.iter().find(|condition| condition.type_ == kind);
    found.map(|condition| condition.message.as_str())
}

/// Whether the condition `Ready` was last written with this verdict.
#[must_use]
pub fn says(status: Option<&SwarmStatus>, verdict: &Verdict) -> bool {
    let ready = status.and_then(|status| status.conditions.iter().find(|it| it.type_ == "Ready"));
    ready.is_some_and(|it| it.reason == verdict.reason.as_str() && it.message == verdict.message)
}

/// The reason of the condition `Ready`, as it was last written.
#[must_use]
pub fn ready_reason(status: Option<&SwarmStatus>) -> Option<&str> {
    let ready = status?.conditions.iter().find(|condition| condition.type_ == "Ready");
    ready.map(|condition| condition.reason.as_str())
}
