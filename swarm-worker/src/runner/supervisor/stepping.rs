//! Drives the machine of steps for a task: finds the jobs that an edit concerns.

use std::mem;
use std::sync::Arc;

use swarm_adapters_host::channel::{Event as JobEvent, JobVersion};
use swarm_core::session::Pace;
use swarm_core::{JobName, RunnerName};
use tokio::time::Instant;

use super::Ways;
use super::steps::{Bounds, StepEffect, StepEvent};
use super::task::{Entry, RAN_WELL, State, Task, is_up, pauses};
use crate::runner::Readiness;

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
                     has run well for 30 s, changes again, or was restarted by hand"
                );
            }
        }
    }

    /// Begins an edit, with the pace of its view.
    pub(super) fn edit_begins(&mut self, pace: Pace) {
        self.step(StepEvent::Edited);
        if mem::replace(&mut self.pace, pace) != pace {
            self.step(StepEvent::Paced);
        }
    }

    /// Applies other ways to run jobs, to the jobs that they concern.
    pub(super) fn run_by(&mut self, mut ways: Ways) {
        if let Some(until) = self.permit.limit() {
            ways.runners().for_each(|runner| runner.permit_until(until));
        }
        let names = |entry: &Entry, name: &RunnerName| match &entry.state {
            State::Stopping(Some(next)) => next.runner.as_ref() == Some(name),
            _ => entry.job.runner.as_ref() == Some(name),
        };
        ways.keep(&self.ways, |name| self.jobs.values().any(|entry| names(entry, name)));
        let before = mem::replace(&mut self.ways, ways);
        self.former.extend(before.runners().cloned());
        let (mut revised, mut restarted) = (Vec::new(), Vec::new());
        for (name, entry) in &self.jobs {
            let by = entry.job.runner.as_ref();
            let (before, now) = (before.of(by), self.ways.of(by));
            if !now.has_runner_of(before) {
                revised.push(name.clone());
            } else if !now.restarts_as(before) {
                restarted.push(name.clone());
            }
        }
        for job in &revised {
            self.revise(job);
        }
        for job in &restarted {
            self.restart_by(job);
        }
    }

    /// Applies a new policy for restarts to a job. A running job continues. A failed job begins again
    /// if the policy allows it.
    fn restart_by(&mut self, name: &JobName) {
        let Some(entry) = self.jobs.get_mut(name) else { return };
        let restarts = &self.ways.of(entry.job.runner.as_ref()).restarts;
        let now = Instant::now();
        let (latest, held) = (now + restarts.pause_max, restarts.success_pause.map(|it| now + it));
        entry.pauses = pauses(restarts);
        match &mut entry.state {
            State::Failed if restarts.limit.is_none_or(|limit| entry.in_a_row < limit) => {
                self.begin_again(name);
            }
            State::Waiting(at) if latest < *at => {
                self.due.remove(&(*at, name.clone()));
                *at = latest;
                self.due.insert((latest, name.clone()));
            }
            State::Held(at) if held.is_some_and(|held| held < *at) => {
                self.due.remove(&(*at, name.clone()));
                *at = held.unwrap_or(*at);
                self.due.insert((*at, name.clone()));
            }
            State::Queued
            | State::Running(_)
            | State::Waiting(_)
            | State::Held(_)
            | State::Failed
            | State::Renewing
            | State::Stopping(_) => {}
        }
    }

    /// Has a job take the newest runner and params: at its turn if it runs, and else at once.
    pub(super) fn revise(&mut self, name: &JobName) {
        let Some(entry) = self.jobs.get(name) else { return };
        let job = name.clone();
        match entry.state {
            State::Running(_) => {
                let newest = self.ways.of(entry.job.runner.as_ref());
                let is_newest = Arc::ptr_eq(&entry.runner, &newest.runner)
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

    /// Finds jobs that have come up, run well or stalled, and goes on with the jobs that waited for
    /// them.
    pub(super) fn look(&mut self) {
        self.looked_at = Instant::now();
        let up = self.running(self.steps.starting(), is_up);
        let ran_well = self.running(self.steps.failed(), |readiness, since| {
            is_up(readiness, since) && RAN_WELL <= since.elapsed()
        });
        let stalled =
            self.running(self.steps.tried(), |readiness, _| readiness == Readiness::Stalled);
        let up = up.into_iter().map(StepEvent::Up);
        let ran_well = ran_well.into_iter().map(StepEvent::RanWell);
        let stalled = stalled.into_iter().map(StepEvent::Stalled);
        for event in up.chain(ran_well).chain(stalled) {
            self.step(event);
        }
    }

    /// Returns the running jobs among `jobs` that meet a condition.
    fn running<'a>(
        &self,
        jobs: impl Iterator<Item = &'a JobName>,
        is_it: impl Fn(Readiness, Instant) -> bool,
    ) -> Vec<JobName> {
        let is_it = |job: &&JobName| match self.jobs.get(*job).map(|it| (&it.state, &it.job)) {
            Some((State::Running(since), job)) => is_it(job.readiness(), *since),
            Some(_) | None => false,
        };
        jobs.filter(is_it).cloned().collect()
    }
}
