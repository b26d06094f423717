//! The reader of a job's log: merges the files of the job in order of time, and goes on when they are
//! rotated, renamed, removed or truncated.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use swarm_core::JobName;

use super::{CONTINUED, Kind, Line, base_of, belongs_to, part};
use crate::file::existing;

/// The maximum length of a line, in bytes. A longer line is split.
const LINE_BYTES_MAX: usize = 64 << 10;

/// A line of the log, or a remark of the reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The time of the line.
    pub time: Timestamp,
    /// The worker; empty in a remark of the reader.
    pub worker: String,
    /// The origin of the text.
    pub kind: Kind,
    /// The text, as it is in the file: the reader escapes nothing.
    pub text: String,
}

/// Reads the log of one job, which may grow.
#[derive(Debug)]
pub struct Reader {
    dir: PathBuf,
    job: JobName,
    sources: BTreeMap<PathBuf, Source>,
}

impl Reader {
    /// Reads the log of `job` in the directory `dir` from its beginning. A missing directory has no
    /// lines.
    #[must_use]
    pub fn new(dir: &Path, job: JobName) -> Self {
        Self { dir: dir.to_owned(), job, sources: BTreeMap::new() }
    }

    /// Returns the earliest line that was not read yet. `None` at the present end. O(files).
    ///
    /// # Errors
    ///
    /// If a file cannot be read.
    #[expect(clippy::should_implement_trait, reason = "more lines may follow after `None`")]
    pub fn next(&mut self) -> io::Result<Option<Entry>> {
        // A look into the directory for each line would take longer than the lines.
        if let Some(entry) = self.earliest()? {
            return Ok(Some(entry));
        }
        self.find()?;
        self.earliest()
    }

    /// Returns the earliest unread line of the known files.
    fn earliest(&mut self) -> io::Result<Option<Entry>> {
        for source in self.sources.values_mut() {
            source.fill()?;
        }
        let waiting = self.sources.values_mut().filter(|source| source.next.is_some());
        let first = waiting.min_by_key(|source| source.next.as_ref().map(|entry| entry.time));
        Ok(first.and_then(|source| source.next.take()))
    }

    /// Looks for new files of the job.
    fn find(&mut self) -> io::Result<()> {
        let Some(entries) = existing(fs::read_dir(&self.dir))? else { return Ok(()) };
        for entry in entries {
            let name = entry?.file_name();
            let name = name.to_str().filter(|name| belongs_to(name, &self.job));
            if let Some(base) = name.and_then(base_of) {
                let path = self.dir.join(base);
                self.sources.entry(path.clone()).or_insert_with(|| Source::new(path));
            }
        }
        Ok(())
    }
}

/// A file, and the files that were rotated from it.
#[derive(Debug)]
struct Source {
    path: PathBuf,
    open: Option<Open>,
    /// The next line, which was read already.
    next: Option<Entry>,
    /// The time of the last line, for lines without a time.
    last: Timestamp,
}

#[derive(Debug)]
struct Open {
    file: BufReader<File>,
    inode: u64,
    /// The number of bytes that were read.
    at: u64,
    /// The beginning of an incomplete line.
    begun: Vec<u8>,
    /// Whether a line was read before.
    is_first: bool,
    /// Whether the lines before this file are unread or gone, and not just rotated.
    is_gap: bool,
}

impl Source {
    fn new(path: PathBuf) -> Self {
        Self { path, open: None, next: None, last: Timestamp::UNIX_EPOCH }
    }

