//! From the resource to the core's words. Needs no client and no clock.

use swarm_core::{Desired, JobsError, Timing, jobs};

use crate::api::Swarm;

/// What a Swarm asks for.
///
/// # Errors
///
/// [`JobsError`] for what a schema older than this operator let through.
pub fn desired(swarm: &Swarm) -> Result<Desired, JobsError> {
    let jobs = jobs(swarm.spec.jobs.iter().map(|job| job.name.as_str()))?;
    let default = Timing::default();
    let rebalance = swarm.spec.rebalance.clone().unwrap_or_default();
    let timing = Timing {
        initial_wait: rebalance.initial_wait.map_or(default.initial_wait, Into::into),
        return_grace: rebalance.return_grace.map_or(default.return_grace, Into::into),
        release_timeout: default.release_timeout,
    };
    Ok(Desired { jobs, timing, ..Desired::default() })
}
