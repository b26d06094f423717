//! The audit log of the API server, as typed lines.
//!
//! A request is logged when it is answered, and a watch when it ends.

use std::fmt;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::json;

/// The audit log of a cluster.
#[derive(Clone, Debug)]
pub struct Audit {
    folder: PathBuf,
}

/// A place in the audit log, which separates earlier answers from later ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(u64);

/// One answered request for a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The user name, such as `system:node:node-1`.
    pub user: String,
    /// The user agent of the client.
    pub agent: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`.
    pub verb: String,
    /// The API group; empty for the core group.
    pub group: String,
    /// The resource, with its subresource after a slash as in RBAC: `pods`, `swarms/status`.
    pub resource: String,
    /// The namespace; empty for resources without one.
    pub namespace: String,
    /// The name of the object; empty if the request names none.
    pub name: String,
    /// The HTTP status of the answer.
    pub code: u16,
    /// Whether the user is authorized for the request. It may be refused for other reasons.
    pub has_right: bool,
    /// The pod that sent the request, from its service account token; empty for other clients.
    pub pod: String,
    /// The time of arrival by the API server's clock, to the microsecond. Later times sort higher.
    pub received: String,
    /// The time of the answer, in the same form.
    pub answered: String,
}

impl Request {
    /// Whether the request writes, according to its verb.
    #[must_use]
    pub fn is_write(&self) -> bool {
        !matches!(self.verb.as_str(), "get" | "list" | "watch")
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { user, agent, verb, group, resource, namespace, name, code, .. } = self;
        let dot = if group.is_empty() { "" } else { "." };
        write!(f, "{verb} {resource}{dot}{group} {namespace}/{name} by {user} ({agent}): {code}")
    }
}

impl Audit {
    /// Prepares an empty log and its policy in `folder`.
    pub(super) fn new(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let audit = Self { folder: folder.to_owned() };
        // Discovery and health are not logged. Other requests are logged by metadata when answered.
        let policy = json!({
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived", "ResponseStarted"],
            "rules": [{"level": "None", "nonResourceURLs": ["*"]}, {"level": "Metadata"}],
        });
        fs::write(audit.policy(), policy.to_string())?;
        fs::write(audit.log(), "")?;
        Ok(audit)
    }

    /// The flags of an API server that writes this log.
    pub(super) fn flags(&self) -> [String; 3] {
        [
            format!("--audit-policy-file={}", self.policy().display()),
            format!("--audit-log-path={}", self.log().display()),
            // The size in megabytes is never reached, so the log is one file.
            "--audit-log-maxsize=10000".to_owned(),
        ]
    }

    fn policy(&self) -> PathBuf {
        self.folder.join("policy.json")
    }

    fn log(&self) -> PathBuf {
        self.folder.join("audit.log")
    }

    /// The start of the log, when the cluster was booted.
    #[must_use]
    pub fn start(&self) -> Mark {
        Mark(0)
    }

    /// The end of the log as it is now.
    ///
    /// # Errors
    ///
    /// When the log does not exist.
    pub fn now(&self) -> Result<Mark> {
        Ok(Mark(fs::metadata(self.log()).context("no audit log")?.len()))
    }

    /// The requests for resources that were answered after `mark`.
    ///
    /// # Errors
    ///
    /// When the log cannot be read.
    pub fn since(&self, mark: Mark) -> Result<Vec<Request>> {
        let mut log = File::open(self.log()).context("no audit log")?;
        log.seek(SeekFrom::Start(mark.0))?;
        let mut requests = Vec::new();
        for line in BufReader::new(log).lines() {
            requests.extend(parse(&line?));
        }
        Ok(requests)
    }
}

/// Reads one line. Skips the start of a line that is still being written, or that a killed API
/// server did not finish.
fn parse(line: &str) -> Option<Request> {
    // The next entry follows an unfinished one on the same line.
    let start = line.rfind(r#"{"kind":"Event","apiVersion":"audit.k8s.io"#)?;
    let event: Line = serde_json::from_str(&line[start..]).ok()?;
    let target = event.object_ref?;
    let slash = if target.subresource.is_empty() { "" } else { "/" };
    Some(Request {
        user: event.user.username,
        agent: event.user_agent,
        verb: event.verb,
        group: target.api_group,
        resource: format!("{}{slash}{}", target.resource, target.subresource),
        namespace: target.namespace,
        name: target.name,
        code: event.response_status.code,
        has_right: event.annotations.decision != "forbid",
        pod: event.user.extra.pod_name.into_iter().next().unwrap_or_default(),
        received: event.request_received_timestamp,
        answered: event.stage_timestamp,
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    verb: String,
    user: User,
    #[serde(default)]
    user_agent: String,
    object_ref: Option<Target>,
    #[serde(default)]
    response_status: Status,
    #[serde(default)]
    annotations: Annotations,
    #[serde(default)]
    request_received_timestamp: String,
    #[serde(default)]
    stage_timestamp: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Annotations {
    #[serde(rename = "authorization.k8s.io/decision")]
    decision: String,
}

#[derive(Deserialize)]
struct User {
    username: String,
    #[serde(default)]
    extra: Extra,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Extra {
    #[serde(rename = "authentication.kubernetes.io/pod-name")]
    pod_name: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Target {
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
    api_group: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    code: u16,
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"1","stage":"ResponseComplete","requestURI":"/x","verb":"patch","user":{"username":"system:node:node-1","groups":["g"]},"sourceIPs":["127.0.0.1"],"userAgent":"kubelet","objectRef":{"resource":"nodes","name":"node-1","apiVersion":"v1","subresource":"status"},"responseStatus":{"metadata":{},"code":200}}"#;

    #[test]
    fn a_line_shows_who_asked_for_what_as_rbac_has_it() {
        let request = parse(LINE).unwrap();
        assert!(request.is_write());
        let expected = "patch nodes/status /node-1 by system:node:node-1 (kubelet): 200";
        assert_eq!(request.to_string(), expected);
        assert_eq!((request.pod.as_str(), request.received.as_str()), ("", ""));
    }

    #[test]
    fn a_request_shows_which_pod_sent_it_and_when() {
        let pod = r#""extra":{"authentication.kubernetes.io/pod-name":["w-0"]},"groups""#;
        let times = r#""requestReceivedTimestamp":"2026-01-01T00:00:00.000001Z","stageTimestamp":"2026-01-01T00:00:00.000002Z","verb""#;
        let line = LINE.replacen(r#""groups""#, pod, 1).replacen(r#""verb""#, times, 1);
        let request = parse(&line).unwrap();
        assert_eq!(request.pod, "w-0");
        assert!(request.received < request.answered);
    }

    #[test]
    fn a_request_is_refused_for_want_of_a_right_or_for_another_reason() {
        let with = |decision: &str| {
            let annotations =
                format!(r#","annotations":{{"authorization.k8s.io/decision":"{decision}"}}}}"#);
            let line = LINE.replace("200}}", "403}}");
            parse(&format!("{}{annotations}", &line[..line.len() - 1])).unwrap()
        };
        assert_eq!(["allow", "forbid"].map(|decision| with(decision).has_right), [true, false]);
        assert_eq!(with("allow").code, 403);
    }

    #[test]
    fn a_line_that_was_cut_off_hides_no_other() {
        let torn = format!("{}{LINE}", &LINE[..99]);
        assert_eq!(parse(&torn), parse(LINE));
        assert_eq!(parse(&LINE[..99]), None);
    }

    #[test]
    fn a_mark_leaves_out_what_was_before() {
        let folder = tempfile::tempdir().unwrap();
        let audit = Audit::new(folder.path()).unwrap();
        fs::write(audit.log(), format!("{LINE}\n")).unwrap();
        let mark = audit.now().unwrap();
        fs::write(audit.log(), format!("{LINE}\n{LINE}\n{LINE}\n")).unwrap();
        assert_eq!(audit.since(mark).unwrap().len(), 2);
        assert_eq!(audit.since(audit.start()).unwrap().len(), 3);
    }
}
