//! `report` about a Swarm: the files of the report, and the refusals. A scripted kubectl connects the
//! plugin with an API server in this process.

#![expect(clippy::unwrap_used, reason = "clippy allows it in test functions only")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::thread;

use serde_json::{Value, json};
use tempfile::TempDir;
use zip::ZipArchive;

/// A text in each secret place.
const MARK: &str = "5ecr3t";
const SESSION: &str = "6f1c-0000000000000001";
pub(crate) const GROUP: &str = "/apis/swarm.k8slab.info/v1alpha1/namespaces/media";

/// Connects to the API server of the test, and prints a log.
const KUBECTL: &str = r#"#!/bin/sh
PATH=/usr/bin:/bin
case "$1" in
proxy)
  echo $$ > "$0.pid"
  for word; do case "$word" in --unix-socket=*) socket=${word#--unix-socket=} ;; esac; done
  ln -s "$0.socket" "$socket" && echo "Starting to serve on $socket"
  exec sleep 60 ;;
logs)
  echo "$*" > "$0.log.asked"
  echo "$*"; echo "rtsp://u:5ecr3t@10.0.0.1/"
  case "$*" in *--container=*) ;; *) echo 'Defaulted container "w" out of: w, x' >&2 ;; esac
  case "$*" in *--follow*) exec sleep 60 ;; esac ;;
esac
"#;

/// Answers by path, without the query. A list may also be asked for as a table.
pub(crate) type Answers = BTreeMap<String, Value>;

pub(crate) struct Cluster(TempDir);

impl Cluster {
    /// Makes a cluster whose API server listens and answers nothing.
    pub(crate) fn silent() -> (Self, UnixListener) {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("kubectl");
        fs::write(&program, KUBECTL).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let listener = UnixListener::bind(dir.path().join("kubectl.socket")).unwrap();
        (Self(dir), listener)
    }

    pub(crate) fn new(answers: Answers) -> Self {
        let (cluster, listener) = Self::silent();
        let answers = Arc::new(answers);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let answers = Arc::clone(&answers);
                thread::spawn(move || answer(&answers, &stream));
            }
        });
        cluster
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Returns the plugin with these words.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-swarm"));
        command.args(args).current_dir(self.path()).stdin(Stdio::null());
        command.env("NO_COLOR", "1").env("PATH", self.path());
        command
    }

    /// Runs the plugin.
    pub(crate) fn swarm(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Runs `kubectl swarm report` in the directory.
    fn report(&self, args: &[&str]) -> Output {
        self.swarm(&[&["report"], args].concat())
    }

    fn files(&self, name: &str) -> BTreeMap<String, String> {
        files(&self.0.path().join(name))
    }
}

/// Answers one request.
fn answer(answers: &Answers, mut stream: &UnixStream) {
    let mut head = Vec::new();
    let lines = BufReader::new(stream).lines().map_while(Result::ok);
    head.extend(lines.take_while(|line| !line.is_empty()));
    let path = head[0].split(' ').nth(1).unwrap().split('?').next().unwrap();
    let is_table = head.iter().any(|line| line.contains("as=Table"));
    let table = is_table.then(|| answers.get(&format!("{path} as table"))).flatten();
    let found = table.or_else(|| answers.get(path)).cloned();
    let found = found.unwrap_or_else(|| json!({"code": 404, "reason": "NotFound"}));
    let status = found["code"].as_u64().unwrap_or(200);
    let body = found.to_string();
    let length = body.len();
    let kind = "Content-Type: application/json";
    let text = format!("HTTP/1.1 {status} X\r\n{kind}\r\nContent-Length: {length}\r\n\r\n{body}");
    // The plugin may have ended.
    let _ = stream.write_all(text.as_bytes());
}

/// Returns the files of a report, by name.
fn files(path: &Path) -> BTreeMap<String, String> {
    let mut zip = ZipArchive::new(File::open(path).unwrap()).unwrap();
    let mut files = BTreeMap::new();
    for index in 0..zip.len() {
        let mut file = zip.by_index(index).unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        files.insert(file.name().unwrap().into_owned(), text);
    }
    files
}

pub(crate) fn table(columns: &[&str], rows: &[&[&str]]) -> Value {
    let columns: Vec<_> = columns.iter().map(|name| json!({"name": name})).collect();
    let rows: Vec<_> = rows.iter().map(|cells| json!({"cells": cells})).collect();
    json!({"columnDefinitions": columns, "rows": rows})
}

