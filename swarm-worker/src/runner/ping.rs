//! A runner that pings another program over HTTP at a fixed interval.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use axum::http::{Request, StatusCode, header};
use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use swarm_adapters_host::metrics::PingMetrics;
use tokio::net::TcpStream;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::{Job, Outcome, Runner};

/// The path of a ping.
const PATH: &str = "/ping";

/// Sends `GET /ping` to `HOST:PORT`, which is the name of the job, at every interval.
#[derive(Clone, Debug)]
pub(crate) struct Ping {
    /// The time from one request to the next.
    pub(crate) interval: Duration,
    /// The time limit of a request, from the connect to the first line of the response.
    pub(crate) timeout: Duration,
    /// The counters of the results.
    pub(crate) metrics: PingMetrics,
}

impl Ping {
    /// Creates a runner with one ping every second, and a timeout of one second.
    #[must_use]
    pub(crate) fn new(metrics: PingMetrics) -> Self {
        Self { interval: Duration::from_secs(1), timeout: Duration::from_secs(1), metrics }
    }

    /// Sets the time from one ping to the next; it must not be zero.
    #[must_use]
    pub(crate) fn every(self, interval: Duration) -> Self {
        Self { interval: interval.max(Duration::from_millis(1)), ..self }
    }

    /// Sets the timeout of a ping.
    #[must_use]
    pub(crate) fn within(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }
}

#[async_trait]
impl Runner for Ping {
    async fn run(&self, job: &Job, stop: CancellationToken) -> Outcome {
        let address: Address = match job.name.as_str().parse() {
            Ok(address) => address,
            Err(error) => return Outcome::Failed(AddressError::to_string(&error)),
        };
        let metrics = self.metrics.of(job.name.as_str());
        let mut ticks = interval(self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let pings = async {
            loop {
                ticks.tick().await;
                let result = ask(&address, PATH, self.timeout).await;
                metrics.pinged(result.as_ref().ok().map(|pong| pong.latency));
                match result {
                    Ok(pong) => tracing::info!(job = %job.name, "{pong}"),
                    Err(error) => tracing::warn!(job = %job.name, "{error}"),
                }
            }
        };
        stop.run_until_cancelled(pings).await;
        Outcome::Ended
    }
}

/// Sends one `GET /ping` to `address`, which is `HOST:PORT`.
///
/// # Errors
///
/// [`PingError`], a sentence for a person.
pub(crate) async fn ping(address: &str, at_most: Duration) -> Result<Pong, PingError> {
    ask(&address.parse()?, PATH, at_most).await
}

/// Sends one `GET` to `url`, as in `http://127.0.0.1:8080/healthz`.
///
/// # Errors
///
/// [`PingError`], a sentence for a person.
pub(crate) async fn fetch(url: &str, at_most: Duration) -> Result<Pong, PingError> {
    let wrong = || AddressError(url.escape_default().to_string());
    let rest = url.strip_prefix("http://").ok_or_else(wrong)?;
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let has_port = authority.rsplit(']').next().is_some_and(|end| end.contains(':'));
    let address = if has_port { authority.to_owned() } else { format!("{authority}:80") };
    ask(&address.parse()?, if path.is_empty() { "/" } else { path }, at_most).await
}

/// A successful response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pong {
    /// The time from the start of the connect to the first line of the response.
    pub(crate) latency: Duration,
}

impl fmt::Display for Pong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "answered in {:.3} ms", self.latency.as_secs_f64() * 1e3)
    }
}

/// The reason why a ping failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PingError {
    /// The address is invalid.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The target could not be reached.
    #[error("{address} cannot be reached: {reason}")]
    Unreachable {
        /// The target.
        address: String,
        /// The error of the system, or of the protocol.
        reason: String,
    },
    /// The response was late.
    #[error("{address} did not answer within {} ms", at_most.as_millis())]
    Late {
        /// The target.
        address: String,
        /// The timeout.
        at_most: Duration,
    },
    /// The response has a status other than success.
    #[error("{address} answered {status}")]
    Refused {
        /// The target.
        address: String,
        /// The status.
        status: StatusCode,
    },
}

/// A text that is not `HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` cannot be pinged; write HOST:PORT, such as 127.0.0.1:9090 or [::1]:9090")]
pub(crate) struct AddressError(String);

