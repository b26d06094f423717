//! An HTTP client for connections of any kind. It sends one request over each connection.

use std::io;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

/// The size limit of a complete answer, and of each line of an answer that is read in lines.
const BYTES_MAX: usize = 64 << 20;

/// The maximum time between two pieces of an answer.
const IDLE_MAX: Duration = Duration::from_secs(5);

/// The maximum time for the whole body of an answer.
const WHOLE_MAX: Duration = Duration::from_mins(5);

/// The answer to a request, before its body is read.
pub struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Incoming,
    _connection: AbortOnDropHandle<hyper::Result<()>>,
}

/// The reason why a request got no answer.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// The connection ended early.
    #[error("the connection failed: {0}")]
    Connection(#[from] hyper::Error),
    /// The request cannot be expressed in HTTP.
    #[error("the request is invalid: {0}")]
    Request(#[from] axum::http::Error),
    /// The answer is larger than the limit.
    #[error("the answer is larger than {BYTES_MAX} bytes")]
    TooLarge,
    /// The server stopped in the middle of the answer.
    #[error(
        "the answer broke off: nothing came for {} s; if the pool was suspended with Ctrl-Z, \
         continue it with `fg`, or end it with `swarm stop`",
        IDLE_MAX.as_secs()
    )]
    BrokenOff,
    /// The server sends the answer too slowly.
    #[error("the answer is not complete after {} s", WHOLE_MAX.as_secs())]
    TooSlow,
}

impl From<AnswerError> for io::Error {
    fn from(error: AnswerError) -> Self {
        Self::other(error)
    }
}

/// Sends one `GET` for `path` on a new connection. Every character other than letters, digits and
/// `-._~/` must be escaped with `%`.
///
/// # Errors
///
/// [`AnswerError`], a sentence for a person.
pub async fn get(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    path: &str,
) -> Result<Answer, AnswerError> {
    send(stream, "localhost", Method::GET, path, None).await
}

/// Same as [`get`], for a server at `host`, which may have a port.
///
/// # Errors
///
/// As [`get`].
pub async fn get_from(
    host: &str,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    path: &str,
) -> Result<Answer, AnswerError> {
    send(stream, host, Method::GET, path, None).await
}

/// Same as [`get`], with this `Accept` header.
///
/// # Errors
///
/// As [`get`].
pub async fn get_as(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    path: &str,
    accept: &str,
) -> Result<Answer, AnswerError> {
    send(stream, "localhost", Method::GET, path, Some(accept)).await
}

/// Same as [`get`], with a `POST` that has no body.
///
/// # Errors
///
/// As [`get`].
pub async fn post(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    path: &str,
) -> Result<Answer, AnswerError> {
    send(stream, "localhost", Method::POST, path, None).await
}

async fn send(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    host: &str,
    method: Method,
    path: &str,
    accept: Option<&str>,
) -> Result<Answer, AnswerError> {
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
    let connection = AbortOnDropHandle::new(tokio::spawn(connection));
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, host)
        .header(header::CONNECTION, "close");
    let request = match accept {
        Some(accept) => request.header(header::ACCEPT, accept),
        None => request,
    };
    let request = request.body(Empty::<Bytes>::new())?;
    let (parts, body) = sender.send_request(request).await?.into_parts();
    let (status, headers) = (parts.status, parts.headers);
    Ok(Answer { status, headers, body, _connection: connection })
}

/// Escapes a name as one part of a path, or as one value of a query.
///
/// ```
/// use swarm_adapters_host::http::escaped;
///
/// assert_eq!(escaped("cam/1?"), "cam%2F1%3F");
/// ```
#[must_use]
pub fn escaped(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let escape = |byte: u8| {
        if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    };
    name.bytes().map(escape).collect()
}

impl Answer {
    /// Returns the status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the time at which the server answered, as its header `Date` has it.
    #[must_use]
    pub fn date(&self) -> Option<&str> {
        self.headers.get(header::DATE)?.to_str().ok()
    }

    /// Reads the whole body.
    ///
    /// # Errors
    ///
    /// [`AnswerError`], also if the body has more than 64 MiB or takes more than 5 minutes.
    pub async fn whole(self) -> Result<Vec<u8>, AnswerError> {
        timeout(WHOLE_MAX, self.pieces()).await.unwrap_or(Err(AnswerError::TooSlow))
    }

