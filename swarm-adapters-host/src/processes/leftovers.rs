//! The record of a run of the operator, on disk, so that the next operator can end what it left behind.
//!
//! A process is ended only by what two things say. One is the random mark of the run, which all its
//! processes have in their environment, and nobody else: it is written nowhere but here, in a
//! directory that only this user can read. The other is the record: it names the boot of the machine
//! and when the run began. A worker is ended by its id besides, in good order, if the process that has
//! the id now has the start time that is recorded.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::END_MARGIN;
use super::killed::Killed;
use crate::file::{self, ReadError};
use crate::sweep::{self, Marker};
use crate::{clock, procs, random};

/// How long to wait for a killed process to end.
const KILL_TIMEOUT: Duration = Duration::from_secs(1);

/// The stop timeout of a run that recorded none.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Time between two looks for processes that were asked to end.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Number of killed jobs and workers that are recorded.
const KILLED_MAX: usize = 1_000;

/// The largest record that is read.
const BYTES_MAX: u64 = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Run {
    /// The random number of the run.
    mark: String,
    /// The boot of the machine.
    boot: String,
    /// When the operator was started, in clock ticks since boot, as the kernel reports it.
    started: u64,
    /// Time that its jobs may take to stop, in milliseconds. An earlier version did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stop_timeout_ms: Option<u64>,
    /// The workers that may run, by name.
    workers: BTreeMap<String, Worker>,
    /// The jobs and workers that did not end in time and were killed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    killed: Vec<Killed>,
}

impl Run {
    fn stop_timeout(&self) -> Duration {
        self.stop_timeout_ms.map_or(STOP_TIMEOUT, Duration::from_millis)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Worker {
    pid: i32,
    /// In clock ticks since boot.
    started: u64,
}

/// The record `DIR/run.json` of one operator.
#[derive(Debug)]
pub(super) struct Records {
    path: PathBuf,
    mark: String,
    run: Mutex<Run>,
}

impl Records {
    /// Begins a run: its mark is on disk before any process has it.
    pub(super) fn begin(dir: &Path, stop_timeout: Duration) -> io::Result<Self> {
        let mark = format!("{:016x}{:016x}", random::number()?, random::number()?);
        let me = getpid().as_raw_nonzero().get();
        let started = started(me).ok_or_else(|| io::Error::other("/proc cannot be read"))?;
        let (boot, workers) = (clock::boot_id()?, BTreeMap::new());
        let stop_timeout_ms = u64::try_from(stop_timeout.as_millis()).ok();
        let killed = Vec::new();
        let run = Run { mark: mark.clone(), boot, started, stop_timeout_ms, workers, killed };
        let path = path(dir);
        write(&path, &run)?;
        Ok(Self { path, mark, run: Mutex::new(run) })
    }

    /// The mark of this run.
    pub(super) fn mark(&self) -> &str {
        &self.mark
    }

    /// Records a worker. An operator that dies between the start of a worker and this call leaves a
    /// worker that is not recorded; it has the mark.
    pub(super) fn add(&self, name: &str, pid: Option<Pid>) {
        let worker = pid.and_then(|pid| {
            let pid = pid.as_raw_nonzero().get();
            Some(Worker { pid, started: started(pid)? })
        });
        self.edit(|run| {
            worker.map(|worker| run.workers.insert(name.to_owned(), worker));
        });
    }

    pub(super) fn remove(&self, name: &str) {
        self.edit(|run| {
            run.workers.remove(name);
        });
    }

    /// Records a job or a worker that was killed.
    pub(super) fn killed(&self, killed: Killed) {
        if self.run().killed.len() < KILLED_MAX {
            self.edit(|run| run.killed.push(killed));
        }
    }

    /// The jobs and workers that were killed in this run.
    pub(super) fn all_killed(&self) -> Vec<Killed> {
        self.run().killed.clone()
    }

    fn run(&self) -> MutexGuard<'_, Run> {
        // A thread that panicked while holding the lock cannot have left an incomplete entry.
        self.run.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn edit(&self, edit: impl FnOnce(&mut Run)) {
        let mut run = self.run();
        edit(&mut run);
        if let Err(error) = write(&self.path, &run) {
            tracing::warn!(path = %self.path.display(), %error, "the list of worker processes cannot be written");
        }
    }
}

/// Processes do not survive a loss of power, so their record need not either.
fn write(path: &Path, run: &Run) -> io::Result<()> {
    file::swap(path, &serde_json::to_vec(run)?)
}

fn path(dir: &Path) -> PathBuf {
    dir.join("run.json")
}

/// The run that was last recorded in `dir`, if its processes can still be there.
fn last(dir: &Path) -> io::Result<Option<Run>> {
    let path = path(dir);
    let text = match file::read_regular_text(&path, BYTES_MAX) {
        Ok(text) => text,
        Err(ReadError::Missing) => return Ok(None),
        Err(error) => return Err(io::Error::other(format!("{}: {error}", path.display()))),
    };
    let Ok(run) = serde_json::from_str::<Run>(&text) else {
        // A loss of power can do that, and then nothing is left.
        let path = path.display();
        tracing::warn!(%path, "it is no record of a run; what that run left, if anything, goes on");
        return Ok(None);
    };
    // Another kind of mark could be in the environment of others.
    let is_ours = run.mark.len() == 32 && run.mark.bytes().all(|it| it.is_ascii_hexdigit());
    Ok((is_ours && run.boot == clock::boot_id()?).then_some(run))
}

/// What an earlier run had left behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// The workers.
    pub workers: usize,
    /// Other processes: guards and jobs.
    pub others: usize,
    /// Number of these processes that did not end in time and were killed.
    pub killed: usize,
}

/// Time that processes get to end if a run left them behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// The stop timeout of the run that left it.
    AsRecorded,
    /// None: it is killed at once.
    None,
}