    /// Reads the next line, unless it was read before.
    fn fill(&mut self) -> io::Result<()> {
        // A newer file that was noticed at the end of this one. The writer may have written to this one
        // in between, so it is read again before.
        let mut newer = None;
        while self.next.is_none() {
            if self.open.is_none() {
                self.open = Self::oldest(&self.path)?;
            }
            let Some(open) = &mut self.open else { return Ok(()) };
            if let Some(line) = open.line()? {
                self.take(&line);
                continue;
            }
            if open.is_truncated()? {
                continue;
            }
            if let Some(newer) = newer.take() {
                self.open = Some(newer);
            } else {
                newer = open.newer(&self.path)?;
                if newer.is_none() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn oldest(path: &Path) -> io::Result<Option<Open>> {
        let parts = parts(path)?;
        let Some((oldest, _)) = parts.first() else { return Ok(None) };
        existing(File::open(oldest))?.map(|file| Open::new(file, true)).transpose()
    }

    /// Takes a line of the file.
    fn take(&mut self, line: &[u8]) {
        let Some(open) = &mut self.open else { return };
        let is_first = std::mem::take(&mut open.is_first);
        let text = String::from_utf8_lossy(line);
        let parsed = Line::parse(&text);
        if let Some(line) = &parsed {
            self.last = line.time;
        }
        let is_continued = is_first
            && parsed.as_ref().is_some_and(|it| it.kind == Kind::Remark && it.text == CONTINUED);
        self.next = match parsed {
            _ if is_continued => open.is_gap.then(|| Entry {
                time: self.last,
                worker: String::new(),
                kind: Kind::Remark,
                text: "the lines before were rotated away".to_owned(),
            }),
            Some(Line { time, worker, kind, text }) => {
                Some(Entry { time, worker: worker.to_owned(), kind, text: text.to_owned() })
            }
            None => Some(Entry {
                time: self.last,
                worker: String::new(),
                kind: Kind::Output,
                text: text.into_owned(),
            }),
        };
    }
}

impl Open {
    fn new(file: File, is_gap: bool) -> io::Result<Self> {
        let inode = file.metadata()?.ino();
        let file = BufReader::with_capacity(1 << 16, file);
        Ok(Self { file, inode, at: 0, begun: Vec::new(), is_first: true, is_gap })
    }

    /// Returns the next complete line.
    fn line(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            let room = LINE_BYTES_MAX.saturating_sub(self.begun.len()).max(1) as u64;
            let length = (&mut self.file).take(room).read_until(b'\n', &mut self.begun)?;
            self.at += length as u64;
            let is_whole = self.begun.last() == Some(&b'\n');
            if is_whole || LINE_BYTES_MAX <= self.begun.len() {
                let mut line = std::mem::take(&mut self.begun);
                line.truncate(line.len() - usize::from(is_whole));
                return Ok(Some(line));
            }
            if length == 0 {
                return Ok(None);
            }
        }
    }

    /// Begins again if the file became shorter than the part that was read.
    fn is_truncated(&mut self) -> io::Result<bool> {
        let is_truncated = self.file.get_ref().metadata()?.len() < self.at;
        if is_truncated {
            self.file.seek(SeekFrom::Start(0))?;
            self.at = 0;
            self.begun.clear();
        }
        Ok(is_truncated)
    }

    /// Opens the file that follows this one, if there is one.
    fn newer(&self, path: &Path) -> io::Result<Option<Self>> {
        let parts = parts(path)?;
        let own = parts.iter().position(|(_, inode)| *inode == self.inode);
        // If this file was removed, all others are newer.
        let (next, is_gap) = own.map_or((0, true), |own| (own + 1, false));
        let Some((next, _)) = parts.get(next) else { return Ok(None) };
        existing(File::open(next))?.map(|file| Self::new(file, is_gap)).transpose()
    }
}

/// Returns the files and inodes that were rotated from `path`, the oldest first, and `path` at last.
fn parts(path: &Path) -> io::Result<Vec<(PathBuf, u64)>> {
    let mut parts = Vec::new();
    for times in 0.. {
        let part = part(path, times);
        match existing(fs::metadata(&part))? {
            Some(found) => parts.push((part, found.ino())),
            // Between two steps of a rotation no file has the name.
            None if times == 0 => {}
            None => break,
        }
    }
    parts.reverse();
    Ok(parts)
}
