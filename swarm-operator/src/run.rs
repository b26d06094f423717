//! `swarm-operator run`: connects to the cluster, serves HTTP, and runs until it is asked to stop.

use std::backtrace::Backtrace;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::ValueEnum;
use prometheus_client::registry::Registry;
use serde_json::Value;
use swarm_adapters_host::caller;
use swarm_adapters_host::http::{self, Build, Document, Readiness};
use swarm_adapters_host::metrics::register_build;
use swarm_adapters_k8s::health::Health;
use swarm_adapters_k8s::metrics::{Metrics, PoolSeries};
use swarm_adapters_k8s::run::{self, Background, Options, Probes};
use swarm_adapters_k8s::scope::Scope;
use swarm_adapters_k8s::sharing::types::DEFAULT_TYPE;
use swarm_adapters_k8s::sharing::{Replica, Sharing};
use swarm_adapters_k8s::watch::refused::RefusedWatches;
use swarm_client::client;
use swarm_worker::{LogFormat, log_filter};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Maximum time for releasing all Swarms before the process ends. The Lease is valid for that long.
const LEAVES_WITHIN: Duration = Duration::from_secs(9);

/// The time between two looks at the rights of this operator.
const RIGHTS_LOOK: Duration = Duration::from_secs(1);

/// Arguments of `swarm-operator run`.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// Watch Swarms in this namespace only; may be repeated [default: all namespaces]
    #[arg(long = "namespace", short, value_name = "NS")]
    pub(crate) namespaces: Vec<String>,
    /// The kubeconfig file [default: the pod's service account, or else `KUBECONFIG`, or else
    /// ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The address to serve /healthz, /readyz, /metrics and /replicas on: `PORT` or `localhost:PORT` on
    /// the loopback interface, `:PORT` on all interfaces, or `IP:PORT`
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080", value_parser = http::address)]
    pub(crate) listen: SocketAddr,
    /// The image of the workers of managed pools (`spec.pool.managed`) that do not name an image
    #[arg(long, value_name = "IMAGE", env = "SWARM_WORKER_IMAGE", default_value = "swarm-worker:dev", value_parser = image)]
    pub(crate) worker_image: String,
    /// Share the Swarms with all operators in the same namespace that have an ID; each needs its own,
    /// such as the name of its pod [default: run alone]
    #[arg(long, value_name = "ID", env = "SWARM_REPLICA_ID")]
    pub(crate) id: Option<String>,
    /// The UID of the pod that runs this program, and no other operator. A previous operator in the
    /// pod has ended, so its Lease is not waited for
    #[arg(long, value_name = "UID", env = "SWARM_POD_UID", requires = "id")]
    pub(crate) pod_uid: Option<String>,
    /// The controllers that this replica hosts, with their numbers of workers: its type in the
    /// ConfigMap `swarm-operator-types` of its namespace
    #[arg(long = "type", value_name = "TYPE", default_value = DEFAULT_TYPE, requires = "id")]
    pub(crate) replica_type: String,
    /// The Swarms with metrics of their own; with `none` only the needs of each Swarm are served
    #[arg(long, value_name = "WHICH", value_enum, default_value_t)]
    pub(crate) metrics_of_swarms: MetricsOfSwarms,
    /// The format of log lines; `RUST_LOG` sets the level [default level: info]
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    pub(crate) log_format: LogFormat,
}

/// The Swarms with metrics of their own.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum MetricsOfSwarms {
    #[default]
    All,
    None,
}

impl From<MetricsOfSwarms> for PoolSeries {
    fn from(which: MetricsOfSwarms) -> Self {
        match which {
            MetricsOfSwarms::All => Self::All,
            MetricsOfSwarms::None => Self::None,
        }
    }
}

