//! Asks a worker which jobs it runs, over HTTP at the address of its pod.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::LazyLock;
use std::time::Duration;

use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Deserialize;
use swarm_client::api::VersionEndpoint;
use swarm_core::ViewEntry;

/// The longest time of an answer, from connecting to its last byte.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);
/// The largest answer, in bytes: some 20,000 jobs with the longest names.
const ANSWER_BYTES_MAX: usize = 6 << 20;
/// Bytes of an answer without its jobs.
const WITHOUT_JOBS_BYTES: usize = 64 << 10;
/// The longest pause between two questions to one worker.
const PAUSE_MAX: Duration = Duration::from_secs(15);

/// Thousands of workers are asked in turn, so no connection stays open.
static CLIENT: LazyLock<Client<HttpConnector, Empty<Bytes>>> =
    LazyLock::new(|| Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build_http());

/// A worker's answer. Unknown fields are ignored.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Answer {
    #[serde(default)]
    version: u64,
    jobs: Option<BTreeSet<String>>,
}

impl Answer {
    /// The answer of a worker whose response is too long for the jobs in question.
    fn of_something_else() -> Self {
        Self { version: 0, jobs: None }
    }

    /// Whether the worker runs the jobs of `entry`. If the worker reports jobs, they decide:
    /// programs for earlier versions of the operator always report version 0.
    pub(crate) fn is_of(&self, entry: &ViewEntry) -> bool {
        let Some(jobs) = &self.jobs else { return entry.version <= self.version };
        jobs.iter().map(String::as_str).eq(entry.jobs.iter().map(swarm_core::JobName::as_str))
    }
}

/// The pause before question `n`, counted from 0, about the same publication. It starts at 100 ms
/// and grows by half each time, up to 15 s.
pub(crate) fn pause(n: u32) -> Duration {
    let pause = 0.1 * 1.5_f64.powi(i32::try_from(n.min(20)).unwrap_or(20));
    Duration::from_secs_f64(pause).min(PAUSE_MAX)
}

/// The most bytes of an answer that reports the jobs of `entry`. A longer answer reports other
/// jobs, so the rest of it is not read. O(jobs).
pub(crate) fn bytes_max(entry: &ViewEntry) -> usize {
    // All characters but letters and digits may be escaped, as in `\u003c`. Each may have a line of
    // its own.
    let escaped = |c: char| if c.is_ascii_alphanumeric() { 1 } else { 6 * c.len_utf16() };
    let name = |name: &str| name.chars().map(escaped).sum::<usize>() + 16;
    let jobs = entry.jobs.iter().map(|job| name(job.as_str())).sum::<usize>();
    (WITHOUT_JOBS_BYTES + jobs).min(ANSWER_BYTES_MAX)
}

/// Asks the worker at `address`, and reads at most `bytes_max` bytes of its answer. Returns `None`
/// without a valid answer.
pub(crate) async fn ask(
    address: IpAddr,
    endpoint: &VersionEndpoint,
    bytes_max: usize,
) -> Option<Answer> {
    let port = u16::try_from(endpoint.port).ok()?;
    let path = endpoint.path.as_deref().unwrap_or("/internal/version");
    let get = get(SocketAddr::new(address, port), path, bytes_max);
    match tokio::time::timeout(ANSWER_TIMEOUT, get).await {
        Ok(Ok(body)) => serde_json::from_slice(&body).ok(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            tracing::debug!(%address, bytes_max, "a worker's answer is too long");
            Some(Answer::of_something_else())
        }
        Ok(Err(error)) => {
            tracing::debug!(%address, error, "a worker did not report its jobs");
            None
        }
        Err(_) => None,
    }
}

