//! A private directory: it belongs to one user, and no other user can have changed its contents.
//!
//! - The path is walked one name at a time from the root, without following another user's links.
//!   Each directory on it belongs to this user or to root. Others may not write it, unless it has the
//!   sticky bit, as `/tmp` has: there users can rename only their own files.
//! - The directory gets the mode 0700. A directory that others may write is refused, since its
//!   contents cannot be trusted.
//! - Everything in it belongs to this user or to root.
//!
//! Others can write nothing below a directory that they cannot enter, independent of the modes there.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fchmod, fstat, mkdirat, open, openat};
use rustix::process::geteuid;

/// Maximum number of links on the path, as in the kernel.
const LINKS_MAX: usize = 40;

/// Rights of others on a directory, as mode bits: write, enter, any.
const WRITE: u32 = 0o022;
const ENTER: u32 = 0o011;
const ANY: u32 = 0o077;
const STICKY: u32 = 0o1000;

/// Reason for refusing a directory.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    /// It belongs to another user, or another user can replace it.
    #[error("{} belongs to the user with id {owner}, who could replace what is in it; name a directory of your own with --dir, or run this as that user (`sudo -u '#{owner}'`)", path.display())]
    Foreign {
        /// The path that belongs to the other user.
        path: PathBuf,
        /// The id of its owner.
        owner: u32,
    },
    /// A directory on the way is writable by others.
    #[error("other users may write {}, and so replace what is in it; name a directory of its own with --dir, for example ~/swarm-state", path.display())]
    Open {
        /// The directory.
        path: PathBuf,
    },
    /// The directory itself is writable by others.
    #[error("other users may write {}, so its files cannot be trusted; name a directory of \
             its own with --dir, for example ~/swarm-state", path.display())]
    Writable {
        /// The directory.
        path: PathBuf,
    },
    /// Others may read it, and it holds other files.
    #[error("other users may read {}, and it holds something else already; name a directory of its own with --dir, for example ~/swarm-state", path.display())]
    Other {
        /// The directory.
        path: PathBuf,
    },
    /// The path is not a directory.
    #[error("{} is not a directory", path.display())]
    NoDirectory {
        /// The path.
        path: PathBuf,
    },
    /// The system reported an error.
    #[error("{}: {error}{}", path.display(), advice(error))]
    Failed {
        /// The path.
        path: PathBuf,
        /// The error. A field named `source` would be printed twice: here, and as the cause.
        error: io::Error,
    },
}

/// Returns the way around an error that another directory does not have.
fn advice(error: &io::Error) -> &'static str {
    use io::ErrorKind::{NotFound, PermissionDenied, ReadOnlyFilesystem};
    if [NotFound, PermissionDenied, ReadOnlyFilesystem].contains(&error.kind()) {
        "; name a directory of your own with --dir, for example ~/swarm-state"
    } else {
        ""
    }
}

/// Opens the directory `path` for this user alone, and returns its path without links. Missing
/// directories are created. A directory that is empty or has an entry `known` is closed to others.
///
/// # Errors
///
/// [`Refused`] names the problem and its remedy.
pub(crate) fn claim(path: &Path, known: &str) -> Result<PathBuf, Refused> {
    let walk = Walk::to(path, IfMissing::Create)?;
    let found = walk.check_end()?;
    if found.st_mode & ANY != 0 {
        walk.close(known)?;
    }
    let path = walk.path()?;
    check_contents(&path)?;
    Ok(path)
}

