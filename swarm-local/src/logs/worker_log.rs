//! Reads the log of a worker, and finds the lines about one job.
//!
//! A log is `WORKER.log`; its previous part is `WORKER.log.1`. It is rotated while it is read: a
//! starting worker renames a large log, and a running worker's log is copied and then truncated.
//! Other programs may rename it, too, while the worker continues to write the renamed file. The
//! reader identifies files by inode, and continues in the file that has the unread part.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read, Seek as _, SeekFrom};
use std::mem;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use swarm_adapters_host::file::existing;
use swarm_view::printable::{Form, printable};
use swarm_worker::KILLING;

use crate::processes::{OPERATOR_LOG, log_path, rotated_log};

/// Maximum length of an unsplit line, in bytes.
const LINE_MAX: usize = 64 << 10;

/// A reader of a log, which may grow.
#[derive(Debug)]
pub(crate) struct WorkerLog {
    path: PathBuf,
    /// The file with the name of the log.
    current: Option<Part>,
    /// The file that had the name before; a writer may still have it open.
    former: Option<(Part, File)>,
    /// The last seen rotated part.
    rotated: Option<Rotated>,
}

/// A partially read file of a log.
#[derive(Debug)]
struct Part {
    inode: u64,
    /// Number of bytes read.
    at: u64,
    /// Beginning of an incomplete line.
    begun: Vec<u8>,
}

/// Identifies a rotated log.
#[derive(Debug, PartialEq, Eq)]
struct Rotated {
    length: u64,
    inode: u64,
    modified: (i64, i64),
}

impl WorkerLog {
    /// Opens the log of `worker` in the directory `logs` at its beginning.
    pub(super) fn from_beginning(logs: &Path, worker: &str) -> io::Result<Self> {
        let path = log_path(logs, worker);
        let rotated = rotated(&path)?;
        Ok(Self { path, current: None, former: None, rotated })
    }

    /// Opens the log at its present end.
    pub(crate) fn from_end(logs: &Path, worker: &str) -> io::Result<Self> {
        let log = Self::from_beginning(logs, worker)?;
        let end = |it: fs::Metadata| Part { at: it.len(), ..Part::of(it.ino()) };
        Ok(Self { current: existing(fs::metadata(&log.path))?.map(end), ..log })
    }

    /// Reads the rotated lines before its beginning, if any.
    pub(super) fn read_rotated(
        &mut self,
        each: &mut impl FnMut(&str) -> io::Result<()>,
    ) -> io::Result<()> {
        if let Some(mut file) = existing(File::open(rotated_log(&self.path)))? {
            let mut part = Part::of(file.metadata()?.ino());
            part.read(&mut file, each)?;
            let begun = mem::take(&mut part.begun);
            if !begun.is_empty() {
                each(&printable(&String::from_utf8_lossy(&begun), Form::Line))?;
            }
            self.former = Some((part, file));
        }
        self.rotated = rotated(&self.path)?;
        Ok(())
    }

    /// Reads new lines. A missing log has no lines.
    pub(crate) fn read(&mut self, each: &mut impl FnMut(&str) -> io::Result<()>) -> io::Result<()> {
        let (rotated, found) = (rotated(&self.path)?, existing(fs::metadata(&self.path))?);
        let has_name = |part: &Part| found.as_ref().is_some_and(|it| it.ino() == part.inode);
        if let Some(renamed) = self.current.take_if(|part| !has_name(part)) {
            self.read_former(each)?;
            let file = existing(File::open(rotated_log(&self.path)))?;
            self.former = match file {
                Some(file) if file.metadata()?.ino() == renamed.inode => Some((renamed, file)),
                Some(_) | None => None,
            };
            self.rotated = rotated;
        } else if self.current.is_none() && self.is_other(rotated.as_ref()) {
            self.read_rotated(each)?;
        } else if let Some(found) = &found {
            self.read_emptied(found.len(), rotated, each)?;
        }
        self.read_former(each)?;
        let Some(mut file) = existing(File::open(&self.path))? else { return Ok(()) };
        let current = self.current.get_or_insert(Part::of(file.metadata()?.ino()));
        // If the inode differs, the log was just renamed, and is read the next time.
        if file.metadata()?.ino() == current.inode {
            current.read(&mut file, each)?;
        }
        Ok(())
    }