/// Runs the operator until SIGTERM or Ctrl-C. Turns in progress are completed.
pub(crate) async fn run(args: RunArgs) -> anyhow::Result<ExitCode> {
    init_logging(args.log_format);
    log_panics();
    if let Some(file) = &args.kubeconfig
        && let Err(error) = std::fs::File::open(file)
    {
        let sentence = format!("kubeconfig {} cannot be read", file.display());
        crate::complain(&format!("{sentence}: {error}"));
        return Ok(ExitCode::from(crate::WRONG));
    }
    let listener = http::listen(args.listen).await?;
    let (stopping, shutdown) = (CancellationToken::new(), CancellationToken::new());
    let mut tasks = JoinSet::new();
    let signalled = cancel_on_signal(stopping.clone())?;
    tasks.spawn(async move {
        signalled.await;
        ("the signal handler", Ok(()))
    });

    let mut registry = Registry::default();
    register_build(&mut registry, &Build::from_env());
    let metrics = Metrics::register(&mut registry, args.metrics_of_swarms.into());
    let version = Build::from_env().version;
    let agent = match &args.id {
        Some(id) => format!("swarm-operator/{version} ({id})"),
        None => format!("swarm-operator/{version}"),
    };
    let clients = client::connect(args.kubeconfig.as_deref(), &agent).await?;
    let background = Background::start().context("no threads for large Swarms")?;
    let options = Options { worker_image: args.worker_image, background };
    let health = Health::default();

    // Liveness requests get an answer even if the API server is unavailable.
    let (ready, is_ready) = watch::channel(Readiness::NotYet);
    let alive = health.clone();
    let endpoints = http::operator_router(is_ready, move || alive.probe(), Arc::new(registry));
    let known = Arc::<OnceLock<Replica>>::default();
    if args.id.is_some() {
        serve_lease_age(&metrics, Arc::clone(&known));
    }
    let of_replicas = Arc::clone(&known);
    let endpoints = endpoints.with_document("/replicas", "the replicas, as JSON", move || {
        let members = of_replicas.get().map(Replica::members);
        Document::of(&members.unwrap_or_else(|| Value::Array(Vec::new())))
    });
    let served = http::serve(listener, endpoints, shutdown.clone());
    tasks.spawn(async move { ("the HTTP server", served.await) });

    let replica = match &args.id {
        Some(id) => match stopping
            .run_until_cancelled(Replica::join(
                &clients,
                &args.replica_type,
                id,
                args.pod_uid.as_deref(),
            ))
            .await
        {
            Some(joined) => {
                Some(joined.context("the Swarms cannot be shared with other operators")?)
            }
            None => return Ok(ExitCode::SUCCESS),
        },
        None => None,
    };
    if let Some(replica) = &replica {
        replica.publish_status(version, health.clone());
        let _ = known.set(replica.clone());
        let (replica, clients, stop) = (replica.clone(), clients.clone(), shutdown.clone());
        tasks.spawn(async move {
            stop.run_until_cancelled(replica.follow_types(&clients)).await;
            ("the types of replicas", Ok(()))
        });
    }
    let mut all_ready = Vec::new();
    for scope in scopes(args.namespaces) {
        let (ready, is_ready) = watch::channel(false);
        all_ready.push(is_ready);
        tracing::info!(?scope, "watching Swarms");
        let sharing = match &replica {
            Some(replica) => replica.share(scope)?,
            None => Sharing::alone(&clients, scope),
        };
        let stop = shutdown.clone().cancelled_owned();
        let (clients, options) = (clients.clone(), options.clone());
        let probes = Probes { metrics: metrics.clone(), health: health.clone(), ready };
        let controller = run::run(clients, sharing, options, probes, stop);
        tasks.spawn(async move {
            controller.await;
            ("a controller", Ok(()))
        });
    }
    let announced = announce(all_ready, health.refused(), ready, shutdown.clone());
    tasks.spawn(async move {
        announced.await;
        ("the readiness", Ok(()))
    });
    let ends = end(replica, stopping.clone(), shutdown.clone());
    tasks.spawn(async move { ("the sharing of Swarms", ends.await) });

    until_stopped(tasks, &stopping).await?;
    tracing::info!("stopped");
    Ok(ExitCode::SUCCESS)
}

/// Serves the age of the Lease of a replica. It counts from now on until the replica has joined, which
/// takes as long as the API server is away.
fn serve_lease_age(metrics: &Metrics, known: Arc<OnceLock<Replica>>) {
    let began = Instant::now();
    let age = move || known.get().map_or_else(|| began.elapsed(), Replica::lease_age);
    metrics.lease_age.read_by(age);
}

