//! A runner whose jobs are processes of a program.

use std::collections::BTreeMap;
use std::env;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use swarm_adapters_host::channel::{Event, Events};
use swarm_adapters_host::guard::{AwaitedLine, Ended, Guard, Start};
use swarm_adapters_host::runner::{self, Job, Outcome, RunLogKeeper, Runner};
use swarm_spec::manifest::{Check, Program, Ready, param_variable};
use swarm_spec::template::{Template, Values};
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

/// The time from one check of readiness to the next, and how long one of HTTP may take.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Runs a program for every job, under a [`Guard`].
///
/// The environment of its processes has `SWARM_JOB`, `SWARM_TOKEN`, `SWARM_WORKER`, `SWARM_SESSION`,
/// and `SWARM_PARAM_NAME` for every param; of the worker's own it has what [`Guard`] passes on to every
/// job, and what the program names. Standard input is empty; output goes to the worker's log,
/// line by line, after the job's name. A job's name may begin with a dash, so `--name={job}` is
/// safer than `{job}` alone.
pub(crate) struct ProgramRunner {
    program: Program,
    worker: String,
    stop_timeout: Duration,
    guard: Guard,
    told: Events,
}

/// A program with everything filled in for one job.
struct Filled {
    start: Start,
    check: Option<FilledCheck>,
}

enum FilledCheck {
    Exec(Vec<String>),
    Http(String),
    Line(Arc<Notify>),
}

impl ProgramRunner {
    /// Runs `program` for the jobs of `worker`. To stop a job, SIGTERM is sent, and SIGKILL after
    /// `stop_timeout`.
    pub(crate) fn new(
        program: Program,
        worker: &str,
        stop_timeout: Duration,
        guard: Guard,
    ) -> Self {
        Self { program, worker: worker.to_owned(), stop_timeout, guard, told: Events::default() }
    }

    /// The same, and `told` learns which jobs are ready.
    pub(crate) fn telling(self, told: Events) -> Self {
        Self { told, ..self }
    }

    fn filled(&self, job: &Job) -> Result<Filled, String> {
        let Program { command, working_dir, env, inherit_env, secret_params, ready, restart: _ } =
            &self.program;
        let values = Values {
            job: job.name.as_str(),
            token: job.token.0,
            worker: &self.worker,
            params: &job.params,
        };
        let fill = |template: &Template| template.fill(&values).map_err(|it| it.to_string());
        let all = |words: &[Template]| words.iter().map(fill).collect::<Result<Vec<_>, _>>();
        let (mut check, mut line) = (None, None);
        if let Some(ready) = ready {
            check = Some(match &ready.check {
                Check::Exec(words) => FilledCheck::Exec(all(words)?),
                Check::Http(url) => FilledCheck::Http(fill(url)?),
                Check::Line(text) => {
                    let seen = Arc::<Notify>::default();
                    line = Some(AwaitedLine { text: fill(text)?, seen: Arc::clone(&seen) });
                    FilledCheck::Line(seen)
                }
            });
        }
        // Secrets stay in the environment: arguments of a program can be read by others.
        let mut params = BTreeMap::clone(&job.params);
        for name in secret_params {
            params.insert(name.clone(), secret(name)?);
        }
        let mut variables = params_as_variables(&params);
        let values = Values { params: &params, ..values };
        for (name, value) in env {
            let value = value.fill(&values).map_err(|it| it.to_string())?;
            variables.insert(name.clone(), value);
        }
        let start = Start {
            job: job.name.clone(),
            token: job.token,
            argv: all(command)?,
            env: variables,
            inherit: inherit_env.clone(),
            dir: working_dir.clone(),
            grace: self.stop_timeout,
            line,
        };
        Ok(Filled { start, check })
    }

