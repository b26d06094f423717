//! A socket in a directory, which serves only the user who owns the directory.
//!
//! The address of a socket has room for 108 bytes. So the directory is opened, and the socket is
//! addressed through the directory's descriptor. Its path can have any length.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::serve::Listener;
use rustix::fs::{Mode, OFlags, fchmod, open};
use tokio::net::unix::SocketAddr;
use tokio::net::{UnixListener, UnixSocket, UnixStream};
use tokio::time::sleep;

use crate::file;

/// The name of the socket in its directory.
const NAME: &str = "api.sock";

/// The maximum number of connections that wait to be accepted.
const BACKLOG: u32 = 128;

/// The time between two checks whether the socket still exists.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A socket that exists in its directory until this is dropped.
#[derive(Debug)]
pub struct Socket {
    dir: OwnedFd,
}

impl Socket {
    /// Listens on a socket in `dir`, and replaces the socket of a killed program. The directory
    /// must have one listener at a time.
    ///
    /// # Errors
    ///
    /// If the directory or its file system does not permit it.
    pub fn listen(dir: &Path) -> io::Result<(Self, SocketListener)> {
        let dir = opened(dir)?;
        file::existing(fs::remove_file(path(&dir)))?;
        let listener = SocketListener { dir: dir.try_clone()?, listener: bound(&dir)? };
        Ok((Self { dir }, listener))
    }
}

/// Binds a socket to its name in `dir`, where no file may have that name.
fn bound(dir: &OwnedFd) -> io::Result<UnixListener> {
    let socket = UnixSocket::new_stream()?;
    // The mode is set before the socket has a name, so other users can never connect.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    socket.bind(path(dir))?;
    socket.listen(BACKLOG)
}

/// A listener that makes its socket again after its removal.
#[derive(Debug)]
pub struct SocketListener {
    dir: OwnedFd,
    listener: UnixListener,
}

impl SocketListener {
    fn restore(&mut self) {
        let found = fs::symlink_metadata(path(&self.dir));
        if found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            // After a failure, for example in a removed directory, the next check tries again.
            if let Ok(listener) = bound(&self.dir) {
                self.listener = listener;
            }
        }
    }
}

impl Listener for SocketListener {
    type Io = UnixStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (UnixStream, SocketAddr) {
        loop {
            tokio::select! {
                accepted = Listener::accept(&mut self.listener) => return accepted,
                () = sleep(LOOK_EVERY) => self.restore(),
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // A socket that remains refuses connections, and the next listener replaces it.
        let _ = fs::remove_file(path(&self.dir));
    }
}

/// Connects to the socket in `dir`; `None` if it has no listener.
///
/// # Errors
///
/// If the socket cannot be used, for example because it belongs to another user.
pub async fn connect(dir: &Path) -> io::Result<Option<UnixStream>> {
    use io::ErrorKind::{ConnectionRefused, NotADirectory, NotFound};
    let connected = match opened(dir) {
        Ok(dir) => UnixStream::connect(path(&dir)).await,
        Err(error) => Err(error),
    };
    match connected {
        Err(error) if matches!(error.kind(), ConnectionRefused | NotADirectory | NotFound) => {
            Ok(None)
        }
        connected => connected.map(Some),
    }
}

fn opened(dir: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(open(dir, flags, Mode::empty())?)
}

fn path(dir: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}/{NAME}", dir.as_raw_fd()).into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[tokio::test]
    async fn a_socket_is_its_users_alone_in_a_directory_with_a_name_of_any_length() {
        let dir = tempfile::tempdir().unwrap();
        let long = dir.path().join("long".repeat(50)).join("name".repeat(50));
        assert!(connect(&long).await.unwrap().is_none());
        fs::create_dir_all(&long).unwrap();
        assert!(connect(&long).await.unwrap().is_none());
        let (socket, listener) = Socket::listen(&long).unwrap();
        let mode = fs::metadata(long.join(NAME)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(connect(&long).await.unwrap().is_some());
        drop(listener);
        assert!(connect(&long).await.unwrap().is_none(), "as after its program was killed");
        let (next, _listener) = Socket::listen(&long).unwrap();
        assert!(connect(&long).await.unwrap().is_some());
        std::mem::forget(socket);
        drop(next);
        assert!(!long.join(NAME).exists());
    }

    #[tokio::test]
    async fn a_socket_that_was_removed_is_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let (_socket, mut listener) = Socket::listen(dir.path()).unwrap();
        fs::remove_file(dir.path().join(NAME)).unwrap();
        let connected = async {
            loop {
                if let Some(stream) = connect(dir.path()).await.unwrap() {
                    return stream;
                }
                sleep(Duration::from_millis(20)).await;
            }
        };
        let both = async { tokio::join!(listener.accept(), connected) };
        tokio::time::timeout(Duration::from_secs(30), both).await.unwrap();
        let mode = fs::metadata(dir.path().join(NAME)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
