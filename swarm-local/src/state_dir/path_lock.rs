//! A lock of the path of a state directory, which outlives the directory.
//!
//! The lock of a file ends with the file. After `rm -r`, another operator could create and lock a
//! directory of the same path while the workers of the previous one still run. So an operator also
//! binds an abstract socket (`unix(7)`), whose name has the user and a hash of the path. The kernel
//! releases the name at the end of the process.
//!
//! Any user can bind any such name, so a name that another user has bound is ignored. Each network
//! namespace has its own names. In both cases the lock of the directory remains.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use rustix::process::geteuid;
use tokio::net::UnixStream;

/// Maximum number of refused operators that the system remembers. Later ones ignore the name.
const BACKLOG: i32 = 4096;

/// The lock of a path.
#[derive(Debug)]
pub(super) struct PathLock {
    /// The socket with the name; `None` if another user has bound the name.
    _name: Option<OwnedFd>,
}

impl PathLock {
    /// Locks an absolute path, or returns `None` if another process of this user has locked it.
    ///
    /// # Errors
    ///
    /// The system reports an error about sockets.
    ///
    /// # Panics
    ///
    /// Outside of a runtime.
    pub(super) fn take(path: &Path) -> io::Result<Option<Self>> {
        let (name, mine) = (name(path)?, socket()?);
        match bind(&mine, &name) {
            Ok(()) => {
                listen(&mine, BACKLOG)?;
                Ok(Some(Self { _name: Some(mine) }))
            }
            Err(Errno::ADDRINUSE) => Ok(owner_of(&name)?.is_none().then_some(Self { _name: None })),
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns the process of this user that has locked an absolute path; 0 for one that is not visible
/// from here. It is called in a runtime.
pub(super) fn owner(path: &Path) -> Option<i32> {
    owner_of(&name(path).ok()?).ok()?
}

/// Returns the abstract name for an absolute path of this user.
fn name(path: &Path) -> io::Result<SocketAddrUnix> {
    let mut hash = DefaultHasher::new();
    path.hash(&mut hash);
    let name = format!("swarm-local {} {:016x}", geteuid().as_raw(), hash.finish());
    Ok(SocketAddrUnix::new_abstract_name(name.as_bytes())?)
}

/// Returns the process of this user that listens on a name.
fn owner_of(name: &SocketAddrUnix) -> io::Result<Option<i32>> {
    let caller = socket()?;
    if connect(&caller, name).is_err() {
        return Ok(None);
    }
    let owner = UnixStream::from_std(caller.into())?.peer_cred()?;
    Ok((owner.uid() == geteuid().as_raw()).then(|| owner.pid().unwrap_or_default()))
}

/// Returns a socket that no call waits on. The owner may be another user, who accepts nothing.
fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}
