//! The jobs of a worker, and the runner behind them.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::mem;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use swarm_adapters_host::caller;
use swarm_adapters_host::channel::Events;
use swarm_adapters_host::metrics::PingMetrics;
use swarm_adapters_host::runlog::RunLog;
use swarm_core::{JobName, Params, Token};
use swarm_spec::manifest::{self, Program};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::Failure;
use crate::args::{LogFormat, RunArgs};
use crate::guard::{Guard, GuardCommand, Identity, OutputFormat};
use crate::marker;
use crate::program::ProgramRunner;
use crate::runner::{
    Event, Job, JobSpec, Log, Outcome, Ping, Restarter, Restarts, Runner, Supervisor,
};

/// The token of all jobs of a plain worker: a view grants no tokens.
const TOKEN: Token = Token(0);

/// The runner and logs for all jobs of a process, shared by all its sessions.
#[derive(Clone)]
pub(crate) struct Tools {
    worker: String,
    kind: Kind,
    stop_timeout: Duration,
    run_log: Option<PathBuf>,
    format: OutputFormat,
    /// The file that guards lock together with this process.
    lock: Option<PathBuf>,
    /// The files that get the output of jobs, instead of standard error.
    job_logs: Option<PathBuf>,
    restarts: Counter,
    pings: PingMetrics,
    events: Events,
    /// Receives the restarter of each session's jobs.
    restarter: watch::Sender<Option<Restarter>>,
}

/// The selection of the runner.
#[derive(Clone)]
enum Kind {
    /// The program that embeds the worker runs the jobs.
    Own(Arc<dyn Runner>),
    /// The command line selects the runner permanently.
    Fixed(manifest::Runner),
    /// The Swarm selects the runner, and may change it.
    Swarm,
}

/// The running jobs, and their guard.
pub(crate) struct Jobs {
    pub(crate) supervisor: Supervisor,
    guard: Option<Guard>,
    tools: Tools,
    session: String,
    /// The runner in the Swarm, as last received.
    said: Option<String>,
    /// The runner of programs, if the jobs are processes of a program.
    program: Option<Arc<ProgramRunner>>,
    /// The previous runners of programs. Some of their jobs may still run.
    previous: Vec<Weak<ProgramRunner>>,
}

/// A runner that was built from its description.
struct Made {
    runner: Arc<dyn Runner>,
    program: Option<Arc<ProgramRunner>>,
    restarts: Restarts,
}

impl Tools {
    /// Prepares the tools of `worker`. The jobs are run by `runner`, or by the runner that `args`
    /// select. `events` receives the events of the jobs, and `restarter` the handle that restarts
    /// them.
    pub(crate) fn new(
        args: &RunArgs,
        runner: Option<Arc<dyn Runner>>,
        worker: &str,
        registry: &mut Registry,
        restarts: Counter,
        (events, restarter): (Events, watch::Sender<Option<Restarter>>),
    ) -> Result<Self, Failure> {
        let kind = match (runner, args.runner.runner()?) {
            (Some(runner), _) => Kind::Own(runner),
            (None, Some(runner)) => Kind::Fixed(runner),
            (None, None) if !args.session.takes_part() => {
                let sentence = "only a worker with a session learns the Swarm's runner; write \
                                --protocol session as well, or another --runner";
                return Err(Failure::Usage(sentence.to_owned()));
            }
            (None, None) => Kind::Swarm,
        };
        if matches!(kind, Kind::Swarm | Kind::Fixed(manifest::Runner::Command(_))) {
            caller::check_proc().map_err(|error| Failure::Failed(error.to_string()))?;
        }
        // Counters that always stay zero would only raise questions.
        let may_ping = matches!(kind, Kind::Swarm | Kind::Fixed(manifest::Runner::Ping { .. }));
        let pings =
            if may_ping { PingMetrics::registered(registry) } else { PingMetrics::default() };
        let format = match args.log_format {
            LogFormat::Text => OutputFormat::Text,
            LogFormat::Json => OutputFormat::Json,
        };
        let (worker, run_log) = (worker.to_owned(), args.run_log.clone());
        let stop_timeout = args.runner.stop_timeout;
        let lock = args.session.state_dir.as_deref().filter(|_| args.session.is_in_pod());
        let lock = lock.map(marker::lock_path);
        let job_logs = args.job_logs.clone();
        Ok(Self {
            worker,
            kind,
            stop_timeout,
            run_log,
            format,
            lock,
            job_logs,
            restarts,
            pings,
            events,
            restarter,
        })
    }

