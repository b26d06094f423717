//! A socket in a directory, which serves only the user who owns the directory.
//!
//! The address of a socket has room for 108 bytes. So the directory is opened, and the socket is
//! addressed through the directory's descriptor. Its path can have any length.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
    dir: Directory,
}

/// The directory of a socket, which its [`Socket`] may change.
type Directory = Arc<Mutex<OwnedFd>>;

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
        let (listener, name) = bound(&dir)?;
        let dir = Directory::new(Mutex::new(dir));
        let listener = SocketListener { dir: Arc::clone(&dir), listener, name };
        Ok((Self { dir }, listener))
    }

    /// Moves the socket to another directory, for example after its directory was removed. The listener
    /// listens there within a second.
    ///
    /// # Errors
    ///
    /// If the directory cannot be opened.
    pub fn move_to(&self, dir: &Path) -> io::Result<()> {
        *locked(&self.dir) = opened(dir)?;
        Ok(())
    }
}

/// A thread that panicked while holding the lock cannot have left another descriptor.
fn locked(dir: &Mutex<OwnedFd>) -> MutexGuard<'_, OwnedFd> {
    dir.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Binds a socket to its name in `dir`, where no file may have that name.
fn bound(dir: &OwnedFd) -> io::Result<(UnixListener, (u64, u64))> {
    let socket = UnixSocket::new_stream()?;
    // The mode is set before the socket has a name, so other users can never connect.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    socket.bind(path(dir))?;
    let name = file::inode(&fs::symlink_metadata(path(dir))?);
    Ok((socket.listen(BACKLOG)?, name))
}

/// A listener that makes its socket again after its removal, also in another directory.
#[derive(Debug)]
pub struct SocketListener {
    dir: Directory,
    listener: UnixListener,
    /// The [inode](file::inode) of the socket.
    name: (u64, u64),
}

impl SocketListener {
    fn restore(&mut self) {
        let dir = locked(&self.dir);
        if let Ok(found) = fs::symlink_metadata(path(&dir)) {
            // An earlier socket, in a directory that was away, is replaced, but no other file.
            if file::inode(&found) == self.name || !found.file_type().is_socket() {
                return;
            }
            let _ = fs::remove_file(path(&dir));
        }
        // After a failure, for example in a removed directory, the next check tries again.
        if let Ok((listener, name)) = bound(&dir) {
            (self.listener, self.name) = (listener, name);
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
        let _ = fs::remove_file(path(&locked(&self.dir)));
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

    /// Connects to the socket in `dir` as soon as the listener accepts there.
    async fn connects(listener: &mut SocketListener, dir: &Path) {
        let connected = async {
            while connect(dir).await.unwrap().is_none() {
                sleep(Duration::from_millis(20)).await;
            }
        };
        let both = async { tokio::join!(listener.accept(), connected) };
        tokio::time::timeout(crate::DEADLINE, both).await.unwrap();
        let mode = fs::metadata(dir.join(NAME)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[tokio::test]
    async fn a_socket_that_was_removed_is_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let (_socket, mut listener) = Socket::listen(dir.path()).unwrap();
        fs::remove_file(dir.path().join(NAME)).unwrap();
        connects(&mut listener, dir.path()).await;
    }

    #[tokio::test]
    async fn a_socket_moves_to_another_directory_and_replaces_a_dead_one_there() {
        let [old, new] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        drop(std::os::unix::net::UnixListener::bind(new.path().join(NAME)).unwrap());
        let (socket, mut listener) = Socket::listen(old.path()).unwrap();
        socket.move_to(new.path()).unwrap();
        connects(&mut listener, new.path()).await;
        drop(socket);
        assert!(!new.path().join(NAME).exists());
    }
}
