//! `swarm-worker` as a process, from outside: a view goes in, reports come out.

#![expect(
    clippy::unwrap_used,
    reason = "clippy allows it in test functions only, and all of this is a test"
)]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

/// A worker called `w-0` that is held by a pipe, as by an operator on the same machine.
struct Worker {
    child: Child,
    hold: Option<ChildStdin>,
    reports: Receiver<String>,
}

impl Worker {
    fn start(config: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_swarm-worker"));
        command.args(["run", "--name=w-0", "--http-port=0", "--until-stdin-closes", "--report"]);
        command.arg("--config-path").arg(config).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child =
            command.stderr(fs::File::create(config.join("log")).unwrap()).spawn().unwrap();
        let reports = lines(child.stdout.take().unwrap());
        Self { hold: child.stdin.take(), child, reports }
    }

    fn reported(&self) -> String {
        self.reports.recv_timeout(Duration::from_secs(30)).unwrap()
    }

    fn ended(mut self) -> ExitStatus {
        // The reports end when the worker does, so this cannot take for ever.
        while self.reports.recv_timeout(Duration::from_secs(30)).is_ok() {}
        self.child.try_wait().unwrap().unwrap_or_else(|| self.child.wait().unwrap())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines(stdout: ChildStdout) -> Receiver<String> {
    let (sender, lines) = channel();
    thread::spawn(move || {
        BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
    });
    lines
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
    let is_there = || fs::read_to_string(dir.path().join("log")).unwrap().contains(words);
    let mut attempts = 0..3_000;
    while !is_there() {
        assert!(attempts.next().is_some(), "{words:?} is not in the log");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_worker_follows_its_mounted_view_and_keeps_the_last_good_one() {
    let dir = tempfile::tempdir().unwrap();
    let mut worker = Worker::start(dir.path());
    assert_eq!(worker.reported(), r#"{"version":0,"jobs":[]}"#);
    mount(&dir, "..1", "workloads:\n  w-0: {jobs: [b, a], version: 1}\nversion: 1\n");
    assert_eq!(worker.reported(), r#"{"version":1,"jobs":["a","b"]}"#);
    mount(&dir, "..2", "workloads:\n  w-0: {jobs: [b, a\n");
    wait_for_log(&dir, "is passed over and the last good one kept: the view does not parse: ");
    fs::remove_file(dir.path().join("..data")).unwrap();
    wait_for_log(&dir, "there is no view at ");
    mount(&dir, "..3", "workloads:\n  w-0: {jobs: [c, b], version: 3}\nversion: 3\n");
    assert_eq!(worker.reported(), r#"{"version":3,"jobs":["b","c"]}"#);
    worker.hold = None;
    assert_eq!(worker.reported(), r#"{"version":3,"jobs":[]}"#);
    assert_eq!(worker.ended().code(), Some(0));
}

#[test]
fn a_signal_stops_all_jobs_and_ends_the_worker_with_0() {
    let dir = tempfile::tempdir().unwrap();
    mount(&dir, "..1", "workloads:\n  w-0: {jobs: [a]}\n");
    let worker = Worker::start(dir.path());
    assert_eq!(worker.reported(), r#"{"version":0,"jobs":["a"]}"#);
    let killed = Command::new("kill").arg(worker.child.id().to_string()).status().unwrap();
    assert!(killed.success());
    assert_eq!(worker.reported(), r#"{"version":0,"jobs":[]}"#);
    assert_eq!(worker.ended().code(), Some(0));
}

#[test]
fn the_view_is_printed_as_it_stands_or_the_exit_code_is_2() {
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
    let told = String::from_utf8(good.stdout).unwrap();
    assert!(told.starts_with(&format!("{address} answered in ")), "{told}");
    assert!(server.join().unwrap().starts_with("GET /ping HTTP/1.1\r\n"));
    let nobody = ping(&address);
    assert_eq!((nobody.status.code(), &nobody.stdout[..]), (Some(1), &b""[..]));
    let message = String::from_utf8(nobody.stderr).unwrap();
    assert!(message.contains(" cannot be reached: "), "{message}");
    assert_eq!(ping("stream:a").status.code(), Some(2));
}
