//! A guard, and its connection to the test, which plays the worker.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

use rustix::process::Pid;
use tempfile::TempDir;

use crate::guard::machine::{
    DEADLINE, Process, copy_program, default_signals, sweep_session, until, with_entry,
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_swarm-worker");

/// A command that runs another one as a user other than root.
const AS_NOBODY: &str = "setpriv --reuid=65534 --regid=65534 --clear-groups";

pub(crate) struct Line {
    pub(crate) session: String,
    dir: TempDir,
    child: Child,
    requests: Option<ChildStdin>,
    replies: Receiver<String>,
}

impl Line {
    pub(crate) fn start(name: &str) -> Self {
        Self::start_with(name, &[])
    }

    /// Starts a guard with these variables in its environment.
    pub(crate) fn start_with(name: &str, variables: &[(&str, &str)]) -> Self {
        let mut command = default_signals(PROGRAM);
        command.arg("guard").envs(variables.iter().copied());
        Self::spawned(name, command, None)
    }

    /// Starts a shell that runs these commands and then becomes a guard.
    pub(crate) fn start_from_shell(name: &str, script: &str) -> Self {
        let mut command = default_signals("sh");
        command.args(["-c", &format!("{script}; exec \"$0\" guard"), PROGRAM]);
        Self::spawned(name, command, None)
    }

    /// Starts a guard that has to lock this file as well.
    pub(crate) fn start_locked(name: &str, lock: &Path) -> Self {
        let mut command = default_signals(PROGRAM);
        command.arg("guard");
        Self::spawned(name, command, Some(lock))
    }

    /// Starts a guard of a user other than root in a PID namespace, so that its session and its group are
    /// outside of the namespace. Its `/proc` hides processes that the user may not read.
    /// Returns `None` if the user who runs the test may not do that.
    pub(crate) fn start_with_hidepid(name: &str) -> Option<Self> {
        let (dir, program) = with_program();
        let script = format!("mount -t proc -o hidepid=2 proc /proc && exec {AS_NOBODY} \"$@\"");
        let within = |words: &[&str]| {
            let mut command = Command::new("unshare");
            command.args(["--mount", "--pid", "--fork", "--kill-child"]);
            command.args(["sh", "-c", &script, "sh"]).args(words);
            command
        };
        let can = within(&["true"]).stderr(Stdio::null()).status();
        if !can.is_ok_and(|status| status.success()) {
            return None;
        }
        let command = within(&[program.to_str().unwrap(), "guard"]);
        Some(Self::spawned_in(dir, name, command, None))
    }

    /// Starts a guard of a user other than root in a control group.
    pub(crate) fn start_in_group(name: &str, group: &Path) -> Self {
        let (dir, program) = with_program();
        let script = format!("echo $$ >\"$1/cgroup.procs\"; exec {AS_NOBODY} \"$0\" guard");
        let mut command = default_signals("sh");
        command.args(["-c", &script]).args([&program, group]);
        Self::spawned_in(dir, name, command, None)
    }

    fn spawned(name: &str, command: Command, lock: Option<&Path>) -> Self {
        Self::spawned_in(tempfile::tempdir().unwrap(), name, command, lock)
    }

    fn spawned_in(dir: TempDir, name: &str, mut command: Command, lock: Option<&Path>) -> Self {
        let session = format!("{name}-{}", std::process::id());
        let mut child = command
            .env("SWARM_SESSION", &session)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(dir.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (sender, replies) = channel();
        std::thread::spawn(move || {
            lines.map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let requests = child.stdin.take();
        let mut line = Self { session, dir, child, requests, replies };
        let log = line.path("run.log");
        let lock = lock.map(|path| format!(r#","lock":"{}""#, path.display()));
        line.send(&format!(
            r#"{{"do":"hello","version":1,"worker":"w-0","session":"{}","run_log":"{}"{}}}"#,
            line.session,
            log.display(),
            lock.unwrap_or_default()
        ));
        line
    }

    pub(crate) fn send(&mut self, request: &str) {
        writeln!(self.requests.as_mut().unwrap(), "{request}").unwrap();
    }

    pub(crate) fn reply(&mut self) -> String {
        let reply = self.replies.recv_timeout(DEADLINE);
        // A guard that has closed its output ends.
        let end = (reply == Err(RecvTimeoutError::Disconnected)).then(|| self.child.wait());
        assert!(
            reply.is_ok(),
            "{reply:?}; the end of the guard: {end:?}; its log:\n{}",
            self.log()
        );
        reply.unwrap()
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Starts a shell with `script` as a job, and returns its process. `$0` is a path that only
    /// this job uses.
    pub(crate) fn start_job(&mut self, job: &str, script: &str) -> i32 {
        let path = self.path(job);
        let script = serde_json::to_string(script).unwrap();
        self.send(&format!(
            r#"{{"do":"start","job":"{job}","token":7,"argv":["sh","-c",{script},"{}"],"env":{{}},"grace_ms":5000}}"#,
            path.display()
        ));
        let reply = self.reply();
        let pid = reply.strip_prefix(&format!(r#"{{"is":"started","job":"{job}","pid":"#));
        let pid = pid.and_then(|rest| rest.strip_suffix('}')?.parse().ok());
        assert!(pid.is_some(), "{reply}");
        pid.unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.path("log")).unwrap()).into_owned()
    }

    /// Waits for a line. The last lines of a job may be written after it was reported as joined.
    pub(crate) fn until_log_has(&self, line: &str) {
        until("the line", || self.log().contains(line).then_some(()));
    }

    pub(crate) fn run_log(&self) -> String {
        fs::read_to_string(self.path("run.log")).unwrap_or_default()
    }

    /// Returns the guard and the processes that it started.
    pub(crate) fn processes(&self) -> Vec<Process> {
        with_entry(&format!("SWARM_SESSION={}", self.session))
    }

    /// Closes the connection, and waits for the guard to end.
    pub(crate) fn close(&mut self) {
        self.requests = None;
        let ended = until("the guard ended", || self.child.try_wait().unwrap());
        assert_eq!(ended.code(), Some(0));
        assert_eq!(self.processes(), []);
    }

    /// Kills the guard alone.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn end(mut self) {
        self.close();
    }
}

/// Copies the program into a directory for every user.
fn with_program() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let program = dir.path().join("program");
    copy_program(PROGRAM, &program, 0o755);
    (dir, program)
}

impl Drop for Line {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        sweep_session(&self.session);
    }
}