    /// Sets up the jobs of the worker's session `session`, which marks every process of a job.
    pub(crate) fn jobs(&self, session: &str) -> Result<Jobs, Failure> {
        let open = |path: &PathBuf| RunLog::open(path, &self.worker, session);
        let log = self.run_log.as_ref().map(open).transpose();
        let log = log.map_err(|error| failed("the run log cannot be opened", &error))?;
        let mut guard = None;
        let Made { runner, program, restarts } = match &self.kind {
            Kind::Own(runner) => self.plain(Arc::clone(runner)),
            Kind::Fixed(runner) => self.made(runner, session, &mut guard)?,
            Kind::Swarm => self.plain(Arc::new(NotSaid)),
        };
        let supervisor = Supervisor::with_events(runner, log, restarts, self.events.clone());
        self.restarter.send_replace(Some(supervisor.restarter()));
        let (tools, session) = (self.clone(), session.to_owned());
        Ok(Jobs { supervisor, guard, tools, session, said: None, program, previous: Vec::new() })
    }

    /// Builds the runner that `runner` describes. Programs run under the `guard` of the session.
    fn made(
        &self,
        runner: &manifest::Runner,
        session: &str,
        guard: &mut Option<Guard>,
    ) -> Result<Made, Failure> {
        match runner {
            manifest::Runner::Log => Ok(self.plain(Arc::new(Log))),
            manifest::Runner::Ping { interval, timeout } => {
                let ping = Ping::new(self.pings.clone()).every(*interval).within(*timeout);
                Ok(self.plain(Arc::new(ping)))
            }
            manifest::Runner::Command(program) => {
                let guard = match guard {
                    Some(guard) => guard,
                    none => none.insert(self.guard(session)?),
                };
                let program = Program::clone(program);
                let restarts = self.restarts(program.restart);
                let (worker, stop_timeout) = (&self.worker, self.stop_timeout);
                let runner = ProgramRunner::new(program, worker, stop_timeout, guard.clone());
                let program = Arc::new(runner.with_events(self.events.clone()));
                Ok(Made {
                    runner: Arc::clone(&program) as Arc<_>,
                    program: Some(program),
                    restarts,
                })
            }
        }
    }

    /// Wraps a runner that starts no program.
    fn plain(&self, runner: Arc<dyn Runner>) -> Made {
        Made { runner, program: None, restarts: self.restarts(manifest::Restart::default()) }
    }

    fn guard(&self, session: &str) -> Result<Guard, Failure> {
        let (worker, session) = (self.worker.clone(), session.to_owned());
        let (run_log, format) = (self.run_log.clone(), self.format);
        let (lock, job_logs) = (self.lock.clone(), self.job_logs.clone());
        let identity = Identity { worker, session, run_log, format, lock, job_logs };
        Guard::new(guard_command(), identity, self.events.clone())
            .map_err(|error| failed("the guard cannot be set up", &error))
    }

    fn restarts(&self, of: manifest::Restart) -> Restarts {
        let manifest::Restart { limit, pause_max } = of;
        Restarts { limit, pause_max, counter: self.restarts.clone() }
    }
}

/// A runner for a Swarm that names none: each job fails with advice on the setting to write.
struct NotSaid;

