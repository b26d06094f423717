//! The process at the other end of a socket, to end it.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::net::UnixStream;
use tokio::task::spawn_blocking;

use super::leftovers::has_ended;

/// The process that listens at the other end of a socket.
#[derive(Debug)]
pub(crate) struct Peer(OwnedFd);

impl Peer {
    /// The process that accepts, or will accept, this connection; `None` if it has ended.
    ///
    /// # Errors
    ///
    /// If the process is not visible from here, for example in another container.
    pub(crate) fn of(stream: &UnixStream) -> io::Result<Option<Self>> {
        let pid = stream.peer_cred()?.pid().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("its process is not visible from here"))?;
        let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return Ok(None) };
        // A process that still has the connection had not ended when it was opened by its id, so the
        // id meant this process and no later one.
        let mut fds = [PollFd::new(stream, PollFlags::empty())];
        let is_closed = 0 < poll(&mut fds, Some(&Timespec::default()))?;
        Ok((!is_closed).then_some(Self(process)))
    }

    /// Asks it to end, also if it is stopped.
    ///
    /// # Errors
    ///
    /// If it is another user's.
    pub(crate) fn ask_to_end(&self) -> io::Result<()> {
        self.send(Signal::TERM)
    }

    /// Asks it to kill what it has started and to end, also if it is stopped.
    ///
    /// # Errors
    ///
    /// If it is another user's.
    pub(crate) fn ask_to_kill(&self) -> io::Result<()> {
        self.send(Signal::QUIT)
    }

    /// Kills it.
    ///
    /// # Errors
    ///
    /// If it is another user's.
    pub(crate) fn kill(&self) -> io::Result<()> {
        self.send(Signal::KILL)
    }

    fn send(&self, kind: Signal) -> io::Result<()> {
        match pidfd_send_signal(&self.0, kind) {
            Err(rustix::io::Errno::SRCH) => Ok(()),
            sent => Ok(sent.and_then(|()| pidfd_send_signal(&self.0, Signal::CONT))?),
        }
    }

    /// Waits at most `at_most` for its end, and returns whether it has ended.
    pub(crate) async fn ends_within(&self, at_most: Duration) -> bool {
        let Ok(process) = self.0.try_clone() else { return false };
        spawn_blocking(move || has_ended(&process, at_most)).await.unwrap_or_default()
    }
}
