//! Answers requests within limits, so that no client can exhaust the server or keep other clients
//! from an answer.
//!
//! - At most [`CONNECTIONS_MAX`] connections are open. A new connection replaces the one with the
//!   oldest last request, so a new request such as a liveness probe is always served.
//! - The head of a request has to arrive within [`HEAD_MAX`], and has at most [`HEAD_BYTES_MAX`]
//!   bytes. A connection that is idle for [`HEAD_MAX`] is closed.
//! - No connection lasts longer than [`LIFE_MAX`], even if its client does not read the answer.
//! - On the loopback interface, a request must name this machine by a loopback name. So a web page
//!   whose name resolves to 127.0.0.1 gets no answer: the browser sends the page's own name.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use axum::serve::Listener;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::{AbortHandle, Id, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::Endpoints;

/// The maximum number of open connections.
pub const CONNECTIONS_MAX: usize = 256;
/// The time limit for the head of a request, and for an idle connection.
pub const HEAD_MAX: Duration = Duration::from_secs(10);
/// The size limit of the head of a request, in bytes.
pub const HEAD_BYTES_MAX: usize = 16 << 10;
/// The maximum lifetime of a connection.
pub const LIFE_MAX: Duration = Duration::from_mins(5);

/// The time that requests in progress have once their connection or the server has to end.
pub(super) const DRAIN: Duration = Duration::from_secs(1);

/// The address of a listener.
pub trait Place: fmt::Debug {
    /// Returns whether it is an address of the loopback interface.
    fn is_loopback(&self) -> bool;
}

impl Place for SocketAddr {
    fn is_loopback(&self) -> bool {
        self.ip().is_loopback()
    }
}

/// A socket in a directory, whose address a browser cannot reach.
impl Place for tokio::net::unix::SocketAddr {
    fn is_loopback(&self) -> bool {
        false
    }
}

/// Serves requests until `shutdown` is cancelled. Requests in progress then have one more second.
///
/// # Errors
///
/// If the listener has no address.
pub async fn serve<L>(
    mut listener: L,
    endpoints: Endpoints,
    shutdown: CancellationToken,
) -> io::Result<()>
where
    L: Listener<Addr: Place>,
{
    let router = endpoints.into_router();
    let is_loopback = listener.local_addr()?.is_loopback();
    let router = if is_loopback { router.layer(from_fn(check_host)) } else { router };
    let mut connections = Connections::default();
    loop {
        let (io, _) = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shutdown.cancelled() => break,
        };
        connections.make_room().await;
        connections.add(io, router.clone(), shutdown.clone());
    }
    drop(listener);
    // A client that keeps its connection open must not delay the end of the program.
    let _ = timeout(DRAIN, connections.ended()).await;
    Ok(())
}

/// The open connections.
#[derive(Default)]
struct Connections {
    tasks: JoinSet<()>,
    open: HashMap<Id, Open>,
    /// The number of connections and requests so far, which orders the connections by last use.
    count: Arc<AtomicU64>,
}

struct Open {
    /// The value of `count` at its last request.
    used: Arc<AtomicU64>,
    task: AbortHandle,
}

impl Connections {
    /// Waits until there is room for another connection, and closes one if necessary.
    async fn make_room(&mut self) {
        while let Some(ended) = self.tasks.try_join_next_with_id() {
            self.forget(ended);
        }
        while CONNECTIONS_MAX <= self.open.len() {
            let oldest = self.open.values().min_by_key(|open| open.used.load(Ordering::Relaxed));
            if let Some(oldest) = oldest {
                oldest.task.abort();
            }
            if let Some(ended) = self.tasks.join_next_with_id().await {
                self.forget(ended);
            }
        }
    }

    fn forget(&mut self, ended: Result<(Id, ()), tokio::task::JoinError>) {
        let id = ended.map_or_else(|error| error.id(), |(id, ())| id);
        self.open.remove(&id);
    }

