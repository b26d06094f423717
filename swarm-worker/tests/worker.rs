//! Tests of the program `swarm-worker`: given a view, it runs the jobs.

#![expect(
    clippy::unwrap_used,
    reason = "clippy allows it in test functions only, and all of this is a test"
)]

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The limit for every wait, on a machine that is busy with other things.
const DEADLINE: Duration = Duration::from_secs(30);

/// A worker named `w-0` with a pipe as standard input, as an operator on the same machine starts
/// it.
struct Worker {
    child: Child,
    hold: Option<ChildStdin>,
    log: PathBuf,
}

impl Worker {
    fn start(config: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_swarm-worker"));
        command.args(["run", "--name=w-0", "--http-port=0", "--until-stdin-closes"]);
        command.arg("--config-path").arg(config).stdin(Stdio::piped());
        let log = config.join("log");
        let mut child = command.stderr(fs::File::create(&log).unwrap()).spawn().unwrap();
        Self { hold: child.stdin.take(), child, log }
    }

    /// The answer to a request, or `None` if there is none.
    fn answer(&self, path: &str) -> Option<String> {
        let log = fs::read_to_string(&self.log).unwrap();
        let address = log.rsplit_once(" http=")?.1.split_whitespace().next()?.to_owned();
        let mut stream = TcpStream::connect(address).ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: w\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer.split_once("\r\n\r\n")?.1.to_owned())
    }

    fn runs(&self, report: &str) {
        until(report, || self.answer("/internal/version").as_deref() == Some(report));
    }

    fn ended(mut self) -> ExitStatus {
        until("the worker ended", || self.child.try_wait().unwrap().is_some());
        self.child.wait().unwrap()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < DEADLINE, "not within {DEADLINE:?}: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Mounts `text` as the kubelet mounts a `ConfigMap`, in place of what was mounted before.
fn mount(dir: &TempDir, generation: &str, text: &str) {
    let path = |name: &str| dir.path().join(name);
    fs::create_dir(path(generation)).unwrap();
    fs::write(path(generation).join("config.yml"), text).unwrap();
    symlink(generation, path("..data_tmp")).unwrap();
    fs::rename(path("..data_tmp"), path("..data")).unwrap();
    if !path("config.yml").exists() {
        symlink("..data/config.yml", path("config.yml")).unwrap();
    }
}

fn wait_for_log(dir: &TempDir, words: &str) {
    until(words, || fs::read_to_string(dir.path().join("log")).unwrap().contains(words));
}

#[test]
fn a_worker_follows_its_mounted_view_and_keeps_the_last_valid_one() {
    let dir = tempfile::tempdir().unwrap();
    let mut worker = Worker::start(dir.path());
    worker.runs(r#"{"version":0,"jobs":[]}"#);
    mount(&dir, "..1", "workloads:\n  w-0: {jobs: [b, a], version: 1}\nversion: 1\n");
    worker.runs(r#"{"version":1,"jobs":["a","b"]}"#);
    mount(&dir, "..2", "workloads:\n  w-0: {jobs: [b, a\n");
    wait_for_log(&dir, "is ignored and the last valid one kept: the view does not parse: ");
    fs::remove_file(dir.path().join("..data")).unwrap();
    wait_for_log(&dir, "there is no view at ");
    mount(&dir, "..3", "workloads:\n  w-0: {jobs: [c, b], version: 3}\nversion: 3\n");
    worker.runs(r#"{"version":3,"jobs":["b","c"]}"#);
    assert_eq!(worker.answer("/ping").as_deref(), Some("pong\n"));
    let metrics = worker.answer("/metrics").unwrap();
    assert!(
        metrics.contains("swarm_worker_jobs 2")
            && metrics.contains("swarm_worker_job_restarts_total 0"),
        "{metrics}"
    );
    worker.hold = None;
    wait_for_log(&dir, "stopping all jobs jobs=2");
    assert_eq!(worker.ended().code(), Some(0));
}

#[test]
fn a_signal_stops_all_jobs_and_ends_the_worker_with_0() {
    let dir = tempfile::tempdir().unwrap();
    mount(&dir, "..1", "workloads:\n  w-0: {jobs: [a]}\n");
    let worker = Worker::start(dir.path());
    worker.runs(r#"{"version":0,"jobs":["a"]}"#);
    let killed = Command::new("kill").arg(worker.child.id().to_string()).status().unwrap();
    assert!(killed.success());
    wait_for_log(&dir, "stopping all jobs jobs=1");
    assert_eq!(worker.ended().code(), Some(0));
}

#[test]
fn the_view_is_printed_as_it_is_or_the_exit_code_is_2() {
    let dir = tempfile::tempdir().unwrap();
    let view = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_swarm-worker"));
        command.arg("view").env("CONFIG_PATH", dir.path()).output().unwrap()
    };
    let missing = view();
    assert_eq!((missing.status.code(), &missing.stdout[..]), (Some(2), &b""[..]));
    let message = String::from_utf8(missing.stderr).unwrap();
    assert!(message.starts_with("swarm-worker: there is no view at "), "{message}");
    mount(&dir, "..1", "workloads:\n");
    assert_eq!((view().status.code(), view().stdout), (Some(0), b"workloads:\n".to_vec()));
}

#[test]
fn one_ping_is_0_with_its_latency_1_without_an_answer_and_2_for_no_address() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let ping = |address: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_swarm-worker"));
        command.args(["ping", address]).output().unwrap()
    };
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 512];
        let read = stream.read(&mut request).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\npong\n").unwrap();
        String::from_utf8_lossy(&request[..read]).into_owned()
    });
    let good = ping(&address);
    assert_eq!(good.status.code(), Some(0));
    let output = String::from_utf8(good.stdout).unwrap();
    assert!(output.starts_with(&format!("{address} answered in ")), "{output}");
    assert!(server.join().unwrap().starts_with("GET /ping HTTP/1.1\r\n"));
    let nobody = ping(&address);
    assert_eq!((nobody.status.code(), &nobody.stdout[..]), (Some(1), &b""[..]));
    let message = String::from_utf8(nobody.stderr).unwrap();
    assert!(message.contains(" cannot be reached: "), "{message}");
    assert_eq!(ping("stream:a").status.code(), Some(2));
}
