//! Conditions about pods that do not suit their Swarm.

use super::Part;
use crate::pool::fit::Misfit;
use crate::pool::workload::Workload;

/// The condition, and the reason of the Event.
pub(crate) const MISCONFIGURED: &str = "PoolMisconfigured";

/// Number of misfits that the message describes.
const SHOWN: usize = 4;

/// The condition while there are any. Jobs may run well for now, so the Swarm is ready.
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
