//! The clock by which a member counts how long its Lease is good.

use std::sync::LazyLock;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use swarm_core::handover::Moment;
use tokio::time::Instant;

/// When this process first asked for the time, by both clocks.
static START: LazyLock<(Duration, Instant)> = LazyLock::new(|| (since_boot(), Instant::now()));

/// The time since boot, including the time the machine was suspended: a member that slept through the
/// end of its Lease must know. The runtime's clock counts as well, since tests advance it.
pub(crate) fn now() -> Moment {
    let (boot, start) = *START;
    Moment(since_boot().saturating_sub(boot).max(start.elapsed()))
}

fn since_boot() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    let (secs, nanos) = (now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs());
    Duration::new(secs, u32::try_from(nanos).unwrap_or_default())
}
