//! A runner whose jobs are processes of a program.

mod aside;
mod files;
mod job_files;
mod liveness;
mod secrets;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use swarm_adapters_host::channel::{Event, Events};
use swarm_spec::manifest::{self, Alive, Check, Detail, Probe, Program, Ready, param_variable};
use swarm_spec::template::{Template, Values};
use tokio::sync::{Notify, watch};
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use crate::guard::{AwaitedLine, End, Ended, Guard, Limits, Start, Stop, StopWay};
use crate::runner::{self, Job, Outcome, Readiness, RunLogKeeper, Runner};

pub(crate) use job_files::JobFiles;

/// The variable of a job with the directory of its files.
const FILES: &str = "SWARM_FILES";

/// The interval of checks of readiness, which is also the timeout of an HTTP check.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Runs a program for every job, under a [`Guard`].
///
/// The environment of its processes has `SWARM_JOB`, `SWARM_TOKEN`, `SWARM_WORKER`,
/// `SWARM_SESSION`, `SWARM_PARAM_NAME` for every param, and `SWARM_FILES` if it has files. Of the
/// worker's own environment it has the variables that [`Guard`] passes on to every job, and the
/// variables that the program lists.
///
/// Standard input is empty. Output goes to the worker's log line by line, after the job's name. A
/// job's name may begin with a dash, so `--name={job}` is safer than `{job}` alone.
pub(crate) struct ProgramRunner {
    program: Program,
    /// The check of readiness, which may change while jobs run.
    ready: watch::Sender<Option<Ready>>,
    /// The check of liveness, which may change while jobs run.
    alive: watch::Sender<Option<Alive>>,
    /// The way to stop jobs, which may change while they run.
    stop: watch::Sender<manifest::Stop>,
    /// The exit codes of a success, which may change while jobs run.
    success_codes: watch::Sender<BTreeSet<i32>>,
    worker: String,
    stop_timeout: Duration,
    guard: Guard,
    events: Events,
    files: Arc<JobFiles>,
}

/// A program with all placeholders replaced for one job.
struct Filled {
    start: Start,
    /// The check of the run, if readiness is checked.
    check: Option<RunCheck>,
    /// The directory with the files of the run.
    files: Option<String>,
}

/// The part of a run's check that is fixed when the run begins.
struct RunCheck {
    /// Notified when the awaited line is printed; `None` if no line was awaited at the start.
    line: Option<Arc<Notify>>,
}

enum FilledProbe {
    Exec(Vec<String>),
    Http(String),
}

impl ProgramRunner {
    /// Creates a runner of `program` for the jobs of `worker`. A job that stops is killed after
    /// `stop_timeout`, or earlier if the program says so.
    pub(crate) fn new(
        program: Program,
        worker: &str,
        stop_timeout: Duration,
        guard: Guard,
    ) -> Self {
        let ready = watch::Sender::new(program.ready.clone());
        let alive = watch::Sender::new(program.alive.clone());
        let stop = watch::Sender::new(program.stop.clone());
        let success_codes = watch::Sender::new(program.restart.success_codes.clone());
        let (worker, events, files) = (worker.to_owned(), Events::default(), Arc::default());
        Self {
            program,
            ready,
            alive,
            stop,
            success_codes,
            worker,
            stop_timeout,
            guard,
            events,
            files,
        }
    }

    /// Makes the files of jobs in `files`.
    pub(crate) fn with_files(self, files: Arc<JobFiles>) -> Self {
        Self { files, ..self }
    }

    /// Sends the events of jobs that are ready to `events`.
    pub(crate) fn with_events(self, events: Events) -> Self {
        Self { events, ..self }
    }

    /// Takes over the settings of `next` that start no process, also for running jobs. Returns
    /// whether the programs differ in no other setting.
    ///
    /// A run is not checked again if its check has passed or if it began without a check: a check
    /// that fails would end it.
    pub(crate) fn adjust(&self, next: &Program) -> bool {
        if !self.program.starts_as(next) {
            return false;
        }
        replace(&self.ready, &next.ready);
        replace(&self.alive, &next.alive);
        replace(&self.stop, &next.stop);
        replace(&self.success_codes, &next.restart.success_codes);
        true
    }

