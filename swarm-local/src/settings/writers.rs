//! Finds processes that have a file open for writing, in `/proc`.
//!
//! Another user's processes may be invisible, and so are processes of another machine that shares the
//! file. So the result "none" means "none visible".

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Maximum time of a search, so that a machine with very many open files is searched in part. It is
/// long, since a missed writer lets half a file take effect.
const SEARCH_MAX: Duration = Duration::from_secs(2);

/// Bits of an open file's flags that are 0 if it is open for reading only.
const ACCESS_MODE: u32 = 0o3;

/// A process that has a file open for writing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Writer {
    /// The process id.
    pub(crate) pid: u32,
    /// The name of the program.
    pub(crate) program: String,
}

/// Returns a visible process that has the file at `path` open for writing, if any. Blocks for at most
/// two seconds: O(open files of this user).
#[must_use]
pub(crate) fn writer_of(path: &Path) -> Option<Writer> {
    let path = fs::canonicalize(path).ok()?;
    let until = Instant::now() + SEARCH_MAX;
    let entries = fs::read_dir("/proc").ok()?.flatten();
    let entries = entries.take_while(|_| Instant::now() < until);
    let mut pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.find(|pid| writes(*pid, &path, until)).map(named)
}

/// Whether a process has the file open for writing.
fn writes(pid: u32, path: &Path, until: Instant) -> bool {
    let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    open.flatten().take_while(|_| Instant::now() < until).any(|open| {
        // The link is compared instead of followed, since its file system may not answer.
        let is_it = fs::read_link(open.path()).is_ok_and(|target| target == path);
        is_it && is_for_writing(pid, &open.file_name().to_string_lossy())
    })
}

fn is_for_writing(pid: u32, number: &str) -> bool {
    let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{number}")).unwrap_or_default();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & ACCESS_MODE != 0)
}

fn named(pid: u32) -> Writer {
    let program = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let program = program.trim_end().to_owned();
    Writer { pid, program }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_that_is_open_for_writing_has_a_writer_until_it_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("swarm.yaml"), dir.path().join("link"));
        assert_eq!(writer_of(&path), None);
        let writer = File::create(&path).unwrap();
        symlink("swarm.yaml", &link).unwrap();
        for path in [&path, &link] {
            let found = writer_of(path).unwrap();
            assert_eq!(found.pid, std::process::id());
            assert!(!found.program.is_empty());
        }
        drop(writer);
        let reader = File::open(&path).unwrap();
        assert_eq!(writer_of(&path), None, "it is open for reading only");
        drop(reader);
    }
}
