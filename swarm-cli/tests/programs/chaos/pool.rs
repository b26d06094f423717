//! A pool on this machine, observed and disturbed from outside: its files, its processes,
//! and the logs of its runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::chaos::job;
use crate::local::operator::DEADLINE;

/// Time between two checks of a condition.
const LOOK: Duration = Duration::from_millis(25);

const PROGRAM: &str = env!("CARGO_BIN_EXE_swarm");

/// A manifest, a state directory, and at most one operator. Dropping it ends all leftover
/// processes.
pub(crate) struct Pool {
    root: TempDir,
    dir: PathBuf,
    /// The directory's path for the test.
    seen: PathBuf,
    operator: Option<Child>,
    operators: u32,
    /// The command that starts an operator, if it is not started directly.
    wrapper: Vec<String>,
}

/// The holder of a job in the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) session: String,
    pub(crate) slot: u64,
    pub(crate) token: u64,
    /// The revision at which the job was released, if it was released.
    pub(crate) releasing_since: Option<u64>,
}

/// A line of the jobs' own log.
#[derive(Clone, Debug, serde::Deserialize)]
pub(crate) struct Line {
    pub(crate) job: String,
    pub(crate) session: String,
    pub(crate) token: u64,
    pub(crate) event: String,
}

/// The verdict of `verify` on a log.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) code: Option<i32>,
    pub(crate) report: Value,
}

impl Pool {
    pub(crate) fn new(manifest: &str) -> Self {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("state");
        fs::create_dir(&dir).unwrap();
        let dir = dir.canonicalize().unwrap();
        let seen = dir.clone();
        let pool = Self { root, dir, seen, operator: None, operators: 0, wrapper: Vec::new() };
        pool.write(manifest);
        pool
    }

    /// The same, with operators that this command starts, and with another path of the state
    /// directory for the test.
    pub(crate) fn through(mut self, wrapper: Vec<String>, seen: PathBuf) -> Self {
        self.wrapper = wrapper;
        self.seen = seen;
        self
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the path of a file in the state directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.seen.join(name)
    }

    pub(crate) fn manifest(&self) -> PathBuf {
        self.root.path().join("swarm.yaml")
    }

    /// Replaces the manifest by renaming, as an editor does.
    pub(crate) fn write(&self, text: &str) {
        let temporary = self.root.path().join(".swarm.yaml");
        fs::write(&temporary, text).unwrap();
        fs::rename(temporary, self.manifest()).unwrap();
    }

    pub(crate) fn edit(&self, from: &str, to: &str) {
        let text = fs::read_to_string(self.manifest()).unwrap();
        assert!(text.contains(from), "{from} is not in the manifest");
        self.write(&text.replacen(from, to, 1));
    }

    fn command(&self, args: &[&str]) -> Command {
        self.command_in(&self.dir, args)
    }

    fn command_in(&self, dir: &Path, args: &[&str]) -> Command {
        let mut words = self.wrapper.iter().map(String::as_str).chain([PROGRAM]);
        let mut command = Command::new(words.next().unwrap());
        command.args(words).arg("local").arg(self.manifest()).arg("--dir").arg(dir);
        command.env("XDG_STATE_HOME", self.root.path().join("home"));
        command.args(args).process_group(0).stdin(Stdio::null());
        command
    }

    /// Starts an operator.
    pub(crate) fn start(&mut self) {
        self.start_with(&[]);
    }

    /// Starts an operator with further arguments.
    pub(crate) fn start_with(&mut self, args: &[&str]) {
        assert!(self.operator.is_none(), "an operator already runs");
        let file = |name: &str| {
            File::create(self.root.path().join(format!("{name}.{}", self.operators))).unwrap()
        };
        let mut command = self.command(args);
        command.stdout(file("out")).stderr(file("err"));
        self.operator = Some(command.spawn().unwrap());
        self.operators += 1;
    }

    /// Runs another operator to its end.
    pub(crate) fn output(&self, args: &[&str]) -> Output {
        self.output_in(&self.dir, args)
    }