    /// Whether the end of a run is a success. Any other code than 0 is in the log.
    fn is_success(&self, job: &Job, end: End) -> bool {
        let codes = self.success_codes.borrow();
        let is_success = matches!(end, End::Code(code) if codes.contains(&code));
        if is_success && !end.is_success() {
            tracing::info!(job = %job.name, "{end}, which restart.successCodes has");
        }
        is_success
    }

    /// Returns the time that a job has to stop now. The handover waits no longer.
    fn grace(&self) -> Duration {
        let timeout = self.stop.borrow().timeout;
        timeout.map_or(self.stop_timeout, |timeout| timeout.min(self.stop_timeout))
    }

    /// Returns how a job is stopped now.
    fn how_to_stop(&self, job: &Job) -> Stop {
        let manifest::Stop { signal, to, command, timeout: _ } = self.stop.borrow().clone();
        let filled = self.files_of(job).and_then(|files| {
            let files = files.unwrap_or_default();
            command.iter().map(|word| self.fill(job, &files, word)).collect()
        });
        let command = filled.unwrap_or_else(|reason| {
            tracing::warn!(job = %job.name, "stop.command: {reason}; the job gets its signal instead");
            Vec::new()
        });
        Stop { grace: self.grace(), way: StopWay { signal, to, command } }
    }

    /// Fills in a check that sends requests or runs a program; `None` for a check of the output.
    fn asks(&self, job: &Job, check: &Check) -> Result<Option<FilledProbe>, String> {
        match check {
            Check::Probe(probe) => self.filled_probe(job, probe).map(Some),
            Check::Line(_) => Ok(None),
        }
    }

    fn filled_probe(&self, job: &Job, probe: &Probe) -> Result<FilledProbe, String> {
        let files = self.files_of(job)?.unwrap_or_default();
        let fill = |text: &Template| self.fill(job, &files, text);
        Ok(match probe {
            Probe::Exec(words) => {
                FilledProbe::Exec(words.iter().map(fill).collect::<Result<_, _>>()?)
            }
            Probe::Http(url) => FilledProbe::Http(fill(url)?),
        })
    }

    /// Runs a program next to the job, or sends a request that takes `at_most` this time. The error
    /// is a part of a sentence.
    async fn ask(&self, job: &Job, probe: FilledProbe, at_most: Duration) -> Result<(), String> {
        match probe {
            FilledProbe::Exec(argv) => {
                let program = argv.first().cloned().unwrap_or_default();
                match self.guard.probe(&job.name, argv).await {
                    Ok(end) if end.is_success() => Ok(()),
                    Ok(end) => Err(format!("{program} {end}")),
                    Err(reason) => Err(reason),
                }
            }
            FilledProbe::Http(url) => {
                let answer = runner::fetch(&url, at_most).await;
                answer.map(|_| ()).map_err(|error| error.to_string())
            }
        }
    }

    /// Fills in the placeholders of a text; `files` is the directory of the job's files.
    fn fill(&self, job: &Job, files: &str, text: &Template) -> Result<String, String> {
        text.fill(&self.values(job, files)).map_err(|it| it.to_string())
    }

