//! Keeps lives within a number of jobs and bytes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::{EVENTS_MAX, Life, LifeEvent, Lives, plain};
use crate::JobName;
use crate::history::size::text;

/// An upper bound of the bytes of a life in JSON, without texts and events.
const LIFE: usize = 300;

/// An upper bound of the bytes of an event in JSON, without texts.
const EVENT: usize = 90;

impl Lives {
    /// Shortens the lives to at most `jobs_max` jobs, whose JSON has at most about `bytes_max` bytes.
    ///
    /// The jobs with the newest events stay. The oldest events are left out first, then the jobs with
    /// the oldest events. Texts and lists of another writer become short, too. A job that is left out
    /// is counted from `now_ms` on. O(events · log events).
    ///
    /// ```
    /// use swarm_core::life::{Cause, Lives, News};
    ///
    /// let mut lives = Lives::begin(1);
    /// for n in 0..9 {
    ///     let job = format!("job-{n}").parse()?;
    ///     lives.learn(n, &job, "w-0", News::Event(Cause::Killed, ""));
    /// }
    /// lives.limit(10, 2, 1_000_000);
    /// assert_eq!(lives.iter().map(|(job, _)| job.as_str()).collect::<Vec<_>>(), ["job-7", "job-8"]);
    /// assert_eq!(lives.since_ms(), 10);
    /// # Ok::<(), swarm_core::JobNameError>(())
    /// ```
    pub fn limit(&mut self, now_ms: u64, jobs_max: usize, bytes_max: usize) {
        for life in self.jobs.values_mut() {
            life.shorten();
        }
        self.limit_jobs(now_ms, jobs_max, usize::MAX);
        self.limit_events(bytes_max);
        self.limit_jobs(now_ms, jobs_max, bytes_max);
    }

    /// Leaves out the oldest events. Each job keeps its newest one.
    fn limit_events(&mut self, bytes_max: usize) {
        let mut left = self.bytes();
        if left <= bytes_max {
            return;
        }
        let mut events: Vec<_> = self.jobs.iter().flat_map(|(job, it)| older(job, it)).collect();
        events.sort_unstable();
        let mut dropped = BTreeMap::<JobName, usize>::new();
        for (_, job, _, size) in events {
            if left <= bytes_max {
                break;
            }
            left -= size;
            *dropped.entry(job.clone()).or_default() += 1;
        }
        for (job, count) in dropped {
            if let Some(life) = self.jobs.get_mut(&job) {
                life.events.drain(..count);
            }
        }
    }

    /// Leaves out the jobs with the oldest events.
    fn limit_jobs(&mut self, now_ms: u64, jobs_max: usize, bytes_max: usize) {
        let mut jobs: Vec<_> = self.jobs.iter().map(|(job, it)| (it.last_ms(), job)).collect();
        jobs.sort_unstable_by_key(|(at, job)| (Reverse(*at), *job));
        let mut left = bytes_max;
        let fits = |(_, job): &(u64, &JobName)| {
            let size = self.jobs.get(*job).map_or(0, |life| size(job, life));
            let fits = size <= left;
            left = if fits { left - size } else { 0 };
            fits
        };
        let kept = jobs.into_iter().take(jobs_max).take_while(fits);
        let kept: BTreeSet<_> = kept.map(|(_, job)| job.clone()).collect();
        if kept.len() < self.jobs.len() {
            self.since_ms = self.since_ms.max(now_ms);
            self.jobs.retain(|job, _| kept.contains(job));
        }
    }

    /// Returns an upper bound of the bytes of these lives in JSON. O(events).
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.jobs.iter().map(|(job, life)| size(job, life)).sum()
    }
}

impl Life {
    /// Shortens the texts and the list of events of another writer.
    fn shorten(&mut self) {
        self.events.sort_by_key(|it| it.at_ms);
        let surplus = self.events.len().saturating_sub(EVENTS_MAX);
        self.events.drain(..surplus);
        for LifeEvent { worker, detail, .. } in &mut self.events {
            (*worker, *detail) = (plain(worker), plain(detail));
        }
        if let Some(fails) = &mut self.failing {
            (fails.worker, fails.exit) = (plain(&fails.worker), plain(&fails.exit));
        }
    }
}

/// Returns the time, the job, the place and the size of each event but the newest one of a life.
fn older<'a>(
    job: &'a JobName,
    life: &'a Life,
) -> impl Iterator<Item = (u64, &'a JobName, usize, usize)> {
    let older = life.events.len().saturating_sub(1);
    let events = life.events.iter().enumerate().take(older);
    events.map(move |(at, event)| (event.at_ms, job, at, of_event(event)))
}

fn size(job: &JobName, life: &Life) -> usize {
    let events: usize = life.events.iter().map(of_event).sum();
    let failing = life.failing.as_ref().map_or(0, |it| text(&it.worker) + text(&it.exit));
    LIFE + text(job.as_str()) + events + failing
}

fn of_event(event: &LifeEvent) -> usize {
    EVENT + text(&event.worker) + text(&event.detail)
}