    /// Does the same in another state directory.
    pub(crate) fn output_in(&self, dir: &Path, args: &[&str]) -> Output {
        let mut command = self.command_in(dir, args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let since = Instant::now();
        while child.try_wait().unwrap().is_none() {
            if DEADLINE < since.elapsed() {
                signal(pid, Signal::KILL);
                panic!("the operator did not end within {DEADLINE:?}");
            }
            sleep(LOOK);
        }
        child.wait_with_output().unwrap()
    }

    /// The standard output of all operators.
    pub(crate) fn stdout(&self) -> String {
        self.all("out")
    }

    /// The standard error of all operators.
    pub(crate) fn complaints(&self) -> String {
        self.all("err")
    }

    fn all(&self, name: &str) -> String {
        let path = |n| self.root.path().join(format!("{name}.{n}"));
        (0..self.operators).map(|n| fs::read_to_string(path(n)).unwrap()).collect()
    }

    pub(crate) fn operator(&self) -> i32 {
        self.operator.as_ref().unwrap().id().try_into().unwrap()
    }

    /// Kills the operator, and waits until it has ended.
    pub(crate) fn kill_operator(&mut self) {
        let mut operator = self.operator.take().unwrap();
        operator.kill().unwrap();
        operator.wait().unwrap();
    }

    /// Waits until the operator has ended by itself.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let mut operator = self.operator.take().unwrap();
        let status = self.until("the operator ended", || operator.try_wait().unwrap());
        self.nobody_is_left();
        status
    }

    /// Asks the operator to end. That leaves no process behind.
    pub(crate) fn end(&mut self) {
        signal(self.operator(), Signal::TERM);
        assert_eq!(self.ended().code(), Some(0), "{}", self.history());
    }

    fn nobody_is_left(&self) {
        let left = processes(&self.dir);
        assert_eq!(left, BTreeMap::new(), "{}", self.history());
    }

    /// The mark of the run of the last operator that has begun.
    pub(crate) fn mark(&self) -> Value {
        let text = fs::read_to_string(self.path("run.json")).unwrap_or_default();
        serde_json::from_str::<Value>(&text).unwrap_or_default()["mark"].clone()
    }

    /// The process of the worker in a slot.
    pub(crate) fn worker(&self, slot: u64) -> Option<i32> {
        let text = fs::read_to_string(self.path("run.json")).ok()?;
        let record: Value = serde_json::from_str(&text).ok()?;
        record["workers"].get(format!("w-{slot}"))?["pid"].as_i64()?.try_into().ok()
    }

    /// The process of the guard of the worker in a slot.
    pub(crate) fn guard(&self, slot: u64) -> Option<i32> {
        children(self.worker(slot)?).into_iter().next()
    }

    fn ledger(&self) -> Option<Value> {
        let text = fs::read_to_string(self.path("ledger.json")).ok()?;
        Some(serde_json::from_str::<Value>(&text).ok()?["ledger"].take())
    }

    /// Returns the holder of every job.
    pub(crate) fn held(&self) -> BTreeMap<String, Held> {
        let ledger = self.ledger().unwrap_or_default();
        let mut held = BTreeMap::new();
        for holder in ledger["holders"].as_array().into_iter().flatten() {
            let (session, slot) = (holder["session"].as_str(), holder["slot"].as_u64());
            let by = |token: &Value, since: &Value| Held {
                session: session.unwrap().to_owned(),
                slot: slot.unwrap(),
                token: token.as_u64().unwrap(),
                releasing_since: since.as_u64(),
            };
            for (job, token) in holder["jobs"].as_object().into_iter().flatten() {
                held.insert(job.clone(), by(token, &Value::Null));
            }
            for (job, release) in holder["releasing"].as_object().into_iter().flatten() {
                held.insert(job.clone(), by(&release["token"], &release["since"]));
            }
        }
        held
    }

    /// Returns the state of a job without a holder, such as `done`.
    pub(crate) fn waits(&self, job: &str) -> Option<String> {
        let ledger = self.ledger()?;
        ledger["waits"][job].as_object()?.keys().next().cloned()
    }