    /// Continues in the copy of the log if the log was truncated. Its present length is `length`.
    fn read_emptied(
        &mut self,
        length: u64,
        rotated: Option<Rotated>,
        each: &mut impl FnMut(&str) -> io::Result<()>,
    ) -> io::Result<()> {
        // While the copy is being written, it is not longer than the log.
        let has_rotated = self.is_other(rotated.as_ref().filter(|it| length < it.length));
        let Some(current) = &mut self.current else { return Ok(()) };
        if has_rotated || length < current.at {
            if has_rotated && let Some(mut copy) = existing(File::open(rotated_log(&self.path)))? {
                current.read(&mut copy, each)?;
            }
            (self.rotated, current.at) = (rotated, 0);
        }
        Ok(())
    }

    /// Whether this part was rotated after the last check, and not by renaming the log.
    fn is_other(&self, rotated: Option<&Rotated>) -> bool {
        let former = self.former.as_ref().map(|(part, _)| part.inode);
        rotated.is_some_and(|it| Some(it) != self.rotated.as_ref() && Some(it.inode) != former)
    }

    /// Reads new lines of the file that previously had the name of the log.
    fn read_former(&mut self, each: &mut impl FnMut(&str) -> io::Result<()>) -> io::Result<()> {
        match &mut self.former {
            Some((part, file)) => part.read(file, each),
            None => Ok(()),
        }
    }
}

impl Part {
    /// Makes the state of an unread file.
    fn of(inode: u64) -> Self {
        Self { inode, at: 0, begun: Vec::new() }
    }

    /// Reads new lines of `file`.
    fn read(
        &mut self,
        file: &mut File,
        each: &mut impl FnMut(&str) -> io::Result<()>,
    ) -> io::Result<()> {
        file.seek(SeekFrom::Start(self.at))?;
        self.at += read_lines(file, &mut self.begun, each)?;
        Ok(())
    }
}

/// Returns the workers with logs in the directory `logs`, sorted by the last write.
pub(crate) fn workers(logs: &Path) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    // A pool that never ran has no logs.
    for entry in fs::read_dir(logs).into_iter().flatten() {
        let entry = entry?;
        let name = entry.file_name();
        let worker = name.to_str().and_then(|it| it.strip_suffix(".log"));
        if let Some(worker) = worker.filter(|it| *it != OPERATOR_LOG) {
            found.push((entry.metadata()?.modified()?, worker.to_owned()));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, worker)| worker).collect())
}

/// Identifies the rotated part of the log at `path`.
fn rotated(path: &Path) -> io::Result<Option<Rotated>> {
    let found = existing(fs::metadata(rotated_log(path)))?;
    Ok(found.map(|it| Rotated {
        length: it.len(),
        inode: it.ino(),
        modified: (it.mtime(), it.mtime_nsec()),
    }))
}

/// Reads complete lines to the end, and returns the number of bytes. `begun` holds an incomplete
/// line.
fn read_lines(
    from: impl Read,
    begun: &mut Vec<u8>,
    each: &mut impl FnMut(&str) -> io::Result<()>,
) -> io::Result<u64> {
    let mut from = BufReader::with_capacity(1 << 16, from);
    let mut read = 0;
    loop {
        let room = u64::try_from(LINE_MAX.saturating_sub(begun.len())).unwrap_or_default();
        let length = from.by_ref().take(room.max(1)).read_until(b'\n', begun)?;
        read += u64::try_from(length).unwrap_or_default();
        let is_whole = begun.last() == Some(&b'\n');
        if is_whole || LINE_MAX <= begun.len() {
            let line = begun.strip_suffix(b"\n").unwrap_or(begun);
            each(&printable(&String::from_utf8_lossy(line), Form::Line))?;
            begun.clear();
        } else if length == 0 {
            return Ok(read);
        }
    }
}

