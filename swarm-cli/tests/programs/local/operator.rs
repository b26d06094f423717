//! A running `swarm local`, observed from outside: its output, its workers' processes, and
//! the jobs that each of them reports.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// Limit of every wait: it ends a test that hangs, and judges nothing.
pub(crate) const DEADLINE: Duration = Duration::from_mins(5);

const PROGRAM: &str = env!("CARGO_BIN_EXE_swarm");

const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/samples/streams.yaml");

/// A directory with a copy of the sample and its operators. Dropping it ends all leftover
/// processes.
pub(crate) struct Machine {
    dir: TempDir,
}

/// A running operator.
pub(crate) struct Operator<'a> {
    machine: &'a Machine,
    child: Child,
    number: u32,
}

impl Machine {
    pub(crate) fn new() -> Self {
        hear();
        let machine = Self { dir: tempfile::tempdir().unwrap() };
        machine.write(&fs::read_to_string(SAMPLE).unwrap());
        machine
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.dir.path().join("streams.yaml")
    }

    pub(crate) fn write(&self, text: &str) {
        fs::write(self.file(), text).unwrap();
    }

    /// Edits the file in place, as an editor does.
    pub(crate) fn edit(&self, from: &str, to: &str) {
        let text = fs::read_to_string(self.file()).unwrap();
        assert!(text.contains(from), "{from} is not in the file");
        self.write(&text.replacen(from, to, 1));
    }

    /// Returns the state directory of its pool.
    pub(crate) fn state(&self) -> PathBuf {
        self.path().join("state")
    }

    /// Returns the directory with the default directories of pools.
    pub(crate) fn home(&self) -> PathBuf {
        self.path().join("home")
    }

    /// Starts an operator with a command to which the operator's own command is added.
    pub(crate) fn started_by(&self, words: &[&str]) -> Operator<'_> {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).arg(PROGRAM).arg("local").arg(self.file());
        command.arg("--dir").arg(self.state()).process_group(0).stdin(Stdio::null());
        command.env("XDG_STATE_HOME", self.home());
        self.spawned(command)
    }

    fn command(&self, state: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.arg("local").arg(self.file()).arg("--dir").arg(state);
        command.env("XDG_STATE_HOME", self.home()).args(args).process_group(0).stdin(Stdio::null());
        command
    }

    /// Returns the directory of all files.
    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Runs an operator to its end.
    pub(crate) fn output(&self, args: &[&str]) -> Output {
        self.command(&self.state(), args).output().unwrap()
    }

    /// Runs another command, such as `ps`, for the pool in its state directory.
    pub(crate) fn run(&self, words: &[&str]) -> Output {
        Command::new(PROGRAM).args(words).arg("--dir").arg(self.state()).output().unwrap()
    }

    /// Runs such a command, and returns the text that it prints.
    pub(crate) fn asks(&self, words: &[&str]) -> String {
        String::from_utf8(self.run(words).stdout).unwrap()
    }

    /// Runs such a command with `-o json`, and returns its document; `null` without one.
    pub(crate) fn document(&self, words: &[&str]) -> Value {
        let printed = self.run(&[words, &["-o", "json"]].concat()).stdout;
        serde_json::from_slice(&printed).unwrap_or_default()
    }

    /// Returns the entry of a job in the list of jobs; `null` without one.
    pub(crate) fn job(&self, job: &str) -> Value {
        let document = self.document(&["ps"]);
        let mut jobs = document["jobs"].as_array().into_iter().flatten();
        jobs.find(|entry| entry["job"] == job).cloned().unwrap_or_default()
    }

    /// Starts an operator and waits until its pool is settled.
    pub(crate) fn settled(&self) -> Operator<'_> {
        self.settled_with(&[])
    }

    /// The same, with further arguments.
    pub(crate) fn settled_with(&self, args: &[&str]) -> Operator<'_> {
        let operator = self.started_with(&self.state(), args);
        operator.prints("settled in");
        operator
    }

    /// Starts an operator.
    pub(crate) fn started(&self) -> Operator<'_> {
        self.started_with(&self.state(), &[])
    }

    /// Starts an operator with its state in another directory, and waits until its pool is settled.
    pub(crate) fn settled_in(&self, state: &Path) -> Operator<'_> {
        let operator = self.started_with(state, &["--again"]);
        operator.prints("settled in");
        operator
    }

    /// Starts an operator with these variables in its environment.
    pub(crate) fn started_in(&self, variables: &[(&str, &str)]) -> Operator<'_> {
        let mut command = self.command(&self.state(), &[]);
        command.envs(variables.iter().copied());
        self.spawned(command)
    }

    fn started_with(&self, state: &Path, args: &[&str]) -> Operator<'_> {
        self.spawned(self.command(state, args))
    }

    fn spawned(&self, mut command: Command) -> Operator<'_> {
        let number = (0..100).find(|n| !self.dir.path().join(format!("out.{n}")).exists()).unwrap();
        let file = |name: &str| File::create(self.dir.path().join(format!("{name}.{number}")));
        command.stdout(file("out").unwrap()).stderr(file("err").unwrap());
        // The operator lists its directory there.
        command.env("XDG_STATE_HOME", self.home());
        Operator { machine: self, child: command.spawn().unwrap(), number }
    }

    /// The workers' processes, by worker.
    pub(crate) fn workers(&self) -> BTreeMap<String, i32> {
        let processes: BTreeMap<_, _> = self.processes().into_iter().collect();
        let name = |words: &Vec<String>| {
            words.iter().find_map(|word| word.strip_prefix("--name=").map(str::to_owned))
        };
        let of_worker = |(pid, words): (&i32, &Vec<String>)| {
            let worker = name(words)?;
            // Between fork and exec, a child of a worker has the words of its parent.
            let is_copy = processes.get(&parent(*pid)?).and_then(name).as_ref() == Some(&worker);
            (!is_copy).then_some((worker, *pid))
        };
        processes.iter().filter_map(of_worker).collect()
    }

    /// Every process that has this directory in its command line.
    pub(crate) fn processes(&self) -> Vec<(i32, Vec<String>)> {
        let dir = self.dir.path().to_str().unwrap();
        let process = |entry: fs::DirEntry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let line = fs::read(entry.path().join("cmdline")).ok()?;
            let words = line.split(|b| *b == 0).map(|w| String::from_utf8_lossy(w).into_owned());
            let words: Vec<_> = words.collect();
            words.iter().any(|word| word.contains(dir)).then_some((pid, words))
        };
        fs::read_dir("/proc").unwrap().filter_map(|entry| process(entry.ok()?)).collect()
    }

    /// Returns each live worker's answer to `/internal/version`; `None` while any of them does not
    /// answer.
    pub(crate) fn running(&self) -> Option<BTreeMap<String, BTreeSet<String>>> {
        let jobs = |(worker, _): (String, i32)| Some((worker.clone(), self.asked(&worker)?));
        self.workers().into_iter().map(jobs).collect()
    }

    /// Returns all logs: of the operator, of the workers, and of the jobs.
    pub(crate) fn logs(&self) -> String {
        let texts = |dir: &str| {
            let entries = fs::read_dir(self.state().join(dir)).into_iter().flatten().flatten();
            entries.filter_map(|log| fs::read_to_string(log.path()).ok()).collect::<String>()
        };
        texts("logs") + &texts("logs/jobs")
    }

    fn asked(&self, worker: &str) -> Option<BTreeSet<String>> {
        let log = fs::read_to_string(self.dir.path().join(format!("state/logs/{worker}.log")));
        let log = log.ok()?;
        let address = log.rsplit_once(" http=")?.1.split_whitespace().next()?;
        let answer = get(address, "/internal/version")?;
        let json = answer.split_once("\r\n\r\n")?.1;
        let report: Value = serde_json::from_str(json).ok()?;
        let jobs = report["jobs"].as_array()?.iter();
        jobs.map(|job| job.as_str().map(ToOwned::to_owned)).collect()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for (pid, _) in self.processes() {
            signal(pid, Signal::KILL);
        }
    }
}

