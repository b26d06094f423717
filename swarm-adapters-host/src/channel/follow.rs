//! The operator's side of the channel, which keeps the state of each worker's jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use swarm_core::{Failing, JobName};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};

use super::{Event, HeldProcess, JobPhase, JobVersion, LINE_BYTES_MAX, RunningJob};
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
    /// Jobs whose newest version is not running, or keeps failing.
    pub versions: Versions,
}

/// Jobs of a worker whose newest version is not running, or keeps failing. See [`JobVersion`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Versions {
    /// The number of jobs that run a previous version.
    pub previous: usize,
    /// The jobs whose newest version failed.
    pub failed: BTreeSet<String>,
}

impl Versions {
    fn of(jobs: &BTreeMap<String, JobNow>) -> Self {
        let mut versions = Self::default();
        for (job, now) in jobs {
            versions.add(job, now.version);
        }
        versions
    }

    fn add(&mut self, job: &str, version: JobVersion) {
        match version {
            JobVersion::Newest => {}
            JobVersion::Previous => self.previous += 1,
            JobVersion::Failed => {
                self.failed.insert(job.to_owned());
            }
        }
    }

    fn remove(&mut self, job: &str, version: JobVersion) {
        match version {
            JobVersion::Newest => {}
            JobVersion::Previous => self.previous = self.previous.saturating_sub(1),
            JobVersion::Failed => {
                self.failed.remove(job);
            }
        }
    }
}

/// The maximum number of characters of the end of a run.
const EXIT_MAX: usize = 256;

/// The maximum number of processes that are named for a job that does not end.
pub const HELD_MAX: usize = 10;

/// A job of a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobNow {
    /// Its first process, if it is a program that runs.
    pub pid: Option<i32>,
    /// Its phase.
    pub phase: JobPhase,
    /// The version of it that runs.
    pub version: JobVersion,
    /// Whether its run has a check of readiness.
    pub is_checked: bool,
    /// The time of its last start, in seconds of Unix time, if it runs.
    pub since_unix_s: Option<u64>,
    /// The number of its runs that ended by themselves.
    pub restarts: u64,
    /// The last end of a run by itself; part of a sentence.
    pub last_exit: Option<String>,
    /// Its processes that the worker may not end, once they should have ended.
    pub held: Vec<HeldProcess>,
}

impl JobNow {
    /// Whether the job was asked to stop.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.phase == JobPhase::Stopping
    }

    /// Sets the phase, unless the job was asked to stop.
    fn enter(&mut self, phase: JobPhase) {
        if !self.is_stopping() {
            self.phase = phase;
        }
    }

    /// Records that a run has ended by itself.
    fn ended(&mut self, phase: JobPhase, exit: &str) {
        self.enter(phase);
        (self.pid, self.since_unix_s) = (None, None);
        self.restarts += u64::from(phase == JobPhase::Restarting);
        self.last_exit = Some(printable(exit));
    }
}

/// Returns the beginning of a text of a worker, without control characters.
#[must_use]
pub fn printable(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().take(EXIT_MAX).map(plain).collect()
}

/// Returns the first processes, with bounds.
fn limited(processes: &[HeldProcess]) -> Vec<HeldProcess> {
    let limited = |HeldProcess { pid, program, user }: &HeldProcess| HeldProcess {
        pid: *pid,
        program: printable(program),
        user: printable(user),
    };
    processes.iter().take(HELD_MAX).map(limited).collect()
}

/// Reads an entry of the list of all jobs, with bounds.
impl From<&RunningJob> for JobNow {
    fn from(job: &RunningJob) -> Self {
        let RunningJob {
            job: _,
            pid,
            stopping,
            phase,
            version,
            since_unix_s,
            restarts,
            last_exit,
            held,
        } = job;
        Self {
            pid: *pid,
            phase: if *stopping { JobPhase::Stopping } else { *phase },
            version: *version,
            is_checked: false,
            since_unix_s: *since_unix_s,
            restarts: *restarts,
            last_exit: last_exit.as_deref().map(printable),
            held: limited(held),
        }
    }
}