    /// Returns the revision that a session last acknowledged.
    pub(crate) fn acknowledged(&self, session: &str) -> Option<u64> {
        let states = fs::read_dir(self.path("leases")).ok()?.filter_map(|entry| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            name.strip_prefix(session)?.strip_prefix('.')?.parse::<u64>().ok()
        });
        let newest = self.path("leases").join(format!("{session}.{}", states.max()?));
        let lease: Value = serde_json::from_str(&fs::read_to_string(newest).ok()?).ok()?;
        lease["ack"]["revision"].as_u64()
    }

    /// Whether a session's published view grants a job.
    pub(crate) fn is_published(&self, session: &str, job: &str) -> bool {
        let path = self.path("sessions").join(session).join("view.json");
        let text = fs::read_to_string(path).unwrap_or_default();
        let view: Value = serde_json::from_str(&text).unwrap_or_default();
        view["jobs"][job].is_object()
    }

    /// Returns the worker of every job, once each of `jobs` has one holder and runs only there,
    /// under the ledger's session and token, as this machine's processes show.
    pub(crate) fn at_rest(&self, jobs: &[&str]) -> Option<BTreeMap<String, u64>> {
        let held = self.held();
        let is_wanted = held.keys().map(String::as_str).collect::<BTreeSet<_>>()
            == jobs.iter().copied().collect();
        if !is_wanted || held.values().any(|held| held.releasing_since.is_some()) {
            return None;
        }
        let runs = self.runs();
        let as_held = |(job, held): (&String, &Held)| {
            let run = (held.session.clone(), held.token.to_string());
            runs.get(job).is_some_and(|found| *found == [run])
        };
        if runs.len() != jobs.len() || !held.iter().all(as_held) {
            return None;
        }
        // A job that has not logged yet may not handle the signal yet.
        let lines = self.lines();
        let is_up = |(job, held): (&String, &Held)| {
            let last = lines.iter().rfind(|line| line.job == *job);
            last.is_some_and(|line| (&line.session, line.token) == (&held.session, held.token))
        };
        let is_at_rest = held.iter().all(is_up);
        is_at_rest.then(|| held.into_iter().map(|(job, held)| (job, held.slot)).collect())
    }

    /// Returns each job's sessions and tokens, from the environments of processes.
    pub(crate) fn runs(&self) -> BTreeMap<String, Vec<(String, String)>> {
        let mut runs = BTreeMap::<_, Vec<_>>::new();
        for environment in processes(&self.dir).into_values() {
            let value = |name: &str| environment.get(name).cloned();
            if let (Some(job), Some(session), Some(token)) =
                (value("SWARM_JOB"), value("SWARM_SESSION"), value("SWARM_TOKEN"))
            {
                runs.entry(job).or_default().push((session, token));
            }
        }
        runs
    }

    /// Waits until every job runs on its holder in the ledger, and nowhere else.
    pub(crate) fn settled(&self, jobs: &[&str]) -> BTreeMap<String, u64> {
        self.until("every job runs once", || self.at_rest(jobs))
    }

    /// Reads the jobs' own log.
    pub(crate) fn lines(&self) -> Vec<Line> {
        let text = fs::read_to_string(self.path(job::LOG)).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Waits until every job has logged twice that it runs: a second copy of a job would have
    /// logged, too.
    pub(crate) fn runs_on(&self, jobs: &[&str]) {
        let from = self.lines().len();
        self.until("every job ticks", || {
            let lines = self.lines();
            let ticks = |job: &str| {
                lines
                    .iter()
                    .skip(from)
                    .filter(|line| line.job == job && line.event == "tick")
                    .count()
            };
            jobs.iter().all(|job| 2 <= ticks(job)).then_some(())
        });
    }

    pub(crate) fn verify(&self, log: &str, args: &[&str]) -> Verdict {
        let mut command = Command::new(PROGRAM);
        let output = command.arg("verify").arg(self.path(log)).args(args).args(["-o", "json"]);
        let output = output.output().unwrap();
        let report = serde_json::from_slice(&output.stdout).unwrap_or_default();
        Verdict { code: output.status.code(), report }
    }

    /// Judges the workers' log and the jobs' log. Returns the longest time without a run of any
    /// job.
    pub(crate) fn judged(&self) -> Duration {
        self.judged_as(&[])
    }

    pub(crate) fn judged_as(&self, args: &[&str]) -> Duration {
        let [_, gap] = ["run.log", job::LOG].map(|log| {
            let Verdict { code, report } = self.verify(log, args);
            let none = Value::Array(Vec::new());
            assert!(
                code == Some(0)
                    && report["overlaps"] == none
                    && report["token_regressions"] == none,
                "{log}: exit code {code:?}, {report:#}\n{}",
                self.history()
            );
            report["longest_gap_ms"].as_f64().unwrap()
        });
        Duration::from_secs_f64(gap / 1e3)
    }

    /// Polls until there is an answer.
    pub(crate) fn until<T>(&self, what: &str, answer: impl FnMut() -> Option<T>) -> T {
        asked(answer)
            .unwrap_or_else(|| panic!("not within {DEADLINE:?}: {what}\n{}", self.history()))
    }

    /// Returns all data that could explain a failure.
    pub(crate) fn history(&self) -> String {
        let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
        let mut parts = vec![self.stdout(), self.complaints(), read(&self.path("ledger.json"))];
        for dir in ["logs", "logs/jobs"] {
            for log in fs::read_dir(self.path(dir)).into_iter().flatten().flatten() {
                parts.push(format!("--- {}\n{}", log.path().display(), read(&log.path())));
            }
        }
        parts.push(format!("--- processes {:?}\n--- run.log", processes(&self.dir).keys()));
        let is_rare = |line: &&str| !line.contains("\"alive\"");
        let log = read(&self.path("run.log"));
        parts.extend(log.lines().filter(is_rare).map(ToOwned::to_owned));
        parts.join("\n")
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Some(mut operator) = self.operator.take() {
            let _ = operator.kill();
            let _ = operator.wait();
        }
        let since = Instant::now();
        while since.elapsed() < DEADLINE {
            let left = processes(&self.dir);
            if left.is_empty() {
                break;
            }
            for pid in left.into_keys() {
                signal(pid, Signal::KILL);
            }
            sleep(LOOK);
        }
    }
}