impl Operator<'_> {
    /// Waits until the output contains `words`, and returns the output.
    pub(crate) fn prints(&self, words: &str) -> String {
        let output = || Some(self.printed("out")).filter(|output| output.contains(words));
        until(&format!("{words:?} in the output"), output)
    }

    /// The standard error so far.
    pub(crate) fn complaints(&self) -> String {
        self.printed("err")
    }

    fn printed(&self, name: &str) -> String {
        let path = self.machine.dir.path().join(format!("{name}.{}", self.number));
        fs::read_to_string(path).unwrap()
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    pub(crate) fn signal(&self, kind: Signal) {
        signal(self.pid(), kind);
    }

    /// Sends a signal as soon as the operator handles it.
    pub(crate) fn signal_once_it_waits(&self, kind: Signal) {
        until_handled(&self.child, kind);
        self.signal(kind);
    }

    /// Returns the end of the operator, if it has ended.
    pub(crate) fn ended_already(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits until the operator has ended.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        until("the operator ended", || self.child.try_wait().unwrap())
    }
}

impl Drop for Operator<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Makes this test's programs handle signals that its caller ignores, as with `nohup cargo test`.
fn hear() {
    for signal in [Signal::HUP, Signal::INT] {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
        let ignored = u64::from_str_radix(ignored.trim(), 16).unwrap();
        if ignored >> (signal.as_raw() - 1) & 1 == 1 {
            signal_hook::flag::register(signal.as_raw(), Arc::default()).unwrap();
        }
    }
}

/// Returns the parent of a process; `None` if the process has ended.
fn parent(pid: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

/// Waits until a program handles a signal.
pub(crate) fn until_handled(program: &Child, kind: Signal) {
    let mask = |status: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix("SigCgt:"))?;
        u64::from_str_radix(line.trim(), 16).ok()
    };
    let bit = 1_u64 << (kind.as_raw() - 1);
    until("the signal is handled", || {
        let status = fs::read_to_string(format!("/proc/{}/status", program.id())).ok()?;
        (mask(&status)? & bit != 0).then_some(())
    });
}

pub(crate) fn signal(pid: i32, kind: Signal) {
    // The process may have just ended.
    let _ = kill_process(Pid::from_raw(pid).unwrap(), kind);
}

/// Returns the answer to an HTTP request, with its headers; `None` without an answer.
pub(crate) fn get(address: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    // In this version, long answers are not sent in chunks.
    let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// Polls until there is an answer.
pub(crate) fn until<T>(what: &str, mut answer: impl FnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(answer) = answer() {
            return answer;
        }
        assert!(since.elapsed() < DEADLINE, "not within {DEADLINE:?}: {what}");
        sleep(Duration::from_millis(20));
    }
}
