//! A runner that pings another program over HTTP at a fixed interval.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use axum::http::StatusCode;
use swarm_adapters_host::http::request_from;
use swarm_adapters_host::metrics::{PingMetrics, TargetMetrics};
use swarm_core::JobName;
use swarm_spec::hostport;
use tokio::net::TcpStream;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::{Job, Outcome, Readiness, Runner};

/// The path of a ping.
const PATH: &str = "/ping";

/// Number of pings in a row without an answer that end the run of a target that has answered before.
const UNANSWERED_MAX: u32 = 3;

/// Sends `GET /ping` to `HOST:PORT`, which is the name of the job, at every interval. A run ends with
/// the reason if its first ping gets no answer, or later three in a row.
#[derive(Clone, Debug)]
pub(crate) struct Ping {
    /// The time from one request to the next.
    pub(crate) interval: Duration,
    /// The time limit of a request, from the connect to the first line of the response.
    pub(crate) timeout: Duration,
    /// The counters of the results.
    pub(crate) metrics: PingMetrics,
    /// The counters of the targets whose last run has failed: they go on in the next run.
    failed: Arc<Mutex<BTreeMap<JobName, TargetMetrics>>>,
}

impl Ping {
    /// Creates a runner with one ping every second, and a timeout of one second.
    #[must_use]
    pub(crate) fn new(metrics: PingMetrics) -> Self {
        let second = Duration::from_secs(1);
        Self { interval: second, timeout: second, metrics, failed: Arc::default() }
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

    fn failed(&self) -> MutexGuard<'_, BTreeMap<JobName, TargetMetrics>> {
        // A thread that panicked while holding the lock cannot have left an incomplete entry.
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pings until the target does not answer any more, and returns the reason.
    async fn until_unanswered(
        &self,
        address: &Address,
        job: &Job,
        metrics: &TargetMetrics,
    ) -> String {
        let mut ticks = interval(self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut left = 1;
        loop {
            ticks.tick().await;
            let result = ask(address, PATH, self.timeout).await;
            metrics.pinged(result.as_ref().ok().map(|pong| pong.latency));
            match result {
                Ok(pong) => {
                    job.set_readiness(Readiness::Ready);
                    left = UNANSWERED_MAX;
                    tracing::info!(job = %job.name, "{pong}");
                }
                Err(error) if left == 1 => return error.to_string(),
                Err(error) => {
                    left -= 1;
                    tracing::warn!(job = %job.name, "{error}");
                }
            }
        }
    }
}

#[async_trait]
impl Runner for Ping {
    async fn run(&self, job: &Job, stop: CancellationToken) -> Outcome {
        let address: Address = match job.name.as_str().parse() {
            Ok(address) => address,
            Err(error) => return Outcome::Failed(AddressError::to_string(&error)),
        };
        let kept = self.failed().remove(&job.name);
        let metrics = kept.unwrap_or_else(|| self.metrics.of(job.name.as_str()));
        job.set_readiness(Readiness::Awaited);
        let pings = self.until_unanswered(&address, job, &metrics);
        let Some(reason) = stop.run_until_cancelled(pings).await else { return Outcome::Ended };
        self.failed().insert(job.name.clone(), metrics);
        Outcome::Failed(reason)
    }

    fn forget(&self, job: &JobName) {
        self.failed().remove(job);
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
#[error("`{0}` cannot be pinged; {instead}", instead = hostport::INSTEAD)]
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
        let wrong = || AddressError(text.escape_default().to_string());
        let (host, port) = hostport::parts(text).ok_or_else(wrong)?;
        Ok(Self { host: host.to_owned(), port, shown: text.to_owned() })
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
async fn status(address: &Address, path: &str) -> io::Result<StatusCode> {
    let stream = TcpStream::connect((address.host.as_str(), address.port)).await?;
    Ok(request_from(&address.shown, stream, path).await?.status())
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
    fn a_name_that_is_no_address_has_a_sentence() {
        let message = "stream:cctv0:updated".parse::<Address>().unwrap_err().to_string();
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
