//! A proxy in front of the API server, which sees every write of one client. It can stop at any
//! write, so that the client can be killed at that point.
//!
//! The client uses plain HTTP. The proxy has credentials for the API server.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use http::{HeaderName, Method, Request, Response, StatusCode, header};
use kube::Client;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

/// The largest body of a request. The API server takes less.
const BODY_BYTES_MAX: usize = 4 << 20;
/// The path of the Leases of the operator's replicas. Their names have random numbers.
const REPLICAS: &str = "/apis/coordination.k8s.io/v1/namespaces/swarm-system/leases";
/// The headers of a single connection, which are not passed on.
const OF_CONNECTION: [HeaderName; 3] =
    [header::HOST, header::CONNECTION, header::TRANSFER_ENCODING];

/// One writing request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Write {
    /// The method, or `EVENT` for a new Event and its repeats.
    pub method: String,
    /// The path, without its query and without the name of a replica's Lease.
    pub path: String,
}

impl Write {
    fn of<T>(request: &Request<T>) -> Option<Self> {
        if request.method() == Method::GET {
            return None;
        }
        let path = request.uri().path();
        let event =
            path.strip_prefix("/apis/events.k8s.io/v1/").and_then(|it| it.split_once("/events"));
        if let Some((namespace, _)) = event {
            return Some(Self { method: "EVENT".into(), path: namespace.into() });
        }
        let path = if path.starts_with(REPLICAS) { REPLICAS } else { path };
        Some(Self { method: request.method().to_string(), path: path.into() })
    }

    /// Whether the write is an Event.
    #[must_use]
    pub fn is_event(&self) -> bool {
        self.method == "EVENT"
    }

    /// Whether the object is a history, which no operator decides by.
    pub(crate) fn is_of_history(&self) -> bool {
        self.path.contains("/swarmhistories")
    }

    /// Whether the write is about a replica's own Lease, which is written all the time.
    #[must_use]
    pub fn is_of_replica(&self) -> bool {
        self.path == REPLICAS
    }

    /// Whether the write is about a pod.
    #[must_use]
    pub fn is_nudge(&self) -> bool {
        self.path.contains("/pods/")
    }
}

impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}

/// The side of a write at which the proxy stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// The write does not reach the API server.
    Before,
    /// The write is carried out, and its answer is withheld.
    After,
    /// The write is carried out on [`Proxy::release`]. All other writes pass meanwhile.
    Late,
}

/// Chooses the writes to stop at.
pub type Trap = Box<dyn FnMut(&Write) -> Option<Side> + Send>;

/// The running proxy. It ends with this value.
pub struct Proxy {
    /// The address of the proxy.
    pub address: SocketAddr,
    gate: Arc<Gate>,
    server: JoinHandle<()>,
}

struct Gate {
    client: Client,
    state: Mutex<Doings>,
    stopped: Notify,
    /// The number of [late](Side::Late) writes that were released.
    released: watch::Sender<usize>,
    answered: Notify,
}

struct Doings {
    trap: Trap,
    is_shut: bool,
    stopped_at: Option<Write>,
    passed: Vec<Write>,
    last: Instant,
    /// The API server's answer to the last [late](Side::Late) write.
    answer: Option<(StatusCode, String)>,
}

