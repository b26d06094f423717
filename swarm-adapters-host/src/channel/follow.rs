//! The operator's side of the channel, which keeps the state of each worker's jobs.

use std::collections::BTreeMap;
use std::sync::Arc;

use swarm_core::{Failing, JobName};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};

use super::{Event, LINE_BYTES_MAX, RunningJob};
use crate::failing::WORST_MAX;
use crate::worker_view::JOBS_MAX;

/// The state that a worker instance has reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerState {
    /// The instance.
    pub instance: String,
    /// Its jobs, including jobs that are stopping.
    pub jobs: BTreeMap<String, JobNow>,
    /// Its failing jobs.
    pub failing: Arc<Failing>,
}

/// A job of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobNow {
    /// Its first process, if it is a program that runs.
    pub pid: Option<i32>,
    /// Whether it was asked to stop.
    pub is_stopping: bool,
}

impl WorkerState {
    /// Applies an event, and returns whether failing jobs changed. The size of the state is
    /// bounded, even if a worker lies.
    pub fn learn(&mut self, event: Event) -> bool {
        if let Event::Failing(failing) = event {
            self.failing = Arc::new(failing.limited(JOBS_MAX, WORST_MAX));
            return true;
        }
        event.apply(&mut self.jobs);
        false
    }
}

impl Event {
    /// Returns whether all names in the event are valid job names. Other names could be of any
    /// length, and would reach the terminal.
    fn has_valid_names(&self) -> bool {
        match self {
            Self::Started { job, .. }
            | Self::Ready { job }
            | Self::Stalled { job, .. }
            | Self::Stopping { job }
            | Self::Killed { job }
            | Self::Ended { job }
            | Self::Restarting { job, .. }
            | Self::Failed { job, .. } => JobName::new(job).is_ok(),
            Self::Jobs { jobs } => jobs.iter().all(|it| JobName::new(&it.job).is_ok()),
            Self::Hello { .. } | Self::Failing(_) => true,
        }
    }

    /// Applies the event to the jobs of a worker.
    pub(super) fn apply(&self, jobs: &mut BTreeMap<String, JobNow>) {
        match self {
            Self::Started { job, pid } => {
                if let Some(now) = jobs.get_mut(job) {
                    now.pid = *pid;
                } else if jobs.len() < JOBS_MAX {
                    jobs.insert(job.clone(), JobNow { pid: *pid, is_stopping: false });
                }
            }
            Self::Stopping { job } => {
                if let Some(now) = jobs.get_mut(job) {
                    now.is_stopping = true;
                }
            }
            Self::Restarting { job, exit: _ } | Self::Failed { job, exit: _ } => {
                if let Some(now) = jobs.get_mut(job) {
                    now.pid = None;
                }
            }
            Self::Ended { job } => {
                jobs.remove(job);
            }
            Self::Jobs { jobs: all } => {
                let of = |it: &RunningJob| {
                    (it.job.clone(), JobNow { pid: it.pid, is_stopping: it.stopping })
                };
                *jobs = all.iter().take(JOBS_MAX).map(of).collect();
            }
            Self::Hello { .. }
            | Self::Ready { .. }
            | Self::Stalled { .. }
            | Self::Killed { .. }
            | Self::Failing(_) => {}
        }
    }
}

/// Reads events until the worker closes its end, or sends a line that is too long. An unknown line
/// comes from a later version and is skipped.
pub async fn follow(stream: impl AsyncRead + Unpin, mut each: impl FnMut(Event)) {
    let mut stream = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut limited = (&mut stream).take(LINE_BYTES_MAX);
        if !matches!(limited.read_until(b'\n', &mut line).await, Ok(1..)) || !line.ends_with(b"\n")
        {
            return;
        }
        if let Ok(event) = serde_json::from_slice::<Event>(&line)
            && event.has_valid_names()
        {
            each(event);
        }
    }
}
