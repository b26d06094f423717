//! Part of the status about workers that the pool should have, and that are not ready.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use swarm_client::api::{MISSING_WORKERS_MAX, MissingWorker, SwarmStatus};
use swarm_core::verdict::Summary;

use super::{TurnSummary, Verdict};
use crate::pool::workload::Kind;

/// Whether the number of workers that there should be is known. Pods with given labels may leave at any
/// time.
fn is_known(facts: &TurnSummary<'_>) -> bool {
    facts.pool.kind != Kind::Pods
}

/// The verdict on a turn after which every job has a worker that is ready.
pub(super) fn verdict(facts: &TurnSummary<'_>, common: &Summary<'_>) -> Verdict {
    if is_known(facts) { common.settled_on_all() } else { common.settled() }.into()
}

/// The first workers that are not ready. The time of the status before stays: an operator that has
/// just started counts from its own start.
pub(super) fn workers(facts: &TurnSummary<'_>, before: Option<&SwarmStatus>) -> Vec<MissingWorker> {
    let known = before.map(|before| &before.missing_workers[..]).unwrap_or_default();
    let common = facts.common();
    let missing = common.missing().filter(|_| is_known(facts));
    let all = missing.take(MISSING_WORKERS_MAX).map(|(slot, seen, age)| {
        let same = known.iter().find(|it| it.slot == slot.0 && it.worker == seen.name);
        let now = Timestamp::now();
        let ago = SignedDuration::try_from(age).ok().and_then(|age| now.checked_sub(age).ok());
        let since = same.map_or_else(|| Time(ago.unwrap_or(now)), |same| same.since.clone());
        MissingWorker { worker: seen.name.clone(), slot: slot.0, since }
    });
    all.collect()
}
