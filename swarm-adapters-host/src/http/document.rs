//! JSON documents.

use axum::body::Bytes;
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// The size limit of a document.
const BYTES_MAX: usize = 64 << 20;

/// The headers of every document. A document may soon be out of date, so caches must not keep it.
pub(super) const HEADERS: [(HeaderName, &str); 2] =
    [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];

/// A JSON document, or the reason why it is missing. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Document(State);

#[derive(Clone, Debug, Default)]
enum State {
    /// The state is not known yet.
    #[default]
    Unknown,
    Written(Bytes),
    /// The requested name is unknown; a sentence.
    Missing(String),
    /// The request has no effect; a sentence.
    Refused(String),
    /// The document cannot be served, for this reason.
    Failed(String),
}

impl Document {
    /// Serialises `value` as JSON. O(size). A document of more than 64 MiB is answered with an error.
    pub fn of(value: &impl Serialize) -> Self {
        Self::within(value, BYTES_MAX)
    }

    fn within(value: &impl Serialize, bytes_max: usize) -> Self {
        let mut room = Room { bytes: Vec::new(), bytes_max };
        let written = serde_json::to_writer(&mut room, value);
        Self(match written {
            Ok(()) => State::Written(room.bytes.into()),
            Err(error) => State::Failed(error.to_string()),
        })
    }

    /// Creates the answer for an unknown name; `why` is a sentence.
    #[must_use]
    pub fn missing(why: String) -> Self {
        Self(State::Missing(why))
    }

    /// Creates the answer for a request without an effect; `why` is a sentence.
    #[must_use]
    pub fn refused(why: String) -> Self {
        Self(State::Refused(why))
    }

    /// Returns the response to a request. O(1).
    pub(super) fn answer(&self) -> Response {
        let (code, body) = match &self.0 {
            State::Written(bytes) => (StatusCode::OK, bytes.clone()),
            State::Unknown => {
                let body = r#"{"error":"nothing is known yet; ask again"}"#;
                (StatusCode::SERVICE_UNAVAILABLE, Bytes::from_static(body.as_bytes()))
            }
            State::Missing(reason) => (StatusCode::NOT_FOUND, error(reason)),
            State::Refused(reason) => (StatusCode::CONFLICT, error(reason)),
            State::Failed(reason) => (StatusCode::INTERNAL_SERVER_ERROR, error(reason)),
        };
        (code, HEADERS, body).into_response()
    }
}

fn error(reason: &str) -> Bytes {
    serde_json::json!({ "error": reason }).to_string().into()
}

/// A writer that accepts at most `bytes_max` bytes.
struct Room {
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl std::io::Write for Room {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.bytes_max - self.bytes.len() < bytes.len() {
            let most = format!("the document is larger than {} bytes", self.bytes_max);
            return Err(std::io::Error::other(most));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn answered(document: &Document) -> (u16, String) {
        let answer = document.answer();
        let code = answer.status().as_u16();
        let body = axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap();
        (code, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn a_document_is_served_as_it_was_written() {
        let document = Document::of(&["a"]);
        assert_eq!(answered(&document).await, (200, r#"["a"]"#.to_owned()));
        let headers = document.answer().headers().clone();
        assert_eq!(headers[header::CONTENT_TYPE], "application/json");
    }

    #[tokio::test]
    async fn a_missing_or_too_large_document_is_an_error_with_a_reason() {
        let unknown = answered(&Document::default()).await;
        assert_eq!(unknown, (503, r#"{"error":"nothing is known yet; ask again"}"#.to_owned()));
        let fits = Document::within(&"12345678", 10);
        assert_eq!(answered(&fits).await.0, 200);
        let (code, body) = answered(&Document::within(&"123456789", 10)).await;
        assert_eq!((code, &*body), (500, r#"{"error":"the document is larger than 10 bytes"}"#));
        let missing = answered(&Document::missing("there is no \"a\"".into())).await;
        assert_eq!(missing, (404, r#"{"error":"there is no \"a\""}"#.to_owned()));
    }
}
