//! What a session tells of jobs that fail, as a file that its operator reads.
//!
//! `DIR/failing/SESSION.json` is replaced as a whole by a rename, and is missing while nothing fails.
//! It is for people, so one that cannot be read says nothing.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use swarm_core::Failing;
use swarm_core::handover::SessionId;

use crate::file;
use crate::leases;
use crate::worker_view::JOBS_MAX;

/// The largest file that is read; one that names a hundred jobs has some 100 kB.
const BYTES_MAX: u64 = 1 << 20;

/// How many failing jobs of one worker are read one by one.
pub const WORST_MAX: usize = 100;

fn path(dir: &Path, session: &SessionId) -> io::Result<PathBuf> {
    Ok(dir.join("failing").join(format!("{}.json", leases::name(session)?)))
}

/// Writes what `session` tells, below the state directory `dir`.
///
/// # Errors
///
/// If the file cannot be written or removed.
pub fn write(dir: &Path, session: &SessionId, failing: &Failing) -> io::Result<()> {
    if failing.count == 0 {
        return remove(dir, session);
    }
    let path = path(dir, session)?;
    file::create_dir(file::directory(&path))?;
    file::swap(&path, &serde_json::to_vec(failing)?)
}

/// What `session` tells; nothing if it tells nothing that can be read.
#[must_use]
pub fn read(dir: &Path, session: &SessionId) -> Failing {
    let text = path(dir, session).ok().and_then(|it| file::read_regular_text(&it, BYTES_MAX).ok());
    let told: Option<Failing> = text.and_then(|text| serde_json::from_str(&text).ok());
    told.unwrap_or_default().limited(JOBS_MAX, WORST_MAX)
}

/// Removes what a session told. It is no error if it told nothing.
///
/// # Errors
///
/// If the file exists and cannot be removed.
pub fn remove(dir: &Path, session: &SessionId) -> io::Result<()> {
    file::existing(fs::remove_file(path(dir, session)?)).map(|_| ())
}

#[cfg(test)]
mod tests {
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
        fs::write(path(dir.path(), &session).unwrap(), "{\"count\": -1}").unwrap();
        assert_eq!(read(dir.path(), &session), Failing::default());
        write(dir.path(), &session, &Failing::default()).unwrap();
        assert!(!path(dir.path(), &session).unwrap().exists());
        remove(dir.path(), &session).unwrap();
    }
}
