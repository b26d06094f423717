//! `swarm local`: the whole system on one machine, with child processes as workers.
//!
//! The core makes all decisions. This crate connects the file stores and the processes to the turn
//! that also runs on a cluster, and shows the results.

mod commands;
mod format;
mod logs;
mod pool;
mod print;
mod processes;
mod serve;
mod settings;
mod state_dir;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use swarm_adapters_host::caller;
use swarm_adapters_host::clock::unix_s;
use swarm_adapters_host::http::{self, Socket, SocketListener};
use swarm_adapters_host::metrics::PoolMetrics;
use swarm_terminal::can_draw;
use swarm_terminal::hands::Hands;
use swarm_terminal::output::complain_in_lines;
use swarm_terminal::scene::{Ends, Paths};
use swarm_terminal::screen::View;
use swarm_terminal::shutdown::Shutdown;
use swarm_terminal::times::time;
use swarm_worker::LogFormat;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

pub use commands::{
    AttachArgs, CheckArgs, DiffArgs, ExplainArgs, HistoryArgs, JobsArgs, LogsArgs, NamedPool,
    PoolArgs, PsArgs, ReportArgs, RunningPool, StatusArgs, StopArgs, WhoArgs, WorkersArgs, attach,
    check, diff, explain, history, logs, ps, report, restart, resume, retry, running, status, stop,
    suspend, who, workers,
};
pub use settings::fixed::Fixed;
pub use settings::run_log::RunLogSize;
pub use state_dir::state::other_pool;

use commands::detach;
use logs::{job_log, log};
use pool::earlier;
use pool::events::Events;
use pool::history::last_sign;
use pool::operate::{Operation, Sources};
use pool::outlets::{Origin, Outlets, Place, Voice};
use pool::snapshot::Snapshot;
use pool::until::Until;
use print::text;
use processes::reports::Reports;
use processes::worker::WorkerProgram;
use serve::web::{self, Listeners, Private};
use serve::{screen, service};
use settings::input::Input;
use settings::limits;
use state_dir::state::{self, StateDir};

/// Limit of every wait of a unit test: it ends a test that hangs, and judges nothing.
#[cfg(test)]
const DEADLINE: Duration = Duration::from_mins(5);

/// Arguments of `local`.
#[derive(Clone, Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of the command line")]
pub struct LocalArgs {
    /// The manifest that contains the Swarm; edits of it are followed; `-` reads standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The Swarm in FILE to run, if it has several
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// The number of workers to run, without autoscaling [default: `replicas` or `autoscale` of the
    /// Swarm, or else `replicas` of its workload in FILE]
    #[arg(long, value_name = "N")]
    pub workers: Option<u32>,
    /// The directory for state and logs [default: ~/.local/state/swarm/NAME, or by `XDG_STATE_HOME`]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Start the Swarm a second time, though a pool with its name runs in another directory. Both run
    /// all of its jobs
    #[arg(long)]
    pub again: bool,
    /// Run in the background: return once the pool is up. `attach` shows it, and `stop` ends it
    #[arg(long, short, conflicts_with = "until_settled")]
    pub detach: bool,
    /// Be the operator of a pool in the background
    #[arg(long, hide = true, conflicts_with_all = ["detach", "until_settled"])]
    pub detached: bool,
    /// The address to serve /healthz, /readyz, /metrics, /api/v1/swarm and /api/v1/jobs on: `PORT`
    /// or `localhost:PORT` on the loopback interface, `:PORT` on all interfaces, or `IP:PORT`; port 0
    /// means any free port [default: none]
    #[arg(long, value_name = "ADDR", value_parser = http::address)]
    pub listen: Option<SocketAddr>,
    /// The format of log lines, of this program and of the workers
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    pub log_format: LogFormat,
    /// The size of the run log above which it becomes run.log.1, or `off` for no run log
    #[arg(long, value_name = "off|SIZE", default_value = "256MiB")]
    pub run_log: RunLogSize,
    /// Print lines of events, on a terminal too, instead of the reports view
    #[arg(long)]
    pub plain: bool,
    /// End with exit code 0 once every job is ready. A job without a readiness check must have run
    /// for a second. End with 3 if some jobs have no worker or are not restarted any more
    #[arg(long)]
    pub until_settled: bool,
    /// The longest time for `--until-settled`, which then ends with an error [default: 5m]
    #[arg(long, value_name = "TIME", value_parser = time, requires = "until_settled")]
    pub timeout: Option<Duration>,
    /// The program to start for every worker, one that embeds the library `swarm-worker` [default:
    /// this program, which runs the jobs as `spec.worker.runner` says]
    #[arg(long, value_name = "PROGRAM")]
    pub worker: Option<PathBuf>,
    /// Arguments of the program of `--worker`, before the arguments that every worker gets
    #[arg(last = true, value_name = "ARGUMENT", requires = "worker")]
    pub worker_args: Vec<OsString>,
}

