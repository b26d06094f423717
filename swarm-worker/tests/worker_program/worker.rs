//! Tests of the program `swarm-worker`, which runs the jobs in a given view.

#![expect(
    clippy::unwrap_used,
    reason = "clippy allows it in test functions only, and all of this is a test"
)]

mod files;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::guard::machine;

/// A worker named `w-0` with a pipe as standard input, as an operator on the same machine starts
/// it.
struct Worker {
    child: Child,
    hold: Option<ChildStdin>,
    log: PathBuf,
}

impl Worker {
    fn start(config: &Path) -> Self {
        Self::start_with(config, &[])
    }

    fn start_with(config: &Path, args: &[&str]) -> Self {
        Self::start_alone(config, &[args, &["--until-stdin-closes"]].concat())
    }

    /// Starts a worker without an operator.
    fn start_alone(config: &Path, args: &[&str]) -> Self {
        // Under `nohup cargo test` the worker would inherit the ignored signals of this test.
        let mut command = Command::new("env");
        command.args(["--default-signal=HUP,INT", env!("CARGO_BIN_EXE_swarm-worker")]);
        command.args(["run", "--name=w-0", "--http-port=0"]);
        command.args(args).arg("--config-path").arg(config).stdin(Stdio::piped());
        let log = config.join("log");
        let mut child = command.stderr(fs::File::create(&log).unwrap()).spawn().unwrap();
        Self { hold: child.stdin.take(), child, log }
    }

    /// Starts a worker with a limit of 512 bytes for each file, and this file as its log.
    fn start_without_room(config: &Path, log: fs::File) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -f 1; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_swarm-worker")]);
        command.args(["run", "--name=w-0", "--http-port=0", "--runner=log"]);
        command.arg("--until-stdin-closes").arg("--config-path").arg(config);
        let mut child = command.stdin(Stdio::piped()).stderr(log).spawn().unwrap();
        Self { hold: child.stdin.take(), child, log: config.join("log") }
    }

    /// Sends a request, and returns the answer if there is one.
    fn answer(&self, path: &str) -> Option<String> {
        let log = fs::read_to_string(&self.log).unwrap();
        let address = log.rsplit_once(" http=")?.1.split_whitespace().next()?.to_owned();
        let mut stream = TcpStream::connect(address).ok()?;
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer.split_once("\r\n\r\n")?.1.to_owned())
    }

    fn signal(&self, kind: &str) {
        let id = self.child.id().to_string();
        let killed = Command::new("kill").args(["-s", kind, &id]).status().unwrap();
        assert!(killed.success());
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
    machine::until(what, || is_so().then_some(()));
}

/// Mounts `text` like the kubelet mounts a `ConfigMap`, instead of the previous contents.
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
    until(words, || log(dir).contains(words));
}

fn log(dir: &TempDir) -> String {
    fs::read_to_string(dir.path().join("log")).unwrap()
}

/// Starts a worker that runs the job `a` with `runner`.
fn running(dir: &TempDir, runner: &str, args: &[&str]) -> Worker {
    mount(dir, "..1", "workloads:\n  w-0: {jobs: [a]}\n");
    let runner = format!("--runner={runner}");
    Worker::start_with(dir.path(), &[&[runner.as_str()], args].concat())
}

/// Checks that these words are in the log in this order.
fn assert_in_order(log: &str, all: &[&str]) {
    let mut rest = log;
    for words in all {
        assert!(rest.contains(words), "{words:?} is not in {rest:?} of {log}");
        rest = rest.split_once(words).unwrap().1;
    }
}

#[test]
fn a_worker_whose_log_cannot_be_written_ends_as_any_other() {
    let dir = tempfile::tempdir().unwrap();
    mount(&dir, "..1", "workloads:\n  w-0: {jobs: [a]}\n");
    // The log is on a full disk, or at the limit of a file's size.
    fs::write(dir.path().join("log"), [b'\n'; 2_000]).unwrap();
    for log in [Path::new("/dev/full"), &dir.path().join("log")] {
        let log = fs::File::options().append(true).open(log).unwrap();
        let mut worker = Worker::start_without_room(dir.path(), log);
        worker.hold = None;
        assert_eq!(worker.ended().code(), Some(0));
    }
}

