//! Publishes the failing jobs of a session, in a file that its operator reads.
//!
//! The file is `DIR/failing/SESSION.json`, and is missing while all jobs run well. It is for
//! people.

use std::io;
use std::path::Path;

use swarm_core::Failing;
use swarm_core::handover::SessionId;

use crate::session_file::SessionFile;
use crate::worker_view::JOBS_MAX;

/// A file with a hundred jobs has about 100 kB.
const FILE: SessionFile = SessionFile { folder: "failing", bytes_max: 1 << 20 };

/// The maximum number of failing jobs of one worker that are read with details.
pub const WORST_MAX: usize = 100;

/// Writes the report of `session`, below the state directory `dir`.
///
/// # Errors
///
/// If the file cannot be written or removed.
pub fn write(dir: &Path, session: &SessionId, failing: &Failing) -> io::Result<()> {
    if failing.count == 0 {
        return remove(dir, session);
    }
    FILE.write(dir, session, failing)
}

/// Reads the report of `session`. A missing or unreadable report is empty.
#[must_use]
pub fn read(dir: &Path, session: &SessionId) -> Failing {
    let reported: Failing = FILE.read(dir, session).unwrap_or_default();
    reported.limited(JOBS_MAX, WORST_MAX)
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

    use swarm_core::{FailingJob, FailingState};

    use super::*;

    #[test]
    fn a_report_is_read_and_nonsense_counts_as_none() {
        let dir = tempfile::tempdir().unwrap();
        let session = SessionId::new("w", 7);
        let job = FailingJob {
            job: "a".parse().unwrap(),
            state: FailingState::Failed,
            restarts: 3,
            since_unix_s: 7,
            last_exit: "ended with exit code 3".into(),
            last_output: vec!["no such camera".into()],
        };
        let failing = Failing::of(&[job], WORST_MAX);
        assert_eq!(read(dir.path(), &session), Failing::default());
        write(dir.path(), &session, &failing).unwrap();
        assert_eq!(read(dir.path(), &session), failing);
        fs::write(FILE.path(dir.path(), &session).unwrap(), "{\"count\": -1}").unwrap();
        assert_eq!(read(dir.path(), &session), Failing::default());
        write(dir.path(), &session, &Failing::default()).unwrap();
        assert!(!FILE.path(dir.path(), &session).unwrap().exists());
        remove(dir.path(), &session).unwrap();
    }
}
