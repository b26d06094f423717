//! A list of the worker processes on disk, so that the next operator can kill what the last one left
//! behind.
//!
//! A process id alone proves nothing, since ids are reused; together with the start time of the
//! process it identifies one process until the machine reboots.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use tokio::task::{JoinSet, spawn_blocking};

use super::STOP_TIMEOUT;
use crate::{file, procs};

/// How long to wait for a killed process to end.
const KILL_TIMEOUT: Duration = Duration::from_secs(1);

/// The largest list of processes that is read.
const BYTES_MAX: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    pid: i32,
    /// In clock ticks since boot, as the kernel reports it.
    started: u64,
}

/// The list `DIR/workers.json` of the workers of one operator.
#[derive(Debug)]
pub(super) struct Records {
    path: PathBuf,
    by_name: Mutex<BTreeMap<String, Record>>,
}

impl Records {
    pub(super) fn open(dir: &Path) -> Self {
        Self { path: path(dir), by_name: Mutex::default() }
    }

    /// Records a worker. An operator that dies between the start of a worker and this call leaves a
    /// worker that is not recorded; it ends by itself, since its pipe closes.
    pub(super) fn add(&self, name: &str, pid: Option<Pid>) {
        let record = pid.and_then(|pid| {
            let pid = pid.as_raw_nonzero().get();
            Some(Record { pid, started: started(pid)? })
        });
        self.edit(|records| {
            record.map(|record| records.insert(name.to_owned(), record));
        });
    }

    pub(super) fn remove(&self, name: &str) {
        self.edit(|records| {
            records.remove(name);
        });
    }

    fn edit(&self, edit: impl FnOnce(&mut BTreeMap<String, Record>)) {
        // A thread that panicked while holding the lock cannot have left an incomplete entry.
        let mut records = self.by_name.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        edit(&mut records);
        let written = serde_json::to_vec(&*records).map_err(io::Error::from);
        // Processes do not survive a loss of power, so their list need not either.
        if let Err(error) = written.and_then(|json| file::swap(&self.path, &json)) {
            tracing::warn!(path = %self.path.display(), %error, "the list of worker processes cannot be written");
        }
    }
}

fn path(dir: &Path) -> PathBuf {
    dir.join("workers.json")
}

/// Ends the workers that an operator on `dir` left behind, kills them after [`STOP_TIMEOUT`], and
/// returns how many there were.
pub async fn end_leftovers(dir: &Path) -> usize {
    let text = file::read_text(&path(dir), BYTES_MAX).unwrap_or_default();
    let records: BTreeMap<String, Record> = serde_json::from_str(&text).unwrap_or_default();
    let mut ends = JoinSet::new();
    for record in records.into_values() {
        ends.spawn(spawn_blocking_flat(move || end(record)));
    }
    let mut ended = 0;
    while let Some(was_there) = ends.join_next().await {
        ended += usize::from(was_there.unwrap_or_default());
    }
    ended
}

async fn spawn_blocking_flat(work: impl FnOnce() -> bool + Send + 'static) -> bool {
    spawn_blocking(work).await.unwrap_or_default()
}

/// Ends a process and its group, unless it is gone already or its id means another process now.
fn end(record: Record) -> bool {
    let Some(pid) = Pid::from_raw(record.pid) else { return false };
    // The pidfd comes first: it keeps meaning the process whose start time is compared next.
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return false };
    if started(record.pid) != Some(record.started) || has_ended(&process, Duration::ZERO) {
        return false;
    }
    let _ = pidfd_send_signal(&process, Signal::TERM);
    // A stopped process cannot end before it continues.
    let _ = pidfd_send_signal(&process, Signal::CONT);
    if !has_ended(&process, STOP_TIMEOUT) {
        let _ = kill_process_group(pid, Signal::KILL);
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

    fn sleeper() -> Child {
        Command::new("sleep").arg("600").spawn().unwrap()
    }

    fn leave_behind(dir: &Path, child: &Child, earlier: u64) {
        let pid = child.id().try_into().unwrap();
        let record = Record { pid, started: started(pid).unwrap() - earlier };
        let list = BTreeMap::from([("w-0", record)]);
        fs::write(path(dir), serde_json::to_vec(&list).unwrap()).unwrap();
    }

    #[tokio::test]
    async fn the_workers_that_the_last_operator_left_behind_are_ended() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(end_leftovers(dir.path()).await, 0);
        let mut child = sleeper();
        leave_behind(dir.path(), &child, 0);
        assert_eq!(end_leftovers(dir.path()).await, 1);
        assert!(!child.wait().unwrap().success());
        assert_eq!(end_leftovers(dir.path()).await, 0);
    }

    #[tokio::test]
    async fn a_process_that_only_has_the_id_of_a_worker_is_not_killed() {
        let dir = tempfile::tempdir().unwrap();
        let mut child = sleeper();
        leave_behind(dir.path(), &child, 1);
        let ended = end_leftovers(dir.path()).await;
        let is_alive = child.try_wait().unwrap().is_none();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((ended, is_alive), (0, true));
    }
}