impl Proxy {
    /// Starts a proxy that passes everything on as `client`.
    ///
    /// # Errors
    ///
    /// When every port is in use.
    pub async fn start(client: Client) -> Result<Self> {
        let doings = Doings {
            trap: Box::new(|_| None),
            is_shut: false,
            stopped_at: None,
            passed: Vec::new(),
            last: Instant::now(),
            answer: None,
        };
        let gate = Arc::new(Gate {
            client,
            state: Mutex::new(doings),
            stopped: Notify::new(),
            released: watch::Sender::new(0),
            answered: Notify::new(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let router = Router::new().fallback(pass).with_state(Arc::clone(&gate));
        let server = tokio::spawn(async move {
            // The server only ends with the task.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { address, gate, server })
    }

    /// Stops at the writes that `trap` chooses from now on, and forgets the writes that have
    /// passed.
    pub fn set_trap(&self, trap: Trap) {
        let mut state = self.gate.lock();
        state.trap = trap;
        state.passed.clear();
    }

    /// Waits until the proxy has stopped at a write, and returns that write. No other write passes
    /// until [`Self::reopen`].
    pub async fn stopped(&self) -> Write {
        loop {
            self.gate.stopped.notified().await;
            if let Some(write) = self.gate.lock().stopped_at.take() {
                return write;
            }
        }
    }

    /// Lets writes pass again.
    pub fn reopen(&self) {
        self.gate.lock().is_shut = false;
    }

    /// Has the [late](Side::Late) write carried out, and returns the answer of the API server.
    pub async fn release(&self) -> (StatusCode, String) {
        self.gate.released.send_modify(|released| *released += 1);
        loop {
            self.gate.answered.notified().await;
            if let Some(answer) = self.gate.lock().answer.take() {
                return answer;
            }
        }
    }

    /// The writes that were carried out, in order.
    #[must_use]
    pub fn passed(&self) -> Vec<Write> {
        self.gate.lock().passed.clone()
    }

    /// The time since the last write, except writes of replicas' own Leases.
    #[must_use]
    pub fn quiet_for(&self) -> Duration {
        self.gate.lock().last.elapsed()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// The treatment of one write.
enum Fate {
    Pass,
    Hold,
    PassAndHold,
    PassLate,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, Doings> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fate(&self, write: &Write) -> Fate {
        let mut state = self.lock();
        if state.is_shut {
            return Fate::Hold;
        }
        if !write.is_of_replica() {
            state.last = Instant::now();
        }
        let side = (state.trap)(write);
        // The gate is shut at once in both cases, so that no later write passes.
        state.is_shut = matches!(side, Some(Side::Before | Side::After));
        match side {
            None => Fate::Pass,
            Some(Side::Before) => {
                drop(state);
                self.stop_at(write.clone());
                Fate::Hold
            }
            Some(Side::After) => Fate::PassAndHold,
            Some(Side::Late) => Fate::PassLate,
        }
    }

    fn stop_at(&self, write: Write) {
        self.lock().stopped_at = Some(write);
        self.stopped.notify_one();
    }

    async fn forward(&self, request: Request<Body>) -> Result<Response<Body>> {
        let (mut parts, body) = request.into_parts();
        for name in OF_CONNECTION {
            parts.headers.remove(name);
        }
        let body = kube::client::Body::from(to_bytes(body, BODY_BYTES_MAX).await?);
        let answer = self.client.send(Request::from_parts(parts, body)).await?;
        let mut answer = answer.map(Body::new);
        for name in OF_CONNECTION {
            answer.headers_mut().remove(name);
        }
        Ok(answer)
    }
}

async fn pass(State(gate): State<Arc<Gate>>, request: Request<Body>) -> Response<Body> {
    let write = Write::of(&request);
    let fate = write.as_ref().map_or(Fate::Pass, |write| gate.fate(write));
    if matches!(fate, Fate::Hold) {
        // The request ends when its client ends.
        return std::future::pending().await;
    }
    if let (Fate::PassLate, Some(write)) = (&fate, &write) {
        return late(gate, write.clone(), request).await;
    }
    // A separate task forwards it: the API server carries out a request even if its client has
    // died.
    let forward = {
        let gate = Arc::clone(&gate);
        tokio::spawn(async move { gate.forward(request).await })
    };
    let answer = forward.await.map_err(anyhow::Error::from).flatten();
    gate.lock().passed.extend(write.clone());
    if let (Fate::PassAndHold, Some(write)) = (fate, write) {
        gate.stop_at(write);
        return std::future::pending().await;
    }
    answer.unwrap_or_else(|err| not_reached(&err))
}

/// Carries out a write when it is released, even if its client has died meanwhile.
async fn late(gate: Arc<Gate>, write: Write, request: Request<Body>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let mut released = gate.released.subscribe();
    let before = *released.borrow_and_update();
    let carried_out = tokio::spawn(async move {
        let body = to_bytes(body, BODY_BYTES_MAX).await?;
        gate.stop_at(write);
        released.wait_for(|released| before < *released).await?;
        let answer = gate.forward(Request::from_parts(parts, Body::from(body))).await?;
        let (head, body) = answer.into_parts();
        let body = to_bytes(body, BODY_BYTES_MAX).await?;
        let text = String::from_utf8_lossy(&body).into_owned();
        gate.lock().answer = Some((head.status, text));
        gate.answered.notify_one();
        anyhow::Ok(Response::from_parts(head, Body::from(body)))
    });
    carried_out.await.map_err(anyhow::Error::from).flatten().unwrap_or_else(|err| not_reached(&err))
}

/// The answer for a request that got none from the API server.
fn not_reached(err: &anyhow::Error) -> Response<Body> {
    let mut answer = Response::new(Body::from(format!("{err:#}")));
    *answer.status_mut() = StatusCode::BAD_GATEWAY;
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(method: &str, path: &str) -> Option<Write> {
        Write::of(&Request::builder().method(method).uri(path).body(()).unwrap())
    }

    #[test]
    fn a_write_is_identified_by_method_and_path_and_a_read_is_none() {
        let patch = write("PATCH", "/api/v1/namespaces/a/pods/b?fieldManager=c").unwrap();
        assert_eq!(patch.to_string(), "PATCH /api/v1/namespaces/a/pods/b");
        assert_eq!(write("GET", "/api/v1/pods?watch=true"), None);
    }

    #[test]
    fn all_writes_of_replicas_own_leases_are_the_same() {
        let (first, next) =
            (write("PUT", &format!("{REPLICAS}/r-1")), write("PUT", &format!("{REPLICAS}/r-2")));
        assert!(first.as_ref().is_some_and(Write::is_of_replica));
        assert_eq!(first, next);
        let of_a_worker = "/apis/coordination.k8s.io/v1/namespaces/a/leases/b";
        assert!(!write("PUT", of_a_worker).unwrap().is_of_replica());
    }

    #[test]
    fn an_event_and_its_repeat_are_the_same_write() {
        let path = "/apis/events.k8s.io/v1/namespaces/a/events";
        let (new, repeat) = (write("POST", path), write("PATCH", &format!("{path}/b.1")));
        assert!(new.as_ref().is_some_and(Write::is_event));
        assert_eq!(new, repeat);
        assert_eq!(new.unwrap().to_string(), "EVENT namespaces/a");
    }
}
