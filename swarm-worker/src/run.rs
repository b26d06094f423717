//! Runs a worker, from its command line to its end.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use swarm_adapters_host::awaited::{self, Awaited};
use swarm_adapters_host::caller;
use swarm_adapters_host::channel::{self, Events, Order, Orders};
use swarm_adapters_host::http::{self, Build};
use swarm_adapters_host::metrics::{WorkerMetrics, register_build};
use swarm_adapters_host::random;
use swarm_adapters_host::runtime::refused;
use swarm_adapters_host::session::FileSession;
use swarm_adapters_host::worker_view::WorkerViewWatch;
use swarm_core::handover::{LeaseTerms, SessionId};
use swarm_core::{JobName, Worker};
use swarm_spec::convert::Home;
use tokio::signal::unix::SignalKind;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::args::{Protocol, RunArgs};
use crate::endpoints::endpoints;
use crate::follow::Follower;
use crate::jobs::Tools;
use crate::pod::Pod;
use crate::report::Report;
use crate::runner::{Restarter, Runner};
use crate::session::{Ended, SessionSetup, Shared, Shutdown};
use crate::watchdog::Watchdog;
use crate::{Failure, log};

/// The time that a plain worker may take to end after its jobs had their time to stop. The guard
/// needs it to report the ends of the jobs, and to end itself.
const END_MARGIN: Duration = Duration::from_secs(5);
/// The time that a draining worker on one machine keeps its jobs running while they are moved away.
/// The operator can set another time.
const DRAIN_TIMEOUT: Duration = Duration::from_mins(1);

/// The time limit for writing the last events: a suspended operator reads none.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// The time after SIGTERM during which a pod answers requests, since a Service may still route to
/// it.
const LINGER: Duration = Duration::from_secs(3);

/// Runs a worker until a signal, or the end of standard input. Its jobs are run by `runner`, or by
/// the runner that `args` select.
pub(crate) async fn run(args: &RunArgs, runner: Option<Arc<dyn Runner>>) -> Result<(), Failure> {
    let name = args.worker_name()?;
    let dir = args.session.session_dir.as_deref();
    let pod = match args.session.protocol {
        Protocol::Session if dir.is_none() => Some(Pod::new(args)?),
        Protocol::Session | Protocol::Plain => None,
    };
    log::init(args.log_format, dir.is_some());
    let shutdown = Shutdown::not_requested();
    caller::unblock_signals().map_err(failed)?;
    caller::cope_with_limits().map_err(failed)?;
    let ((mut events, lives), restarter) = (Events::counted(), watch::Sender::new(None));
    if args.until_stdin_closes {
        if let Some(channel) = channel::inherited().map_err(failed)? {
            events = Events::over(channel).map_err(failed)?;
        }
        obey_stdin(shutdown.clone(), restarter.subscribe())?;
        on_signals(|name| tracing::info!("{name} is ignored; only the operator ends this worker"))?;
    } else {
        let drain = shutdown.drain.clone();
        on_signals(move |_| drain.cancel())?;
    }
    let build = Build::from_env();
    let mut registry = Registry::default();
    register_build(&mut registry, &build);
    let metrics = WorkerMetrics::registered(&mut registry);
    let outlets = (events.clone(), restarter);
    let tools = Tools::new(args, runner, &name, &mut registry, metrics.job_restarts(), outlets)?;
    let (reports, report) = watch::channel(Report::default());
    let (ready, is_ready) = watch::channel(pod.is_none());
    let watchdog = Watchdog::start().map_err(failed)?;
    let (awaited, last_words) = (watch::Sender::default(), events.clone());
    let shared = Shared { metrics, reports, ready, awaited, watchdog, events, lives };
    let listener = http::listen(args.address()).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let endpoints = endpoints(&name, build, report, is_ready, Arc::new(registry));
    let done = CancellationToken::new();
    let server = tokio::spawn(http::serve(listener, endpoints, done.clone()));
    let asked = shutdown.drain.clone();
    let lingers = AbortOnDropHandle::new(tokio::spawn(async move {
        asked.cancelled().await;
        tokio::time::sleep(LINGER).await;
    }));
    tracing::info!(worker = name, http = %address, "started");
    match (pod, dir) {
        (Some(pod), _) => {
            pod.run_sessions(&tools, &shared, &shutdown).await?;
            // No job runs any more, and other workers have the jobs. Nodes take a moment to learn
            // it.
            lingers.await.map_err(failed)?;
        }
        (None, Some(dir)) => on_this_machine(args, dir, &tools, &shared, &shutdown).await?,
        (None, None) => {
            let jobs = tools.jobs(&format!("{name}.{}-{:016x}", std::process::id(), nonce()?))?;
            let (worker, path) = (Worker::default(), args.view.file());
            let Shared { metrics, reports, .. } = shared;
            let follower = Follower { name, worker, jobs, metrics, reports, path };
            follow(follower, args.runner.stop_timeout, &shutdown).await?;
        }
    }
    done.cancel();
    server.await.map_err(failed)?.map_err(failed)?;
    tracing::info!("ended");
    last_words.flush(LAST_WORDS);
    Ok(())
}

