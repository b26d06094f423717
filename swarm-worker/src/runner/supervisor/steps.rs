//! Decides in which steps jobs start, and restart after a change. A pure machine: events go in, and
//! effects come out. It reads no clock and does no I/O.
//!
//! - At most [`Bounds::starting`] jobs start at a time, in the order in which they became due. A
//!   start ends when the job is up, has failed, or was stopped.
//! - When what starts jobs changes, at most [`Bounds::restarting`] of the running jobs restart at a
//!   time, and none while other jobs wait for their start. The others run their previous version
//!   until their turn.
//! - If a restarted job fails or stalls while jobs of the same edit or of earlier edits wait, those
//!   keep their previous version. They go on when that job has run well, was stopped, changes again,
//!   or was restarted by hand. A later edit of another job is not affected.
//! - To be up is enough for the next step, and not enough after a failure. Otherwise a version that
//!   always fails soon after it is up would creep through all jobs.
//! - A job that does not run takes the newest version at its next start, and does not count.

use std::collections::{BTreeMap, BTreeSet};

use swarm_adapters_host::channel::JobVersion;
use swarm_core::JobName;

/// The most jobs that begin at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    /// Running jobs that are restarted, at least 1.
    pub(super) restarting: usize,
    /// Jobs that start, at least 1.
    pub(super) starting: usize,
}

/// An event in the life of a job, or an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StepEvent {
    /// Another edit begins. Changes that follow belong to it.
    Edited,
    /// The bounds have changed.
    Paced,
    /// A job does not run, and a run of it should begin.
    Due(JobName),
    /// A running job has another version: the runner or the params that start it.
    Changed(JobName),
    /// The newest version of a running job is again the version that runs.
    Unchanged(JobName),
    /// A job that does not run has another version.
    Replaced(JobName),
    /// A person restarts a job.
    ByHand(JobName),
    /// A running job is ready, or has run for a second without a check.
    Up(JobName),
    /// A job that had failed is up, and has run for as long as resets the count of restarts.
    RanWell(JobName),
    /// A running job is not alive any more. The end of its run follows.
    Stalled(JobName),
    /// A run ended by itself, or did not start.
    Failed(JobName),
    /// Something other than the worker stopped a run. Another one becomes due.
    Held(JobName),
    /// The worker stops a job, or the job is done.
    Gone(JobName),
}

/// An order to the driver of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StepEffect {
    /// Begin the run of a job that is due.
    Begin(JobName),
    /// Stop the run of a job. Another one is due when it has ended.
    Restart(JobName),
    /// Report which version of a job runs.
    Mark(JobName, JobVersion),
    /// Report that the restarts have halted, since this job failed.
    Halt(JobName),
}

/// The number of an edit.
type EditNumber = u64;

/// The jobs that start, restart, or wait for either.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Steps {
    edit: EditNumber,
    /// The number of the last job that became due.
    number: u64,
    /// The due jobs in their order, and the number of each.
    queue: BTreeMap<u64, JobName>,
    queued: BTreeMap<JobName, u64>,
    /// The jobs whose run has begun, and that are not up.
    starting: BTreeSet<JobName>,
    /// The jobs that run a previous version, by the last edit that changed them; and that edit of
    /// each.
    changed: BTreeMap<EditNumber, BTreeSet<JobName>>,
    edits: BTreeMap<JobName, EditNumber>,
    /// The restarted jobs that are not up, with their edits.
    restarting: BTreeMap<JobName, EditNumber>,
    /// The restarted jobs that are up, with their edits. Only kept while other jobs wait.
    taken: BTreeMap<JobName, EditNumber>,
    /// The restarted jobs that failed and have not run well since, with their edits.
    failed: BTreeMap<JobName, EditNumber>,
}

impl Steps {
    /// Returns the jobs whose run has begun, and that are not up.
    pub(super) fn starting(&self) -> impl Iterator<Item = &JobName> {
        self.starting.iter()
    }

    /// Returns the jobs that failed and have not run well since.
    pub(super) fn failed(&self) -> impl Iterator<Item = &JobName> {
        self.failed.keys()
    }

    /// Returns the jobs whose failure would hold others back.
    pub(super) fn tried(&self) -> impl Iterator<Item = &JobName> {
        self.restarting.keys().chain(self.taken.keys())
    }

    /// Returns the number of jobs that run a previous version.
    pub(super) fn previous(&self) -> usize {
        self.edits.len()
    }

    /// Returns whether a job waits until a starting one is up.
    pub(super) fn is_awaiting(&self) -> bool {
        let waits = !self.queue.is_empty() || !self.edits.is_empty();
        waits && !self.starting.is_empty()
    }

