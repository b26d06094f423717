//! A socket in a directory, which serves only the user who owns the directory.
//!
//! The address of a socket has room for 108 bytes. So the directory is opened, and the socket is
//! addressed through the directory's descriptor. Its path can have any length.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, fchmod, open};
use tokio::net::{UnixListener, UnixSocket, UnixStream};

use crate::file;

/// The name of the socket in its directory.
const NAME: &str = "api.sock";

/// The maximum number of connections that wait to be accepted.
const BACKLOG: u32 = 128;

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
    pub fn listen(dir: &Path) -> io::Result<(Self, UnixListener)> {
        let dir = opened(dir)?;
        let path = path(&dir);
        file::existing(fs::remove_file(&path))?;
        let socket = UnixSocket::new_stream()?;
        // The mode is set before the socket has a name, so other users can never connect.
        fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        socket.bind(&path)?;
        Ok((Self { dir }, socket.listen(BACKLOG)?))
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
}