/// Ends all tasks on request. This replica first releases its Swarms, so that others take over at
/// once.
///
/// # Errors
///
/// The membership was lost, and other replicas act on the Swarms: the process must restart.
async fn end(
    replica: Option<Replica>,
    stopping: CancellationToken,
    shutdown: CancellationToken,
) -> std::io::Result<()> {
    if let Some(replica) = replica {
        tokio::select! {
            () = stopping.cancelled() => {}
            () = replica.lost() => {
                return Err(std::io::Error::other("the Lease of this replica was lost"));
            }
        }
        if tokio::time::timeout(LEAVES_WITHIN, replica.leave()).await.is_err() {
            tracing::warn!("the Lease could not be closed in time; others wait until it is over");
        }
    }
    stopping.cancelled().await;
    shutdown.cancel();
    Ok(())
}

/// Returns once all tasks have ended after `shutdown`. All are needed until then, so the first task
/// that fails, panics or ends earlier is an error.
async fn until_stopped(
    mut tasks: JoinSet<(&'static str, std::io::Result<()>)>,
    shutdown: &CancellationToken,
) -> anyhow::Result<()> {
    while let Some(ended) = tasks.join_next().await {
        let (task, result) = ended.context("a task of the operator panicked; see the log")?;
        result.with_context(|| format!("{task} failed"))?;
        anyhow::ensure!(shutdown.is_cancelled(), "{task} ended without a request");
    }
    Ok(())
}

/// Reports the operator as ready once all its controllers are ready, and while it has the rights that
/// every pool needs. Runs until `shutdown`.
async fn announce(
    all: Vec<watch::Receiver<bool>>,
    refused: RefusedWatches,
    ready: watch::Sender<Readiness>,
    shutdown: CancellationToken,
) {
    let mut are_ready = std::pin::pin!(async {
        for mut one in all {
            // A controller that has ended ends the process, too.
            let _ = one.wait_for(|is_ready| *is_ready).await;
        }
    });
    let mut looks = tokio::time::interval(RIGHTS_LOOK);
    let mut state = Readiness::NotYet;
    let announced = async {
        loop {
            tokio::select! {
                () = &mut are_ready, if state == Readiness::NotYet => state = Readiness::Ready,
                _ = looks.tick() => {}
            }
            let now = refused.needs().map_or_else(|| state.clone(), Readiness::Lacks);
            ready.send_if_modified(|before| {
                let is_news = *before != now;
                if is_news && let Readiness::Lacks(lines) = &now {
                    tracing::error!(lines, "this operator lacks rights");
                }
                *before = now;
                is_news
            });
        }
    };
    shutdown.run_until_cancelled(announced).await;
}

/// Parses the name of an image. Only the kubelet can check that the image exists.
fn image(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("it is empty; write an image, such as swarm-worker:dev".to_owned());
    }
    if text.contains(|it: char| it.is_whitespace() || it.is_control()) {
        return Err("an image has no spaces; write one, such as swarm-worker:dev".to_owned());
    }
    Ok(text.to_owned())
}

/// Returns one scope for each namespace, or one for the cluster.
fn scopes(mut namespaces: Vec<String>) -> Vec<Scope> {
    namespaces.sort();
    namespaces.dedup();
    if namespaces.is_empty() {
        return vec![Scope::Cluster];
    }
    namespaces.into_iter().map(Scope::Namespace).collect()
}

/// Returns a future that cancels `stopping` when the process is asked to end.
fn cancel_on_signal(stopping: CancellationToken) -> std::io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = caller::heard(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            () = caller::next(&mut interrupt) => {}
        }
        tracing::info!("asked to stop");
        stopping.cancel();
    })
}