/// Returns the job that a guard kills, if the line reports that.
pub(crate) fn killed_job(line: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Killing {
        message: String,
        job: String,
    }
    if line.starts_with('{') {
        let line: Killing = serde_json::from_str(line).ok()?;
        return (line.message == KILLING).then_some(line.job);
    }
    // As below, the first word of a line of output is its job.
    let first = line.split(' ').next().unwrap_or_default();
    let (_, rest) = line.split_once(KILLING).filter(|_| !first.ends_with(':'))?;
    rest.strip_prefix(" job=")?.split(' ').next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn all(log: &mut WorkerLog) -> Vec<String> {
        let mut lines = Vec::new();
        let keep = &mut |line: &str| {
            lines.push(line.to_owned());
            Ok(())
        };
        log.read(keep).unwrap();
        lines
    }

    #[test]
    fn a_job_that_a_guard_kills_is_found_and_its_output_cannot_name_another() {
        let event = &format!("2026-11-26T04:03:55Z  WARN {KILLING}");
        let text = format!("{event} job=cam:1 grace_ms=20000");
        assert_eq!(killed_job(&text).as_deref(), Some("cam:1"));
        assert_eq!(killed_job(&format!("cam2: {text}")), None);
        assert_eq!(killed_job(event), None);
        let json = |field| format!(r#"{{"{field}":"{KILLING}","job":"cam1","grace_ms":5}}"#);
        assert_eq!(killed_job(&json("message")).as_deref(), Some("cam1"));
        assert_eq!(killed_job(&json("output")), None);
    }

    #[test]
    fn a_log_is_read_on_while_it_grows_and_over_both_kinds_of_rotation() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("w-0.log");
        let mut log = WorkerLog::from_beginning(dir.path(), "w-0").unwrap();
        assert_eq!(all(&mut log), [""; 0], "it does not exist yet");
        let open = || File::options().create(true).append(true).open(&path).unwrap();
        let mut file = open();
        file.write_all(b"one\ntw").unwrap();
        assert_eq!(all(&mut log), ["one"]);
        file.write_all(b"o\nbefore it was emptied\n").unwrap();
        fs::copy(&path, rotated_log(&path)).unwrap();
        let mut other = WorkerLog::from_end(dir.path(), "w-0").unwrap();
        file.set_len(0).unwrap();
        file.write_all(b"after\x1b\n").unwrap();
        assert_eq!(all(&mut log), ["two", "before it was emptied", "after\\u{1b}"]);
        assert_eq!(all(&mut other), ["after\\u{1b}"]);
        file.write_all(b"before it was renamed\n").unwrap();
        fs::rename(&path, rotated_log(&path)).unwrap();
        open().write_all(b"new\n").unwrap();
        assert_eq!(all(&mut log), ["before it was renamed", "new"]);
        let mut rotated = Vec::new();
        let keep = &mut |line: &str| {
            rotated.push(line.to_owned());
            Ok(())
        };
        log.read_rotated(keep).unwrap();
        assert_eq!(rotated, ["after\\u{1b}", "before it was renamed"]);
    }

    #[test]
    fn a_log_that_others_rename_is_read_on_and_no_line_of_it_twice() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("w-0.log");
        let mut worker = File::create(&path).unwrap();
        worker.write_all(b"one\n").unwrap();
        let mut log = WorkerLog::from_beginning(dir.path(), "w-0").unwrap();
        let mut late = WorkerLog::from_end(dir.path(), "w-0").unwrap();
        assert_eq!(all(&mut log), ["one"]);
        fs::rename(&path, rotated_log(&path)).unwrap();
        for n in 0..3 {
            // The worker continues in the renamed file, and later an empty file has the old name.
            writeln!(worker, "{n}").unwrap();
            assert_eq!(all(&mut log), [n.to_string()]);
            if n == 0 {
                fs::write(&path, "").unwrap();
            }
        }
        assert_eq!(all(&mut late), ["0", "1", "2"]);
        // The worker notices that its file was renamed.
        worker.write_all(b"three, bef").unwrap();
        let mut reopened = File::options().append(true).open(&path).unwrap();
        reopened.write_all(b"four\n").unwrap();
        worker.write_all(b"ore\n").unwrap();
        assert_eq!(all(&mut log), ["three, before", "four"]);
        let mut from_beginning = WorkerLog::from_beginning(dir.path(), "w-0").unwrap();
        let mut before = Vec::new();
        let keep = &mut |line: &str| {
            before.push(line.to_owned());
            Ok(())
        };
        from_beginning.read_rotated(keep).unwrap();
        assert_eq!(before, ["one", "0", "1", "2", "three, before"]);
        assert_eq!(all(&mut from_beginning), ["four"]);
    }

    #[test]
    fn a_log_that_was_removed_is_read_on_once_it_is_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("w-0.log");
        fs::write(&path, "one\ntwo\n").unwrap();
        let mut log = WorkerLog::from_beginning(dir.path(), "w-0").unwrap();
        assert_eq!(all(&mut log), ["one", "two"]);
        fs::remove_file(&path).unwrap();
        assert_eq!(all(&mut log), [""; 0]);
        fs::write(&path, "three\nfour\nfive\n").unwrap();
        assert_eq!(all(&mut log), ["three", "four", "five"]);
    }

    #[test]
    fn a_line_without_an_end_is_cut() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("w-0.log"), "x".repeat(LINE_MAX + 1) + "\n").unwrap();
        let lines = all(&mut WorkerLog::from_beginning(dir.path(), "w-0").unwrap());
        assert_eq!(lines.iter().map(String::len).collect::<Vec<_>>(), [LINE_MAX, 1]);
    }
}
