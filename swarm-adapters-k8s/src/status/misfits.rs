//! The problem of pods that do not suit their Swarm.

use super::EventReason;
use super::degraded::Trouble;
use crate::pool::fit::Misfit;
use crate::pool::workload::Workload;

/// The reason of the problem, and of its Event.
const MISCONFIGURED: &str = EventReason::PoolMisconfigured.as_str();

/// Number of misfits that the message describes.
const SHOWN: usize = 4;

/// The problem, if there are misfits, with the cause of the first as its first word. Jobs may still
/// run well, so the Swarm stays ready.
pub(super) fn trouble(pool: &Workload) -> Option<Trouble> {
    let Misfit { reason, .. } = pool.misfits.first()?;
    let shown: Vec<_> = pool.misfits.iter().take(SHOWN).map(|it| it.message.as_str()).collect();
    let more = match pool.misfits.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let message = format!("{reason}: {}{more}", shown.join("; "));
    Some(Trouble { reason: MISCONFIGURED, message })
}
