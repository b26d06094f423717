//! The jobs of a worker, and the runner behind them.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
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
use tokio_util::sync::CancellationToken;

use crate::Failure;
use crate::args::{LogFormat, RunArgs};
use crate::guard::{Guard, GuardCommand, Identity, OutputFormat};
use crate::marker;
use crate::program::ProgramRunner;
use crate::runner::{Event, Job, JobSpec, Log, Outcome, Ping, Restarts, Runner, Supervisor};

/// A view grants no tokens.
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
    restarts: Counter,
    pings: PingMetrics,
    told: Events,
}

/// What runs the jobs.
#[derive(Clone)]
enum Kind {
    /// The program that the worker is a part of.
    Own(Arc<dyn Runner>),
    /// One runner for good.
    Fixed(manifest::Runner),
    /// What the Swarm says, also when that changes.
    Swarm,
}

/// The running jobs, and their guard.
pub(crate) struct Jobs {
    pub(crate) supervisor: Supervisor,
    guard: Option<Guard>,
    tools: Tools,
    session: String,
    /// What the Swarm last said that runs them.
    said: Option<String>,
    /// The program that runs them, if one does.
    program: Option<Arc<ProgramRunner>>,
}

/// A runner, made from its description.
struct Made {
    runner: Arc<dyn Runner>,
    program: Option<Arc<ProgramRunner>>,
    restarts: Restarts,
}

impl Tools {
    /// The tools of `worker`, whose jobs are run by `runner`, or else as `args` select. `told` learns
    /// what happens to the jobs.
    pub(crate) fn new(
        args: &RunArgs,
        runner: Option<Arc<dyn Runner>>,
        worker: &str,
        registry: &mut Registry,
        restarts: Counter,
        told: Events,
    ) -> Result<Self, Failure> {
        let kind = match (runner, args.runner.runner()?) {
            (Some(runner), _) => Kind::Own(runner),
            (None, Some(runner)) => Kind::Fixed(runner),
            (None, None) if !args.session.takes_part() => {
                let sentence = "only workers of sessions are told the Swarm's runner; write \
                                --protocol session as well, or another --runner";
                return Err(Failure::Usage(sentence.to_owned()));
            }
            (None, None) => Kind::Swarm,
        };
        if matches!(kind, Kind::Swarm | Kind::Fixed(manifest::Runner::Command(_))) {
            caller::check_proc().map_err(|error| Failure::Failed(error.to_string()))?;
        }
        // Counters that nothing ever counts would only raise questions.
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
        Ok(Self { worker, kind, stop_timeout, run_log, format, lock, restarts, pings, told })
    }

    /// The jobs of the worker's session `session`. Every process of a job is marked with it.
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
        let supervisor = Supervisor::telling(runner, log, restarts, self.told.clone());
        let (tools, session) = (self.clone(), session.to_owned());
        Ok(Jobs { supervisor, guard, tools, session, said: None, program })
    }

    /// What runs jobs as `runner` says. Programs run under the `guard` of the session.
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
                let program = Arc::new(runner.telling(self.told.clone()));
                Ok(Made {
                    runner: Arc::clone(&program) as Arc<_>,
                    program: Some(program),
                    restarts,
                })
            }
        }
    }

    /// A runner that is no program.
    fn plain(&self, runner: Arc<dyn Runner>) -> Made {
        Made { runner, program: None, restarts: self.restarts(manifest::Restart::default()) }
    }

    fn guard(&self, session: &str) -> Result<Guard, Failure> {
        let (worker, session) = (self.worker.clone(), session.to_owned());
        let (run_log, format) = (self.run_log.clone(), self.format);
        let lock = self.lock.clone();
        let identity = Identity { worker, session, run_log, format, lock };
        Guard::new(guard_command(), identity, self.told.clone())
            .map_err(|error| failed("the guard cannot be set up", &error))
    }

    fn restarts(&self, of: manifest::Restart) -> Restarts {
        let manifest::Restart { limit, pause_max } = of;
        Restarts { limit, pause_max, counter: self.restarts.clone() }
    }
}

/// Runs jobs as long as nobody has said how: each fails with what to write.
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
    /// Takes note of what the Swarm says that runs the jobs. If another process is to run, every job is
    /// stopped and begins again. Other settings of the same program touch no process. What cannot be
    /// understood changes nothing.
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
            tracing::info!(runner = said, "jobs run on, with settings as the Swarm says");
            self.supervisor.restart_by(self.tools.restarts(next.restart));
            return;
        }
        let made = parsed.and_then(|runner| {
            let made = self.tools.made(&runner, &self.session, &mut self.guard);
            made.map_err(|error| error.to_string())
        });
        match made {
            Ok(Made { runner, program, restarts }) => {
                tracing::info!(runner = said, "jobs are run as the Swarm says");
                self.program = program;
                self.supervisor.run_by(runner, restarts);
            }
            Err(reason) => {
                tracing::error!("spec.worker.runner of the Swarm: {reason}; jobs run as before");
            }
        }
    }

    pub(crate) fn start(&self, job: &JobName) {
        let (name, params) = (job.clone(), Params::default());
        self.supervisor.start(JobSpec { name, token: TOKEN, params, run_once: false });
    }

    /// Stops `jobs`, all of which run, concurrently, and returns when all have ended.
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

/// This very program, even if its file was replaced in the meantime, with its own arguments up to the
/// word `run`: a program that embeds the worker may have arguments before it.
pub(crate) fn guard_command() -> GuardCommand {
    let before = env::args_os().skip(1).take_while(|word| word != "run");
    let arguments = before.chain([OsString::from("guard")]).collect();
    GuardCommand { program: "/proc/self/exe".into(), arguments }
}
