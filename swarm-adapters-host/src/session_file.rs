//! A JSON file of one session in a folder of the state directory: `DIR/FOLDER/SESSION.json`.
//!
//! The session replaces the file as a whole by a rename, and its operator reads the file. An
//! unreadable file counts as missing.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use swarm_core::handover::SessionId;

use crate::file;
use crate::leases;

/// The files of one kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionFile {
    /// The folder below the state directory.
    pub(crate) folder: &'static str,
    /// The size limit of a file that is read, in bytes.
    pub(crate) bytes_max: u64,
}

impl SessionFile {
    /// Returns the path of the file of `session` below the state directory `dir`.
    pub(crate) fn path(self, dir: &Path, session: &SessionId) -> io::Result<PathBuf> {
        Ok(dir.join(self.folder).join(format!("{}.json", leases::name(session)?)))
    }

    /// Replaces the file, or creates it.
    pub(crate) fn write(
        self,
        dir: &Path,
        session: &SessionId,
        contents: &impl Serialize,
    ) -> io::Result<()> {
        let path = self.path(dir, session)?;
        file::create_dir(file::directory(&path))?;
        file::swap(&path, &serde_json::to_vec(contents)?)
    }

    /// Reads the file; `None` if it is missing or unreadable.
    pub(crate) fn read<T: DeserializeOwned>(self, dir: &Path, session: &SessionId) -> Option<T> {
        let path = self.path(dir, session).ok()?;
        let text = file::read_regular_text(&path, self.bytes_max).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Removes the file. A missing file is not an error.
    pub(crate) fn remove(self, dir: &Path, session: &SessionId) -> io::Result<()> {
        file::existing(fs::remove_file(self.path(dir, session)?)).map(|_| ())
    }
}