    fn add<I>(&mut self, io: I, router: Router, shutdown: CancellationToken)
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let next = |count: &AtomicU64| count.fetch_add(1, Ordering::Relaxed);
        let (count, used) = (Arc::clone(&self.count), Arc::new(AtomicU64::new(next(&self.count))));
        let last = Arc::clone(&used);
        let router = TowerToHyperService::new(router);
        let service = service_fn(move |request: hyper::Request<Incoming>| {
            last.store(next(&count), Ordering::Relaxed);
            router.call(request)
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_MAX)
            .max_buf_size(HEAD_BYTES_MAX)
            .serve_connection(TokioIo::new(io), service);
        let task = self.tasks.spawn(async move {
            let mut connection = pin!(connection);
            tokio::select! {
                // An error of the connection is the client's problem.
                _ = connection.as_mut() => return,
                () = sleep(LIFE_MAX) => {}
                () = shutdown.cancelled() => {}
            }
            connection.as_mut().graceful_shutdown();
            let _ = timeout(DRAIN, connection).await;
        });
        self.open.insert(task.id(), Open { used, task });
    }

    async fn ended(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Refuses a request that does not name this machine by a loopback name. A request without any name
/// is accepted, since browsers always send one.
async fn check_host(request: Request, next: Next) -> Response {
    let hosts = request.headers().get_all(header::HOST);
    let is_ours = |host: &header::HeaderValue| host.to_str().is_ok_and(is_loopback_name);
    if hosts.iter().all(is_ours) {
        return next.run(request).await;
    }
    let sentence = "this address is for programs on this machine, and answers to the name localhost \
                    or 127.0.0.1 only; use one of them\n";
    (StatusCode::FORBIDDEN, sentence).into_response()
}

/// Returns whether a host, with or without a port, is `localhost` or a loopback address.
fn is_loopback_name(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        // The text after the last colon is the port. A colon in brackets belongs to the address.
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    name == "localhost"
        || name.ends_with(".localhost")
        || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::super::{Readiness, listen, operator_router};
    use super::*;

    const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

    /// Serves an operator's endpoints, with a document that exceeds every buffer.
    async fn served() -> (SocketAddr, CancellationToken) {
        let (listener, shutdown) = (listen(ANY).await.unwrap(), CancellationToken::new());
        let address = listener.local_addr().unwrap();
        let (sender, ready) = tokio::sync::watch::channel(Readiness::Ready);
        let endless = || Some(std::iter::repeat_with(|| vec![b'x'; 1 << 16]));
        let endpoints = operator_router(ready, || Ok(()), Arc::default());
        let endpoints = endpoints.with_pieces("/endless", "more and more", endless);
        let server = serve(listener, endpoints, shutdown.clone());
        tokio::spawn(async move {
            let _ready = sender;
            server.await
        });
        (address, shutdown)
    }

    async fn answer(address: SocketAddr, host: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET /healthz HTTP/1.1\r\n{host}Connection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer.lines().next().unwrap_or_default().to_owned()
    }

    /// Returns the number of connections that the server has not closed.
    async fn held(connections: &mut [TcpStream]) -> usize {
        let mut held = 0;
        for connection in connections {
            let mut byte = [0];
            // A closed connection is seen at once. The others have nothing to read.
            let read = timeout(Duration::from_millis(1), connection.read(&mut byte)).await;
            held += usize::from(read.is_err());
        }
        held
    }

    /// Raises the limit of open files: both ends of each connection belong to this process.
    fn allow_files(count: u64) {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        if current.is_some_and(|current| current < count) {
            let current = maximum.map_or(count, |maximum| maximum.min(count));
            setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum }).unwrap();
        }
    }

    #[tokio::test]
    async fn liveness_is_answered_while_two_thousand_connections_are_idle() {
        allow_files(5_000);
        let (address, _shutdown) = served().await;
        let mut idle = Vec::new();
        for number in 0..2_000 {
            let mut connection = TcpStream::connect(address).await.unwrap();
            // Every second connection has begun a request that never continues.
            if number % 2 == 0 {
                connection.write_all(b"GET /healthz HT").await.unwrap();
            }
            idle.push(connection);
            if number % 500 == 0 {
                assert_eq!(answer(address, "Host: localhost\r\n").await, "HTTP/1.1 200 OK");
            }
        }
        assert_eq!(answer(address, "Host: localhost\r\n").await, "HTTP/1.1 200 OK");
        let held = held(&mut idle).await;
        assert!(held < CONNECTIONS_MAX, "{held} are held");
    }

