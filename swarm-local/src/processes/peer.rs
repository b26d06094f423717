//! Finds and ends the operator of a pool: the process at the other end of its socket, or the process
//! that has locked its directory.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use swarm_adapters_host::file::inode;
use swarm_worker::procs;
use tokio::net::UnixStream;
use tokio::task::spawn_blocking;

use super::leftovers::has_ended;
use crate::state_dir::state;

/// A process that runs a pool.
#[derive(Debug)]
pub(crate) struct Peer {
    pid: Pid,
    process: OwnedFd,
}

impl Peer {
    /// Finds the process that accepts this connection; `None` if it has ended.
    ///
    /// # Errors
    ///
    /// If the process is not visible from here, for example in another container.
    pub(crate) fn of(stream: &UnixStream) -> io::Result<Option<Self>> {
        let pid = stream.peer_cred()?.pid().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("its process is not visible from here"))?;
        let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return Ok(None) };
        // A process that still has the connection had not ended when its pidfd was opened, so the id
        // referred to it.
        let mut fds = [PollFd::new(stream, PollFlags::empty())];
        let is_closed = 0 < poll(&mut fds, Some(&Timespec::default()))?;
        Ok((!is_closed).then_some(Self { pid, process }))
    }

    /// Finds the operator that has locked the directory `dir`; `None` if no operator has. `stop` also
    /// locks a directory, but handles no signal. O(open files of this user).
    ///
    /// `/proc/locks` cannot prove that no operator has: a read of several pages leaves out locks while
    /// others come and go.
    ///
    /// # Errors
    ///
    /// If the directory or `/proc` cannot be read.
    pub(crate) fn that_locks(dir: &Path) -> io::Result<Option<Self>> {
        // The lock of the path finds an operator whose directory was removed.
        let of_path = state::locker(dir).and_then(Pid::from_raw);
        if let Some(operator) = of_path.and_then(|pid| Self::operator(pid, || true)) {
            return Ok(Some(operator));
        }
        let locked = fs::metadata(dir)?;
        let operator = |pid| Self::operator(pid, || locks(pid, &locked));
        Ok(procs::all()?.into_iter().find_map(|it| operator(it.pid)))
    }

    /// Returns the operator with this id, if the id belongs to one and passes the check.
    fn operator(pid: Pid, is_it: impl FnOnce() -> bool) -> Option<Self> {
        // The pidfd is opened first. If it has not ended after the checks, they saw its process.
        let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        let is_it = is_it() && handles(pid, Signal::TERM);
        (is_it && !has_ended(&process, Duration::ZERO)).then_some(Self { pid, process })
    }

    /// Returns the id of the process.
    pub(crate) fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Asks the process to end, even if it is stopped.
    ///
    /// # Errors
    ///
    /// The process belongs to another user.
    pub(crate) fn ask_to_end(&self) -> io::Result<()> {
        self.send(Signal::TERM)
    }

    /// Asks the process to kill its children and end, even if it is stopped. An operator of an
    /// earlier version handles only SIGQUIT, which a shell may have made it ignore.
    ///
    /// # Errors
    ///
    /// The process belongs to another user.
    pub(crate) fn ask_to_kill(&self) -> io::Result<()> {
        let is_handled = handles(self.pid, Signal::USR1);
        self.send(if is_handled { Signal::USR1 } else { Signal::QUIT })
    }

    /// Kills the process.
    ///
    /// # Errors
    ///
    /// The process belongs to another user.
    pub(crate) fn kill(&self) -> io::Result<()> {
        self.send(Signal::KILL)
    }

    fn send(&self, kind: Signal) -> io::Result<()> {
        match pidfd_send_signal(&self.process, kind) {
            Err(rustix::io::Errno::SRCH) => Ok(()),
            sent => Ok(sent.and_then(|()| pidfd_send_signal(&self.process, Signal::CONT))?),
        }
    }

    /// Waits at most `at_most` for the process to end, and returns whether it has ended.
    pub(crate) async fn ends_within(&self, at_most: Duration) -> bool {
        let Ok(process) = self.process.try_clone() else { return false };
        spawn_blocking(move || has_ended(&process, at_most)).await.unwrap_or_default()
    }
}

/// Whether the process holds a lock on this file.
fn locks(pid: Pid, file: &fs::Metadata) -> bool {
    let process = format!("/proc/{}", pid.as_raw_nonzero());
    let open = fs::read_dir(format!("{process}/fd"));
    open.into_iter().flatten().flatten().any(|it| {
        let found = fs::metadata(it.path());
        let is_it = found.is_ok_and(|it| inode(&it) == inode(file));
        let info = || fs::read_to_string(format!("{process}/fdinfo/{}", it.file_name().display()));
        is_it && info().is_ok_and(|info| names_lock_of(&info, pid))
    })
}

/// Whether the `fdinfo` of a file has a lock of this process. A child has its parent's lock there
/// until it starts its program.
fn names_lock_of(info: &str, pid: Pid) -> bool {
    let pid = pid.as_raw_nonzero().to_string();
    info.lines().filter_map(|line| line.strip_prefix("lock:")).any(|lock| {
        let mut words = lock.split_whitespace().skip(1);
        words.next() == Some("FLOCK") && words.nth(2) == Some(&pid)
    })
}

fn handles(pid: Pid, signal: Signal) -> bool {
    procs::catches(pid, signal).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_belongs_to_the_process_that_took_it() {
        let of = |lock: &str, pid| {
            let info = format!("pos:\t0\nflags:\t02100000\nino:\t77\nlock:\t{lock}\n");
            names_lock_of(&info, Pid::from_raw(pid).unwrap())
        };
        let lock = "1: FLOCK  ADVISORY  WRITE 12 fe:00:77 0 EOF";
        assert_eq!([11, 12, 1].map(|pid| of(lock, pid)), [false, true, false]);
        assert!(!of("1: POSIX  ADVISORY  WRITE 12 fe:00:77 0 EOF", 12));
        assert!(!of("", 12));
    }

    #[test]
    fn a_process_that_locks_a_directory_and_handles_no_signal_is_no_operator() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Peer::that_locks(dir.path()).unwrap().is_none());
        let lock = fs::File::open(dir.path()).unwrap();
        lock.try_lock().unwrap();
        let me = rustix::process::getpid();
        let expected = handles(me, Signal::TERM).then(|| me.as_raw_nonzero().get());
        assert_eq!(Peer::that_locks(dir.path()).unwrap().map(|it| it.pid()), expected);
    }
}
