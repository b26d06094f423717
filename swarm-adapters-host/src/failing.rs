//! What a session tells of jobs that fail, as a file that its operator reads.
//!
//! It is `DIR/failing/SESSION.json`, and is missing while nothing fails. It is for people.

use std::io;
use std::path::Path;

use swarm_core::Failing;
use swarm_core::handover::SessionId;

use crate::session_file::SessionFile;
use crate::worker_view::JOBS_MAX;

/// A file that names a hundred jobs has some 100 kB.
const FILE: SessionFile = SessionFile { folder: "failing", bytes_max: 1 << 20 };

/// How many failing jobs of one worker are read one by one.
pub const WORST_MAX: usize = 100;

/// Writes what `session` tells, below the state directory `dir`.
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

/// What `session` tells; nothing if it tells nothing that can be read.
#[must_use]
pub fn read(dir: &Path, session: &SessionId) -> Failing {
    let told: Failing = FILE.read(dir, session).unwrap_or_default();
    told.limited(JOBS_MAX, WORST_MAX)
}

/// Removes what a session told. It is no error if it told nothing.
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
    fn what_is_told_is_read_and_nonsense_says_nothing() {
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
