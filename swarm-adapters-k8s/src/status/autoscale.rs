//! Part of the status about the number of workers that the jobs need.

use super::degraded::Trouble;
use super::{EventReason, TurnSummary, Wanted, count, counted, number};

/// The reason of the problem that the pool has fewer workers than its jobs need.
const AUTOSCALE_LIMITED: &str = EventReason::AutoscaleLimited.as_str();

/// The number of workers that the pool should have, by its autoscaling terms or else by its jobs.
/// External autoscalers read it from the status.
#[must_use]
pub fn desired_workers(facts: &TurnSummary<'_>) -> i32 {
    let TurnSummary { desired, progress, need, .. } = *facts;
    let follows = desired.autoscale.is_some();
    match need.filter(|_| !follows) {
        Some(need) => i32::try_from(need.workers).unwrap_or(i32::MAX),
        // If every worker runs all jobs, the jobs do not determine the number.
        None => count(progress.workers_wanted),
    }
}

/// The problem that the pool has fewer workers than its jobs need, with the cause as its first word.
pub(super) fn trouble(facts: &TurnSummary<'_>, wanted: Wanted) -> Option<Trouble> {
    let TurnSummary { desired, progress, pool, need, .. } = *facts;
    let (terms, need) = (desired.autoscale?, need?);
    let (ready, asked) = (progress.workers_ready, progress.workers_wanted);
    let trouble = pool.trouble.as_ref().filter(|_| ready < asked);
    let missing = trouble.map(|why| {
        let asked = counted(asked, "worker");
        format!(
            "autoscale asks for {asked} and {ready} {} ready; {why}",
            number(ready, "is", "are")
        )
    });
    let (cause, message) = if terms.max < need.enough {
        let Wanted { jobs, without, .. } = wanted;
        let enough = need.enough;
        let at_most = format!(
            "{} {} {enough} workers, and spec.autoscale.max is {}; {} {} no worker",
            counted(jobs, "job"),
            number(jobs, "needs", "need"),
            terms.max,
            counted(without, "job"),
            number(without, "has", "have")
        );
        let missing = missing.map(|missing| format!("; {missing}")).unwrap_or_default();
        ("AtMaximum", format!("{at_most}{missing}"))
    } else {
        ("WorkersMissing", missing?)
    };
    Some(Trouble { reason: AUTOSCALE_LIMITED, message: format!("{cause}: {message}") })
}
