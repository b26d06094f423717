//! The jobs of a worker, and the runner behind them.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::ffi::OsString;
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
use swarm_core::session::WorkerView;
use swarm_core::{JobName, Params, RunnerName, Token};
use swarm_spec::manifest::{self, Program};
use swarm_spec::spec::runner_place;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::Failure;
use crate::args::{LogFormat, RunArgs};
use crate::guard::{Guard, GuardCommand, Identity, OutputFormat};
use crate::marker;
use crate::program::{JobFiles, ProgramRunner};
use crate::runner::{
    Event, Job, JobSpec, Log, Outcome, Ping, Restarter, Restarts, Runner, Supervisor, Way, Ways,
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
    /// The directories for the rendered files of jobs.
    files: Arc<JobFiles>,
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
    /// The runners in the Swarm, as last received: of jobs that name none, and by name.
    said: BTreeMap<Option<RunnerName>, Said>,
    /// The ways to run jobs, as the supervisor has them.
    ways: Ways,
    /// The previous runners of programs, by name. Some of their jobs may still run.
    previous: Vec<(Option<RunnerName>, Weak<ProgramRunner>)>,
}

/// A runner in the Swarm.
struct Said {
    /// Its description; `None` if the view has none.
    text: Option<String>,
    made: Made,
}

/// A runner that was built from its description.
struct Made {
    way: Way,
    /// The runner of programs, if the jobs are processes of a program.
    program: Option<Arc<ProgramRunner>>,
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
        let files = Arc::new(JobFiles::open(args.files_root().as_deref(), &worker));
        Ok(Self {
            worker,
            kind,
            stop_timeout,
            run_log,
            format,
            lock,
            job_logs,
            files,
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
        let Made { way, program: _ } = match &self.kind {
            Kind::Own(runner) => self.plain(Arc::clone(runner)),
            Kind::Fixed(runner) => self.made(runner, session, &mut guard)?,
            Kind::Swarm => self.plain(Arc::new(Unusable(NOT_SAID.to_owned()))),
        };
        // Jobs may name runners, but such a worker runs all of them alike until the Swarm says more.
        let ways = Ways::alike(way.runner, way.restarts);
        let supervisor = Supervisor::with_events(ways.clone(), log, self.events.clone());
        self.restarter.send_replace(Some(supervisor.restarter()));
        let (tools, session) = (self.clone(), session.to_owned());
        let (said, previous) = (BTreeMap::new(), Vec::new());
        Ok(Jobs { supervisor, guard, tools, session, said, ways, previous })
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
                let restarts = self.restarts(&program.restart);
                let (worker, stop_timeout) = (&self.worker, self.stop_timeout);
                let runner = ProgramRunner::new(program, worker, stop_timeout, guard.clone());
                let runner = runner.with_events(self.events.clone());
                let program = Arc::new(runner.with_files(Arc::clone(&self.files)));
                Ok(Made::of(program, restarts))
            }
        }
    }

    /// Wraps a runner that starts no program.
    fn plain(&self, runner: Arc<dyn Runner>) -> Made {
        let restarts = self.restarts(&manifest::Restart::default());
        Made { way: Way { runner, restarts }, program: None }
    }

    fn guard(&self, session: &str) -> Result<Guard, Failure> {
        let (worker, session) = (self.worker.clone(), session.to_owned());
        let (run_log, format) = (self.run_log.clone(), self.format);
        let (lock, job_logs) = (self.lock.clone(), self.job_logs.clone());
        let identity = Identity { worker, session, run_log, format, lock, job_logs };
        Guard::new(guard_command(), identity, self.events.clone())
            .map_err(|error| failed("the guard cannot be set up", &error))
    }

    fn restarts(&self, of: &manifest::Restart) -> Restarts {
        let manifest::Restart { limit, pause_max, success_codes: _, success_pause } = *of;
        Restarts { limit, pause_max, success_pause, counter: self.restarts.clone() }
    }
}

impl Made {
    fn of(program: Arc<ProgramRunner>, restarts: Restarts) -> Self {
        let runner = Arc::clone(&program) as Arc<_>;
        Self { way: Way { runner, restarts }, program: Some(program) }
    }
}

/// The failure of jobs in a Swarm that names no runner.
const NOT_SAID: &str = "the Swarm does not say how jobs are run; write spec.worker.runner there, or \
                        start the worker with another --runner than swarm";

/// A runner that cannot be used: each job fails with a sentence.
struct Unusable(String);

#[async_trait]
impl Runner for Unusable {
    async fn run(&self, _: &Job, _: CancellationToken) -> Outcome {
        Outcome::Failed(self.0.clone())
    }
}