#[async_trait]
impl Runner for NotSaid {
    async fn run(&self, _: &Job, _: CancellationToken) -> Outcome {
        let sentence = "the Swarm does not say how jobs are run; write spec.worker.runner there, or \
                        start the worker with another --runner than swarm";
        Outcome::Failed(sentence.to_owned())
    }
}

impl Jobs {
    /// Applies the runner in the Swarm. If another program has to run, the jobs restart in turn.
    /// Other settings of the same program leave its processes alone. So does a program that still
    /// runs some of the jobs: the edit was undone. An invalid runner changes nothing.
    pub(crate) fn run_as_said(&mut self, said: Option<&str>) {
        let Some(said) = said.filter(|_| matches!(self.tools.kind, Kind::Swarm)) else { return };
        if self.said.as_deref() == Some(said) {
            return;
        }
        self.said = Some(said.to_owned());
        let parsed = manifest::Runner::parse(said);
        if let (Ok(manifest::Runner::Command(next)), Some(program)) = (&parsed, &self.program)
            && program.adjust(next)
        {
            tracing::info!(runner = said, "jobs continue with the new settings of the Swarm");
            self.supervisor.restart_by(self.tools.restarts(next.restart));
            return;
        }
        let made = parsed.and_then(|runner| {
            if let Some(made) = self.still_running(&runner) {
                return Ok(made);
            }
            let made = self.tools.made(&runner, &self.session, &mut self.guard);
            made.map_err(|error| error.to_string())
        });
        match made {
            Ok(Made { runner, program, restarts }) => {
                tracing::info!(runner = said, "jobs are run by the runner in the Swarm");
                let former = mem::replace(&mut self.program, program);
                self.previous.retain(|it| it.strong_count() != 0);
                self.previous.extend(former.as_ref().map(Arc::downgrade));
                self.supervisor.run_by(runner, restarts);
            }
            Err(reason) => {
                tracing::error!(
                    "spec.worker.runner of the Swarm: {reason}; jobs keep the previous runner"
                );
            }
        }
    }

    /// Returns the previous runner that starts the same processes as `next`, with the settings of
    /// `next`.
    fn still_running(&self, next: &manifest::Runner) -> Option<Made> {
        let manifest::Runner::Command(next) = next else { return None };
        let programs = self.previous.iter().filter_map(Weak::upgrade);
        let program = programs.into_iter().find(|program| program.adjust(next))?;
        let (runner, restarts) =
            (Arc::clone(&program) as Arc<_>, self.tools.restarts(next.restart));
        Some(Made { runner, program: Some(program), restarts })
    }

    pub(crate) fn start(&self, job: &JobName) {
        let (name, params) = (job.clone(), Params::default());
        self.supervisor.start(JobSpec { name, token: TOKEN, params, run_once: false });
    }

    /// Stops the running `jobs` concurrently, and returns when all have ended.
    pub(crate) async fn stop(&mut self, jobs: impl IntoIterator<Item = &JobName>) {
        let mut left: BTreeSet<_> = jobs.into_iter().collect();
        for job in &left {
            self.supervisor.stop(job);
        }
        while !left.is_empty() {
            for Event::Joined(job) | Event::Finished(job) in self.supervisor.next_events().await {
                left.remove(&job);
            }
        }
    }

    /// Ends the guard, if there is one.
    pub(crate) async fn end(&self) {
        if let Some(guard) = &self.guard {
            guard.end().await;
        }
    }
}

fn failed(what: &str, error: &std::io::Error) -> Failure {
    Failure::Failed(format!("{what}: {error}"))
}

/// The command that starts a guard: this very program, even if its file was replaced in the
/// meantime. The arguments are the program's own up to the word `run`, since a program that embeds
/// the worker may have arguments before it.
pub(crate) fn guard_command() -> GuardCommand {
    let before = env::args_os().skip(1).take_while(|word| word != "run");
    let arguments = before.chain([OsString::from("guard")]).collect();
    GuardCommand { program: "/proc/self/exe".into(), arguments }
}
