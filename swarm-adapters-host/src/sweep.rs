//! Ends whatever processes carry a marker in their environment.
//!
//! Every process of a job is started with `SWARM_SESSION=…` in its environment and hands it on to
//! its children, whichever group or session they move to. So whoever has ended a worker can end
//! what that worker's guard could not. A process that was started without the marker (`env -i`) is
//! not found this way.
//!
//! A number in `/proc` may mean another process a moment later. So a process is first held by a
//! handle (pidfd), then asked for the marker again, and only then killed through the handle.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, pidfd_open, pidfd_send_signal, waitid,
};
use tokio::task::spawn_blocking;

use crate::procs;

/// The variable that holds the session whose worker started a process.
pub const SESSION: &str = "SWARM_SESSION";
/// The variable that holds the life of the worker that a process belongs to, itself included.
pub const LIFE: &str = "SWARM_LIFE";
/// The variable that holds the state directory whose operator started a process.
pub const DIR: &str = "SWARM_DIR";

/// How long one look waits for what it killed before the next.
const KILL_WAIT: Duration = Duration::from_millis(50);

/// Which processes are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Marker {
    /// Those that a worker started in one session: its guard and its jobs.
    Session(String),
    /// Those of one life of a worker that an operator started: itself, its guard and its jobs.
    Life(String),
    /// Those of one state directory: its workers, their guards and their jobs.
    Dir(PathBuf),
}

impl Marker {
    /// The variable of the environment and its value.
    #[must_use]
    pub fn variable(&self) -> (&'static str, &OsStr) {
        match self {
            Self::Session(id) => (SESSION, OsStr::new(id)),
            Self::Life(life) => (LIFE, OsStr::new(life)),
            Self::Dir(dir) => (DIR, dir.as_os_str()),
        }
    }

    fn entry(&self) -> Vec<u8> {
        let (name, value) = self.variable();
        [name.as_bytes(), b"=", value.as_bytes()].concat()
    }
}

/// Kills every process with `marker`, except this one, until none is left, and returns how many
/// there were.
///
/// It waits as long as that takes: a process that the kernel holds in uninterruptible sleep ends
/// only when it is let go. Abandoning the wait does no harm. Children of this process that have
/// the marker are reaped, so whoever waits for one of them itself must do so first.
///
/// # Errors
///
/// If `/proc` cannot be read: then nothing is known about what is left.
pub async fn end_all(marker: &Marker) -> io::Result<usize> {
    let mut ended = 0;
    // While one look goes through the list, a process can fork behind its back and end.
    let mut empty_looks = 0;
    while empty_looks < 2 {
        let entry = marker.entry();
        let killed = spawn_blocking(move || kill(&entry)).await.map_err(io::Error::other)??;
        ended += killed;
        empty_looks = if killed == 0 { empty_looks + 1 } else { 0 };
    }
    Ok(ended)
}

/// Kills what has the entry now, waits a little, and returns how many there were.
fn kill(entry: &[u8]) -> io::Result<usize> {
    let me = getpid();
    let mut killed: Vec<OwnedFd> = Vec::new();
    for process in procs::all()? {
        if process.pid == me || process.is_zombie || !procs::has_entry(process.pid, entry) {
            continue;
        }
        let Some(handle) = held(process.pid, entry) else { continue };
        // Another user's process stays; the next look finds it again, which is the truth.
        let _ = pidfd_send_signal(&handle, Signal::KILL);
        killed.push(handle);
    }
    killed.iter().for_each(reap);
    Ok(killed.len())
}

/// A handle of the process, provided that it has the entry.
fn held(pid: Pid, entry: &[u8]) -> Option<OwnedFd> {
    let handle = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    procs::has_entry(pid, entry).then_some(handle)
}

fn reap(handle: &OwnedFd) {
    let mut fds = [PollFd::new(handle, PollFlags::IN)];
    let _ = poll(&mut fds, Timespec::try_from(KILL_WAIT).ok().as_ref());
    // Not a child of ours, as a rule, unless we adopt orphans.
    let _ = waitid(WaitId::PidFd(handle.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[tokio::test]
    async fn what_carries_the_marker_ends_wherever_it_went_and_nothing_else_does() {
        let id = format!("test-{}", std::process::id());
        let marker = Marker::Session(id.clone());
        let dir = tempfile::tempdir().unwrap();
        let ready = dir.path().join("ready");
        let script = format!("(setsid sleep 600 & setsid sleep 600 & :) & touch {ready:?}; wait");
        let start = |id: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", &script]).env(SESSION, id).spawn().unwrap()
        };
        let mut child = start(&id);
        let mut other = Command::new("sleep").arg("600").env(SESSION, "other").spawn().unwrap();
        let is_marked = |pid| procs::has_entry(pid, &marker.entry());
        let count = || procs::all().unwrap().into_iter().filter(|p| is_marked(p.pid)).count();
        let began = std::time::Instant::now();
        while !ready.exists() || count() < 2 {
            assert!(began.elapsed() < Duration::from_secs(20), "{} processes", count());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let ended = end_all(&marker).await.unwrap();
        let is_alive = other.try_wait().unwrap().is_none();
        other.kill().unwrap();
        other.wait().unwrap();
        // The sweep has reaped it already.
        let _ = child.wait();
        assert!(is_alive && 2 <= ended, "{ended} ended, the other alive: {is_alive}");
        assert_eq!((count(), end_all(&marker).await.unwrap()), (0, 0));
    }
}
