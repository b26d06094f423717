//! The HTTP endpoints of a worker.

use std::sync::Arc;

use axum::Json;
use axum::http::StatusCode;
use axum::routing::get;
use prometheus_client::registry::Registry;
use swarm_adapters_host::http::{Build, Endpoints};
use tokio::sync::watch;

use crate::report::Report;

/// Builds the endpoints of a worker: `/internal/health`, `/internal/version`, `/metrics` and
/// `/ping`.
///
/// `name` is the worker's name, and `report` has its current jobs. The health is 503 until `ready`
/// says that the worker can be granted jobs.
pub(crate) fn endpoints(
    name: &str,
    build: Build,
    report: watch::Receiver<Report>,
    ready: watch::Receiver<bool>,
    registry: Arc<Registry>,
) -> Endpoints {
    let health = move || async move {
        let status = if *ready.borrow() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        (status, Json(build))
    };
    let version = move || async move { Json(report.borrow().clone()) };
    let pong = format!("pong from {name}\n");
    Endpoints::default()
        .with("/internal/health", "the build; 503 until jobs can be granted", get(health))
        .with("/internal/version", "its jobs, and which of them do not run, as JSON", get(version))
        .with_metrics(registry)
        .with("/ping", "pong, and the worker's name", get(|| async { pong }))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::{IpAddr, Ipv4Addr, SocketAddr};

    use swarm_adapters_host::http::{listen, serve};
    use swarm_adapters_host::metrics::{WorkerMetrics, register_build};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;
    use tokio_util::sync::CancellationToken;

    use super::*;

    const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

    fn build() -> Build {
        Build { version: "0a1b2c3".into(), date: "2026-11-01".into() }
    }

    /// Serves `endpoints` on a free port for as long as the test runs.
    async fn served(endpoints: Endpoints) -> SocketAddr {
        let listener = listen(ANY).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, endpoints, CancellationToken::new()));
        address
    }

    async fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn the_responses_of_a_worker_are_those_of_its_predecessor() {
        let build = build();
        let jobs = swarm_core::jobs(["stream:b", "stream:a"]).unwrap().into_keys().collect();
        let (sender, report) = watch::channel(Report::default());
        let (ready, is_ready) = watch::channel(false);
        let mut registry = Registry::default();
        let metrics = WorkerMetrics::registered(&mut registry);
        register_build(&mut registry, &build);
        let registry = Arc::new(registry);
        let address = served(endpoints("w-0", build, report, is_ready, registry)).await;
        assert!(get(address, "/internal/health").await.starts_with("HTTP/1.1 503"));
        ready.send_replace(true);
        let health = get(address, "/internal/health").await;
        assert!(health.starts_with("HTTP/1.1 200"), "{health}");
        assert!(health.ends_with(r#"{"version":"0a1b2c3","date":"2026-11-01"}"#), "{health}");
        assert!(get(address, "/internal/version").await.ends_with(r#"{"version":0,"jobs":[]}"#));
        sender.send_replace(Report::new(7, jobs, &BTreeSet::new()));
        let version = get(address, "/internal/version").await;
        assert!(version.ends_with(r#"{"version":7,"jobs":["stream:a","stream:b"]}"#), "{version}");
        metrics.acted(7, 2, 0);
        metrics.running(2);
        metrics.view_error();
        let shown = get(address, "/metrics").await;
        let lines = [
            "content-type: application/openmetrics-text",
            "swarm_worker_jobs 2\n",
            "swarm_worker_view_version 7\n",
            "swarm_worker_job_starts_total 2\n",
            "swarm_worker_job_stops_total 0\n",
            "swarm_worker_view_errors_total 1\n",
            "swarm_build_info{version=\"0a1b2c3\",date=\"2026-11-01\"} 1\n",
        ];
        for line in lines {
            assert!(shown.contains(line), "{line} is not in {shown}");
        }
    }

    #[tokio::test]
    async fn the_list_at_the_root_names_every_endpoint() {
        let (_sender, report) = watch::channel(Report::default());
        let (_ready, is_ready) = watch::channel(true);
        let worker = endpoints("w-0", build(), report, is_ready, Arc::default());
        let address = served(worker).await;
        let list = get(address, "/").await;
        let (_, list) = list.split_once("\r\n\r\n").unwrap();
        assert_eq!(list.lines().count(), 4, "{list}");
        for line in list.lines() {
            let (path, about) = line.split_once(' ').unwrap();
            assert!(get(address, path).await.starts_with("HTTP/1.1 200"), "{path}");
            assert!(!about.trim().is_empty(), "{path}");
        }
    }
}
