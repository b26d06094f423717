//! The jobs of a worker, and the runner behind them.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use swarm_adapters_host::guard::{Guard, GuardCommand, Identity, OutputFormat};
use swarm_adapters_host::metrics::PingMetrics;
use swarm_adapters_host::runlog::RunLog;
use swarm_adapters_host::runner::{Event, JobSpec, Log, Ping, Restarts, Runner, Supervisor};
use swarm_core::{JobName, Params, Token};
use swarm_spec::manifest::{self, Program};

use crate::Failure;
use crate::args::{LogFormat, RunArgs};
use crate::program::ProgramRunner;

/// A view grants no tokens.
const TOKEN: Token = Token(0);

/// The runner and logs for all jobs of a process, shared by all its sessions.
pub(crate) struct Tools {
    worker: String,
    kind: Kind,
    run_log: Option<PathBuf>,
    format: OutputFormat,
    restarts: Restarts,
}

/// How the jobs are run.
enum Kind {
    /// One runner for all sessions.
    Shared(Arc<dyn Runner>),
    /// A program, whose processes are marked with their session.
    Program { program: Box<Program>, stop_timeout: Duration },
}

/// The running jobs, and their guard.
pub(crate) struct Jobs {
    pub(crate) supervisor: Supervisor,
    guard: Option<Guard>,
}

impl Tools {
    /// The tools of `worker`, whose jobs are run by `runner`, or else as `args` select.
    pub(crate) fn new(
        args: &RunArgs,
        runner: Option<Arc<dyn Runner>>,
        worker: &str,
        registry: &mut Registry,
        restarts: Counter,
    ) -> Result<Self, Failure> {
        let mut restarts = Restarts { counter: restarts, ..Restarts::default() };
        let kind = match (runner, args.runner.runner()?) {
            (Some(runner), _) => Kind::Shared(runner),
            (None, manifest::Runner::Log) => Kind::Shared(Arc::new(Log)),
            (None, manifest::Runner::Ping { interval, timeout }) => {
                let ping = Ping::new(PingMetrics::registered(registry));
                Kind::Shared(Arc::new(ping.every(interval).within(timeout)))
            }
            (None, manifest::Runner::Command(program)) => {
                let manifest::Restart { limit, pause_max } = program.restart;
                (restarts.limit, restarts.pause_max) = (limit, pause_max);
                Kind::Program { program, stop_timeout: args.runner.stop_timeout }
            }
        };
        let format = match args.log_format {
            LogFormat::Text => OutputFormat::Text,
            LogFormat::Json => OutputFormat::Json,
        };
        let (worker, run_log) = (worker.to_owned(), args.run_log.clone());
        Ok(Self { worker, kind, run_log, format, restarts })
    }

    /// The jobs of the worker's session `session`. Every process of a job is marked with it.
    pub(crate) fn jobs(&self, session: &str) -> Result<Jobs, Failure> {
        let open = |path: &PathBuf| RunLog::open(path, &self.worker, session);
        let log = self.run_log.as_ref().map(open).transpose();
        let log = log.map_err(|error| failed("the run log cannot be opened", &error))?;
        let (runner, guard) = match &self.kind {
            Kind::Shared(runner) => (Arc::clone(runner), None),
            Kind::Program { program, stop_timeout } => {
                let (worker, session) = (self.worker.clone(), session.to_owned());
                let (run_log, format) = (self.run_log.clone(), self.format);
                let identity = Identity { worker, session, run_log, format };
                let guard = Guard::new(guard_command(), identity)
                    .map_err(|error| failed("the guard cannot be set up", &error))?;
                let program = Program::clone(program);
                let runner =
                    ProgramRunner::new(program, &self.worker, *stop_timeout, guard.clone());
                (Arc::new(runner) as Arc<dyn Runner>, Some(guard))
            }
        };
        Ok(Jobs { supervisor: Supervisor::new(runner, log, self.restarts.clone()), guard })
    }
}

impl Jobs {
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
