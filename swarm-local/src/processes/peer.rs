//! Ends the process at the other end of a socket.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::net::UnixStream;
use tokio::task::spawn_blocking;

use super::leftovers::has_ended;

/// The process that listens on a socket.
#[derive(Debug)]
pub(crate) struct Peer(OwnedFd);

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
        Ok((!is_closed).then_some(Self(process)))
    }

    /// Asks the process to end, even if it is stopped.
    ///
    /// # Errors
    ///
    /// The process belongs to another user.
    pub(crate) fn ask_to_end(&self) -> io::Result<()> {
        self.send(Signal::TERM)
    }

    /// Asks the process to kill its children and end, even if it is stopped.
    ///
    /// # Errors
    ///
    /// The process belongs to another user.
    pub(crate) fn ask_to_kill(&self) -> io::Result<()> {
        self.send(Signal::QUIT)
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
        match pidfd_send_signal(&self.0, kind) {
            Err(rustix::io::Errno::SRCH) => Ok(()),
            sent => Ok(sent.and_then(|()| pidfd_send_signal(&self.0, Signal::CONT))?),
        }
    }

    /// Waits at most `at_most` for the process to end, and returns whether it has ended.
    pub(crate) async fn ends_within(&self, at_most: Duration) -> bool {
        let Ok(process) = self.0.try_clone() else { return false };
        spawn_blocking(move || has_ended(&process, at_most)).await.unwrap_or_default()
    }
}
