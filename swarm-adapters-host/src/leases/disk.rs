//! The operations on the files of a directory. The system performs each of them atomically.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::parse_name;
use super::stored::{BYTES_MAX, Document};
use crate::file::{self, ReadError};

/// The suffix of a file that is not linked yet.
const HIDDEN: &str = "-new";

/// The steps of [`Chain`](super::chain::Chain).
pub(super) trait Names {
    /// Returns the contents of a file; `None` if it does not exist.
    fn load(&self, name: &str) -> io::Result<Option<Document>>;
    /// Returns whether a file of this name exists.
    fn exists(&self, name: &str) -> io::Result<bool>;
    /// Creates a complete file, unless the name exists. Returns whether it was created.
    fn link(&self, name: &str, document: &Document) -> io::Result<bool>;
    /// Removes a file if it exists.
    fn unlink(&self, name: &str) -> io::Result<()>;
    /// Returns all names. Files that are created or removed in the meantime may be missing.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Returns the versions of a session in a listing, without version 0.
    fn versions(&self, session: &str) -> io::Result<Vec<u64>> {
        let of_session = |name: &String| {
            let version = name.strip_prefix(session)?.strip_prefix('.')?.parse().ok()?;
            parse_name(name).map(|_| version)
        };
        let versions = self.list()?;
        Ok(versions.iter().filter_map(of_session).filter(|version| *version > 0).collect())
    }

    /// Returns the highest version of a session in a listing.
    fn newest(&self, session: &str) -> io::Result<Option<u64>> {
        Ok(self.versions(session)?.into_iter().max())
    }
}

/// A directory.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    dir: Arc<Path>,
}

impl Disk {
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        file::create_dir(dir)?;
        Ok(Self { dir: dir.into() })
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Removes the hidden files, which are not linked.
    pub(super) fn sweep(&self) -> io::Result<()> {
        for name in self.list()? {
            if name.starts_with('.') && name.ends_with(HIDDEN) {
                self.unlink(&name)?;
            }
        }
        Ok(())
    }

    /// Creates the error for a file that is not a valid state.
    pub(super) fn unreadable(&self, name: &str, reason: &dyn std::fmt::Display) -> io::Error {
        let path = self.dir.join(name);
        let reason = format!("{} is not a lease: {reason}", path.display());
        io::Error::new(io::ErrorKind::InvalidData, reason)
    }
}

impl Names for Disk {
    fn load(&self, name: &str) -> io::Result<Option<Document>> {
        let text = match file::read_regular_text(&self.dir.join(name), BYTES_MAX) {
            Ok(text) => text,
            Err(ReadError::Missing) => return Ok(None),
            Err(error) => return Err(self.unreadable(name, &error)),
        };
        Document::parse(&text).map(Some).map_err(|reason| self.unreadable(name, &reason))
    }

    fn exists(&self, name: &str) -> io::Result<bool> {
        fs::exists(self.dir.join(name))
    }

    fn link(&self, name: &str, document: &Document) -> io::Result<bool> {
        let hidden = Hidden(self.dir.join(format!(".{}{HIDDEN}", document.mark)));
        file::created(&hidden.0)?.write_all(document.to_text()?.as_bytes())?;
        match fs::hard_link(&hidden.0, self.dir.join(name)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn unlink(&self, name: &str) -> io::Result<()> {
        file::existing(fs::remove_file(self.dir.join(name))).map(|_| ())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        // A user may have removed the directory with its contents. The next writer recreates it.
        for entry in file::existing(fs::read_dir(&self.dir))?.into_iter().flatten() {
            // All names that swarm creates are UTF-8.
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }
}

/// A file under its hidden name, which is removed on drop.
struct Hidden(PathBuf);

impl Drop for Hidden {
    fn drop(&mut self) {
        // A file that remains is removed by the next sweep.
        let _ = fs::remove_file(&self.0);
    }
}