/// The target of a ping.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Address {
    host: String,
    port: u16,
    shown: String,
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let parts = || {
            let (host, port) = text.rsplit_once(':')?;
            let port = port.parse().ok().filter(|port| *port != 0)?;
            let host = match host.strip_prefix('[') {
                Some(rest) => rest.strip_suffix(']').filter(|host| host.contains(':'))?,
                None => Some(host).filter(|host| !host.contains([':', ']']))?,
            };
            let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-_:%".contains(c);
            (!host.is_empty() && host.chars().all(is_plain)).then(|| (host.to_owned(), port))
        };
        let (host, port) =
            parts().ok_or_else(|| AddressError(text.escape_default().to_string()))?;
        Ok(Self { host, port, shown: text.to_owned() })
    }
}

async fn ask(address: &Address, path: &str, at_most: Duration) -> Result<Pong, PingError> {
    let began = Instant::now();
    let shown = || address.shown.clone();
    let answer = timeout(at_most, status(address, path)).await;
    let late = |_| PingError::Late { address: shown(), at_most };
    let status = answer.map_err(late)?.map_err(|error| {
        let reason = error.to_string();
        PingError::Unreachable { address: shown(), reason }
    })?;
    if !status.is_success() {
        return Err(PingError::Refused { address: shown(), status });
    }
    Ok(Pong { latency: began.elapsed() })
}

/// Sends a request over a new connection each time, since a ping has to test the connect, too.
async fn status(
    address: &Address,
    path: &str,
) -> Result<StatusCode, Box<dyn std::error::Error + Send + Sync>> {
    let stream = TcpStream::connect((address.host.as_str(), address.port)).await?;
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
    let _connection = AbortOnDropHandle::new(tokio::spawn(connection));
    let request = Request::get(path)
        .header(header::HOST, &address.shown)
        .header(header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())?;
    Ok(sender.send_request(request).await?.status())
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::routing::get;
    use tokio::net::{TcpListener, TcpSocket};

    use super::*;
    use crate::DEADLINE;

    async fn served(router: Router) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        address.to_string()
    }

    #[test]
    fn an_address_is_host_and_port() {
        let parts = |text: &str| text.parse::<Address>().map(|a| (a.host, a.port));
        assert_eq!(parts("db.local:80"), Ok(("db.local".into(), 80)));
        assert_eq!(parts("[::1]:9090"), Ok(("::1".into(), 9090)));
        for bad in ["", "a", "a:", ":80", "a:0", "a:65536", "::1:80", "[a]:80", "a/b:80", "a b:1"] {
            assert!(parts(bad).is_err(), "{bad:?} was accepted");
        }
        let message = parts("stream:cctv0:updated").unwrap_err().to_string();
        assert!(message.starts_with("`stream:cctv0:updated` cannot be pinged; write"), "{message}");
    }

    #[tokio::test]
    async fn a_url_is_fetched_with_its_path() {
        let address = served(Router::new().route("/a/b", get(|| async { "ok" }))).await;
        assert!(fetch(&format!("http://{address}/a/b"), DEADLINE).await.is_ok());
        let message = fetch(&format!("http://{address}"), DEADLINE).await.unwrap_err().to_string();
        assert_eq!(message, format!("{address} answered 404 Not Found"));
        for bad in ["", "127.0.0.1:80", "https://a:1/", "http://", "http://a:b/"] {
            let error = fetch(bad, DEADLINE).await;
            assert!(matches!(error, Err(PingError::Address(_))), "{bad}: {error:?}");
        }
    }

    #[tokio::test]
    async fn a_success_has_a_latency_and_a_failure_has_a_reason() {
        let good = served(Router::new().route("/ping", get(|| async { "pong" }))).await;
        assert!(ping(&good, DEADLINE).await.unwrap().to_string().starts_with("answered in "));
        let bad = served(Router::new()).await;
        let message = ping(&bad, DEADLINE).await.unwrap_err().to_string();
        assert_eq!(message, format!("{bad} answered 404 Not Found"));
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = silent.local_addr().unwrap().to_string();
        let message = ping(&address, Duration::from_millis(50)).await.unwrap_err().to_string();
        assert_eq!(message, format!("{address} did not answer within 50 ms"));
        // A port that this test keeps and on which nothing listens.
        let closed = TcpSocket::new_v4().unwrap();
        closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = closed.local_addr().unwrap().to_string();
        let message = ping(&address, DEADLINE).await.unwrap_err().to_string();
        assert!(message.contains(" cannot be reached: Connection refused"), "{message}");
    }
}
