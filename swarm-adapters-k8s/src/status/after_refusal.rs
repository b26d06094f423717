//! Status after a failed turn.

use swarm_client::api::SwarmStatus;
use swarm_core::session::JobOutput;

use super::{
    ALL_ASSIGNED, CONVERGED, HEALTHY, POOL_READY, Part, Reason, Verdict, condition_of, judged,
};
use crate::pool::rollout::ROLLING_OUT;

/// The status after a failed turn. It keeps the counts of the last completed turn. If the pool does
/// not exist, nothing is known about its workers. After an edit, if `output` is hidden, no line that a
/// job printed before stays.
#[must_use]
pub fn after_refusal(
    generation: Option<i64>,
    before: Option<&SwarmStatus>,
    verdict: &Verdict,
    output: JobOutput,
) -> SwarmStatus {
    let mut status = before.cloned().unwrap_or_default();
    let has_pool = !matches!(
        verdict.reason,
        Reason::PoolNotFound | Reason::PoolAmbiguous | Reason::PoolBeingMade
    );
    if verdict.reason == Reason::PoolNotFound {
        status.workers_ready = 0;
        status.ready = format!("0/{}", status.workers_desired);
    }
    if output == JobOutput::Hidden && status.observed_generation != generation {
        for healthy in status.conditions.iter_mut().filter(|old| old.type_ == HEALTHY) {
            // "2 jobs fail: ..." or "9 jobs fail, among them ...".
            let end = healthy.message.find([':', ',']).unwrap_or(healthy.message.len());
            healthy.message.truncate(end);
        }
    }
    let as_before = |kind: &'static str| {
        let before = condition_of(&status, kind);
        let known = before.filter(|_| has_pool);
        known.map_or_else(
            || Part {
                kind,
                status: if has_pool || kind != POOL_READY { "Unknown" } else { "False" },
                reason: verdict.reason.as_str().into(),
                message: verdict.message.clone(),
            },
            |old| Part {
                kind,
                status: match old.status.as_str() {
                    "True" => "True",
                    "False" => "False",
                    _ => "Unknown",
                },
                reason: old.reason.clone(),
                message: old.message.clone(),
            },
        )
    };
    let mut extra: Vec<_> = [POOL_READY, ALL_ASSIGNED, CONVERGED, HEALTHY].map(as_before).into();
    // The condition holds the time at which the rollout began.
    let is_rolling = status.conditions.iter().any(|it| it.type_ == ROLLING_OUT);
    extra.extend((has_pool && is_rolling).then(|| as_before(ROLLING_OUT)));
    judged(generation, before, status.clone(), verdict, extra)
}