    async fn pieces(mut self) -> Result<Vec<u8>, AnswerError> {
        let mut whole = Vec::new();
        while let Some(piece) = self.piece().await? {
            if BYTES_MAX - whole.len() < piece.len() {
                return Err(AnswerError::TooLarge);
            }
            whole.extend_from_slice(&piece);
        }
        Ok(whole)
    }

    /// Reads the body line by line, with memory for the longest line only. It ends early if `each`
    /// returns an error.
    ///
    /// # Errors
    ///
    /// The error of `each`, or an [`AnswerError`].
    pub async fn lines(mut self, mut each: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let mut line = Vec::new();
        while let Some(piece) = self.piece().await? {
            for part in piece.split_inclusive(|byte| *byte == b'\n') {
                line.extend_from_slice(part);
                if BYTES_MAX < line.len() {
                    return Err(AnswerError::TooLarge.into());
                }
                if let Some(whole) = line.strip_suffix(b"\n") {
                    each(whole)?;
                    line.clear();
                }
            }
        }
        if line.is_empty() { Ok(()) } else { each(&line) }
    }

    async fn piece(&mut self) -> Result<Option<Bytes>, AnswerError> {
        let late = |_| AnswerError::BrokenOff;
        while let Some(frame) = timeout(IDLE_MAX, self.body.frame()).await.map_err(late)? {
            if let Ok(data) = frame?.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio_util::sync::CancellationToken;

    use super::super::{Document, Endpoints, Socket, connect, serve};
    use super::*;

    #[tokio::test]
    async fn documents_are_fetched_from_a_socket_as_a_whole_or_in_lines() {
        let dir = tempfile::tempdir().unwrap();
        let (_socket, listener) = Socket::listen(dir.path()).unwrap();
        let many = || (0..3).map(|n| vec![b'a' + n; 70_000]);
        let pieces = move || Some(many().flat_map(|piece| [piece, b"\n".to_vec()]));
        let endpoints = Endpoints::default()
            .with_document("/one", "a document", || Document::of(&["a"]))
            .with_documents("/jobs", "a document for each name", |name| match name {
                "a/b%c" => Document::of(&name),
                _ => Document::missing(format!("there is no {name}")),
            })
            .with_pieces("/many", "many lines", pieces);
        tokio::spawn(serve(listener, endpoints, CancellationToken::default()));
        let stream = || async { connect(dir.path()).await.unwrap().unwrap() };
        let one = get(stream().await, "/one").await.unwrap();
        assert_eq!((one.status(), one.whole().await.unwrap()), (StatusCode::OK, b"[\"a\"]".into()));
        let named = get(stream().await, "/jobs/a%2Fb%25c").await.unwrap();
        assert_eq!(named.whole().await.unwrap(), b"\"a/b%c\"");
        let missing = get(stream().await, "/jobs/b").await.unwrap();
        assert_eq!(missing.status(), StatusCode::NOT_FOUND);
        let mut lines = Vec::new();
        let answer = get(stream().await, "/many").await.unwrap();
        let keep = |line: &[u8]| {
            lines.push(line.to_owned());
            Ok(())
        };
        answer.lines(keep).await.unwrap();
        assert_eq!(lines, many().collect::<Vec<_>>());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_drips_ends_at_a_limit() {
        let (ours, mut theirs) = duplex(1 << 10);
        let server = async {
            theirs.read_u8().await.unwrap();
            theirs.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n").await.unwrap();
            while theirs.write_all(b"a").await.is_ok() {
                tokio::time::sleep(Duration::from_secs(4)).await;
            }
        };
        let client = async { get(ours, "/one").await.unwrap().whole().await };
        let (answer, ()) = tokio::join!(client, server);
        assert_eq!(answer.unwrap_err().to_string(), "the answer is not complete after 300 s");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_breaks_off_is_an_error() {
        for (is_in_lines, begun) in [(false, ""), (true, "a\nb")] {
            let (ours, mut theirs) = duplex(1 << 10);
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: 90\r\n\r\n{begun}");
            let server = async {
                theirs.read_u8().await.unwrap();
                theirs.write_all(head.as_bytes()).await.unwrap();
            };
            let (answer, ()) = tokio::join!(get(ours, "/one"), server);
            let answer = answer.unwrap();
            let ended = if is_in_lines {
                answer.lines(|_| Ok(())).await
            } else {
                answer.whole().await.map(|_| ()).map_err(io::Error::from)
            };
            let said = ended.unwrap_err().to_string();
            assert!(said.contains("nothing came for 5 s; "), "{said}");
        }
    }
}
