//! A change of the job list reaches the workers it concerns because they are nudged: long before any
//! kubelet would look by itself. How long it takes, `figures change` measures.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::figures::nudged_changes;
use crate::scenario::Context;

/// How many changes are made.
const CHANGES: usize = 8;
/// A kubelet that nobody nudges syncs a pod after a minute at the earliest.
const UNTOLD: Duration = Duration::from_secs(50);

pub(super) async fn run(context: Context) -> Result<()> {
    let slowest = nudged_changes(&context, CHANGES).await?;
    context.laps.lap(format!("the slowest of {CHANGES} arrived after {} ms", slowest.as_millis()));
    ensure!(slowest < UNTOLD, "nobody was nudged");
    Ok(())
}
