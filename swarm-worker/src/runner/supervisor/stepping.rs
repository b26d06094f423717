//! Drives the machine of steps for a task.

use std::sync::Arc;

use swarm_adapters_host::channel::{Event as JobEvent, JobVersion};
use swarm_core::JobName;
use swarm_core::session::Pace;
use tokio::time::Instant;

use super::steps::{Bounds, StepEffect, StepEvent};
use super::task::{State, Task, is_up};

impl Task {
    /// Applies an event, and carries out its effects.
    pub(super) fn step(&mut self, event: StepEvent) {
        let Pace { max_restarting, max_starting } = self.pace;
        let starting = max_starting.and_then(|most| usize::try_from(most).ok());
        let bounds = Bounds {
            restarting: max_restarting.of(self.jobs.len()),
            starting: starting.map_or(usize::MAX, |most| most.max(1)),
        };
        for effect in self.steps.step(event, bounds) {
            self.carry_out(effect);
        }
    }

    fn carry_out(&mut self, effect: StepEffect) {
        match effect {
            StepEffect::Begin(job) => self.begin(&job),
            StepEffect::Restart(job) => {
                let previous = self.steps.previous();
                tracing::info!(%job, previous, "restarting it, since what starts it has changed");
                self.renew(&job);
            }
            StepEffect::Mark(job, version) => {
                self.edit(&job, |report| report.is_newest = version != JobVersion::Previous);
                self.has_changed = true;
                self.outlets.sink.emit(JobEvent::Version { job: job.to_string(), version });
            }
            StepEffect::Halt(job) => {
                let previous = self.steps.previous();
                tracing::error!(
                    %job, previous,
                    "its new version failed, so jobs keep their previous version; they go on when it \
                     is ready, changes again, or was restarted by hand"
                );
            }
        }
    }

    /// Begins an edit, with the pace of its view.
    pub(super) fn edit_begins(&mut self, pace: Pace) {
        self.step(StepEvent::Edited);
        if std::mem::replace(&mut self.pace, pace) != pace {
            self.step(StepEvent::Paced);
        }
    }

    /// Has a job take the newest runner and params: at its turn if it runs, and else at once.
    pub(super) fn revise(&mut self, name: &JobName) {
        let Some(entry) = self.jobs.get(name) else { return };
        let job = name.clone();
        match entry.state {
            State::Running(_) => {
                let is_newest = Arc::ptr_eq(&entry.runner, &self.runner)
                    && entry.began_with == entry.job.params;
                self.step(if is_newest {
                    StepEvent::Unchanged(job)
                } else {
                    StepEvent::Changed(job)
                });
            }
            State::Queued
            | State::Waiting(_)
            | State::Held(_)
            | State::Failed
            | State::Renewing => {
                self.step(StepEvent::Replaced(job));
                self.renew(name);
            }
            State::Stopping(_) => {}
        }
    }

    pub(super) fn renew_by_hand(&mut self, name: &JobName) {
        let Some(entry) = self.jobs.get(name) else { return };
        if !matches!(entry.state, State::Stopping(_)) {
            self.step(StepEvent::ByHand(name.clone()));
            self.renew(name);
        }
    }

    /// Finds jobs that have come up, and goes on with the jobs that waited for them.
    pub(super) fn look(&mut self) {
        self.looked_at = Instant::now();
        let is_up = |job: &&_| match self.jobs.get(*job).map(|entry| (&entry.state, &entry.job)) {
            Some((State::Running(since), job)) => is_up(job.readiness(), *since),
            Some(_) | None => false,
        };
        let up: Vec<_> = self.steps.starting().filter(is_up).cloned().collect();
        for job in up {
            self.step(StepEvent::Up(job));
        }
    }
}
