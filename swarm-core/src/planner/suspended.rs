//! Suspended jobs: the other jobs are planned without them, and they are added as unassigned.
//!
//! A suspended job is released like a removed one. Its cell stays, so its token goes on rising, and
//! a job that is done stays done.

use std::borrow::Cow;

use super::{MoveReason, Plan, Request, Unassigned};
use crate::Jobs;

/// Returns the jobs that are not suspended. O(jobs).
pub(crate) fn active(jobs: &Jobs) -> Cow<'_, Jobs> {
    if !jobs.values().any(|job| job.suspend) {
        return Cow::Borrowed(jobs);
    }
    let active = jobs.iter().filter(|(_, job)| !job.suspend);
    Cow::Owned(active.map(|(name, job)| (name.clone(), job.clone())).collect())
}

/// Plans the other jobs, and adds the suspended ones.
pub(super) fn plan(request: &Request<'_>) -> Plan {
    let Cow::Owned(active) = active(request.jobs) else { return request.plan_active() };
    let mut plan = Request { jobs: &active, ..*request }.plan_active();
    let why = Unassigned::Suspended;
    let suspended = request.jobs.iter().filter(|(_, job)| job.suspend);
    plan.unassigned.extend(suspended.map(|(name, _)| (name.clone(), why)));
    for step in &mut plan.moves {
        if step.reason == MoveReason::Removed && request.jobs.contains_key(&step.job) {
            step.reason = MoveReason::Unassigned(why);
        }
    }
    plan
}
