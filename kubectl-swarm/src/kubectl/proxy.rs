//! Reads objects of a cluster through one `kubectl proxy`, which listens on a private socket.
//!
//! kubectl makes the requests, so contexts, login plugins and impersonation work as for kubectl
//! itself. One process answers all requests of a command. It accepts only `GET`, and no path into a
//! pod, a service or a node.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use jiff::fmt::rfc2822;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use swarm_adapters_host::http::{self, AnswerError};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::{Cluster, said};

/// Maximum time for kubectl to open its socket. A login plugin only runs at the first request.
const START_MAX: Duration = Duration::from_secs(20);
/// Maximum time for the head of an answer, in which a login plugin may ask a person.
const ANSWER_MAX: Duration = Duration::from_mins(2);
/// Maximum difference of two clocks that count as the same, in seconds.
const CLOCKS_AGREE: i64 = 2;
/// Maximum size of kubectl's last words.
const SAID_MAX: u64 = 64 << 10;
/// Number of objects in one answer of a list. The largest objects have 1.5 MiB, and an answer 64 MiB.
const OBJECTS_A_PAGE: usize = 40;
/// Number of rows in one answer of a table.
const ROWS_A_PAGE: usize = 500;
/// Maximum number of objects of a list.
const OBJECTS_MAX: usize = 200_000;
/// Maximum number of answers of a list that have fewer objects than asked for, although more follow. A
/// filter may leave few in an answer.
const SHORT_PAGES_MAX: usize = 100;
/// Methods that would change something.
const WRITING_METHODS: &str = "^(POST|PUT|PATCH|DELETE|OPTIONS|HEAD|CONNECT)$";
/// Reason of the API server for a right that the user lacks.
const FORBIDDEN: &str = "Forbidden";
/// Ends of a sentence about a missing right: about a pool, and about the installation.
const ROLE: &str =
    "; the ClusterRoles `view`, `edit` and `admin` have this right, once `swarm-view` is installed";
const ADMINISTRATOR: &str = "; administrators of the cluster have this right";
/// Groups of kinds that only administrators read.
const INSTALLATION: [&str; 4] = [
    "/apis/admissionregistration.k8s.io/",
    "/apis/apiextensions.k8s.io/",
    "/apis/flowcontrol.apiserver.k8s.io/",
    "/apis/rbac.authorization.k8s.io/",
];
/// Paths that lead out of the API server.
const LEADS_OUT: &str = "^/api/v1/namespaces/[^/]+/(pods|services)/[^/]+/(exec|attach|portforward|proxy),\
     ^/api/v1/nodes/.*,^/api/v1/proxy/.*";

/// The Accept header of a list as a table.
const AS_TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
/// The Accept header of whole objects.
const AS_JSON: &str = "application/json";

/// A running `kubectl proxy`. Dropping it ends the process and removes its socket.
pub(crate) struct Proxy {
    /// Killed on drop.
    _kubectl: Child,
    dir: TempDir,
    /// Number of seconds that the clock of the API server is ahead of this one.
    ahead: AtomicI64,
}

/// Reason why an object was not read.
#[derive(Debug)]
pub(crate) struct Unread {
    /// A sentence.
    pub(crate) sentence: String,
    /// Whether the user lacks the right.
    pub(crate) is_forbidden: bool,
}

impl From<String> for Unread {
    fn from(sentence: String) -> Self {
        Self { sentence, is_forbidden: false }
    }
}

impl From<Unread> for String {
    fn from(unread: Unread) -> Self {
        unread.sentence
    }
}

/// A page of a list of objects.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page<T> {
    // Tables have rows instead of items.
    #[serde(alias = "rows")]
    items: Vec<T>,
    /// The columns of a table.
    #[serde(default)]
    column_definitions: Vec<Column>,
    #[serde(default)]
    metadata: PageMetadata,
}

#[derive(Deserialize)]
struct Column {
    name: String,
}

/// A list as a table: its printed columns without the objects.
#[derive(Default)]
pub(crate) struct Table {
    columns: Vec<String>,
    rows: Vec<TableRow>,
}

/// The row of a table that the API server makes.
#[derive(Clone, Debug, Deserialize)]
struct TableRow {
    cells: Vec<Value>,
}

/// A row with the names of its columns.
#[derive(Clone, Copy)]
pub(crate) struct Row<'a> {
    columns: &'a [String],
    cells: &'a [Value],
}

impl Table {
    /// Returns the rows. A later version of a kind may have other columns.
    pub(crate) fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.rows.iter().map(|row| Row { columns: &self.columns, cells: &row.cells })
    }
}

