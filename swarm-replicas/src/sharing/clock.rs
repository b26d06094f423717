//! The clock with which a member measures the validity of its Lease.

use std::sync::LazyLock;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use swarm_core::handover::Moment;
use tokio::time::Instant;

/// The times when this process first read the clock, by both clocks.
static START: LazyLock<(Duration, Instant)> = LazyLock::new(|| (since_boot(), Instant::now()));

/// Returns the time since the start, including times when the machine was suspended. A member that
/// slept past the end of its Lease must notice it. The runtime's clock counts as well, since tests
/// advance it.
pub(crate) fn now() -> Moment {
    let (boot, start) = *START;
    Moment(since_boot().saturating_sub(boot).max(start.elapsed()))
}

fn since_boot() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    let (secs, nanos) = (now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs());
    Duration::new(secs, u32::try_from(nanos).unwrap_or_default())
}