    fn values<'a>(&'a self, job: &'a Job, files: &'a str) -> Values<'a> {
        let (name, worker) = (job.name.as_str(), self.worker.as_str());
        Values { job: name, token: job.token.0, worker, params: &job.params, files }
    }

    /// Returns the directory of the job's files, if it has files.
    fn files_of(&self, job: &Job) -> Result<Option<String>, String> {
        let has_files = !self.program.files.is_empty();
        has_files.then(|| self.files.path_of(&job.name, job.token)).transpose()
    }

    /// Reads the secrets of a job, fills in its placeholders, and makes its files.
    async fn prepared(&self, job: &Job) -> Result<Filled, String> {
        // Secrets are in no argument: other users can read the arguments of a program.
        let (mut params, name) = (BTreeMap::clone(&job.params), job.name.clone());
        let secrets = self.program.secret_params.clone();
        let has_secrets = !secrets.is_empty();
        if has_secrets {
            let read = move || secrets::add(&mut params, &secrets, name.as_str()).map(|()| params);
            params = spawn_blocking(read).await.map_err(|error| error.to_string())??;
        }
        let filled = self.filled(job, &params)?;
        let Some(path) = filled.files.clone() else { return Ok(filled) };
        let (templates, dirs) = (self.program.files.clone(), Arc::clone(&self.files));
        let (worker, name, token) = (self.worker.clone(), job.name.clone(), job.token.0);
        let detail = if has_secrets { Detail::Hidden } else { Detail::Shown };
        let make = move || {
            let (job, worker, files) = (name.as_str(), worker.as_str(), path.as_str());
            let values = Values { job, token, worker, params: &params, files };
            dirs.write(&path, &templates.render(&values, detail)?)
        };
        spawn_blocking(make).await.map_err(|error| error.to_string())??;
        Ok(filled)
    }

    /// Fills in the placeholders of a job. `params` has its secrets, too.
    fn filled(&self, job: &Job, params: &BTreeMap<String, String>) -> Result<Filled, String> {
        let Program { command, working_dir, env, inherit_env, nice, open_files, .. } =
            &self.program;
        let files = self.files_of(job)?;
        let place = files.as_deref().unwrap_or_default();
        let fill = |template: &Template| self.fill(job, place, template);
        let ready = self.ready.borrow().clone();
        let (mut check, mut line) = (None, None);
        if let Some(ready) = ready {
            let mut seen = None;
            if let Check::Line(text) = &ready.check {
                let notify = seen.insert(Arc::<Notify>::default());
                line = Some(AwaitedLine { text: fill(text)?, seen: Arc::clone(notify) });
            } else {
                // A missing value is reported at once.
                self.asks(job, &ready.check)?;
            }
            check = Some(RunCheck { line: seen });
        }
        let mut variables = params_as_variables(params);
        variables.extend(files.clone().map(|path| (FILES.to_owned(), path)));
        let values = Values { params, ..self.values(job, place) };
        for (name, value) in env {
            let value = value.fill(&values).map_err(|it| it.to_string())?;
            variables.insert(name.clone(), value);
        }
        let start = Start {
            job: job.name.clone(),
            token: job.token,
            argv: command.iter().map(fill).collect::<Result<_, _>>()?,
            env: variables,
            inherit: inherit_env.clone(),
            dir: working_dir.clone(),
            grace: self.grace(),
            line,
            limits: Limits { nice: *nice, open_files: *open_files },
        };
        Ok(Filled { start, check, files })
    }

    /// Returns only if the job is not ready in time or stalled, with a sentence.
    async fn watch(&self, job: &Job, check: Option<RunCheck>) -> String {
        let since = tokio::time::Instant::now();
        if let Err(reason) = self.watch_readiness(job, check).await {
            return reason;
        }
        let reason = self.watch_liveness(job, since).await;
        tracing::warn!(job = %job.name, "{reason}: stopping it");
        job.set_readiness(Readiness::Stalled);
        self.events.emit(Event::Stalled { job: job.name.to_string(), reason: reason.clone() });
        reason
    }

    /// Returns when the job is ready, or needs no check. The current settings apply, and the time
    /// counts from the start of the run.
    ///
    /// # Errors
    ///
    /// A sentence if the job is not ready in time.
    async fn watch_readiness(&self, job: &Job, check: Option<RunCheck>) -> Result<(), String> {
        let Some(RunCheck { line }) = check else { return Ok(()) };
        job.set_readiness(Readiness::Awaited);
        let mut settings = self.ready.subscribe();
        let since = Instant::now();
        loop {
            let ready = settings.borrow_and_update().clone();
            // The search for a line covers the output from the start of the run, or does not
            // happen.
            let can_check =
                |ready: &Ready| line.is_some() || !matches!(ready.check, Check::Line(_));
            let Some(Ready { check, timeout: limit }) = ready.filter(can_check) else {
                job.set_readiness(Readiness::Unchecked);
                return Ok(());
            };
            let mut last = None;
            let left = limit.saturating_sub(since.elapsed());
            let passed = tokio::select! {
                passed = timeout(left, self.until_ready(job, &check, line.as_deref(), &mut last)) => {
                    passed.is_ok()
                }
                Ok(()) = settings.changed() => continue,
            };
            if passed {
                let after_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
                tracing::info!(job = %job.name, after_ms, "ready");
                job.set_readiness(Readiness::Ready);
                self.events.emit(Event::Ready { job: job.name.to_string() });
                return Ok(());
            }
            let last = last.map(|reason| format!(": {reason}")).unwrap_or_default();
            return Err(format!("was not ready within {limit:?}{last}"));
        }
    }

    /// Waits until the check passes. `last` has the reason of the last failure.
    async fn until_ready(
        &self,
        job: &Job,
        check: &Check,
        line: Option<&Notify>,
        last: &mut Option<String>,
    ) {
        let mut ticks = interval(CHECK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let passed = match (self.asks(job, check), line) {
                (Ok(None), Some(seen)) => {
                    *last = Some("no line of its output had the text".to_owned());
                    return seen.notified().await;
                }
                (Ok(None), None) => return std::future::pending().await,
                (Ok(Some(probe)), _) => {
                    ticks.tick().await;
                    self.ask(job, probe, CHECK_INTERVAL).await
                }
                (Err(reason), _) => {
                    *last = Some(reason);
                    return std::future::pending().await;
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
        let Filled { start, check, files } = match self.prepared(job).await {
            Ok(filled) => filled,
            Err(reason) => return Outcome::Failed(reason),
        };
        let (name, checked) = (job.name.to_string(), check.is_some());
        self.events.emit(Event::Starting { job: name, checked });
        let halt = stop.child_token();
        // The run must complete in any case.
        let mut run = std::pin::pin!(self.guard.run(start, halt.clone(), || self.how_to_stop(job)));
        let mut late = None;
        let end = tokio::select! {
            // The job is started before its first check.
            biased;
            end = &mut run => end,
            reason = self.watch(job, check) => {
                halt.cancel();
                late = Some(reason);
                run.await
            }
        };
        if let Some(path) = files {
            // None of its processes is left.
            let _ = spawn_blocking(move || job_files::remove(&path)).await;
        }
        let (mut is_outside, mut starved) = (false, None);
        let end = end.map(|Ended { end, output, was_stopped, out_of_memory, left }| {
            job.keep_output(output);
            job.keep_left(left);
            (is_outside, starved) = (was_stopped, out_of_memory);
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
            (None, Ok(end)) if self.is_success(job, end) => Outcome::Ended,
            (None, Ok(end)) => Outcome::Failed(failure(end, starved.as_deref())),
        }
    }

    fn permit_until(&self, boottime_ns: u64) {
        self.guard.permit_until(boottime_ns);
    }

    fn run_log_keeper(&self) -> RunLogKeeper {
        RunLogKeeper::Runner
    }
}

/// Sends a setting to its receivers if it changed.
fn replace<T: Clone + PartialEq>(sender: &watch::Sender<T>, next: &T) {
    sender.send_if_modified(|current| {
        let differs = current != next;
        current.clone_from(next);
        differs
    });
}

/// Returns the sentence about a failed job. It names the lack of memory if that was the cause.
fn failure(end: End, out_of_memory: Option<&str>) -> String {
    match (end, out_of_memory) {
        (end, None) => end.to_string(),
        (End::Signal(_) | End::Unknown, Some(why)) => format!("was killed, {why}"),
        (End::Code(_), Some(why)) => format!("{end} after one of its processes was killed, {why}"),
    }
}

fn params_as_variables(params: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    params.iter().map(|(name, value)| (param_variable(name), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_was_killed_for_memory_says_so() {
        let why = Some("out of memory: limit 64Mi");
        assert_eq!(failure(End::Signal(9), why), "was killed, out of memory: limit 64Mi");
        let child = failure(End::Code(137), why);
        assert!(child.starts_with("ended with exit code 137 after "), "{child}");
        assert!(child.ends_with(" was killed, out of memory: limit 64Mi"), "{child}");
        assert_eq!(failure(End::Signal(9), None), "was ended by signal 9 (SIGKILL)");
    }

    #[test]
    fn params_become_variables() {
        let params = [("source-url".into(), "rtsp://a b".into())].into_iter().collect();
        let expected = BTreeMap::from([("SWARM_PARAM_SOURCE_URL".into(), "rtsp://a b".into())]);
        assert_eq!(params_as_variables(&params), expected);
    }
}