impl<'a> Row<'a> {
    fn cell(self, column: &str) -> Option<&'a Value> {
        self.cells.get(self.columns.iter().position(|name| name == column)?)
    }

    /// Returns the text in a column; empty without one.
    pub(crate) fn text(self, column: &str) -> &'a str {
        self.cell(column).and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns the number in a column. The API server makes numbers of columns of type `integer`.
    pub(crate) fn number(self, column: &str) -> Option<u64> {
        let cell = self.cell(column)?;
        cell.as_u64().or_else(|| cell.as_str()?.parse().ok())
    }
}

#[derive(Default, Deserialize)]
struct PageMetadata {
    #[serde(default, rename = "continue")]
    next: String,
}

/// The answer of an API server that refuses a request.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    message: String,
    reason: String,
}

impl Proxy {
    /// Starts kubectl and waits until it listens.
    ///
    /// # Errors
    ///
    /// A sentence about the reason why kubectl does not start.
    pub(crate) async fn start(cluster: &Cluster) -> Result<Self, String> {
        let cannot = |error: &dyn std::fmt::Display| {
            format!("kubectl proxy, through which the cluster is read, cannot be started: {error}")
        };
        let dir = tempfile::Builder::new()
            .prefix("swarm-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir();
        let dir = dir.map_err(|error| cannot(&error))?;
        let mut kubectl = Command::new("kubectl");
        kubectl.arg("proxy").args(cluster.flags());
        kubectl.arg(format!("--unix-socket={}", dir.path().join("socket").display()));
        kubectl.arg(format!("--reject-methods={WRITING_METHODS}"));
        kubectl.arg(format!("--reject-paths={LEADS_OUT}"));
        kubectl.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut kubectl = kubectl.kill_on_drop(true).spawn().map_err(|error| {
            if error.kind() == std::io::ErrorKind::NotFound {
                super::MISSING.to_owned()
            } else {
                cannot(&error)
            }
        })?;
        let mut line = String::new();
        if let Some(stdout) = kubectl.stdout.take() {
            // kubectl prints `Starting to serve on` once it listens.
            let mut stdout = BufReader::new(stdout).take(SAID_MAX);
            let read = timeout(START_MAX, stdout.read_line(&mut line)).await;
            read.map_err(|_| cannot(&format!("it is silent for {} s", START_MAX.as_secs())))?
                .map_err(|error| cannot(&error))?;
        }
        if line.is_empty() {
            let mut words = Vec::new();
            if let Some(stderr) = kubectl.stderr.take() {
                let _ = timeout(START_MAX, stderr.take(SAID_MAX).read_to_end(&mut words)).await;
            }
            return Err(said::explained("kubectl proxy", &String::from_utf8_lossy(&words)));
        }
        Ok(Self { _kubectl: kubectl, dir, ahead: AtomicI64::new(0) })
    }

    /// Returns the present time by the clock of the API server, as far as its answers show it.
    pub(crate) fn now(&self) -> Timestamp {
        let now = Timestamp::now();
        let ahead = SignedDuration::from_secs(self.ahead.load(Relaxed));
        now.checked_add(ahead).unwrap_or(now)
    }

    /// Reads the object at `path`; `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// [`Unread`], about a refused request, or an answer that is not such an object.
    pub(crate) async fn object<T: DeserializeOwned>(
        &self,
        path: &str,
    ) -> Result<Option<T>, Unread> {
        let Some(body) = self.get(path, AS_JSON).await? else { return Ok(None) };
        Ok(Some(read(path, &body)?))
    }

    /// Lists the objects at `path`, which may have a query. `None` if the cluster does not have
    /// their kind.
    ///
    /// # Errors
    ///
    /// [`Unread`], about a refused request, or an answer that is not such a list.
    pub(crate) async fn list<T: DeserializeOwned>(
        &self,
        path: &str,
    ) -> Result<Option<Vec<T>>, Unread> {
        Ok(self.pages(path, AS_JSON, OBJECTS_A_PAGE).await?.map(|(items, _)| items))
    }

    /// Lists the objects at `path` as a table. `None` if the cluster does not have their kind.
    ///
    /// # Errors
    ///
    /// As [`list`](Self::list).
    pub(crate) async fn table(&self, path: &str) -> Result<Option<Table>, Unread> {
        let separator = if path.contains('?') { '&' } else { '?' };
        let path = format!("{path}{separator}includeObject=None");
        let pages = self.pages(&path, AS_TABLE, ROWS_A_PAGE).await?;
        Ok(pages.map(|(rows, columns)| Table { columns, rows }))
    }

    async fn pages<T: DeserializeOwned>(
        &self,
        path: &str,
        accept: &str,
        limit: usize,
    ) -> Result<Option<(Vec<T>, Vec<String>)>, Unread> {
        let (mut all, mut columns) = (Vec::new(), Vec::new());
        let (mut next, separator) = (String::new(), if path.contains('?') { '&' } else { '?' });
        let mut short = 0;
        loop {
            let page = format!("{path}{separator}limit={limit}{next}");
            let Some(body) = self.get(&page, accept).await? else { return Ok(None) };
            let Page { items, column_definitions, metadata } = read(path, &body)?;
            short += usize::from(items.len() < limit);
            all.extend(items);
            // Only the first page has them.
            columns.extend(column_definitions.into_iter().map(|column| column.name));
            if metadata.next.is_empty() {
                return Ok(Some((all, columns)));
            }
            if OBJECTS_MAX < all.len() {
                return Err(format!("{path} lists more than {OBJECTS_MAX} objects").into());
            }
            if SHORT_PAGES_MAX < short {
                return Err(format!(
                    "{path} is a list without an end: {short} of its pages are not full, and \
                     another page follows; look at the API server or the proxy before it"
                )
                .into());
            }
            next = format!("&continue={}", http::escaped(&metadata.next));
        }
    }

    async fn get(&self, path: &str, accept: &str) -> Result<Option<Vec<u8>>, Unread> {
        let failed = |error: &dyn std::fmt::Display| {
            format!("the cluster was asked for {path}, and kubectl proxy gave no answer: {error}")
        };
        let socket = UnixStream::connect(self.dir.path().join("socket")).await;
        let socket = socket.map_err(|error| failed(&error))?;
        let asked = timeout(ANSWER_MAX, http::request_as(socket, path, accept)).await;
        let late = |_| failed(&format!("none for {} s", ANSWER_MAX.as_secs()));
        let answer = asked.map_err(late)?.map_err(|error| failed(&error))?;
        let status = answer.status();
        if let Some(date) = answer.date().and_then(|date| rfc2822::parse(date).ok()) {
            let ahead = date.timestamp().as_second() - Timestamp::now().as_second();
            // The header has whole seconds, and an answer takes a while.
            self.ahead.store(if ahead.abs() <= CLOCKS_AGREE { 0 } else { ahead }, Relaxed);
        }
        let body = answer.whole().await.map_err(|error| match error {
            // The library's sentence is about a pool on this machine.
            AnswerError::BrokenOff => failed(&"its answer broke off"),
            error => failed(&error),
        })?;
        if status.is_success() {
            return Ok(Some(body));
        }
        let said: Status = serde_json::from_slice(&body).unwrap_or_default();
        if status.as_u16() == 404 {
            return Ok(None);
        }
        let words = if said.message.is_empty() {
            String::from_utf8_lossy(&body).into_owned()
        } else {
            said.message
        };
        let words = if words.trim().is_empty() { status.to_string() } else { words };
        let is_forbidden = said.reason == FORBIDDEN;
        let kind = if is_forbidden { " (Forbidden)" } else { "" };
        let done = format!("the request for {path}");
        let mut sentence = said::explained(&done, &format!("Error from server{kind}: {words}"));
        if is_forbidden {
            let is_of_pool = !INSTALLATION.iter().any(|group| path.starts_with(group));
            sentence.push_str(if is_of_pool { ROLE } else { ADMINISTRATOR });
        }
        Err(Unread { sentence, is_forbidden })
    }
}

fn read<T: DeserializeOwned>(path: &str, body: &[u8]) -> Result<T, String> {
    serde_json::from_slice(body)
        .map_err(|error| format!("the cluster's answer for {path} cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::UnixListener;

    use super::*;

    /// Starts a server that gives each request the same answer.
    fn server(body: &'static str) -> Proxy {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("socket")).unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
                let _ = stream.read_u8().await;
                let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
            }
        });
        let kubectl = Command::new("true").kill_on_drop(true).spawn().unwrap();
        Proxy { _kubectl: kubectl, dir, ahead: AtomicI64::new(0) }
    }

    #[tokio::test]
    async fn a_list_whose_pages_are_never_full_ends() {
        let proxy = server(r#"{"rows": [], "metadata": {"continue": "a"}}"#);
        let sentence = proxy.table("/swarms").await.err().unwrap().sentence;
        assert!(
            sentence.starts_with("/swarms?includeObject=None is a list without an end: 101 of"),
            "{sentence}"
        );
    }
}
