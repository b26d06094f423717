//! Part of the status about workers that the pool should have, and that are not ready.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use swarm_client::api::{MISSING_WORKERS_MAX, MissingWorker, SwarmStatus};
use swarm_core::verdict::{Reason as Shared, number, workers_ready};
use swarm_core::{Presence, Slot, WorkerSeen};

use super::{Reason, TurnSummary, Verdict, shortened};
use crate::pool::workload::Kind;

/// The slots that should have a ready worker and have none, with the time since when. Pods with given
/// labels may leave at any time, so the number that there should be is not known.
fn missing<'a>(
    facts: &TurnSummary<'a>,
) -> impl Iterator<Item = (Slot, &'a WorkerSeen, Duration)> + use<'a> {
    let progress = facts.progress;
    let is_short = progress.workers_ready < progress.workers_wanted;
    let is_so = is_short && facts.pool.kind != Kind::Pods;
    let workers = facts.observed.workers.iter().filter(move |_| is_so);
    workers.filter_map(|(slot, seen)| match seen.presence {
        Presence::NotReady(age) | Presence::Away(age) | Presence::Ending { age, .. } => {
            Some((*slot, seen, age))
        }
        // It may be frozen: its session is over, and its pod stays.
        Presence::Draining => Some((*slot, seen, Duration::ZERO)),
        Presence::Ready | Presence::Leaving(_) => None,
    })
}

/// The verdict on a turn whose other verdict is `settled`: the jobs run on fewer workers than asked.
pub(super) fn verdict(facts: &TurnSummary<'_>, settled: Verdict) -> Verdict {
    if settled.reason != Reason::Shared(Shared::Settled) {
        return settled;
    }
    let names: Vec<_> = missing(facts).map(|(slot, seen, _)| named(slot, seen)).collect();
    if names.is_empty() {
        return settled;
    }
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let progress = facts.progress;
    let ready = workers_ready(progress.workers_ready, progress.workers_wanted);
    let is = number(names.len(), "this one is", "these are");
    let message = format!("{}; {ready}, and {is} not: {}", settled.message, shortened(&names));
    Verdict { reason: Reason::WorkersMissing, message }
}

/// The name of a worker, or its slot if no worker has filled it.
fn named(slot: Slot, seen: &WorkerSeen) -> String {
    if seen.name.is_empty() { format!("slot {}", slot.0) } else { seen.name.clone() }
}

/// The first workers that are not ready. The time of the status before stays: an operator that has
/// just started counts from its own start.
pub(super) fn workers(facts: &TurnSummary<'_>, before: Option<&SwarmStatus>) -> Vec<MissingWorker> {
    let known = before.map(|before| &before.missing_workers[..]).unwrap_or_default();
    let all = missing(facts).take(MISSING_WORKERS_MAX).map(|(slot, seen, age)| {
        let same = known.iter().find(|it| it.slot == slot.0 && it.worker == seen.name);
        let now = Timestamp::now();
        let ago = SignedDuration::try_from(age).ok().and_then(|age| now.checked_sub(age).ok());
        let since = same.map_or_else(|| Time(ago.unwrap_or(now)), |same| same.since.clone());
        MissingWorker { worker: seen.name.clone(), slot: slot.0, since }
    });
    all.collect()
}