async fn get(
    address: SocketAddr,
    path: &str,
    bytes_max: usize,
) -> Result<Bytes, Box<dyn std::error::Error + Send + Sync>> {
    let request = http::Request::get(format!("http://{address}{path}"))
        .header(http::header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())?;
    let response = CLIENT.request(request).await?;
    if response.status() != http::StatusCode::OK {
        return Err(format!("it answered {}", response.status()).into());
    }
    let body = Limited::new(response.into_body(), bytes_max).collect().await?;
    Ok(body.to_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    fn entry(version: u64, jobs: &[&str]) -> ViewEntry {
        let jobs = jobs.iter().map(|job| job.parse().unwrap()).collect();
        ViewEntry { slot: None, version, jobs }
    }

    fn answer(json: &str) -> Answer {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn an_answer_is_compared_by_its_jobs_or_without_them_by_its_version() {
        let wanted = entry(7, &["a", "b"]);
        assert!(answer(r#"{"version":0,"jobs":["b","a"],"more":1}"#).is_of(&wanted));
        assert!(!answer(r#"{"version":7,"jobs":["a"]}"#).is_of(&wanted));
        assert!(answer(r#"{"version":7}"#).is_of(&wanted));
        assert!(!answer(r#"{"version":6}"#).is_of(&wanted));
    }

    #[test]
    fn a_worker_is_asked_often_at_first_and_then_ever_less() {
        assert_eq!(pause(0), Duration::from_millis(100));
        assert!((0..6).map(pause).sum::<Duration>() < Duration::from_secs(3));
        assert_eq!((pause(13), pause(u32::MAX)), (PAUSE_MAX, PAUSE_MAX));
    }

    /// Answers one request with these bytes, from a server of its own.
    async fn asked(response: &str) -> (Option<Answer>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let response = response.to_owned();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 1_024];
            let read = stream.read(&mut request).await.unwrap();
            // The client may close the connection before it has read all bytes.
            let _ = stream.write_all(response.as_bytes()).await;
            String::from_utf8_lossy(&request[..read]).into_owned()
        });
        let endpoint = VersionEndpoint { port: address.port().into(), path: Some("/v".into()) };
        let answer = ask(address.ip(), &endpoint, bytes_max(&entry(3, &["a"]))).await;
        (answer, server.await.unwrap())
    }

    #[tokio::test]
    async fn a_worker_is_asked_at_its_own_address_and_path() {
        let ok = "HTTP/1.1 200 OK\r\ncontent-length: 26\r\n\r\n{\"version\":3,\"jobs\":[\"a\"]}";
        let (said, request) = asked(ok).await;
        assert!(said.unwrap().is_of(&entry(3, &["a"])));
        assert!(request.starts_with("GET /v HTTP/1.1\r\n"), "{request}");
        assert!(request.contains("\r\nhost: 127.0.0.1:"), "{request}");
    }

    #[tokio::test]
    async fn an_answer_that_is_longer_than_the_jobs_is_about_others_and_is_not_read_to_its_end() {
        let jobs = vec!["\"x\""; 100_000].join(",");
        let body = format!("{{\"version\":3,\"jobs\":[{jobs}]}}");
        let length = body.len();
        for head in [format!("content-length: {length}"), "connection: close".into()] {
            let response = format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{body}");
            let (said, _) = asked(&response).await;
            assert_eq!(said, Some(Answer::of_something_else()), "{head}");
            assert!(!said.unwrap().is_of(&entry(1, &[])));
        }
    }

    #[test]
    fn so_much_is_read_as_the_jobs_may_need() {
        let names = ["stream:cars:new", "a/<b>\""];
        let wanted = entry(1, &names);
        let escaped = ["stream:cars:new", "\\u0061\\u002f\\u003cb\\u003e\\u0022"];
        let lines: Vec<_> = escaped.iter().map(|name| format!("        \"{name}\"")).collect();
        let json = format!("{{\n  \"jobs\": [\n{}\n]}}", lines.join(",\n"));
        assert_eq!(bytes_max(&wanted), 64 * 1_024 + 15 + 2 * 5 + 16 + 2 + 4 * 6 + 16);
        assert!(answer(&json).is_of(&wanted));
        assert!(json.len() <= bytes_max(&wanted));
        let many: Vec<_> = (0..500_000).map(|n| format!("job-{n}")).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        assert_eq!(bytes_max(&entry(1, &many)), ANSWER_BYTES_MAX);
    }

    #[tokio::test]
    async fn what_makes_no_sense_is_no_answer() {
        for response in [
            "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\noops",
            "HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{}",
            "not HTTP at all",
        ] {
            assert_eq!(asked(response).await.0, None, "{response}");
        }
    }
}