/// Polls until there is an answer or the limit has passed.
fn asked<T>(mut answer: impl FnMut() -> Option<T>) -> Option<T> {
    let since = Instant::now();
    loop {
        let answer = answer();
        if answer.is_some() || DEADLINE < since.elapsed() {
            return answer;
        }
        sleep(LOOK);
    }
}

pub(crate) fn signal(pid: i32, kind: Signal) {
    // The process may have just ended.
    let _ = kill_process(Pid::from_raw(pid).unwrap(), kind);
}

/// The processes that were started for a state directory, with their environments.
pub(crate) fn processes(dir: &Path) -> BTreeMap<i32, BTreeMap<String, String>> {
    let entry = format!("SWARM_DIR={}", dir.display());
    let process = |found: fs::DirEntry| {
        let pid: i32 = found.file_name().to_str()?.parse().ok()?;
        let all = fs::read(found.path().join("environ")).ok()?;
        if !all.split(|byte| *byte == 0).any(|one| one == entry.as_bytes()) {
            return None;
        }
        let words = all.split(|byte| *byte == 0).filter_map(|word| std::str::from_utf8(word).ok());
        let pairs = words.filter_map(|word| word.split_once('='));
        Some((pid, pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()))
    };
    fs::read_dir("/proc").unwrap().filter_map(|found| process(found.ok()?)).collect()
}

pub(crate) fn children(pid: i32) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of_task = |task: fs::DirEntry| fs::read_to_string(task.path().join("children")).ok();
    let all: String = tasks.filter_map(of_task).collect();
    all.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}