    #[tokio::test]
    async fn readers_that_do_not_read_make_room_as_well() {
        allow_files(5_000);
        let (address, _shutdown) = served().await;
        let mut deaf = Vec::new();
        for _ in 0..=CONNECTIONS_MAX {
            let mut connection = TcpStream::connect(address).await.unwrap();
            connection.write_all(b"GET /endless HTTP/1.1\r\nHost: [::1]:1\r\n\r\n").await.unwrap();
            deaf.push(connection);
        }
        assert_eq!(answer(address, "Host: localhost\r\n").await, "HTTP/1.1 200 OK");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_is_idle_or_slow_or_does_not_end_is_closed() {
        let (address, _shutdown) = served().await;
        let began = tokio::time::Instant::now();
        for (sent, within) in [
            ("", HEAD_MAX),
            ("GET / HTTP/1.1\r\nHost: local", HEAD_MAX),
            ("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", HEAD_MAX),
        ] {
            let mut connection = TcpStream::connect(address).await.unwrap();
            connection.write_all(sent.as_bytes()).await.unwrap();
            let since = tokio::time::Instant::now();
            let closed = timeout(2 * within, connection.read_to_end(&mut Vec::new())).await;
            assert!(closed.is_ok(), "{sent:?} is open after {:?}", since.elapsed());
        }
        assert!(HEAD_MAX <= began.elapsed());
        let mut deaf = TcpStream::connect(address).await.unwrap();
        deaf.write_all(b"GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        sleep(LIFE_MAX + 2 * DRAIN).await;
        // The client receives the buffered bytes, and then the end.
        let end = timeout(HEAD_MAX, async {
            let mut piece = vec![0; 1 << 16];
            while deaf.read(&mut piece).await.is_ok_and(|length| 0 < length) {}
        });
        end.await.unwrap();
    }

    #[tokio::test]
    async fn a_head_that_is_too_long_is_refused() {
        let (address, _shutdown) = served().await;
        let long = format!("Host: localhost\r\nX: {}\r\n", "x".repeat(HEAD_BYTES_MAX));
        assert!(answer(address, &long).await.starts_with("HTTP/1.1 431"));
    }

    #[tokio::test]
    async fn the_name_of_a_web_page_gets_no_answer_on_the_loopback_interface() {
        let (address, _shutdown) = served().await;
        let port = address.port();
        for good in ["localhost", "LOCALHOST.", "a.localhost", "127.0.0.1", "127.9.9.9", "[::1]"] {
            for host in [good.to_owned(), format!("{good}:{port}")] {
                let status = answer(address, &format!("Host: {host}\r\n")).await;
                assert_eq!(status, "HTTP/1.1 200 OK", "{host}");
            }
        }
        assert_eq!(answer(address, "").await, "HTTP/1.1 200 OK", "no browser leaves it out");
        for bad in [
            "evil.example",
            "localhost.evil.example",
            "10.0.0.1",
            "",
            "127.0.0.1.evil.example",
            "::1@evil",
        ] {
            let status = answer(address, &format!("Host: {bad}:{port}\r\n")).await;
            assert!(!status.contains("200"), "{bad}: {status}");
        }
        let two = "Host: localhost\r\nHost: evil.example\r\n";
        assert!(!answer(address, two).await.contains("200"));
    }

    #[tokio::test]
    async fn an_open_connection_does_not_keep_the_server_from_ending() {
        let shutdown = CancellationToken::new();
        let listener = listen(ANY).await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(serve(listener, Endpoints::default(), shutdown.clone()));
        let _open = TcpStream::connect(address).await.unwrap();
        shutdown.cancel();
        timeout(crate::DEADLINE, server).await.unwrap().unwrap().unwrap();
    }
}
