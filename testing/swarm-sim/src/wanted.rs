//! Changes of the wanted jobs.

use swarm_core::{Desired, Job, JobName};

/// Adds job number `n` as `first`, or removes it.
pub(crate) fn toggle(desired: &mut Desired, n: usize, first: Job) {
    let Ok(name) = JobName::new(&format!("job-{n}")) else { return };
    if desired.jobs.remove(&name).is_none() {
        desired.jobs.insert(name, first);
    }
}

/// Changes a job that exists, if any does.
pub(crate) fn change(desired: &mut Desired, n: usize, change: impl FnOnce(&mut Job)) {
    let count = desired.jobs.len().max(1);
    if let Some(job) = desired.jobs.values_mut().nth(n % count) {
        change(job);
    }
}
