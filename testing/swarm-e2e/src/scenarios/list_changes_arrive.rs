//! A change of the job list reaches the affected workers because the operator nudges them, long
//! before any kubelet would sync by itself. `figures change` measures the time.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::figures::nudged_changes;
use crate::scenario::Context;

/// The number of changes.
const CHANGES: usize = 8;
/// Without a nudge a kubelet syncs a pod after a minute at the earliest.
pub(super) const WITHOUT_NUDGE: Duration = Duration::from_secs(50);

pub(super) async fn run(context: Context) -> Result<()> {
    let slowest = nudged_changes(&context, CHANGES).await?;
    context.laps.lap(format!("the slowest of {CHANGES} arrived after {} ms", slowest.as_millis()));
    ensure!(slowest < WITHOUT_NUDGE, "no worker was nudged");
    Ok(())
}
