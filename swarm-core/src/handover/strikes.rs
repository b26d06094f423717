//! Quarantine of jobs that crash their workers: its threshold and its duration.

use std::time::Duration;

/// The number of strikes from which on a job is quarantined.
pub const STRIKES_MAX: u32 = 3;
const SPAN_FIRST: Duration = Duration::from_secs(60);
const SPAN_MAX: Duration = Duration::from_secs(60 * 60);

/// Returns how long a job with this number of strikes is quarantined. Below [`STRIKES_MAX`] it is
/// `None`; then one minute, doubled with each further strike, and one hour at most.
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
