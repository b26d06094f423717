//! The clock on which this process counts how long ago it saw something.

use std::sync::LazyLock;

use swarm_core::handover::Moment;
use tokio::time::Instant;

/// The time of this process's first question for the time, by the machine's own clock. The
/// runtime's clock, which tests may advance, is never behind it.
static START: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);

/// The present moment. On some machines the clock pauses while the machine is suspended. An
/// observer then waits longer, never shorter.
pub(crate) fn now() -> Moment {
    let start = *START;
    Moment(Instant::now().into_std().saturating_duration_since(start))
}