#[test]
fn a_worker_follows_its_mounted_view_and_keeps_the_last_valid_one() {
    let dir = tempfile::tempdir().unwrap();
    let mut worker = Worker::start(dir.path());
    worker.runs(r#"{"version":0,"jobs":[]}"#);
    mount(&dir, "..1", "workloads:\n  w-0: {jobs: [b, a], version: 1}\nversion: 1\n");
    worker.runs(r#"{"version":1,"jobs":["a","b"]}"#);
    mount(&dir, "..2", "workloads:\n  w-0: {jobs: [b, a\n");
    wait_for_log(&dir, "the last valid one kept: the view does not parse: ");
    fs::remove_file(dir.path().join("..data")).unwrap();
    wait_for_log(&dir, "does not exist yet; ");
    mount(&dir, "..3", "workloads:\n  w-0: {jobs: [c, b], version: 3}\nversion: 3\n");
    worker.runs(r#"{"version":3,"jobs":["b","c"]}"#);
    assert_eq!(worker.answer("/ping").as_deref(), Some("pong from w-0\n"));
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
fn an_order_in_the_pipe_stops_all_jobs_and_a_signal_does_not() {
    let dir = tempfile::tempdir().unwrap();
    mount(&dir, "..1", "workloads:\n  w-0: {jobs: [a]}\n");
    let mut worker = Worker::start(dir.path());
    worker.runs(r#"{"version":0,"jobs":["a"]}"#);
    worker.signal("TERM");
    wait_for_log(&dir, "SIGTERM is ignored");
    worker.hold.as_mut().unwrap().write_all(b"another word\n").unwrap();
    worker.runs(r#"{"version":0,"jobs":["a"]}"#);
    worker.hold.as_mut().unwrap().write_all(b"{\"do\":\"drain\",\"within_ms\":60000}\n").unwrap();
    wait_for_log(&dir, "stopping all jobs jobs=1");
    assert_eq!(worker.ended().code(), Some(0));
}

#[test]
fn a_signal_stops_all_jobs_of_a_worker_without_an_operator_and_ends_it_with_0() {
    for kind in ["TERM", "HUP"] {
        let dir = tempfile::tempdir().unwrap();
        mount(&dir, "..1", "workloads:\n  w-0: {jobs: [a]}\n");
        let worker = Worker::start_alone(dir.path(), &[]);
        worker.runs(r#"{"version":0,"jobs":["a"]}"#);
        worker.signal(kind);
        wait_for_log(&dir, "stopping all jobs jobs=1");
        assert_eq!(worker.ended().code(), Some(0));
        let log = fs::read_to_string(dir.path().join("log")).unwrap();
        let of_job = log.lines().filter(|line| line.contains(" job=a ")).collect::<Vec<_>>();
        let [started, stopped] = of_job[..] else { panic!("{of_job:?}") };
        assert!(started.contains(" started ") && stopped.contains(" stopped "), "{of_job:?}");
    }
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
    assert!(message.starts_with("swarm-worker: the view "), "{message}");
    mount(&dir, "..1", "workloads:\n");
    assert_eq!((view().status.code(), view().stdout), (Some(0), b"workloads:\n".to_vec()));
    // A user who may write the ConfigMap must not control the terminal that shows the view.
    mount(&dir, "..2", "# \u{1b}]0;evil\u{7}\u{9b}2J\nworkloads:\n");
    let shown = b"# \\u{1b}]0;evil\\u{7}\\u{9b}2J\nworkloads:\n".to_vec();
    assert_eq!((view().status.code(), view().stdout), (Some(0), shown));
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

#[test]
fn the_log_shows_a_program_from_its_start_to_its_forced_end() {
    let dir = tempfile::tempdir().unwrap();
    let script = "trap \"\" TERM; echo up; while :; do sleep 0.05; done";
    let runner = format!("{{command: [sh, -c, '{script}'], ready: {{line: up}}}}");
    let mut worker = running(&dir, &runner, &["--stop-timeout=200ms"]);
    wait_for_log(&dir, " ready job=a after_ms=");
    worker.hold = None;
    assert_eq!(worker.ended().code(), Some(0));
    let lines = [
        "INFO started job=a token=0 pid=",
        "INFO ready job=a after_ms=",
        "INFO stopping: SIGTERM, and SIGKILL after the grace job=a grace_ms=200",
        "killing it job=a grace_ms=200",
        "INFO stopped: it was ended by signal 9 (SIGKILL) job=a",
    ];
    assert_in_order(&log(&dir), &lines);
    assert!(log(&dir).contains("a: up\n"));
}

#[test]
fn an_exit_code_of_a_success_is_no_failure_of_a_program() {
    let dir = tempfile::tempdir().unwrap();
    let restart = "{successCodes: [0, 1], minPause: 1h}";
    let runner = format!("{{command: [sh, -c, 'exit 1'], restart: {restart}}}");
    mount(&dir, "..1", "workloads:\n  w-0: {jobs: [a]}\n");
    let worker = Worker::start_alone(dir.path(), &[&format!("--runner={runner}")]);
    wait_for_log(&dir, " after a pause job=a pause_ms=3600000");
    assert_in_order(&log(&dir), &["INFO ended with exit code 1, which restart.successCodes has"]);
    worker.signal("TERM");
    assert_eq!(worker.ended().code(), Some(0), "{}", log(&dir));
    assert!(!log(&dir).contains("WARN"), "{}", log(&dir));
}

/// Longer than a plain worker ever waited for its jobs.
#[test]
fn the_end_of_a_plain_worker_grants_its_jobs_the_stop_timeout() {
    let dir = tempfile::tempdir().unwrap();
    let asked = "echo finalizing; sleep 11; echo FINALIZED; exit 0";
    let script = format!("trap \"{asked}\" TERM; echo up; while :; do sleep 0.05; done");
    let runner = format!("{{command: [sh, -c, '{script}'], ready: {{line: up}}}}");
    mount(&dir, "..1", "workloads:\n  w-0: {jobs: [a]}\n");
    let args = [&format!("--runner={runner}"), "--stop-timeout=40s"];
    let worker = Worker::start_alone(dir.path(), &args);
    wait_for_log(&dir, " ready job=a after_ms=");
    worker.signal("TERM");
    assert_eq!(worker.ended().code(), Some(0), "{}", log(&dir));
    assert_in_order(&log(&dir), &["a: finalizing\n", "a: FINALIZED\n", "ended with exit code 0"]);
}

#[test]
fn a_program_has_its_directory_and_environment_and_a_limit_of_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let script = "#!/bin/sh\necho \"$GREETING in $PWD\"\nexit 3\n";
    fs::write(dir.path().join("p.sh"), script).unwrap();
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(dir.path().join("p.sh"), executable).unwrap();
    let path = dir.path().display();
    let runner = format!(
        "{{command: [./p.sh], workingDir: {path}, env: {{GREETING: 'hi {{job}} of {{worker}}'}}, \
         restart: {{limit: 1, maxPause: 20ms}}}}"
    );
    let _worker = running(&dir, &runner, &[]);
    wait_for_log(&dir, "it is not restarted any more");
    let lines = [
        "WARN ended with exit code 3; restarting it after a pause job=a restart=1 limit=1",
        "ERROR ended with exit code 3; it is not restarted any more job=a restarts=1",
    ];
    assert_in_order(&log(&dir), &lines);
    let expected = format!("a: hi a of w-0 in {path}\n");
    until("the output", || log(&dir).matches(&expected).count() == 2);
}

#[test]
fn a_job_that_waits_for_its_next_run_or_has_none_left_is_not_counted_as_running() {
    let dir = tempfile::tempdir().unwrap();
    let (up, path) = (dir.path().join("up"), dir.path().display());
    let script = format!("[ $JOB = good ] || [ -e {path}/up ] || exit 3; exec sleep 1000");
    let runner = format!(
        "{{command: [sh, -c, '{script}'], env: {{JOB: '{{job}}'}}, restart: {{limit: 0}}}}"
    );
    mount(&dir, "..1", "workloads:\n  w-0: {jobs: [bad, good], version: 1}\n");
    let runner = format!("--runner={runner}");
    let worker = Worker::start_with(dir.path(), &[&runner]);
    let shows = |count: u32, jobs: &str| {
        worker.runs(jobs);
        let line = format!("swarm_worker_jobs {count}\n");
        until(&line, || worker.answer("/metrics").is_some_and(|all| all.contains(&line)));
    };
    shows(1, r#"{"version":1,"jobs":["bad","good"],"notRunning":["bad"]}"#);
    fs::write(up, "").unwrap();
    mount(&dir, "..2", "workloads:\n  w-0: {jobs: [good], version: 2}\nversion: 2\n");
    shows(1, r#"{"version":2,"jobs":["good"]}"#);
    mount(&dir, "..3", "workloads:\n  w-0: {jobs: [bad, good], version: 3}\nversion: 3\n");
    shows(2, r#"{"version":3,"jobs":["bad","good"]}"#);
}

#[test]
fn a_program_that_is_not_ready_in_time_is_restarted() {
    let dir = tempfile::tempdir().unwrap();
    let up = dir.path().join("up");
    let runner = format!(
        "{{command: [sleep, '1000'], ready: {{exec: [test, -e, {}], timeout: 1500ms}}, \
         restart: {{maxPause: 20ms}}}}",
        up.display()
    );
    let _worker = running(&dir, &runner, &[]);
    wait_for_log(&dir, "restarting it after a pause");
    let reason = "WARN was not ready within 1.5s: test ended with exit code 1; restarting it";
    assert_in_order(&log(&dir), &["INFO stopping: SIGTERM", reason]);
    fs::write(up, "").unwrap();
    wait_for_log(&dir, "INFO ready job=a");
}

#[test]
fn a_program_that_prints_nothing_is_stalled_and_restarted() {
    let dir = tempfile::tempdir().unwrap();
    let (mute, path) = (dir.path().join("mute"), dir.path().display());
    // It prints progress without line breaks, as a recorder does.
    let script = format!(
        "until [ -e {path}/mute ]; do printf . | tee -a {path}/printed; \
         sleep 0.05; done; exec sleep 1000"
    );
    let runner = format!(
        "{{command: [sh, -c, '{script}'], ready: {{exec: ['true']}}, alive: {{output: 4s}}, \
         restart: {{maxPause: 20ms}}}}"
    );
    let _worker = running(&dir, &runner, &[]);
    wait_for_log(&dir, "INFO ready job=a");
    // It prints for longer than the output may be missing.
    let printed = || fs::metadata(dir.path().join("printed")).map_or(0, |it| it.len());
    until("it has printed for five seconds", || 100 <= printed());
    assert!(!log(&dir).contains("stalled"), "{}", log(&dir));
    fs::write(&mute, "").unwrap();
    wait_for_log(&dir, "restarting it after a pause");
    fs::remove_file(mute).unwrap();
    let lines = [
        "WARN stalled: it printed nothing for 4s: stopping it job=a",
        "INFO stopping: SIGTERM",
        "WARN stalled: it printed nothing for 4s; restarting it after a pause job=a restart=1",
    ];
    assert_in_order(&log(&dir), &lines);
    until("it is ready again", || log(&dir).matches("INFO ready job=a").count() == 2);
}

#[test]
fn a_program_whose_files_do_not_change_is_stalled_after_its_start_period() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().display();
    let runner = format!(
        "{{command: [sleep, '1000'], workingDir: {path}, restart: {{limit: 0}}, \
         alive: {{file: {{path: 'rec-{{job}}/*.ts', within: 200ms}}, startPeriod: 2s}}}}"
    );
    let begin = Instant::now();
    let _worker = running(&dir, &runner, &[]);
    wait_for_log(&dir, "it is not restarted any more");
    assert!(Duration::from_secs(2) <= begin.elapsed());
    let reason = format!("stalled: no file matched `{path}/rec-a/*.ts` for 200ms");
    assert_in_order(&log(&dir), &[&format!("WARN {reason}: stopping it"), "ERROR stalled: "]);
}

#[test]
fn a_program_is_stalled_after_several_failed_probes_in_a_row() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().display();
    // The second probe succeeds, and all later ones fail.
    let probe = format!("echo >> {path}/probes; [ $(grep -c ^ {path}/probes) = 2 ]");
    let runner = format!(
        "{{command: [sleep, '1000'], restart: {{limit: 0}}, \
         alive: {{exec: [sh, -c, '{probe}'], every: 4s, failures: 2}}}}"
    );
    let _worker = running(&dir, &runner, &[]);
    wait_for_log(&dir, "it is not restarted any more");
    let lines = [
        "WARN not alive: sh ended with exit code 1 job=a failures=1 failures_max=2",
        "WARN not alive: sh ended with exit code 1 job=a failures=1 failures_max=2",
        "WARN not alive: sh ended with exit code 1 job=a failures=2 failures_max=2",
        "WARN stalled: 2 checks in a row failed: sh ended with exit code 1: stopping it job=a",
    ];
    assert_in_order(&log(&dir), &lines);
    assert_eq!(fs::read_to_string(dir.path().join("probes")).unwrap().lines().count(), 4);
}

#[test]
fn every_line_of_a_json_log_is_json() {
    let dir = tempfile::tempdir().unwrap();
    let runner = "{command: [sh, -c, 'echo \"up {job}\"; exec sleep 1000']}";
    let mut worker = running(&dir, runner, &["--log-format=json"]);
    wait_for_log(&dir, r#"{"job":"a","output":"up a"}"#);
    worker.hold = None;
    assert_eq!(worker.ended().code(), Some(0));
    for line in log(&dir).lines() {
        let json: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(json["job"] == "a" || json["timestamp"].is_string(), "{line}");
    }
}