/// Returns the random part of a session's identity.
pub(crate) fn nonce() -> Result<u64, Failure> {
    random::number().map_err(failed)
}

/// Returns the lease terms on the command line.
pub(crate) fn terms(args: &RunArgs) -> Result<LeaseTerms, Failure> {
    let (lease, stop_timeout) = (args.session.lease, args.runner.stop_timeout);
    let derived = LeaseTerms::derived(lease, stop_timeout, Home::Cluster.renew_min());
    let terms = LeaseTerms { renew: args.session.renew.unwrap_or(derived.renew), ..derived };
    terms.check().map_err(|error| Failure::Usage(error.to_string()))?;
    Ok(terms)
}

/// Runs one session in the directory of its pool.
async fn on_this_machine(
    args: &RunArgs,
    dir: &Path,
    tools: &Tools,
    shared: &Shared,
    shutdown: &Shutdown,
) -> Result<(), Failure> {
    let terms = terms(args)?;
    let instance = args.session.instance.as_deref().unwrap_or_default();
    let id = SessionId::new(instance, nonce()?);
    let store = FileSession::open(dir, &id).map_err(failed)?;
    let views = WorkerViewWatch::follow(dir, &id).map_err(failed)?;
    let jobs = tools.jobs(&id.to_string())?;
    let writer = write_awaited(dir.to_owned(), id.clone(), shared.awaited.subscribe());
    let _writer = AbortOnDropHandle::new(tokio::spawn(writer));
    let drain_timeout = DRAIN_TIMEOUT.max(terms.stop_timeout);
    let (store, views) = (Arc::new(store), Box::new(views));
    let setup = SessionSetup { id, terms, drain_timeout, store, views, jobs, marker: None, shared };
    match setup.run(shutdown).await? {
        Ended::Closed => Ok(()),
        Ended::Lost => Err(Failure::Failed("the session lost its lease".to_owned())),
    }
}

/// Writes the jobs of a session that are not up yet, whenever they change.
async fn write_awaited(dir: PathBuf, session: SessionId, mut awaited: watch::Receiver<Awaited>) {
    while awaited.changed().await.is_ok() {
        let (dir, session) = (dir.clone(), session.clone());
        let now = awaited.borrow_and_update().clone();
        let written = spawn_blocking(move || awaited::write(&dir, &session, &now)).await;
        if let Ok(Err(error)) = written {
            tracing::warn!(%error, "the operator cannot learn which jobs are not up yet");
        }
    }
}

/// Runs a plain worker. It hands its jobs to no other worker, so any kind of shutdown stops them.
/// Each job has `stop_timeout` to stop.
async fn follow(
    follower: Follower,
    stop_timeout: Duration,
    shutdown: &Shutdown,
) -> Result<(), Failure> {
    let stop = CancellationToken::new();
    let limit = stop_timeout.saturating_add(END_MARGIN);
    let overdue = async {
        shutdown.requested().await;
        stop.cancel();
        tokio::time::sleep(limit).await;
    };
    tokio::select! {
        () = follower.follow(&stop) => Ok(()),
        () = overdue => {
            Err(Failure::Failed(format!("the jobs did not stop within {limit:?}")))
        }
    }
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::Failed(error.to_string())
}

/// Acts on every signal that asks this process to end. Signals that the caller ignores stay
/// ignored.
fn on_signals(act: impl Fn(&str) + Clone + Send + 'static) -> Result<(), Failure> {
    let kinds = [
        (SignalKind::terminate(), "SIGTERM"),
        (SignalKind::interrupt(), "SIGINT"),
        (SignalKind::hangup(), "SIGHUP"),
    ];
    for (kind, name) in kinds {
        let Some(mut signals) = caller::heard(kind).map_err(failed)? else { continue };
        let act = act.clone();
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                act(name);
            }
        });
    }
    Ok(())
}

/// Executes the orders on standard input, and ends when it closes.
///
/// It runs in its own thread: the runtime would wait at its end for a read that never returns.
fn obey_stdin(
    shutdown: Shutdown,
    restarter: watch::Receiver<Option<Restarter>>,
) -> Result<(), Failure> {
    let obey = move || {
        let mut orders = Orders::from_stdin();
        while let Some(order) = orders.wait() {
            match order {
                Order::Drain { within_ms } => {
                    // Only the first drain order sets the time.
                    let _ = shutdown.within.set(Duration::from_millis(within_ms));
                    shutdown.drain.cancel();
                }
                Order::End => shutdown.end.cancel(),
                Order::Restart { job } => {
                    if let (Ok(job), Some(restarter)) =
                        (JobName::new(&job), restarter.borrow().as_ref())
                    {
                        tracing::info!(%job, "restarting it by hand");
                        restarter.restart(job);
                    }
                }
            }
        }
        // The operator has died. The same cause may ask all processes to end.
        if !shutdown.drain.is_cancelled() && !shutdown.end.is_cancelled() {
            std::thread::sleep(caller::SIGNAL_SPREAD);
        }
        shutdown.end.cancel();
    };
    let thread = std::thread::Builder::new().name("orders".to_owned());
    thread.spawn(obey).map_err(refused).map_err(failed)?;
    Ok(())
}