    /// Returns, with a sentence, if the job is not ready in time.
    async fn watch_readiness(&self, job: &Job, check: Option<FilledCheck>) -> String {
        let (Some(check), Some(Ready { timeout: limit, .. })) = (check, &self.program.ready) else {
            return std::future::pending().await;
        };
        let (since, mut last) = (Instant::now(), None);
        if timeout(*limit, self.until_ready(job, &check, &mut last)).await.is_ok() {
            let after_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
            tracing::info!(job = %job.name, after_ms, "ready");
            self.told.tell(Event::Ready { job: job.name.to_string() });
            return std::future::pending().await;
        }
        let last = last.map(|reason| format!(": {reason}")).unwrap_or_default();
        format!("was not ready within {limit:?}{last}")
    }

    /// Waits until the check passes; the reason why it last failed is in `last`.
    async fn until_ready(&self, job: &Job, check: &FilledCheck, last: &mut Option<String>) {
        let mut ticks = interval(CHECK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let passed = match check {
                FilledCheck::Line(seen) => {
                    *last = Some("no line of its output had the text".to_owned());
                    return seen.notified().await;
                }
                FilledCheck::Exec(argv) => {
                    ticks.tick().await;
                    match self.guard.probe(&job.name, argv.clone()).await {
                        Ok(end) if end.is_success() => Ok(()),
                        Ok(end) => Err(format!("{} {end}", argv[0])),
                        Err(reason) => Err(reason),
                    }
                }
                FilledCheck::Http(url) => {
                    ticks.tick().await;
                    let answer = runner::fetch(url, CHECK_INTERVAL).await;
                    answer.map(|_| ()).map_err(|error| error.to_string())
                }
            };
            match passed {
                Ok(()) => return,
                Err(reason) => *last = Some(reason),
            }
        }
    }
}

#[async_trait]
impl Runner for ProgramRunner {
    async fn run(&self, job: &Job, stop: CancellationToken) -> Outcome {
        let Filled { start, check } = match self.filled(job) {
            Ok(filled) => filled,
            Err(reason) => return Outcome::Failed(reason),
        };
        let halt = stop.child_token();
        // It must run to its end, whatever comes first.
        let mut run = std::pin::pin!(self.guard.run(start, halt.clone()));
        let mut late = None;
        let end = tokio::select! {
            // The job is started before it is first checked.
            biased;
            end = &mut run => end,
            reason = self.watch_readiness(job, check) => {
                halt.cancel();
                late = Some(reason);
                run.await
            }
        };
        let mut is_outside = false;
        let end = end.map(|Ended { end, output, was_stopped }| {
            job.keep_output(output);
            is_outside = was_stopped;
            end
        });
        if stop.is_cancelled() {
            match &end {
                Ok(end) => tracing::info!(job = %job.name, "stopped: it {end}"),
                Err(reason) => tracing::warn!(job = %job.name, "stopped: {reason}"),
            }
        }
        match (late, end) {
            (_, Ok(_)) if is_outside => Outcome::Stopped,
            (Some(reason), _) | (None, Err(reason)) => Outcome::Failed(reason),
            (None, Ok(end)) if end.is_success() => Outcome::Ended,
            (None, Ok(end)) => Outcome::Failed(end.to_string()),
        }
    }

    fn permit_until(&self, boottime_ns: u64) {
        self.guard.permit_until(boottime_ns);
    }

    fn run_log_keeper(&self) -> RunLogKeeper {
        RunLogKeeper::Runner
    }
}

fn params_as_variables(params: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    params.iter().map(|(name, value)| (param_variable(name), value.clone())).collect()
}

/// The value of a param that the worker was started with, and the error as a sentence without it.
fn secret(name: &str) -> Result<String, String> {
    let variable = param_variable(name);
    let value = env::var_os(&variable).ok_or_else(|| {
        format!(
            "the worker has no variable {variable}, in which the param `{name}` of \
             spec.worker.runner.paramsFrom reaches it; set it in the environment of the worker"
        )
    })?;
    value.into_string().map_err(|_| format!("the variable {variable} is not UTF-8 text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn params_become_variables() {
        let params = [("source-url".into(), "rtsp://a b".into())].into_iter().collect();
        let expected = BTreeMap::from([("SWARM_PARAM_SOURCE_URL".into(), "rtsp://a b".into())]);
        assert_eq!(params_as_variables(&params), expected);
    }
}