/// Logs every panic like anything else, with a backtrace. A turn that panics is contained, so nothing
/// else would show where it panicked.
///
/// A program whose symbols are split off shows addresses instead of names. The program is loaded anywhere, so
/// the log also has the address of this function, whose place in the file of symbols is known.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let backtrace = Backtrace::force_capture();
        let place = panic.location().map(ToString::to_string);
        let message = panic.payload_as_str().unwrap_or("no message");
        let names = backtrace.to_string();
        if names.contains("log_panics") {
            tracing::error!(message, place, backtrace = names, "panicked");
        } else {
            let backtrace = format!("{backtrace:#}");
            let log_panics = log_panics as fn() as *const ();
            tracing::error!(message, place, ?log_panics, backtrace, "panicked");
        }
    }));
}

fn init_logging(format: LogFormat) {
    let filter = log_filter("info");
    let lines = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        // A line that cannot be written is lost, since reporting it would panic.
        .log_internal_errors(false)
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Text => lines.finish().with(filter).init(),
        LogFormat::Json => lines.json().with_span_list(false).finish().with(filter).init(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Mutex;

    use super::*;

    /// Returns the outcome of a process whose only task is this one.
    async fn outcome(
        task: impl Future<Output = std::io::Result<()>> + Send + 'static,
        shutdown: &CancellationToken,
    ) -> Result<(), String> {
        let mut tasks = JoinSet::new();
        tasks.spawn(async { ("the sweep", task.await) });
        until_stopped(tasks, shutdown).await.map_err(|error| format!("{error:#}"))
    }

    #[tokio::test]
    async fn a_task_that_fails_panics_or_ends_too_soon_ends_the_process() {
        let shutdown = CancellationToken::new();
        let ended = outcome(async { Ok(()) }, &shutdown).await;
        assert_eq!(ended, Err("the sweep ended without a request".into()));
        let failed = outcome(async { Err(std::io::Error::other("no port")) }, &shutdown).await;
        assert_eq!(failed, Err("the sweep failed: no port".into()));
        let panicked = outcome(async { panic!("a bug") }, &shutdown).await.unwrap_err();
        assert!(panicked.starts_with("a task of the operator panicked"), "{panicked}");
        assert!(panicked.contains("a bug"), "{panicked}");
        shutdown.cancel();
        assert_eq!(outcome(async { Ok(()) }, &shutdown).await, Ok(()));
    }

    #[tokio::test]
    async fn readiness_waits_for_all_controllers_and_depends_on_no_pool() {
        let (one, is_one) = watch::channel(false);
        let (ready, mut is_ready) = watch::channel(Readiness::NotYet);
        let shutdown = CancellationToken::new();
        let refused = RefusedWatches::default();
        let announced = tokio::spawn(announce(vec![is_one], refused, ready, shutdown.clone()));
        assert_eq!(*is_ready.borrow(), Readiness::NotYet);
        one.send_replace(true);
        is_ready.wait_for(|it| *it == Readiness::Ready).await.unwrap();
        shutdown.cancel();
        announced.await.unwrap();
    }

    #[test]
    fn an_image_has_a_name_and_no_spaces() {
        let named = "registry.example.com:5000/swarm/swarm-worker@sha256:0000";
        assert_eq!(image(named), Ok(named.to_owned()));
        assert!(image("").unwrap_err().starts_with("it is empty"));
        for wrong in [" ", "swarm-worker:dev ", "swarm worker", "swarm-worker:dev\n", "a\0"] {
            assert!(image(wrong).unwrap_err().starts_with("an image has no spaces"), "{wrong:?}");
        }
    }

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_panic_is_logged_with_its_place_and_backtrace() {
        let lines = Lines::default();
        let to = lines.clone();
        let log = tracing_subscriber::fmt().json().with_writer(move || to.clone()).finish();
        // The subscriber is global. Another test panics, too, and if a thread without a subscriber
        // meets the event first, tracing disables it for all threads.
        tracing::subscriber::set_global_default(log).unwrap();
        let before = std::panic::take_hook();
        log_panics();
        let panicked = std::panic::catch_unwind(|| panic!("a bug in job {}", 7));
        std::panic::set_hook(before);
        assert!(panicked.is_err());
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        for part in ["\"level\":\"ERROR\"", "a bug in job 7", "src/run.rs:", "backtrace"] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
    }
}
