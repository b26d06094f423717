//! The logs of workers. What a worker writes, its jobs' output included, is appended to
//! `WORKER.log`. A log that has grown large becomes `WORKER.log.1`, in place of the one before.
//!
//! A worker keeps its log open, and so do processes that it starts. So a log is copied aside and then
//! emptied; lines that are written in between are lost.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use swarm_adapters_host::file;

/// A log that is larger is rotated.
const BYTES_MAX: u64 = 16 << 20;

/// The log of the worker `name` in the directory `logs`.
#[must_use]
pub(crate) fn path(logs: &Path, name: &str) -> PathBuf {
    logs.join(format!("{name}.log"))
}

/// Opens a log to append to it. Its directory is made if somebody removed it, and a log that has
/// grown large is moved aside first, so nobody else may have it open.
///
/// # Errors
///
/// If the directory cannot be made, or the log cannot be moved or opened.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    file::create_dir(file::directory(path))?;
    if fs::metadata(path).is_ok_and(|log| BYTES_MAX < log.len()) {
        fs::rename(path, aside(path))?;
    }
    file::append(path)
}

/// Rotates the logs of these workers that are too large.
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
        // Those who have it open append to it, so they go on at its beginning.
        file::append(path)?.set_len(0)?;
    }
    Ok(())
}

/// Where the beginning of the log at `path` is once it was rotated.
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
