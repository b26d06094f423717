//! Part of the status about the workers of a pool, as the workload counts them.

use swarm_core::verdict::{Reason as Shared, Wanted, counted, number, workers_ready};

use super::{POOL_READY, Part, Reason, TurnSummary, Verdict, rollout};
use crate::pool::workload::Kind;

/// The condition about the workers of the pool.
pub(super) fn ready(facts: &TurnSummary<'_>, wanted: Wanted) -> Part {
    let TurnSummary { progress, pool, .. } = *facts;
    if let Some(Verdict { reason, message }) = scaled_to_zero(facts, wanted) {
        return Part::new(POOL_READY, false, reason.as_str(), message);
    }
    if pool.kind == Kind::Pods && has_jobs_and_no_worker(facts, wanted) {
        let labels = pool.selector.as_deref().unwrap_or_default();
        let message = format!(
            "no pod with the labels {labels} is a worker; pods of a StatefulSet do not count: set \
             spec.pool.statefulSet of another Swarm for them"
        );
        return Part::new(POOL_READY, false, Shared::NoWorkers.as_str(), message);
    }
    let is_ready = progress.has_all_workers();
    let reason = match is_ready {
        true => "AllWorkersReady",
        // A pool that shrinks lacks no worker.
        false if progress.workers_wanted <= progress.workers_ready => "WorkersLeaving",
        false => "WorkersMissing",
    };
    let trouble = pool.trouble.clone().filter(|_| !is_ready);
    let others = trouble.into_iter().chain(rollout::held(pool, &facts.rollout.rollout));
    let ready = workers_ready(progress.workers_ready, progress.workers_wanted);
    let all: Vec<_> = [ready].into_iter().chain(others).collect();
    Part::new(POOL_READY, is_ready, reason, all.join("; "))
}

/// Whether there are jobs to run, and no worker for them, now or soon.
fn has_jobs_and_no_worker(facts: &TurnSummary<'_>, wanted: Wanted) -> bool {
    let progress = facts.progress;
    wanted.suspended < wanted.jobs && progress.workers_now == 0 && progress.workers_wanted == 0
}

/// The verdict on a workload that is scaled to 0 while there are jobs. Only a person can add
/// workers.
pub(super) fn scaled_to_zero(facts: &TurnSummary<'_>, wanted: Wanted) -> Option<Verdict> {
    let TurnSummary { swarm, desired, pool, .. } = *facts;
    let is_scaled = has_jobs_and_no_worker(facts, wanted);
    if !is_scaled || pool.kind == Kind::Pods || desired.autoscale.is_some() {
        return None;
    }
    let run = wanted.jobs - wanted.suspended;
    let (kind, name) = (pool.kind, &pool.name);
    // If the Swarm decides the size, the operator would undo an edit of the workload.
    let scaled = match desired.replicas {
        Some(_) => format!("swarm {swarm}"),
        None => format!("{} {name}", kind.as_str().to_lowercase()),
    };
    let message = format!(
        "{} {} no worker, since {kind} `{name}` is scaled to 0: kubectl -n {} scale {scaled} --replicas=1",
        counted(run, "job"),
        number(run, "has", "have"),
        pool.namespace
    );
    Some(Verdict { reason: Reason::ScaledToZero, message })
}
