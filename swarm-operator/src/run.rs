//! `swarm-operator run`: connects to the cluster, serves HTTP, runs until it is told to stop.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use prometheus_client::registry::Registry;
use swarm_adapters_host::http::{self, Build};
use swarm_adapters_host::metrics::register_build;
use swarm_adapters_k8s::controller::{self, Scope};
use swarm_adapters_k8s::metrics::Metrics;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

use crate::args::{LogFormat, RunArgs};

/// Runs the operator until SIGTERM or Ctrl-C; turns under way are finished.
pub(crate) async fn run(args: RunArgs) -> anyhow::Result<ExitCode> {
    init_logging(args.log_format);
    if let Some(file) = &args.kubeconfig
        && let Err(error) = std::fs::File::open(file)
    {
        let sentence = format!("kubeconfig {} cannot be read", file.display());
        crate::complain(&anyhow::Error::new(error).context(sentence));
        return Ok(ExitCode::from(2));
    }
    let listener = http::listen(args.listen).await?;
    let shutdown = CancellationToken::new();
    tokio::spawn(cancel_on_signal(shutdown.clone())?);

    let mut registry = Registry::default();
    register_build(&mut registry, &Build::from_env());
    let metrics = Metrics::register(&mut registry);
    let clients = controller::connect(args.kubeconfig.as_deref()).await?;

    let mut all_ready = Vec::new();
    let mut controllers = JoinSet::new();
    for scope in scopes(args.namespaces) {
        let (ready, is_ready) = watch::channel(false);
        all_ready.push(is_ready);
        tracing::info!(?scope, "looking for Swarms");
        let stop = shutdown.clone().cancelled_owned();
        controllers.spawn(controller::run(clients.clone(), scope, metrics.clone(), ready, stop));
    }
    let (ready, is_ready) = watch::channel(false);
    tokio::spawn(announce(all_ready, ready));
    let router = http::operator_router(is_ready, Arc::new(registry));
    let server = tokio::spawn(http::serve(listener, router, shutdown.clone()));

    while let Some(ended) = controllers.join_next().await {
        ended.context("a controller failed")?;
        anyhow::ensure!(shutdown.is_cancelled(), "a controller ended though nobody asked it to");
    }
    server.await?.context("the HTTP server failed")?;
    tracing::info!("stopped");
    Ok(ExitCode::SUCCESS)
}

/// Says that the operator is ready once all its controllers are.
async fn announce(all: Vec<watch::Receiver<bool>>, ready: watch::Sender<bool>) {
    for mut one in all {
        if one.wait_for(|is_ready| *is_ready).await.is_err() {
            return;
        }
    }
    ready.send_replace(true);
}

/// One controller a namespace, or one for all.
fn scopes(mut namespaces: Vec<String>) -> Vec<Scope> {
    namespaces.sort();
    namespaces.dedup();
    if namespaces.is_empty() {
        return vec![Scope::Cluster];
    }
    namespaces.into_iter().map(Scope::Namespace).collect()
}

/// The future that cancels `shutdown` when the process is asked to end.
fn cancel_on_signal(shutdown: CancellationToken) -> std::io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("told to stop");
        shutdown.cancel();
    })
}

fn init_logging(format: LogFormat) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => lines.init(),
        LogFormat::Json => lines.json().with_span_list(false).init(),
    }
}