/// Returns the path without links of a directory that [`claim`] has opened; `None` if it does not
/// exist.
///
/// # Errors
///
/// [`Refused`] names the problem.
pub(crate) fn find(path: &Path) -> Result<Option<PathBuf>, Refused> {
    let found = Walk::to(path, IfMissing::Fail).and_then(|walk| {
        walk.check_end()?;
        walk.path()
    });
    match found {
        Err(Refused::Failed { error, .. }) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IfMissing {
    Create,
    Fail,
}

/// A partially walked path.
struct Walk {
    /// The current directory, and its path for messages.
    at: OwnedFd,
    shown: PathBuf,
    /// Whether others cannot reach the current directory.
    is_closed: bool,
    links: usize,
    me: u32,
}

impl Walk {
    fn to(path: &Path, if_missing: IfMissing) -> Result<Self, Refused> {
        let failed = |error| Refused::Failed { path: path.to_owned(), error };
        let path = std::path::absolute(path).map_err(failed)?;
        let mut walk = Self::root()?;
        let mut rest: VecDeque<OsString> = names(&path).collect();
        while let Some(name) = rest.pop_front() {
            walk.check_way()?;
            if let Some(link) = walk.enter(&name, if_missing)? {
                if link.is_absolute() {
                    let links = walk.links;
                    walk = Self { links, ..Self::root()? };
                }
                names(&link).rev().for_each(|name| rest.push_front(name));
            }
        }
        Ok(walk)
    }

    fn root() -> Result<Self, Refused> {
        let shown = PathBuf::from("/");
        let root = open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let at = root.map_err(|error| failed(&shown, error))?;
        Ok(Self { at, shown, is_closed: false, links: 0, me: geteuid().as_raw() })
    }

    /// Checks that no other user can replace entries of the current directory.
    fn check_way(&mut self) -> Result<(), Refused> {
        let found = fstat(&self.at).map_err(|error| failed(&self.shown, error))?;
        self.check_owner(&self.shown, &found)?;
        let is_open = found.st_mode & WRITE != 0 && found.st_mode & STICKY == 0;
        if is_open && !self.is_closed {
            return Err(Refused::Open { path: self.shown.clone() });
        }
        self.is_closed |= found.st_mode & ENTER == 0;
        Ok(())
    }

    fn check_owner(&self, path: &Path, found: &Stat) -> Result<(), Refused> {
        let owner = found.st_uid;
        if owner == self.me || owner == 0 {
            return Ok(());
        }
        Err(Refused::Foreign { path: path.to_owned(), owner })
    }

    /// Enters the directory of that name, or returns the target of the link of that name.
    fn enter(
        &mut self,
        name: &OsString,
        if_missing: IfMissing,
    ) -> Result<Option<PathBuf>, Refused> {
        let path = self.shown.join(name);
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = || openat(&self.at, name.as_os_str(), flags, Mode::empty());
        let entry = match opened() {
            Err(rustix::io::Errno::NOENT) if if_missing == IfMissing::Create => {
                match mkdirat(&self.at, name.as_os_str(), Mode::RWXU) {
                    Ok(()) | Err(rustix::io::Errno::EXIST) => opened(),
                    Err(error) => Err(error),
                }
            }
            entry => entry,
        };
        let entry = entry.map_err(|error| failed(&path, error))?;
        let found = fstat(&entry).map_err(|error| failed(&path, error))?;
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory => {
                // The parent of a closed directory may be open to others.
                self.is_closed &= name != "..";
                (self.at, self.shown) = (entry, path);
                Ok(None)
            }
            FileType::Symlink => {
                self.check_owner(&path, &found)?;
                self.links += 1;
                if LINKS_MAX < self.links {
                    return Err(failed(&path, rustix::io::Errno::LOOP));
                }
                let link = rustix::fs::readlinkat(&entry, "", Vec::new());
                let link = link.map_err(|error| failed(&path, error))?;
                Ok(Some(OsString::from_vec(link.into_bytes()).into()))
            }
            _ => Err(Refused::NoDirectory { path }),
        }
    }

    /// Checks that the final directory belongs to this user, and that no other user may write it.
    fn check_end(&self) -> Result<Stat, Refused> {
        let path = || self.shown.clone();
        let found = fstat(&self.at).map_err(|error| failed(&self.shown, error))?;
        if found.st_uid != self.me {
            return Err(Refused::Foreign { path: path(), owner: found.st_uid });
        }
        if found.st_mode & WRITE != 0 && !self.is_closed {
            return Err(Refused::Writable { path: path() });
        }
        Ok(found)
    }

    /// Removes all rights of others.
    fn close(&self, known: &str) -> Result<(), Refused> {
        let failed = |error| failed(&self.shown, error);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = openat(&self.at, ".", flags, Mode::empty()).map_err(failed)?;
        let is_known = rustix::fs::statat(&dir, known, AtFlags::SYMLINK_NOFOLLOW).is_ok();
        let mut entries = rustix::fs::Dir::read_from(&dir).map_err(failed)?;
        let is_other = |entry: &rustix::fs::DirEntry| ![c".", c".."].contains(&entry.file_name());
        if !is_known && entries.any(|entry| entry.is_ok_and(|entry| is_other(&entry))) {
            return Err(Refused::Other { path: self.shown.clone() });
        }
        fchmod(&dir, Mode::RWXU).map_err(failed)
    }

    fn path(&self) -> Result<PathBuf, Refused> {
        let path = fs::read_link(format!("/proc/self/fd/{}", self.at.as_raw_fd()));
        path.map_err(|error| Refused::Failed { path: self.shown.clone(), error })
    }
}

/// Returns the names on a path, without the root.
fn names(path: &Path) -> impl DoubleEndedIterator<Item = OsString> {
    let is_name =
        |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::ParentDir);
    path.components().filter(is_name).map(|part| part.as_os_str().to_owned())
}

fn failed(path: &Path, error: rustix::io::Errno) -> Refused {
    Refused::Failed { path: path.to_owned(), error: error.into() }
}

/// Checks that everything below a directory belongs to this user or to root. At this point no other
/// user can enter it.
fn check_contents(dir: &Path) -> Result<(), Refused> {
    let me = geteuid().as_raw();
    let mut rest = vec![dir.to_owned()];
    while let Some(dir) = rest.pop() {
        let failed = |error| Refused::Failed { path: dir.clone(), error };
        for entry in fs::read_dir(&dir).map_err(failed)?.flatten() {
            // The metadata does not follow links. Another process of this user may have removed the
            // entry.
            let Ok(found) = entry.metadata() else { continue };
            if ![me, 0].contains(&found.uid()) {
                return Err(Refused::Foreign { path: entry.path(), owner: found.uid() });
            }
            if found.is_dir() {
                rest.push(entry.path());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