/// Ends the workers of the last run in `dir` that still run, all at once, and then all else that it
/// left behind. Returns when nothing is left. Processes that do not end within the stop timeout
/// that the run recorded are killed. No operator may run there.
///
/// # Errors
///
/// If the record or `/proc` cannot be read: then it is unknown what is left.
pub async fn end_leftovers(dir: &Path, patience: Patience) -> io::Result<Leftovers> {
    let Some(run) = last(dir)? else { return Ok(Leftovers::default()) };
    let stop_timeout = run.stop_timeout();
    let Run { mark, started, workers, .. } = run;
    let marker = Marker::Run { mark: mark.clone(), since: started };
    let mut ended = Leftovers::default();
    if patience == Patience::AsRecorded {
        let mut ends = JoinSet::new();
        for worker in workers.into_values() {
            let entry = format!("{}={mark}", sweep::RUN);
            ends.spawn_blocking(move || end(worker, entry.as_bytes(), stop_timeout));
        }
        while let Some(was_there) = ends.join_next().await {
            ended.workers += usize::from(was_there.unwrap_or_default());
        }
        // Jobs outlive worker and guard if all of them were killed at once.
        ended.others = sweep::ask_all(&marker).await?;
        let until = Instant::now() + stop_timeout;
        while Instant::now() < until && sweep::is_any_left(&marker).await? {
            sleep(LOOK_EVERY).await;
        }
    }
    let killed = sweep::end_all(&marker).await?;
    ended.others = ended.others.max(killed);
    ended.killed = killed;
    Ok(ended)
}

/// Returns the stop timeout that the last run in `dir` recorded, and the jobs and workers that it
/// has killed.
///
/// # Errors
///
/// If the record cannot be read.
pub fn recorded(dir: &Path) -> io::Result<Option<(Duration, Vec<Killed>)>> {
    Ok(last(dir)?.map(|run| (run.stop_timeout(), run.killed)))
}

/// Ends a worker, unless it is gone already or its id means another process now.
fn end(worker: Worker, entry: &[u8], stop_timeout: Duration) -> bool {
    let Some(pid) = Pid::from_raw(worker.pid) else { return false };
    // The pidfd comes first: it keeps meaning the process that is looked at next.
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return false };
    let is_it = started(worker.pid) == Some(worker.started)
        && procs::has_entry(pid, entry)
        && !procs::line_of(getpid()).contains(&pid);
    if !is_it || has_ended(&process, Duration::ZERO) {
        return false;
    }
    let _ = pidfd_send_signal(&process, Signal::TERM);
    // A stopped process cannot end before it continues.
    let _ = pidfd_send_signal(&process, Signal::CONT);
    if !has_ended(&process, stop_timeout.saturating_add(END_MARGIN)) {
        let _ = pidfd_send_signal(&process, Signal::KILL);
        has_ended(&process, KILL_TIMEOUT);
    }
    true
}

/// Waits at most `at_most` for a process to end.
pub(super) fn has_ended(process: &OwnedFd, at_most: Duration) -> bool {
    let mut fds = [PollFd::new(process, PollFlags::IN)];
    let at_most = Timespec::try_from(at_most).ok();
    poll(&mut fds, at_most.as_ref()).is_ok_and(|ready| 0 < ready)
}

