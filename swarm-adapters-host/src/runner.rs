//! Runs the jobs of one worker.
//!
//! A job that was stopped has ended before [`JobRunner::stop`] returns: whoever grants it to
//! another worker afterwards knows that it no longer runs here.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use swarm_core::JobName;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

/// How often a running job shows that it runs.
const TICK: Duration = Duration::from_secs(1);

/// What is done for a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RunnerKind {
    /// Nothing but lines in the log: started, a tick every second, stopped.
    #[default]
    Log,
}

impl FromStr for RunnerKind {
    type Err = UnknownRunner;

    fn from_str(name: &str) -> Result<Self, UnknownRunner> {
        match name {
            "log" => Ok(Self::Log),
            _ => Err(UnknownRunner(name.to_owned())),
        }
    }
}

impl fmt::Display for RunnerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Log => "log",
        })
    }
}

/// Names a runner that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no runner `{0}`; write `log`")]
pub struct UnknownRunner(String);

/// The running jobs of a worker. Dropping it ends them without waiting.
#[derive(Debug)]
pub struct JobRunner {
    kind: RunnerKind,
    running: BTreeMap<JobName, Running>,
}

#[derive(Debug)]
struct Running {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl JobRunner {
    /// A runner without jobs.
    #[must_use]
    pub fn new(kind: RunnerKind) -> Self {
        Self { kind, running: BTreeMap::new() }
    }

    /// Starts `job`. A job that runs already goes on as it is.
    pub fn start(&mut self, job: &JobName) {
        if self.running.contains_key(job) {
            return;
        }
        let stop = CancellationToken::new();
        let task = match self.kind {
            RunnerKind::Log => tokio::spawn(log(job.clone(), stop.clone())),
        };
        self.running.insert(job.clone(), Running { stop, task });
    }

    /// Stops `jobs` all at once and returns when each of them has ended. Those that do not run are
    /// passed over.
    pub async fn stop<'a>(&mut self, jobs: impl IntoIterator<Item = &'a JobName>) {
        let running = |job| self.running.remove_entry(job);
        let stopping: Vec<_> = jobs.into_iter().filter_map(running).collect();
        for (_, running) in &stopping {
            running.stop.cancel();
        }
        for (job, running) in stopping {
            if let Err(error) = running.task.await {
                tracing::error!(%job, %error, "job ended by itself");
            }
        }
    }

    /// Stops every job and returns when each of them has ended.
    pub async fn stop_all(&mut self) {
        let jobs: Vec<_> = self.running.keys().cloned().collect();
        self.stop(&jobs).await;
    }
}

impl Drop for JobRunner {
    fn drop(&mut self) {
        self.running.values().for_each(|running| running.stop.cancel());
    }
}

/// The whole life of a job of [`RunnerKind::Log`].
async fn log(job: JobName, stop: CancellationToken) {
    tracing::info!(%job, "started");
    let mut ticks = interval_at(tokio::time::Instant::now() + TICK, TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut count = 0_u64;
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        count += 1;
        tracing::info!(%job, count, "tick");
    }
    tracing::info!(%job, count, "stopped");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runners_are_chosen_by_their_names() {
        assert_eq!(RunnerKind::Log.to_string().parse(), Ok(RunnerKind::Log));
        let error = "lgo".parse::<RunnerKind>().unwrap_err();
        assert_eq!(error.to_string(), "there is no runner `lgo`; write `log`");
    }

    #[tokio::test]
    async fn a_stopped_job_has_ended_and_the_others_run_on() {
        let jobs = ["a", "b"].map(|name| JobName::new(name).unwrap());
        let mut runner = JobRunner::new(RunnerKind::Log);
        for job in &jobs {
            runner.start(job);
        }
        let has_ended = runner.running[&jobs[0]].task.abort_handle();
        runner.stop([&jobs[0]]).await;
        assert!(has_ended.is_finished());
        assert!(!runner.running[&jobs[1]].task.is_finished());
        runner.stop_all().await;
        assert!(runner.running.is_empty());
    }

    #[tokio::test]
    async fn starting_twice_and_stopping_what_does_not_run_change_nothing() {
        let job = JobName::new("a").unwrap();
        let mut runner = JobRunner::new(RunnerKind::Log);
        runner.stop([&job]).await;
        runner.start(&job);
        let task = runner.running[&job].task.id();
        runner.start(&job);
        assert_eq!(runner.running[&job].task.id(), task);
    }
}