impl LocalArgs {
    /// Returns the condition for the end.
    fn until(&self) -> Until {
        if self.until_settled {
            Until::Settled(self.timeout.unwrap_or(TIMEOUT))
        } else {
            Until::Signalled
        }
    }
}

/// Maximum number of messages that wait for the screen.
const MESSAGES_MAX: usize = 1_000;

/// Default time limit of `--until-settled`.
const TIMEOUT: Duration = Duration::from_mins(5);

/// Runs a Swarm on this machine until a signal ends it or it is settled. For each worker it starts
/// this program again as `worker run`, or the program that `args` name.
///
/// # Errors
///
/// A sentence with its causes: the state directory is in use, a store refuses a request, or a
/// terminal or address cannot be used. Invalid input is not an error; it returns exit code 2.
pub async fn local(args: LocalArgs) -> anyhow::Result<ExitCode> {
    if args.detach {
        return detach::start(args).await;
    }
    let (since, until) = (Instant::now(), args.until());
    caller::check_proc()?;
    let shutdown = Shutdown::by_signals()?;
    let opened = tokio::select! {
        opened = Input::open(&args) => opened,
        () = shutdown.ends() => anyhow::bail!("ended by a signal before FILE was read"),
    };
    let (input, wanted) = match opened {
        Ok(opened) => opened,
        Err(explained) => return Ok(wrong_usage(&explained.to_string())),
    };
    let worker = match WorkerProgram::of(&args) {
        Ok(worker) => worker,
        Err(sentence) => return Ok(wrong_usage(&sentence)),
    };
    let (is_default, again) = (args.dir.is_none(), args.again);
    let dir = match args.dir.map_or_else(|| state::default_dir(&wanted.name), Ok) {
        Ok(dir) => dir,
        Err(sentence) => return Ok(wrong_usage(&sentence)),
    };
    if let Some(sentence) = commands::runs_elsewhere(&dir, &wanted.name).await.filter(|_| !again) {
        anyhow::bail!(sentence);
    }
    let dir = claimed(&dir, is_default).await?;
    if let Some(sentence) = other_pool(dir.path(), &wanted.name) {
        return Ok(wrong_usage(&sentence));
    }
    // Before anything is written there.
    let is_new = !commands::ran_in(dir.path());
    let away_since_ms = Fixed::is_expected(dir.path()).then(|| last_sign(dir.path())).flatten();
    let file = input.followed().map(str::to_owned);
    let followed = file.as_deref().map(absolute);
    let other_file = Fixed::other_file(dir.path(), followed.as_deref());
    let fixed = wanted.fixed().following(followed.clone());
    begin(dir.path(), &fixed, args.log_format)?;
    let listener = match args.listen {
        Some(address) => Some(http::listen(address).await?),
        None => None,
    };
    let (name, socket) = listen_in(dir.path());
    let bound = listener.as_ref().map(tokio::net::TcpListener::local_addr).transpose()?;
    let advice = input.followed().map(|file| text::advice(file, args.detached));
    text::say(&text::opening(&wanted, dir.path(), advice, bound, other_file.as_deref()));
    let limits = [limits::of_open_files(&wanted), limits::of_clock(unix_s(), is_new)];
    warn(limits.into_iter().chain([input.polled().map(str::to_owned)]).flatten());
    let snapshots = watch::Sender::<Arc<Snapshot>>::default();
    let metrics = PoolMetrics::default();
    let listeners = Listeners { address: listener, socket };
    // The server answers until all workers have ended.
    let has_ended = CancellationToken::new();
    let reports = Reports::default();
    let shown = web::Shown { snapshots: snapshots.subscribe(), reports: reports.clone() };
    let (hands, requests) = Hands::new();
    let private = Private { hands: hands.clone(), events: Events::default() };
    let events = private.events.clone();
    let answers = web::serve(listeners, shown, metrics.clone(), private, has_ended.clone());
    let server = tokio::spawn(answers);
    let service = tokio::spawn(service::follow(snapshots.subscribe(), shutdown.clone()));
    let service = AbortOnDropHandle::new(service);
    let last_snapshot = snapshots.subscribe();
    earlier::end_first(dir.path(), &wanted.name, &snapshots, &shutdown).await?;
    if args.detached {
        let placed = (!is_default).then(|| dir.path());
        let sentence = detach::sentence(&wanted.name, placed);
        detach::begin(snapshots.subscribe(), sentence, dir.path());
    }
    let is_drawn = !(args.plain || args.detached || args.until_settled) && can_draw();
    let origin = Origin { file: followed, since_unix_s: unix_s(), away_since_ms };
    let paths = Paths { file, dir: dir.path().display().to_string() };
    let shown = web::Shown { snapshots: snapshots.subscribe(), reports: reports.clone() };
    let (view, place) = match is_drawn {
        true => viewed(paths, shown, &shutdown, hands),
        false if args.detached => (None, Place::Log),
        false => (None, Place::Lines),
    };
    let voice = Voice { place, events };
    let outlets = Outlets { voice, snapshots, metrics, reports, origin };
    let sources = Sources { input, requests };
    let path = dir.path().to_owned();
    let operation = Operation::start((dir, name.clone()), sources, wanted, worker, since, outlets);
    let outcome = Box::pin(operated(operation, until, &shutdown, &path)).await;
    shutdown.end();
    has_ended.cancel();
    service.abort();
    let _ = service.await;
    service::ended(&last_snapshot.borrow().clone().status);
    let last = match view {
        Some(view) => view.ended().await,
        None => Ok(None),
    };
    let answered = server.await?.context("the HTTP server failed");
    // The first error is the relevant one.
    let code = outcome?;
    if let Some(last) = last? {
        text::say(&last);
    }
    answered.map(|()| code)
}

