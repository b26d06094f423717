//! A worker with one job under a guard. A shell plays the worker's operator.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use swarm_worker::sweep::{Marker, end_all};
use tempfile::TempDir;

/// Limit of every wait: it ends a test that hangs, and judges nothing.
pub(crate) const DEADLINE: Duration = Duration::from_mins(5);

/// The script of the operator. It holds the worker by a pipe that closes when the operator ends.
const OPERATOR: &str = r#"mkfifo "$0/hold"
"$1" run --name=w-0 --http-port=0 --until-stdin-closes --runner=command --run-log="$0/run.log" \
    --config-path="$0" -- sh -c "$2" <"$0/hold" 2>"$0/log" &
exec 3>"$0/hold"
wait"#;

/// The processes of the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Operator,
    Worker,
    Guard,
    Job,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    words: Vec<String>,
}

pub(crate) struct Machine {
    dir: TempDir,
    operator: Child,
    first: std::sync::Mutex<Vec<i32>>,
}

impl Machine {
    pub(crate) fn start(script: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let view = "workloads:\n  w-0: {jobs: [a]}\n";
        fs::write(dir.path().join("config.yml"), view).unwrap();
        let operator = default_signals("sh")
            .args(["-c", OPERATOR])
            .arg(dir.path())
            .args([env!("CARGO_BIN_EXE_swarm-worker"), script])
            .env("SWARM_RUN", dir.path())
            .process_group(0)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Self { dir, operator, first: std::sync::Mutex::default() }
    }

    /// The mark of the operator's run: no other test uses this directory.
    fn mark(&self) -> String {
        self.dir.path().display().to_string()
    }

    fn processes(&self) -> Vec<Process> {
        with_entry(&format!("SWARM_RUN={}", self.mark()))
    }

    fn who(&self, process: &Process) -> Who {
        let has = |word: &str| process.words.iter().any(|w| w == word);
        if u32::try_from(process.pid) == Ok(self.operator.id()) {
            Who::Operator
        } else if has("--until-stdin-closes") {
            Who::Worker
        } else if process.words.last().is_some_and(|word| word == "guard") {
            Who::Guard
        } else {
            Who::Job
        }
    }

    pub(crate) fn all_but(&self, who: Who) -> Vec<Process> {
        self.processes().into_iter().filter(|process| self.who(process) != who).collect()
    }

    fn jobs(&self) -> Vec<i32> {
        let is_sleep = |p: &Process| p.words.first().is_some_and(|word| word == "sleep");
        self.processes().iter().filter(|p| is_sleep(p)).map(|p| p.pid).collect()
    }

    /// The processes of the job at the start of the test.
    pub(crate) fn jobs_at_first(&self) -> Vec<i32> {
        self.first.lock().unwrap().clone()
    }

    /// Waits until both processes of the job run and none of `before` is left.
    pub(crate) fn until_the_job_runs_again(&self, before: &[i32]) {
        let jobs = until("the job runs", || {
            let jobs = self.jobs();
            (jobs.len() == 2 && jobs.iter().all(|pid| !before.contains(pid))).then_some(jobs)
        });
        if before.is_empty() {
            *self.first.lock().unwrap() = jobs;
        }
    }

    pub(crate) fn signal(&self, who: Who, signal: Signal) {
        let processes = self.processes();
        let one = processes.iter().find(|process| self.who(process) == who);
        // The process may have ended together with the signalled one.
        if let Some(pid) = one.and_then(|process| Pid::from_raw(process.pid)) {
            let _ = kill_process(pid, signal);
        }
    }

    /// Checks that the job still has its first processes.
    pub(crate) fn the_job_runs_still(&self) {
        assert_eq!(self.jobs(), self.jobs_at_first());
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    pub(crate) fn run_log(&self) -> String {
        fs::read_to_string(self.dir.path().join("run.log")).unwrap()
    }

    pub(crate) fn sweep(&self) {
        sweep(&Marker::Run { mark: self.mark(), since: 0 });
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.operator.kill();
        let _ = self.operator.wait();
        self.sweep();
    }
}

fn sweep(marker: &Marker) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime
        .block_on(async { tokio::time::timeout(DEADLINE, end_all(marker)).await })
        .unwrap()
        .unwrap();
}

pub(crate) fn sweep_session(session: &str) {
    sweep(&Marker::Session(session.to_owned()));
}

/// Returns every process that was started with this entry in its environment.
pub(crate) fn with_entry(entry: &str) -> Vec<Process> {
    let has = |process: &Process| {
        let all = fs::read(format!("/proc/{}/environ", process.pid)).unwrap_or_default();
        all.split(|byte| *byte == 0).any(|one| one == entry.as_bytes())
    };
    all().into_iter().filter(has).collect()
}

/// Returns a time to sleep, in seconds, that no other run of these tests uses.
pub(crate) fn seconds(number: u32) -> String {
    format!("{number}.{}", std::process::id())
}

/// Copies the file of a program.
pub(crate) fn copy_program(from: &str, to: &Path, mode: u32) {
    // A copy by this process could be "busy": a child that another test starts keeps its descriptor.
    let mut install = Command::new("install");
    assert!(install.args(["-m", &format!("{mode:o}"), from]).arg(to).status().unwrap().success());
}

/// Returns the number of processes that sleep for this time.
///
/// Programs that start the sleep, for example `setsid` and `env`, do not count: while one replaces
/// another, the kernel shows an empty command line.
pub(crate) fn sleepers(seconds: &str) -> usize {
    let sleeps = |process: &&Process| matches!(&process.words[..], [_, time] if time == seconds);
    all().iter().filter(sleeps).count()
}

fn all() -> Vec<Process> {
    let process = |entry: fs::DirEntry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let line = fs::read(Path::new("/proc").join(entry.file_name()).join("cmdline")).ok()?;
        let words = line.split(|b| *b == 0).map(|w| String::from_utf8_lossy(w).into_owned());
        let words = words.filter(|word| !word.is_empty()).collect();
        Some(Process { pid, words })
    };
    fs::read_dir("/proc").unwrap().filter_map(|entry| process(entry.ok()?)).collect()
}

/// Returns a command that resets the signals which the caller of this test ignores, for example
/// with `nohup cargo test`.
pub(crate) fn default_signals(program: &str) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP,INT", program]);
    command
}

/// Polls until there is an answer.
pub(crate) fn until<T>(what: &str, mut answer: impl FnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(answer) = answer() {
            return answer;
        }
        assert!(since.elapsed() < DEADLINE, "not within {DEADLINE:?}: {what}");
        sleep(Duration::from_millis(5));
    }
}