fn started(pid: i32) -> Option<u64> {
    procs::one(pid).map(|process| process.started)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::{Child, Command};

    use super::*;

    /// A process that is killed when the test ends.
    struct Sleeper(Child);

    impl Sleeper {
        fn with(name: &str, value: &str) -> Self {
            Self(Command::new("sleep").arg("600").env(name, value).spawn().unwrap())
        }

        fn is_alive(&mut self) -> bool {
            self.0.try_wait().unwrap().is_none()
        }

        fn worker(&self) -> Worker {
            let pid = self.0.id().try_into().unwrap();
            Worker { pid, started: started(pid).unwrap() }
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// A directory as an operator left it that was killed, with one worker.
    fn left_behind(mark: &str, worker: Worker, change: impl FnOnce(&mut Run)) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::begin(dir.path(), Duration::from_secs(20)).unwrap();
        let mut run = records.run.into_inner().unwrap();
        run.mark = mark.to_owned();
        run.workers.insert("w-0".to_owned(), worker);
        change(&mut run);
        write(&path(dir.path()), &run).unwrap();
        dir
    }

    /// A mark that no other test has.
    fn mark() -> String {
        format!("{:032x}", random::number().unwrap())
    }

    #[tokio::test]
    async fn workers_that_the_last_operator_left_behind_are_ended_and_what_else_has_its_mark() {
        let mark = mark();
        let worker = Sleeper::with(sweep::RUN, &mark);
        let dir = left_behind(&mark, worker.worker(), |_| {});
        let job = Sleeper::with(sweep::RUN, &mark);
        let ended = end_leftovers(dir.path(), Patience::AsRecorded).await.unwrap();
        assert_eq!(ended, Leftovers { workers: 1, others: 1, killed: 0 });
        for mut ended in [worker, job] {
            // The sweep reaps whom it has killed.
            assert!(!matches!(ended.0.try_wait(), Ok(None)));
        }
        assert_eq!(
            end_leftovers(dir.path(), Patience::AsRecorded).await.unwrap(),
            Leftovers::default()
        );
    }

    /// A process that notes SIGTERM in a file, and takes its time then.
    fn slow(dir: &Path, mark: &str, seconds: &str) -> Child {
        let script = format!(
            "trap 'echo asked >>asked; sleep {seconds}; echo done >>asked; exit' TERM; touch ready; \
             while :; do sleep 0.02; done"
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script]).current_dir(dir).env(sweep::RUN, mark);
        let child = command.spawn().unwrap();
        let since = std::time::Instant::now();
        while !dir.join("ready").exists() {
            assert!(since.elapsed() < Duration::from_secs(20), "it did not start");
            std::thread::sleep(Duration::from_millis(5));
        }
        child
    }

    /// The job of a worker and a guard that were killed together.
    #[tokio::test]
    async fn what_is_left_behind_has_the_stop_timeout_that_was_recorded() {
        let none = Worker { pid: 1, started: 1 };
        let told = |stop_timeout: Option<u64>, seconds: &'static str, patience| async move {
            let mark = mark();
            let dir = left_behind(&mark, none, |run| run.stop_timeout_ms = stop_timeout);
            let mut job = slow(dir.path(), &mark, seconds);
            let ended = end_leftovers(dir.path(), patience).await.unwrap();
            let _ = job.kill();
            let _ = job.wait();
            (ended, fs::read_to_string(dir.path().join("asked")).unwrap_or_default())
        };
        let (ended, asked) = told(Some(60_000), "0.5", Patience::AsRecorded).await;
        assert_eq!((ended.killed, &*asked), (0, "asked\ndone\n"));
        let (ended, asked) = told(Some(100), "60", Patience::AsRecorded).await;
        assert!(0 < ended.killed && asked == "asked\n", "{ended:?} {asked}");
        let (ended, asked) = told(None, "60", Patience::None).await;
        assert!(0 < ended.killed && asked.is_empty(), "{ended:?} {asked}");
    }

    #[tokio::test]
    async fn neither_the_mark_nor_the_record_alone_ends_a_process() {
        let mark = mark();
        let mut marked = Sleeper::with(sweep::RUN, &mark);
        let mut foreign = Sleeper::with(sweep::RUN, "home");
        let (named, of_marked) = (foreign.worker(), marked.worker());
        let dirs = [
            left_behind(&"f".repeat(32), named, |_| {}),
            left_behind("home", named, |_| {}),
            left_behind(&"e".repeat(32), of_marked, |_| {}),
            left_behind(&mark, of_marked, |run| run.boot = "another boot".to_owned()),
            left_behind(&mark, Worker { started: 1, ..of_marked }, |run| run.started = u64::MAX),
        ];
        for dir in dirs {
            assert_eq!(
                end_leftovers(dir.path(), Patience::AsRecorded).await.unwrap(),
                Leftovers::default()
            );
            assert!(foreign.is_alive() && marked.is_alive());
        }
    }

    /// This program descends from its own shell, which has exported everything.
    #[tokio::test]
    async fn what_this_process_descends_from_is_never_ended() {
        let parent = rustix::process::getppid().unwrap();
        let line = procs::line_of(getpid());
        assert!(line.contains(&parent) && line.contains(&getpid()));
        let pid = parent.as_raw_nonzero().get();
        let worker = Worker { pid, started: started(pid).unwrap() };
        let path = format!("PATH={}", std::env::var("PATH").unwrap());
        assert!(!end(worker, path.as_bytes(), Duration::ZERO), "although it has that entry");
    }

    #[tokio::test]
    async fn a_record_that_is_garbage_ends_nothing_and_a_pipe_in_its_place_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for text in ["", "{}", "[1]", "\0", "{\"w-0\":{\"pid\":1,\"started\":1}}"] {
            fs::write(path(dir.path()), text).unwrap();
            assert_eq!(
                end_leftovers(dir.path(), Patience::AsRecorded).await.unwrap(),
                Leftovers::default(),
                "{text}"
            );
        }
        fs::remove_file(path(dir.path())).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, path(dir.path()), rustix::fs::Mode::RWXU).unwrap();
        let error = end_leftovers(dir.path(), Patience::AsRecorded).await.unwrap_err().to_string();
        assert!(error.ends_with("it is not a regular file"), "{error}");
    }
}
