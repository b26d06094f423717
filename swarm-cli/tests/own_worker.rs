//! Runs a custom worker under `local`: this program is both the test and the worker.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "clippy allows it in test functions only, and all of this is a test"
)]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Parser;
use rustix::process::{Pid, Signal, kill_process};
use swarm_worker::{Job, Outcome, RunArgs, Runner};
use tokio_util::sync::CancellationToken;

/// Limit of every wait: it ends a test that hangs, and judges nothing.
const DEADLINE: Duration = Duration::from_mins(5);

/// Argument that makes this program the worker; it is also an example of a user's own argument.
const GREETING: &str = "--greeting=hello";

#[derive(Parser)]
struct Cli {
    #[arg(long)]
    greeting: String,
    #[command(flatten)]
    worker: RunArgs,
}

/// The worker's own work: it prints its actions.
struct Greeter(String);

#[async_trait::async_trait]
impl Runner for Greeter {
    async fn run(&self, job: &Job, stop: CancellationToken) -> Outcome {
        println!("{} {}", self.0, job.name);
        stop.cancelled().await;
        println!("goodbye {}", job.name);
        Outcome::Ended
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    if !std::env::args().any(|word| word == GREETING) {
        tokio::task::spawn_blocking(jobs_are_handed_over).await.unwrap();
        println!("jobs are handed over between workers of another program ... ok");
        return ExitCode::SUCCESS;
    }
    let Cli { greeting, worker } = Cli::parse();
    match swarm_worker::serve(&worker, Greeter(greeting)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            swarm_worker::print_error(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// An operator in its own directory, which ends with the test, as its workers do.
struct Operator<'a>(Child, &'a Path);

impl Drop for Operator<'_> {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Operator<'_> {
    fn prints(&self, words: &str) {
        let out = || fs::read_to_string(self.1.join("out")).unwrap();
        until(|| out().contains(words), || format!("{words:?} in {}", out()));
    }

    fn end(&mut self) {
        let pid = Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        assert_eq!(self.0.wait().unwrap().code(), Some(0));
    }
}

fn until(holds: impl Fn() -> bool, what: impl Fn() -> String) {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < DEADLINE, "not within {DEADLINE:?}: {}", what());
        sleep(Duration::from_millis(20));
    }
}

fn swarm() -> Command {
    Command::new(env!("CARGO_BIN_EXE_swarm"))
}

/// Returns the options of a running worker, except for its own.
fn options_of(pid: i32) -> BTreeSet<String> {
    let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
    let options = line.split('\0').filter(|word| word.starts_with("--") && *word != GREETING);
    options.map(|word| word.split('=').next().unwrap().to_owned()).collect()
}

/// Returns the options in the first column of the page's table.
fn documented_options(page: &str) -> BTreeSet<String> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `--")?.split(" | ").next());
    let words = rows.flat_map(|cell| cell.split("`, `"));
    let names = words.map(|word| word.trim_start_matches("--").trim_end_matches('`'));
    names.map(|word| format!("--{}", word.split('=').next().unwrap())).collect()
}

fn verified(dir: &Path) -> Output {
    swarm().arg("verify").arg(dir.join("state/run.log")).output().unwrap()
}

/// Three workers become two, one of them is killed, and every job always has one worker.
fn jobs_are_handed_over() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/samples/streams.yaml");
    let sample = fs::read_to_string(sample).unwrap();
    let file = dir.join("streams.yaml");
    fs::write(&file, &sample).unwrap();
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/library.md");
    let page = fs::read_to_string(page).unwrap();
    let shown = "\nswarm local deploy/samples/streams.yaml --worker target/";
    assert!(page.contains(shown), "the page shows another command");
    let mut command = swarm();
    command.arg("local").arg(&file).arg("--dir").arg(dir.join("state")).arg("--worker");
    command.arg(std::env::current_exe().unwrap()).args(["--", GREETING]);
    command.env("XDG_STATE_HOME", dir.join("home"));
    let out = fs::File::create(dir.join("out")).unwrap();
    let child = command.process_group(0).stdin(Stdio::null()).stdout(out).spawn().unwrap();
    let mut operator = Operator(child, dir);
    operator.prints("27 jobs on 3 workers, 27 new");

    fs::write(&file, sample.replace("replicas: 3", "replicas: 2")).unwrap();
    operator.prints("27 jobs on 2 workers, 9 moved");
    let records = fs::read_to_string(dir.join("state/run.json")).unwrap();
    let records: serde_json::Value = serde_json::from_str(&records).unwrap();
    let pid = i32::try_from(records["workers"]["swarm-worker-1"]["pid"].as_i64().unwrap()).unwrap();
    assert_eq!(options_of(pid), documented_options(&page));
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    operator.prints("swarm-worker-1 was ended by signal 9; restarting it\nsettled in");
    operator.end();

    let log = |n: u32| fs::read_to_string(dir.join(format!("state/logs/swarm-worker-{n}.log")));
    let logs: String = (0..3).map(|n| log(n).unwrap()).collect();
    // There are 27 starts at first, 9 after moves, and further starts after the kill.
    let started = logs.lines().filter(|line| line.starts_with("hello stream:")).count();
    assert!(27 + 9 + 13 <= started, "{logs}");
    let verified = verified(dir);
    let said = String::from_utf8_lossy(&verified.stdout);
    assert_eq!(verified.status.code(), Some(0), "{said}");
}
