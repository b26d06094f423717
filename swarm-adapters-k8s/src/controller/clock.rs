//! The clock on which this process counts how long ago it saw something.

use std::sync::LazyLock;
use std::time::Instant;

use swarm_core::handover::Moment;

/// When this process first asked for the time.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The present moment. A clock that stands still while the machine is suspended makes an observer
/// wait longer, never shorter.
pub(super) fn now() -> Moment {
    Moment(START.elapsed())
}
