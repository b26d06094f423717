//! Publishes the jobs of a session that are not up yet, in a file that its operator reads.
//!
//! The file is `DIR/awaited/SESSION.json`. Only the end of `local --until-settled` depends on it.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use swarm_core::JobName;
use swarm_core::handover::SessionId;

use crate::session_file::SessionFile;

const FILE: SessionFile = SessionFile { folder: "awaited", bytes_max: 1 << 16 };

/// The maximum number of jobs that are listed by name.
pub const NAMED_MAX: usize = 10;

/// The jobs of a session that are not up yet: not ready, or running for less than a second.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Awaited {
    /// The revision of the newest view that the session has read.
    pub revision: u64,
    /// The number of jobs of that view that are not up.
    pub count: usize,
    /// The names of the first of them.
    pub first: Vec<JobName>,
}

/// Writes the report of `session`, below the state directory `dir`.
///
/// # Errors
///
/// If the file cannot be written.
pub fn write(dir: &Path, session: &SessionId, awaited: &Awaited) -> io::Result<()> {
    FILE.write(dir, session, awaited)
}

/// Reads the report of `session`; `None` if it is missing or unreadable.
#[must_use]
pub fn read(dir: &Path, session: &SessionId) -> Option<Awaited> {
    FILE.read(dir, session)
}

/// Removes the report of a session. A missing file is not an error.
///
/// # Errors
///
/// If the file exists and cannot be removed.
pub fn remove(dir: &Path, session: &SessionId) -> io::Result<()> {
    FILE.remove(dir, session)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_report_is_read_and_nonsense_counts_as_none() {
        let dir = tempfile::tempdir().unwrap();
        let session = SessionId::new("w", 7);
        let awaited = Awaited { revision: 7, count: 2, first: vec!["a".parse().unwrap()] };
        assert_eq!(read(dir.path(), &session), None);
        write(dir.path(), &session, &awaited).unwrap();
        assert_eq!(read(dir.path(), &session), Some(awaited));
        fs::write(FILE.path(dir.path(), &session).unwrap(), "{").unwrap();
        assert_eq!(read(dir.path(), &session), None);
        remove(dir.path(), &session).unwrap();
        remove(dir.path(), &session).unwrap();
    }
}