/// Runs the operation. Its end is expected once a person asks for it, also by `--until-settled`.
async fn operated(
    operation: impl Future<Output = anyhow::Result<Operation>>,
    until: Until,
    shutdown: &Shutdown,
    dir: &Path,
) -> anyhow::Result<ExitCode> {
    let operation = operation.await?;
    if until == Until::Signalled {
        let cannot = || format!("{} cannot be written", dir.display());
        Fixed::expect(dir, true).with_context(cannot)?;
    }
    let outcome = Box::pin(operation.run(until, shutdown)).await;
    if (shutdown.is_ending() || outcome.is_ok())
        && let Err(error) = Fixed::expect(dir, false)
    {
        tracing::warn!(%error, "`status` will miss this pool, although it was asked to end");
    }
    outcome
}

/// Claims the state directory. If a pool runs there, the error says how to see it and to end it.
async fn claimed(dir: &Path, is_default: bool) -> anyhow::Result<StateDir> {
    match StateDir::claim(dir) {
        Ok(dir) => Ok(dir),
        Err(error) => match commands::runs_already(dir, is_default).await {
            Some(sentence) => anyhow::bail!(sentence),
            None => Err(error),
        },
    }
}

/// Records the pool in its claimed directory, and starts the log there.
fn begin(dir: &Path, fixed: &Fixed, log_format: LogFormat) -> anyhow::Result<()> {
    fixed.record(dir).with_context(|| format!("{} cannot be written", dir.display()))?;
    log::start(dir, log_format)
        .with_context(|| format!("the log cannot be written in {}", dir.display()))?;
    state::list(dir);
    Ok(())
}

/// Tells limits that the pool runs with.
fn warn(sentences: impl Iterator<Item = String>) {
    for sentence in sentences {
        tracing::warn!("{sentence}");
        complain_in_lines(&sentence);
    }
}

/// Listens on the socket in the state directory. If that fails, the pool runs anyway, but other
/// terminals cannot query it.
fn listen_in(dir: &Path) -> (Option<Arc<Socket>>, Option<SocketListener>) {
    match Socket::listen(dir) {
        Ok((socket, listener)) => (Some(Arc::new(socket)), Some(listener)),
        Err(error) => {
            let dir = dir.display();
            let sentence =
                format!("status, attach, ps, logs and stop cannot use a socket in {dir}: {error}");
            tracing::warn!("{sentence}");
            complain_in_lines(&sentence);
            (None, None)
        }
    }
}

/// Opens the view on the terminal, or falls back to plain lines.
fn viewed(
    paths: Paths,
    shown: web::Shown,
    shutdown: &Shutdown,
    hands: Hands,
) -> (Option<View>, Place) {
    let logs = job_log::opener(Path::new(&paths.dir).join("logs"));
    match View::open(paths, Ends::Pool, logs, shutdown.clone(), hands) {
        Ok((view, news)) => {
            let (voice, messages) = mpsc::channel(MESSAGES_MAX);
            tokio::spawn(screen::feed(shown, messages, news));
            (Some(view), Place::Screen(voice))
        }
        Err(error) => {
            tracing::warn!(%error, "the terminal cannot be drawn on; printing lines");
            (None, Place::Lines)
        }
    }
}

/// Returns a path that other terminals understand.
fn absolute(file: &str) -> String {
    std::path::absolute(file).map_or_else(|_| file.to_owned(), |path| path.display().to_string())
}

/// Prints an error about the input. Nothing was started or printed to standard output.
fn wrong_usage(sentence: &str) -> ExitCode {
    complain_in_lines(sentence);
    ExitCode::from(2)
}
