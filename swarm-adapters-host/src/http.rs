//! The HTTP endpoints of both programs.

mod address;
mod client;
mod document;
mod server;
mod socket;

use std::convert::Infallible;
use std::env;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::{MethodRouter, get, post as posted};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::spawn_blocking;

pub use address::address;
pub use axum::serve::Listener;
pub use client::{
    Answer, AnswerError, escaped, get as request, get_as as request_as, get_from as request_from,
    post,
};
pub use document::Document;
pub use server::{CONNECTIONS_MAX, HEAD_BYTES_MAX, HEAD_MAX, LIFE_MAX, Place, serve};
pub use socket::{Socket, SocketListener, connect};

/// The build of the running program. The image has it in the variables `COMMIT` and `DATE`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Build {
    /// The commit, or the version of the program if the commit is not set.
    pub version: String,
    /// The time of the build, or `unknown`.
    pub date: String,
}

impl Build {
    /// Reads the build from the environment.
    #[must_use]
    pub fn from_env() -> Self {
        let set = |name| env::var(name).ok().filter(|value| !value.is_empty());
        Self {
            version: set("COMMIT").unwrap_or_else(|| env!("CARGO_PKG_VERSION").to_owned()),
            date: set("DATE").unwrap_or_else(|| "unknown".to_owned()),
        }
    }
}

/// The endpoints of a program. Their list is served at `/`.
#[derive(Clone, Debug, Default)]
pub struct Endpoints {
    router: Router,
    list: String,
}

impl Endpoints {
    /// Adds an endpoint; `about` describes its answer in a few words.
    #[must_use]
    pub fn with(self, path: &str, about: &str, handler: MethodRouter) -> Self {
        Self { router: self.router.route(path, handler), list: self.list }.listed(path, about)
    }

    /// Adds `/metrics`, which serves the metrics in `registry`.
    #[must_use]
    pub fn with_metrics(self, registry: Arc<Registry>) -> Self {
        let handler = get(metrics).with_state(registry);
        self.with("/metrics", "metrics in the OpenMetrics format", handler)
    }

    fn listed(mut self, path: &str, about: &str) -> Self {
        self.list.extend([format!("{path:18} {about}\n")]);
        self
    }

    /// Adds a document at `path` that is built for each request, which may take a while. The status
    /// is 503 before the first document, and 500 if the document is too large.
    #[must_use]
    pub fn with_document(
        self,
        path: &str,
        about: &str,
        document: impl Fn() -> Document + Clone + Send + Sync + 'static,
    ) -> Self {
        self.with(path, about, get(move || answered(document)))
    }

    /// Adds the documents below `path`, each by its name. The status is 404 for an unknown name.
    #[must_use]
    pub fn with_documents(
        self,
        path: &str,
        about: &str,
        document: impl Fn(&str) -> Document + Clone + Send + Sync + 'static,
    ) -> Self {
        let answer =
            |Path(name): Path<String>| async move { answered(move || document(&name)).await };
        let router = self.router.route(&format!("{path}/{{*name}}"), get(answer));
        Self { router, list: self.list }.listed(&format!("{path}/NAME"), about)
    }

    /// Adds an action on each name below `path`, which `POST` requests. The answer is a sentence: about
    /// the effect, or with status 409 about the reason why there is none. Only endpoints of a socket
    /// may have actions: everybody who reaches an address could request them.
    #[must_use]
    pub fn with_action<F>(
        self,
        path: &str,
        about: &str,
        act: impl Fn(String) -> F + Clone + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<String, String>> + Send + 'static,
    {
        let answer = |Path(name): Path<String>| async move {
            match act(name).await {
                Ok(effect) => Document::of(&serde_json::json!({ "effect": effect })).answer(),
                Err(reason) => Document::refused(reason).answer(),
            }
        };
        let router = self.router.route(&format!("{path}/{{*name}}"), posted(answer));
        Self { router, list: self.list }.listed(&format!("{path}/NAME"), about)
    }

    /// Adds a JSON document of any size, whose pieces are built while it is sent. The status is 503
    /// before the first document.
    #[must_use]
    pub fn with_pieces<P>(
        self,
        path: &str,
        about: &str,
        pieces: impl Fn() -> Option<P> + Clone + Send + Sync + 'static,
    ) -> Self
    where
        P: Iterator<Item = Vec<u8>> + Send + 'static,
    {
        let answer = move || async move {
            let Some(pieces) = pieces() else { return Document::default().answer() };
            let pieces = pieces.map(|piece| Ok::<_, Infallible>(Bytes::from(piece)));
            let body = Body::from_stream(futures::stream::iter(pieces));
            (document::HEADERS, body).into_response()
        };
        self.with(path, about, get(answer))
    }

    fn into_router(self) -> Router {
        let Self { router, list } = self;
        router.route("/", get(|| async move { list }))
    }
}

/// The readiness of an operator. Only a ready operator gets requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Readiness {
    /// The operator does not know its first state yet.
    #[default]
    NotYet,
    /// The operator knows its state.
    Ready,
    /// The operator lacks a right that it needs for every pool. Each line is one.
    Lacks(String),
    /// The operator knows its state, and its pool is not healthy. Each line is a problem.
    Unhealthy(String),
}

