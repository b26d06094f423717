//! Conditions about pods that do not suit their Swarm.

use super::{EventReason, Part};
use crate::pool::fit::Misfit;
use crate::pool::workload::Workload;

/// The type of the condition, and the reason of its Event.
const MISCONFIGURED: &str = EventReason::PoolMisconfigured.as_str();

/// Number of misfits that the message describes.
const SHOWN: usize = 4;

/// The condition, if there are misfits. Jobs may still run well, so the Swarm stays ready.
pub(super) fn part(pool: &Workload) -> Option<Part> {
    let Misfit { reason, .. } = pool.misfits.first()?;
    let shown: Vec<_> = pool.misfits.iter().take(SHOWN).map(|it| it.message.as_str()).collect();
    let more = match pool.misfits.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let message = format!("{}{more}", shown.join("; "));
    Some(Part::new(MISCONFIGURED, true, reason, message))
}
