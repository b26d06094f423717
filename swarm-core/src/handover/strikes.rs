//! Jobs that crash their workers: how often is too often, and how long they are kept away.

use std::time::Duration;

/// From how many strikes on a job is kept away from workers.
pub const STRIKES_MAX: u32 = 3;
const SPAN_FIRST: Duration = Duration::from_secs(60);
const SPAN_MAX: Duration = Duration::from_secs(60 * 60);

/// How long a job with so many strikes is kept away: not at all below [`STRIKES_MAX`], then a
/// minute, doubled with every further strike, an hour at most.
///
/// ```
/// use swarm_core::handover::backoff;
///
/// let minutes = |strikes| backoff(strikes).map(|span| span.as_secs() / 60);
/// assert_eq!([2, 3, 4, 5, 9, u32::MAX].map(minutes), [None, Some(1), Some(2), Some(4), Some(60), Some(60)]);
/// ```
#[must_use]
pub fn backoff(strikes: u32) -> Option<Duration> {
    let doublings = strikes.checked_sub(STRIKES_MAX)?;
    let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
    Some(SPAN_FIRST.saturating_mul(factor).min(SPAN_MAX))
}
