//! Pauses before a failed watch is tried again.

use std::time::Duration;

use backon::ExponentialBuilder;
use kube::runtime::utils::{Backoff, ResetTimerBackoff};
use kube::runtime::watcher::ExponentialBackoff;

/// The first pause, as kube has it.
const PAUSE_MIN: Duration = Duration::from_millis(800);
/// The longest pause. kube's half a minute would leave the operator blind for as long as that once
/// the API server is back, while workers wait for it.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// After so long without a failure the delays start from the shortest again, as in kube.
const FORGOTTEN_AFTER: Duration = Duration::from_mins(2);

/// The pauses between attempts: random within bounds that double, so that watches do not come back
/// all at once.
#[must_use]
pub fn pauses() -> impl Backoff {
    let growing = ExponentialBuilder::new()
        .with_min_delay(PAUSE_MIN)
        .with_max_delay(PAUSE_MAX)
        .with_jitter()
        .without_max_times();
    ResetTimerBackoff::new(ExponentialBackoff::from(growing), FORGOTTEN_AFTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_is_never_left_alone_for_long() {
        let longest = pauses().take(20).max();
        // Up to as much again is drawn.
        assert!(longest.is_some_and(|pause| pause <= 2 * PAUSE_MAX), "{longest:?}");
    }
}