impl Jobs {
    /// Applies the runners in the Swarm. If another program has to run, its jobs restart in turn.
    /// Other settings of the same program leave its processes alone. So does a program that still
    /// runs some of the jobs: the edit was undone. An invalid runner changes nothing.
    pub(crate) fn run_as_said(&mut self, view: &WorkerView) {
        if !matches!(self.tools.kind, Kind::Swarm) {
            return;
        }
        if let Some(said) = view.runner.as_deref() {
            self.learn(None, Some(said));
        }
        let named = view.jobs.values().filter_map(|granted| granted.runner.as_ref());
        let named: BTreeSet<_> = named.collect();
        for name in &named {
            let said = view.runners.get(*name).map(String::as_str);
            self.learn(Some(name), said);
        }
        let is_gone = |name: &Option<_>| name.as_ref().is_some_and(|name| !named.contains(name));
        let gone = self.said.extract_if(.., |name, _| is_gone(name));
        let gone: Vec<_> = gone.filter_map(|(name, it)| Some((name, it.made.program?))).collect();
        for (name, program) in gone {
            self.remember(name, &program);
        }
        let mut ways = Ways { unnamed: self.ways.unnamed.clone(), named: BTreeMap::new() };
        for (name, Said { made: Made { way, .. }, .. }) in &self.said {
            match name {
                None => ways.unnamed = way.clone(),
                Some(name) => drop(ways.named.insert(name.clone(), way.clone())),
            }
        }
        if !ways.is_same(&self.ways) {
            self.ways = ways.clone();
            self.supervisor.run_by(ways);
        }
    }

    /// Takes the description of one runner, which may be the same again.
    fn learn(&mut self, name: Option<&RunnerName>, text: Option<&str>) {
        let name = name.cloned();
        if self.said.get(&name).is_some_and(|before| before.text.as_deref() == text) {
            return;
        }
        let before = self.said.remove(&name);
        let place = name
            .as_ref()
            .map_or_else(|| manifest::Runner::PLACE.to_owned(), |it| runner_place(it.as_str()));
        let made = text.ok_or_else(|| "it is missing in the view of this worker".to_owned());
        let made = made.and_then(|text| self.adopted(name.as_ref(), text, before.as_ref()));
        let made = match (made, before) {
            (Ok(made), before) => {
                let former = before.and_then(|it| it.made.program);
                let is_it = |former| {
                    made.program.as_ref().is_some_and(|program| Arc::ptr_eq(program, former))
                };
                if former.as_ref().is_some_and(is_it) {
                    tracing::info!("jobs continue with the new settings of {place}");
                } else {
                    // The description can have passwords in it.
                    tracing::info!("jobs are run as {place} of the Swarm says");
                    if let Some(program) = former {
                        self.remember(name.clone(), &program);
                    }
                }
                made
            }
            (Err(reason), Some(Said { made, .. })) => {
                tracing::error!("{place} of the Swarm: {reason}; jobs keep the previous runner");
                made
            }
            (Err(reason), None) => {
                tracing::error!("{place} of the Swarm: {reason}");
                let reason = format!("{place} cannot be used by this worker: {reason}");
                self.tools.plain(Arc::new(Unusable(reason)))
            }
        };
        self.said.insert(name, Said { text: text.map(str::to_owned), made });
    }

    /// Returns the runner that `text` describes: the runner of `before` or a previous one of the same
    /// name if it starts the same processes, or else a new one.
    fn adopted(
        &mut self,
        name: Option<&RunnerName>,
        text: &str,
        before: Option<&Said>,
    ) -> Result<Made, String> {
        let runner = manifest::Runner::parse(text)?;
        if let manifest::Runner::Command(next) = &runner {
            let programs = before.iter().filter_map(|said| said.made.program.clone());
            let previous = self.previous.iter().filter(|(of, _)| of.as_ref() == name);
            let mut programs = programs.chain(previous.filter_map(|(_, it)| it.upgrade()));
            if let Some(program) = programs.find(|program| program.adjust(next)) {
                return Ok(Made::of(program, self.tools.restarts(&next.restart)));
            }
        }
        let made = self.tools.made(&runner, &self.session, &mut self.guard);
        made.map_err(|error| error.to_string())
    }

    /// Remembers a runner that some jobs may still have.
    fn remember(&mut self, name: Option<RunnerName>, program: &Arc<ProgramRunner>) {
        self.previous.retain(|(_, it)| it.strong_count() != 0);
        self.previous.push((name, Arc::downgrade(program)));
    }

    pub(crate) fn start(&self, job: &JobName) {
        let (name, params) = (job.clone(), Params::default());
        self.supervisor.start(JobSpec {
            name,
            token: TOKEN,
            params,
            runner: None,
            run_once: false,
        });
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