/// Builds the endpoints of an operator. `/healthz` is 503 while `alive` returns a problem, and then
/// has the problem. `/readyz` is 503 until the operator is `ready`, and while it lacks a right or its pool is
/// not healthy.
/// `/metrics` has the metrics.
pub fn operator_router(
    ready: watch::Receiver<Readiness>,
    alive: impl Fn() -> Result<(), String> + Clone + Send + Sync + 'static,
    registry: Arc<Registry>,
) -> Endpoints {
    let healthz = move || async move {
        match alive() {
            Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
            Err(why) => {
                tracing::error!(why, "this process is not healthy");
                (StatusCode::SERVICE_UNAVAILABLE, why + "\n")
            }
        }
    };
    let readyz = move || async move {
        match &*ready.borrow() {
            Readiness::NotYet => (StatusCode::SERVICE_UNAVAILABLE, "not ready yet\n".to_owned()),
            Readiness::Ready => (StatusCode::OK, "ok\n".to_owned()),
            Readiness::Lacks(lines) | Readiness::Unhealthy(lines) => {
                (StatusCode::SERVICE_UNAVAILABLE, format!("{lines}\n"))
            }
        }
    };
    Endpoints::default()
        .with("/healthz", "200 while it makes progress", get(healthz))
        .with("/readyz", "200 once it is ready", get(readyz))
        .with_metrics(registry)
}

/// Answers a request for a document.
async fn answered(
    document: impl FnOnce() -> Document + Send + 'static,
) -> axum::response::Response {
    match spawn_blocking(document).await {
        Ok(document) => document.answer(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn metrics(State(registry): State<Arc<Registry>>) -> impl IntoResponse {
    let mut text = String::new();
    match encode(&mut text, &registry) {
        Ok(()) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            (StatusCode::OK, [(header::CONTENT_TYPE, kind)], text)
        }
        Err(error) => {
            let kind = "text/plain; charset=utf-8";
            (StatusCode::INTERNAL_SERVER_ERROR, [(header::CONTENT_TYPE, kind)], error.to_string())
        }
    }
}

/// Starts to listen on `address`. Port 0 means any free port.
///
/// # Errors
///
/// [`ListenError`], a sentence for a person.
pub async fn listen(address: SocketAddr) -> Result<TcpListener, ListenError> {
    TcpListener::bind(address).await.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => ListenError::InUse(address),
        _ => ListenError::Failed(address, error),
    })
}

/// The reason why an address cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another process listens there.
    #[error("cannot listen on {0}: the port is in use; choose another one")]
    InUse(SocketAddr),
    /// The system reported an error.
    #[error("cannot listen on {0}: {1}")]
    Failed(SocketAddr, io::Error),
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;
    use tokio_util::sync::CancellationToken;

    use super::*;

    const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

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
    async fn readyz_fails_until_the_operator_is_ready() {
        let (sender, ready) = watch::channel(Readiness::NotYet);
        let address = served(operator_router(ready, || Ok(()), Arc::default())).await;
        assert!(get(address, "/readyz").await.starts_with("HTTP/1.1 503"));
        sender.send_replace(Readiness::Ready);
        assert!(get(address, "/readyz").await.starts_with("HTTP/1.1 200"));
        sender.send_replace(Readiness::Unhealthy("failing: 1 job\ns.yaml is invalid".into()));
        let answer = get(address, "/readyz").await;
        assert!(answer.starts_with("HTTP/1.1 503") && answer.ends_with("job\ns.yaml is invalid\n"));
        assert!(get(address, "/healthz").await.starts_with("HTTP/1.1 200"));
        assert!(get(address, "/metrics").await.ends_with("# EOF\n"));
    }

    #[tokio::test]
    async fn healthz_fails_while_the_loop_hangs() {
        let (_sender, ready) = watch::channel(Readiness::Ready);
        let hangs = || Err("the loop hangs".to_owned());
        let address = served(operator_router(ready, hangs, Arc::default())).await;
        let answer = get(address, "/healthz").await;
        assert!(
            answer.starts_with("HTTP/1.1 503") && answer.ends_with("the loop hangs\n"),
            "{answer}"
        );
    }

    #[tokio::test]
    async fn the_list_at_the_root_names_every_endpoint() {
        let (_readiness, readiness) = watch::channel(Readiness::Ready);
        let pool = || Document::of(&["a"]);
        let operator = operator_router(readiness, || Ok(()), Arc::default());
        let operator = operator.with_document("/api/v1/swarm", "the pool, as JSON", pool);
        let address = served(operator).await;
        let list = get(address, "/").await;
        let (_, list) = list.split_once("\r\n\r\n").unwrap();
        assert_eq!(list.lines().count(), 4, "{list}");
        for line in list.lines() {
            let (path, about) = line.split_once(' ').unwrap();
            assert!(get(address, path).await.starts_with("HTTP/1.1 200"), "{path}");
            assert!(!about.trim().is_empty(), "{path}");
        }
    }

    #[tokio::test]
    async fn a_port_in_use_is_reported_in_one_sentence() {
        let address = served(Endpoints::default()).await;
        let message = listen(address).await.unwrap_err().to_string();
        let expected = format!("cannot listen on {address}: the port is in use");
        assert!(message.starts_with(&expected) && message.lines().count() == 1, "{message}");
    }
}