impl WorkerState {
    /// Applies an event, and returns whether failing jobs or versions changed. The size of the state
    /// is bounded, even if a worker lies.
    pub fn learn(&mut self, event: Event) -> bool {
        if let Event::Failing(failing) = event {
            self.failing = Arc::new(failing.limited(JOBS_MAX, WORST_MAX));
            return true;
        }
        match &event {
            Event::Version { job, .. } | Event::Ended { job } => {
                let version = |jobs: &BTreeMap<String, JobNow>| {
                    jobs.get(job).map_or(JobVersion::Newest, |now| now.version)
                };
                let before = version(&self.jobs);
                event.apply(&mut self.jobs);
                let after = version(&self.jobs);
                self.versions.remove(job, before);
                self.versions.add(job, after);
                before != after
            }
            Event::Jobs { .. } => {
                event.apply(&mut self.jobs);
                let before = std::mem::replace(&mut self.versions, Versions::of(&self.jobs));
                before != self.versions
            }
            Event::Held { .. } => {
                event.apply(&mut self.jobs);
                true
            }
            Event::Hello { .. }
            | Event::Warned { .. }
            | Event::Starting { .. }
            | Event::Started { .. }
            | Event::Ready { .. }
            | Event::Stalled { .. }
            | Event::Renewing { .. }
            | Event::Stopping { .. }
            | Event::Killed { .. }
            | Event::Restarting { .. }
            | Event::Succeeded { .. }
            | Event::Failed { .. }
            | Event::Failing(_) => {
                event.apply(&mut self.jobs);
                false
            }
        }
    }
}

impl Event {
    /// Returns the job of the event, if it is about one.
    #[must_use]
    pub fn job(&self) -> Option<&str> {
        match self {
            Self::Starting { job, .. }
            | Self::Started { job, .. }
            | Self::Ready { job }
            | Self::Stalled { job, .. }
            | Self::Renewing { job }
            | Self::Stopping { job }
            | Self::Killed { job }
            | Self::Held { job, .. }
            | Self::Warned { job, .. }
            | Self::Ended { job }
            | Self::Version { job, .. }
            | Self::Restarting { job, .. }
            | Self::Succeeded { job }
            | Self::Failed { job, .. } => Some(job),
            Self::Hello { .. } | Self::Jobs { .. } | Self::Failing(_) => None,
        }
    }

    /// Returns whether all names in the event are valid job names. Other names could be of any
    /// length, and would reach the terminal.
    fn has_valid_names(&self) -> bool {
        match self {
            Self::Jobs { jobs } => jobs.iter().all(|it| JobName::new(&it.job).is_ok()),
            event => event.job().is_none_or(|job| JobName::new(job).is_ok()),
        }
    }

    /// Applies the event to the jobs of a worker.
    pub(super) fn apply(&self, jobs: &mut BTreeMap<String, JobNow>) {
        match self {
            Self::Starting { job, checked } => {
                if let Some(now) = known(jobs, job) {
                    now.enter(JobPhase::Starting);
                    (now.is_checked, now.pid, now.since_unix_s) = (*checked, None, None);
                }
            }
            Self::Started { job, pid, at_unix_s } => {
                if let Some(now) = known(jobs, job) {
                    let is_up = !now.is_checked;
                    now.enter(if is_up { JobPhase::Running } else { JobPhase::Starting });
                    (now.pid, now.since_unix_s) = (*pid, *at_unix_s);
                }
            }
            Self::Ready { job } => enter(jobs, job, JobPhase::Ready),
            Self::Stalled { job, reason: _ } => enter(jobs, job, JobPhase::Stalled),
            Self::Renewing { job } => enter(jobs, job, JobPhase::Restarting),
            Self::Stopping { job } => enter(jobs, job, JobPhase::Stopping),
            Self::Restarting { job, exit } => {
                if let Some(now) = jobs.get_mut(job) {
                    now.ended(JobPhase::Restarting, exit);
                }
            }
            Self::Succeeded { job } => {
                if let Some(now) = jobs.get_mut(job) {
                    now.enter(JobPhase::Waiting);
                    (now.pid, now.since_unix_s) = (None, None);
                }
            }
            Self::Failed { job, exit } => {
                if let Some(now) = jobs.get_mut(job) {
                    now.ended(JobPhase::Failed, exit);
                }
            }
            Self::Held { job, processes } => {
                if let Some(now) = jobs.get_mut(job) {
                    now.held = limited(processes);
                }
            }
            Self::Ended { job } => {
                jobs.remove(job);
            }
            Self::Version { job, version } => {
                if let Some(now) = jobs.get_mut(job) {
                    now.version = *version;
                }
            }
            Self::Jobs { jobs: all } => {
                let of = |it: &RunningJob| (it.job.clone(), JobNow::from(it));
                *jobs = all.iter().take(JOBS_MAX).map(of).collect();
            }
            Self::Hello { .. } | Self::Warned { .. } | Self::Killed { .. } | Self::Failing(_) => {}
        }
    }
}

/// Returns the entry of a job, which is added unless there are too many.
fn known<'a>(jobs: &'a mut BTreeMap<String, JobNow>, job: &str) -> Option<&'a mut JobNow> {
    if jobs.contains_key(job) || jobs.len() < JOBS_MAX {
        return Some(jobs.entry(job.to_owned()).or_default());
    }
    None
}

fn enter(jobs: &mut BTreeMap<String, JobNow>, job: &str, phase: JobPhase) {
    if let Some(now) = jobs.get_mut(job) {
        now.enter(phase);
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