/// A Swarm whose user may not read the Leases.
fn cluster() -> Cluster {
    let at = |path: &str| format!("{GROUP}/{path}");
    let env = json!([{"name": "KEY", "value": MARK}]);
    let container = json!({"name": "worker", "env": env, "args": ["run", "--password", MARK]});
    let template = json!({"spec": {"containers": [container]}});
    let applied =
        json!({"kubectl.kubernetes.io/last-applied-configuration": format!("{{{MARK}}}")});
    let swarm = json!({
        "metadata": {"name": "cameras", "namespace": "media", "annotations": applied,
            "managedFields": [{"manager": MARK}]},
        "spec": {
            "jobs": [{"name": "a", "params": {"url": MARK}}, {"name": "b", "params": {"url": MARK}}],
            "worker": {"runner": {"command": ["rec"], "env": {"KEY": MARK}}},
            "pool": {"statefulSet": {"name": "ingest"}},
        },
        "status": {"observedGeneration": 0, "conditions": [
            {"type": "Healthy", "status": "False", "message": format!("a on ingest-0 ended (`{MARK}`)")},
        ]},
    });
    let ledger = json!({"metadata": {"name": "statefulset.ingest"}, "spec": {
        "swarm": {"kind": "Swarm", "name": "cameras", "uid": "1"},
        "pool": {"kind": "StatefulSet", "name": "ingest", "uid": "2"},
        "revision": 7, "version": 2, "firstToken": 100,
        "holdings": {"incarnation": 9, "holders": [
            {"session": SESSION, "slot": 0, "worker": "ingest-0", "jobs": {"a": 101, "b": 102}},
            {"session": "plain/99", "slot": 1, "worker": "ingest-1", "jobs": {}},
        ]},
    }});
    let view = json!({"metadata": {"name": SESSION}, "spec": {"session": SESSION, "revision": 7,
        "jobs": {"a": {"token": 101, "params": {"url": MARK}}, "b": {"token": 102}}}});
    let pod = json!({"metadata": {"name": "ingest-0"}, "spec": template["spec"], "status": {
        "containerStatuses": [{"lastState": {"terminated": {"message": MARK}}}]}});
    let forbidden = json!({"kind": "Status", "code": 403, "reason": "Forbidden",
        "message": "leases.coordination.k8s.io is forbidden: User \"ann\" cannot get it"});
    let leases = "/apis/coordination.k8s.io/v1/namespaces/media/leases";
    let history = json!({"metadata": {"name": "cameras"}, "spec": {"episodes": []}});
    let event = json!({"involvedObject": {"name": "cameras"}, "reason": "JobsMoved"});
    let workload = json!({"metadata": {"name": "ingest"}, "spec": {
        "selector": {"matchLabels": {"app": "ingest"}}, "template": template}});
    let answers = [
        (at("swarms as table"), table(&["Name"], &[&["cameras"], &["doors"]])),
        (at("swarms/cameras"), swarm),
        (
            at("swarmledgers as table"),
            table(&["Name", "Swarm"], &[&["statefulset.ingest", "cameras"]]),
        ),
        (at("swarmledgers/statefulset.ingest"), ledger),
        (at("workerviews as table"), table(&["Name"], &[&[SESSION]])),
        (at("workerviews"), json!({"items": [view]})),
        (at(&format!("workerviews/{SESSION}")), view),
        (at("swarmhistories/cameras"), history),
        (leases.to_owned(), forbidden.clone()),
        (format!("{leases}/{SESSION}"), forbidden),
        ("/apis/apps/v1/namespaces/media/statefulsets/ingest".to_owned(), workload),
        ("/api/v1/namespaces/media/pods".to_owned(), json!({"items": [pod]})),
        (
            "/api/v1/namespaces/swarm-system/pods".to_owned(),
            json!({"items": [{"metadata": {"name": "swarm-controller-1"}}]}),
        ),
        ("/api/v1/namespaces/media/events".to_owned(), json!({"items": [event]})),
        ("/version".to_owned(), json!({"gitVersion": "v1.35.0", "platform": "linux/amd64"})),
    ];
    Cluster::new(answers.into_iter().collect())
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn a_report_has_the_objects_of_a_swarm_and_no_secret() {
    let cluster = cluster();
    let output = cluster.report(&["cameras", "-n", "media", "-o", "a.zip"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.starts_with("a.zip\nLook at it before you send it."), "{printed}");
    let mode = fs::metadata(cluster.0.path().join("a.zip")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let files = cluster.files("a.zip");
    let names: Vec<_> = files.keys().map(String::as_str).collect();
    let expected = [
        "README.txt",
        "check.txt",
        "events.yaml",
        "history.txt",
        "history.yaml",
        "ledger.yaml",
        "pods.yaml",
        "status.json",
        "swarm.yaml",
        "versions.txt",
        "views.yaml",
        "workload.yaml",
    ];
    assert_eq!(names, expected);
    for (name, text) in &files {
        assert!(!text.contains(MARK), "{name}: {text}");
    }
    let list = &files["README.txt"];
    for line in [
        "A report about Swarm media/cameras, made by kubectl swarm ",
        "- leases.yaml: not visible to you: Leases in namespace media: the cluster refuses this: ",
        "- logs: --logs adds the last 1,000 ",
        "\nValues are left out; ",
    ] {
        assert!(list.contains(line), "{line}{list}");
    }
    assert!(files["versions.txt"].contains("cluster:  v1.35.0 on linux/amd64\n"), "{files:?}");
    let status: Value = serde_json::from_str(&files["status.json"]).unwrap();
    assert_eq!((&status["jobs"]["total"], &status["revision"]), (&json!(2), &json!(7)));

    let again = cluster.report(&["cameras", "-n", "media", "-o", "a.zip"]);
    assert_eq!(again.status.code(), Some(1));
    assert!(said(&again).contains("a.zip exists already"), "{}", said(&again));
}

#[test]
fn logs_are_added_if_they_are_wanted_and_the_file_is_named_after_the_swarm() {
    let cluster = cluster();
    let output = cluster.report(&["cameras", "-n", "media", "--logs"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let printed = String::from_utf8(output.stdout).unwrap();
    let name = printed.lines().next().unwrap();
    assert!(name.starts_with("swarm-report-media-cameras-2") && name.ends_with("Z.zip"), "{name}");
    let files = cluster.files(name);
    let worker = &files["logs/ingest-0.log"];
    assert!(worker.contains("--namespace=media --tail=1000 -- ingest-0\n"), "{worker}");
    assert!(worker.ends_with("rtsp://***@10.0.0.1/\n"), "{worker}");
    let operator = &files["logs/operator-swarm-controller-1.log"];
    assert!(operator.contains("--namespace=swarm-system"), "{operator}");
    assert!(!files["swarm.yaml"].contains(MARK), "{}", files["swarm.yaml"]);
}

#[test]
fn values_are_in_a_report_if_they_are_wanted() {
    let cluster = cluster();
    let output = cluster.report(&["cameras", "-n", "media", "--with-values", "-o", "a.zip"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let files = cluster.files("a.zip");
    // Params, last lines of jobs in conditions, and arguments.
    for (name, text) in [
        ("swarm.yaml", format!("url: {MARK}\n")),
        ("swarm.yaml", format!("(`{MARK}`)")),
        ("pods.yaml", format!("- {MARK}\n")),
    ] {
        assert!(files[name].contains(&text), "{text}: {}", files[name]);
    }
}

#[test]
fn a_swarm_that_does_not_exist_gets_no_report() {
    let cluster = cluster();
    for (args, sentence) in [
        (
            &["camera", "-n", "media"][..],
            "namespace `media` has no Swarm `camera`; the nearest names are `cameras`",
        ),
        (
            &["-n", "media"],
            "namespace `media` has several Swarms; name one of them:\n  \
             kubectl swarm report -n media --swarm cameras\n  \
             kubectl swarm report -n media --swarm doors",
        ),
    ] {
        let output = cluster.report(args);
        assert_eq!(output.status.code(), Some(3), "{}", said(&output));
        assert_eq!(said(&output), format!("kubectl swarm: {sentence}\n"));
    }
    let zips = fs::read_dir(cluster.0.path()).unwrap();
    let zips =
        zips.filter(|it| it.as_ref().unwrap().path().extension().is_some_and(|it| it == "zip"));
    assert_eq!(zips.count(), 0);
}