    /// Applies an event. O(log jobs) for each effect.
    pub(super) fn step(&mut self, event: StepEvent, bounds: Bounds) -> Vec<StepEffect> {
        let mut effects = Vec::new();
        match event {
            StepEvent::Edited => self.edit += 1,
            StepEvent::Paced => {}
            StepEvent::Due(job) => self.push(job),
            StepEvent::Changed(job) => self.changed(job, &mut effects),
            StepEvent::Unchanged(job) => {
                self.take_changed(&job, &mut effects);
            }
            StepEvent::Replaced(job) => {
                self.take_changed(&job, &mut effects);
                if self.take_failed(&job, &mut effects) || self.restarting.contains_key(&job) {
                    self.restarting.insert(job, self.edit);
                } else if let Some(edit) = self.taken.get_mut(&job) {
                    *edit = self.edit;
                }
            }
            StepEvent::ByHand(job) => {
                let edit = self.failed.get(&job).copied();
                self.take_failed(&job, &mut effects);
                let edit = self.take_changed(&job, &mut effects).or(edit);
                self.starting.remove(&job);
                if let Some(edit) = edit {
                    self.taken.remove(&job);
                    self.restarting.insert(job, edit);
                }
            }
            StepEvent::Up(job) => {
                self.starting.remove(&job);
                if let Some(edit) = self.restarting.remove(&job) {
                    self.taken.insert(job, edit);
                }
            }
            StepEvent::RanWell(job) => {
                let edit = self.failed.get(&job).copied();
                self.take_failed(&job, &mut effects);
                self.taken.extend(edit.map(|edit| (job, edit)));
            }
            StepEvent::Stalled(job) => self.blame(job, &mut effects),
            StepEvent::Failed(job) => {
                self.starting.remove(&job);
                self.take_changed(&job, &mut effects);
                self.blame(job, &mut effects);
            }
            StepEvent::Held(job) => {
                self.starting.remove(&job);
                self.take_changed(&job, &mut effects);
            }
            StepEvent::Gone(job) => self.forget(&job, &mut effects),
        }
        self.advance(bounds, &mut effects);
        effects
    }

    fn push(&mut self, job: JobName) {
        if self.queued.contains_key(&job) {
            return;
        }
        self.number += 1;
        self.queue.insert(self.number, job.clone());
        self.queued.insert(job, self.number);
    }

    /// Handles a change of a running job. A job that is not up keeps no work, so it is restarted at
    /// once, and tries the newest version before others do.
    fn changed(&mut self, job: JobName, effects: &mut Vec<StepEffect>) {
        if self.take_failed(&job, effects) || self.restarting.contains_key(&job) {
            self.take_changed(&job, effects);
            self.restart(job, self.edit, effects);
            return;
        }
        self.take_changed(&job, &mut Vec::new());
        effects.push(StepEffect::Mark(job.clone(), JobVersion::Previous));
        self.changed.entry(self.edit).or_default().insert(job.clone());
        self.edits.insert(job, self.edit);
    }

    /// Has a job that took a newer version hold back the jobs that wait.
    fn blame(&mut self, job: JobName, effects: &mut Vec<StepEffect>) {
        let waits = |edit: &EditNumber| self.changed.range(..=*edit).next().is_some();
        // A version that every job has taken is not at fault for what happens later.
        let taken = self.taken.remove(&job).filter(waits);
        let Some(edit) = self.restarting.remove(&job).max(taken) else { return };
        effects.push(StepEffect::Mark(job.clone(), JobVersion::Failed));
        if waits(&edit) {
            effects.push(StepEffect::Halt(job.clone()));
        }
        self.failed.insert(job, edit);
    }

    fn forget(&mut self, job: &JobName, effects: &mut Vec<StepEffect>) {
        if let Some(number) = self.queued.remove(job) {
            self.queue.remove(&number);
        }
        self.starting.remove(job);
        self.restarting.remove(job);
        self.taken.remove(job);
        self.take_changed(job, effects);
        self.take_failed(job, effects);
    }

    /// Removes a job that runs a previous version. Returns the edit that changed it.
    fn take_changed(&mut self, job: &JobName, effects: &mut Vec<StepEffect>) -> Option<EditNumber> {
        let edit = self.edits.remove(job)?;
        if let Some(jobs) = self.changed.get_mut(&edit) {
            jobs.remove(job);
            if jobs.is_empty() {
                self.changed.remove(&edit);
            }
        }
        effects.push(StepEffect::Mark(job.clone(), JobVersion::Newest));
        Some(edit)
    }

    /// Removes a job that failed, and returns whether it was one.
    fn take_failed(&mut self, job: &JobName, effects: &mut Vec<StepEffect>) -> bool {
        let had = self.failed.remove(job).is_some();
        if had {
            effects.push(StepEffect::Mark(job.clone(), JobVersion::Newest));
        }
        had
    }

    /// Begins and restarts as many jobs as the bounds allow.
    fn advance(&mut self, bounds: Bounds, effects: &mut Vec<StepEffect>) {
        while self.starting.len() < bounds.starting
            && let Some((_, job)) = self.queue.pop_first()
        {
            self.queued.remove(&job);
            self.starting.insert(job.clone());
            effects.push(StepEffect::Begin(job));
        }
        // A job that had to wait for its start would be stopped for longer than necessary.
        let restarting = bounds.restarting.min(bounds.starting);
        while self.queue.is_empty()
            && self.starting.len() < bounds.starting
            && self.restarting.len() < restarting
            && let Some((job, edit)) = self.next_changed()
        {
            self.take_changed(&job, effects);
            self.restart(job, edit, effects);
        }
        if self.changed.is_empty() {
            self.taken.clear();
        }
    }

    fn restart(&mut self, job: JobName, edit: EditNumber, effects: &mut Vec<StepEffect>) {
        self.starting.remove(&job);
        self.taken.remove(&job);
        self.take_failed(&job, effects);
        self.restarting.insert(job.clone(), edit);
        effects.push(StepEffect::Restart(job));
    }

    /// Returns the next job to restart. A failed job holds back the jobs of its edit and of earlier
    /// edits.
    fn next_changed(&self) -> Option<(JobName, EditNumber)> {
        let held = self.failed.values().max().map_or(0, |edit| edit + 1);
        let (edit, jobs) = self.changed.range(held..).next()?;
        Some((jobs.first()?.clone(), *edit))
    }
}

#[cfg(test)]
mod tests;
