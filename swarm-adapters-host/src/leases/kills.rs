//! Tests with real processes that write one lease, and are frozen and killed at random points.

use std::env;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use swarm_core::handover::Ack;

use super::*;
use crate::DEADLINE;

/// The variable that makes a test process write leases, with the directory as its value.
const DIR: &str = "SWARM_TEST_LEASES";

fn session() -> SessionId {
    SessionId::new("worker-0", 1)
}

fn next(leases: &Leases, number: u64) -> Result<LeaseVersion, LeaseWriteError> {
    let expected = leases.read(&session())?.map(|lease| lease.version);
    let write = LeaseWrite { expected, holder: Holder::Session, number, ack: Ack::default() };
    leases.write(&session(), &write)
}

/// The program of the other test's processes, which is not a test by itself.
#[test]
fn a_process_that_only_writes() {
    let Some(dir) = env::var_os(DIR) else { return };
    let leases = Leases::open(Path::new(&dir)).unwrap();
    let end = Instant::now() + DEADLINE;
    while Instant::now() < end {
        match next(&leases, u64::from(std::process::id())) {
            // The pipe is closed if the test has ended.
            Ok(LeaseVersion(version)) => {
                if writeln!(io::stdout(), "made {version}").is_err() {
                    return;
                }
            }
            Err(LeaseWriteError::Conflict) => {}
            Err(error @ LeaseWriteError::Failed(_)) => panic!("{error}"),
        }
    }
}

/// A writer process that is killed on drop.
struct Writer {
    child: Child,
    made: Option<JoinHandle<Vec<u64>>>,
}

impl Writer {
    fn start(dir: &Path) -> Self {
        let test =
            format!("{}::a_process_that_only_writes", module_path!().split_once("::").unwrap().1);
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", &test, "--nocapture"])
            .env(DIR, dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).split(b'\n');
        let version =
            |line: Vec<u8>| String::from_utf8(line).ok()?.strip_prefix("made ")?.parse().ok();
        let made = thread::spawn(move || lines.map_while(Result::ok).filter_map(version).collect());
        Self { child, made: Some(made) }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Kills the process and returns the versions it made.
    fn kill(mut self) -> Vec<u64> {
        let made = self.made.take().unwrap();
        drop(self);
        made.join().unwrap()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn processes_that_are_frozen_and_killed_never_make_one_version_twice() {
    let dir = tempfile::tempdir().unwrap();
    let leases = Leases::open(dir.path()).unwrap();
    let newest = || leases.read(&session()).unwrap().map_or(0, |lease| lease.version.0);
    let grow = |writes: u64| {
        let (goal, end) = (newest() + writes, Instant::now() + DEADLINE);
        while newest() < goal {
            assert!(Instant::now() < end, "the writers stopped");
        }
    };
    let mut writers: Vec<Writer> = (0..3).map(|_| Writer::start(dir.path())).collect();
    let mut made = Vec::new();
    for round in 0..20 {
        grow(10 + round);
        let writer = writers.remove(0);
        writer.signal(Signal::STOP);
        grow(10);
        if round % 2 == 0 {
            writer.signal(Signal::CONT);
            grow(10);
        }
        made.extend(writer.kill());
        writers.push(Writer::start(dir.path()));
    }
    made.extend(writers.into_iter().flat_map(Writer::kill));
    let count = made.len();
    made.sort_unstable();
    made.dedup();
    assert_eq!(made.len(), count, "a version was made twice");
    assert!(made.last().is_some_and(|last| *last <= newest()));
    // The lease can still be written after all these kills, and the leftovers are removed.
    let before = newest();
    leases.sweep().unwrap();
    assert_eq!(next(&leases, 0).unwrap(), LeaseVersion(before + 1));
    leases.remove(&session()).unwrap();
    assert_eq!(fs::read_dir(dir.path().join("leases")).unwrap().count(), 0);
}
