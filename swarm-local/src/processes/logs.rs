//! The logs of workers and of the operator. The output of a worker is appended to `WORKER.log`. A large
//! log becomes `WORKER.log.1`, which replaces the previous one.
//!
//! A worker and its processes keep the log open. So a log is copied and then truncated; lines that
//! are written in between are lost.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use swarm_adapters_host::file;

/// Size of a log that triggers a rotation.
const BYTES_MAX: u64 = 16 << 20;
/// Name of the operator's own log. The other logs have names of workers.
pub(crate) const OPERATOR: &str = "operator";

/// Returns the path of the log of the worker `name` in the directory `logs`.
#[must_use]
pub(crate) fn path(logs: &Path, name: &str) -> PathBuf {
    logs.join(format!("{name}.log"))
}

/// Returns the directory of the files with the output of jobs, in the directory `logs`.
#[must_use]
pub(crate) fn job_logs(logs: &Path) -> PathBuf {
    logs.join("jobs")
}

/// Opens a log to append to it, and creates its directory if it is missing. A large log is renamed
/// first, so no other process may have it open.
///
/// # Errors
///
/// The directory cannot be created, or the log cannot be renamed or opened.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    file::create_dir(file::directory(path))?;
    if fs::metadata(path).is_ok_and(|log| BYTES_MAX < log.len()) {
        fs::rename(path, aside(path))?;
    }
    file::append(path)
}

/// Rotates the large logs of these names.
pub(super) fn rotate_all(logs: &Path, names: &[String]) {
    for name in names {
        let path = path(logs, name);
        if let Err(error) = rotate(&path, BYTES_MAX) {
            let path = path.display();
            tracing::warn!(%path, %error, "the log cannot be rotated and keeps growing");
        }
    }
}

fn rotate(path: &Path, bytes_max: u64) -> io::Result<()> {
    if fs::metadata(path).is_ok_and(|log| bytes_max < log.len()) {
        let mut aside = file::created(&aside(path))?;
        io::copy(&mut File::open(path)?, &mut aside)?;
        // Writers append to the log, so they continue at its beginning.
        file::append(path)?.set_len(0)?;
    }
    Ok(())
}

/// Returns the path of the rotated part of the log at `path`.
#[must_use]
pub(crate) fn aside(path: &Path) -> PathBuf {
    path.with_extension("log.1")
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_log_that_is_open_goes_on_after_it_was_rotated() {
        let dir = tempfile::tempdir().unwrap();
        let path = path(dir.path(), "w-0");
        let mut log = open(&path).unwrap();
        rotate(&path, 3).unwrap();
        log.write_all(b"1234").unwrap();
        rotate(&path, 4).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"1234", "it is not larger than that");
        rotate(&path, 3).unwrap();
        log.write_all(b"5").unwrap();
        let read = |path: &Path| fs::read_to_string(path).unwrap();
        assert_eq!((read(&path), read(&aside(&path))), ("5".into(), "1234".into()));
    }
}
