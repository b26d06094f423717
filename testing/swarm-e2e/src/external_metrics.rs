//! External metrics of a cluster, as a metrics adapter serves them: a separate API server behind an
//! `APIService`. It answers with the present gauges of the operator.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use axum::extract::{Path as Matched, State};
use axum::routing::get;
use axum::{Json, Router};
use http::StatusCode;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::server::TlsStream;

use crate::cluster::{Cluster, FOLDER, NODES, node_address};
use crate::operator;
use crate::pki::Authority;
use crate::until::until;

/// The group and version of the API.
const API: &str = "external.metrics.k8s.io/v1beta1";
/// The Service that leads the API server to this server.
const SERVICE: &str = "external-metrics";

/// The running server. It ends with this value. [`ExternalMetrics::remove`] unregisters it.
pub struct ExternalMetrics(JoinHandle<()>);

impl ExternalMetrics {
    /// Serves the operator's gauges, and returns when the API server passes requests on.
    ///
    /// # Errors
    ///
    /// When the API server does not pass requests on.
    pub async fn serve(cluster: &Arc<Cluster>, namespace: &str) -> Result<Self> {
        let authority = Authority::new(&Path::new(FOLDER).join("external-metrics"))?;
        authority.server(SERVICE, &[&format!("{SERVICE}.{namespace}.svc")])?;
        let listener = TcpListener::bind((node_address(NODES[0]), 0)).await?;
        let port = listener.local_addr()?.port();
        let listener = Tls { listener, acceptor: acceptor(&authority)? };
        let router = Router::new()
            .route(&format!("/apis/{API}"), get(resources))
            .route(&format!("/apis/{API}/namespaces/{{namespace}}/{{metric}}"), get(values))
            .with_state(Arc::clone(cluster));
        let server = Self(tokio::spawn(async move {
            // The server only ends with the task.
            let _ = axum::serve(listener, router).await;
        }));
        announce(cluster, namespace, &authority, port).await?;
        until("the API server to pass requests on", || async {
            let text = cluster.kubectl(&["get", "--raw", &format!("/apis/{API}")]).await?;
            Ok(text.contains("ExternalMetricValueList").then_some(()))
        })
        .await?;
        Ok(server)
    }

    /// Unregisters the API. A registered API that does not answer would delay the deletion of every
    /// namespace.
    ///
    /// # Errors
    ///
    /// When the API server refuses the deletion.
    pub async fn remove(cluster: &Cluster) -> Result<()> {
        let args =
            ["delete", "apiservice", "v1beta1.external.metrics.k8s.io", "--ignore-not-found"];
        cluster.kubectl(&args).await.map(drop)
    }
}

impl Drop for ExternalMetrics {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Registers the API with the API server, behind a Service without pods.
async fn announce(
    cluster: &Cluster,
    namespace: &str,
    authority: &Authority,
    port: u16,
) -> Result<()> {
    let trusted = k8s_openapi::ByteString(std::fs::read(authority.path("ca.crt"))?);
    let items = json!([
        {
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": SERVICE},
            "spec": {"ports": [{"name": "https", "port": 443, "targetPort": port}]},
        },
        {
            "apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": SERVICE},
            "subsets": [{
                "addresses": [{"ip": node_address(NODES[0])}],
                "ports": [{"name": "https", "port": port}],
            }],
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": "v1beta1.external.metrics.k8s.io"},
            "spec": {
                "group": "external.metrics.k8s.io", "version": "v1beta1",
                "service": {"name": SERVICE, "namespace": namespace},
                "caBundle": trusted,
                "groupPriorityMinimum": 100, "versionPriority": 100,
            },
        },
    ]);
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    cluster.apply(namespace, &list.to_string()).await
}

fn acceptor(authority: &Authority) -> Result<TlsAcceptor> {
    let certificates = CertificateDer::pem_file_iter(authority.path(&format!("{SERVICE}.crt")))?;
    let certificates = certificates.collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_file(authority.path(&format!("{SERVICE}.key")))?;
    let provider = tokio_rustls::rustls::crypto::ring::default_provider();
    let config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(certificates, key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Accepts encrypted connections.
struct Tls {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl axum::serve::Listener for Tls {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let Ok((stream, address)) = self.listener.accept().await else { continue };
            // A client that does not finish its handshake would delay all others.
            let handshake = self.acceptor.accept(stream);
            let within = Duration::from_secs(5);
            if let Ok(Ok(stream)) = tokio::time::timeout(within, handshake).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

/// The resources of the API.
async fn resources() -> Json<Value> {
    Json(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": API,
        "resources": [{
            "name": "swarm_needed_workers", "singularName": "", "namespaced": true,
            "kind": "ExternalMetricValueList", "verbs": ["get"],
        }],
    }))
}

/// One gauge of all Swarms of a namespace. The namespace has one Swarm, so the selector is ignored.
async fn values(
    State(cluster): State<Arc<Cluster>>,
    Matched((namespace, metric)): Matched<(String, String)>,
) -> Result<Json<Value>, (StatusCode, String)> {
    let found = gauges(&cluster, &metric, &namespace).await;
    let found = found.map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    let item = |(name, value): (String, i64)| {
        json!({
            "metricName": metric, "metricLabels": {"name": name},
            "timestamp": Timestamp::now().to_string(), "value": value.to_string(),
        })
    };
    Ok(Json(json!({
        "kind": "ExternalMetricValueList", "apiVersion": API, "metadata": {},
        "items": found.into_iter().map(item).collect::<Vec<_>>(),
    })))
}

/// Reads a gauge of the operator for each Swarm of a namespace, by the Swarm's name.
///
/// # Errors
///
/// When the operator does not answer.
pub async fn gauges(
    cluster: &Cluster,
    metric: &str,
    namespace: &str,
) -> Result<Vec<(String, i64)>> {
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), operator::NAMESPACE);
    let controller = ListParams::default().labels("app=swarm-controller");
    let begin = format!("{metric}{{namespace=\"{namespace}\",name=\"");
    let mut found = Vec::new();
    // Each replica reports only its own Swarms.
    for pod in pods.list_metadata(&controller).await? {
        let text = cluster.pod_http(operator::NAMESPACE, &pod.name_any(), 8080, "metrics").await?;
        for rest in text.lines().filter_map(|line| line.strip_prefix(&begin)) {
            let (name, value) = rest.split_once("\"} ").context("a line of another form")?;
            ensure!(!name.contains('"'), "another label: {rest}");
            found.push((name.to_owned(), value.parse()?));
        }
    }
    Ok(found)
}
