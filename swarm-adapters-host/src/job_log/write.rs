//! The writer of a worker: appends lines in a thread of its own, so that a slow disk blocks no job.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use swarm_core::JobName;

use super::settings::Current;
use super::{CONTINUED, Kind, Line, file_name, part};
use crate::file;

/// The maximum number of files that are open at a time. The least recently used one is closed.
const OPEN_MAX: usize = 128;
/// The time after which a file without new lines is closed.
const IDLE_MAX: Duration = Duration::from_secs(5);
/// The time for which a writer may continue in a file that has lost its name.
const REOPEN: Duration = Duration::from_secs(1);
/// The maximum size of all lines that wait for the disk.
const QUEUED_BYTES_MAX: usize = 4 << 20;

/// Appends lines to the files of jobs.
#[derive(Clone, Debug)]
pub struct JobLogs {
    asks: Sender<Ask>,
    queued: Arc<AtomicUsize>,
}

#[derive(Debug)]
enum Ask {
    Append(Batch),
    Flush(Sender<()>),
}

/// Complete lines of one job.
#[derive(Debug)]
struct Batch {
    job: JobName,
    text: String,
    lines: u64,
}

impl JobLogs {
    /// Starts the writer of `worker` in the directory `dir`, with the [settings](super::Settings) that
    /// are there. The first line creates a missing directory.
    ///
    /// # Errors
    ///
    /// If the thread cannot be started.
    pub fn open(dir: PathBuf, worker: &str) -> io::Result<Self> {
        let (asks, inbox) = mpsc::channel();
        let queued = Arc::new(AtomicUsize::new(0));
        let files = Files {
            settings: Current::open(dir),
            worker: worker.to_owned(),
            open: HashMap::new(),
            lost: BTreeMap::new(),
        };
        let left = Arc::clone(&queued);
        thread::Builder::new()
            .name("job logs".to_owned())
            .spawn(move || files.run(&inbox, &left))?;
        Ok(Self { asks, queued })
    }

    /// Appends complete lines, which `text` has `lines` of. Returns `false`, and does nothing, if too
    /// many lines wait for the disk.
    #[must_use]
    pub fn append(&self, job: &JobName, text: String, lines: u64) -> bool {
        let length = text.len();
        if QUEUED_BYTES_MAX < self.queued.load(Ordering::Relaxed).saturating_add(length) {
            return false;
        }
        self.queued.fetch_add(length, Ordering::Relaxed);
        // The thread ends only with this channel.
        self.asks.send(Ask::Append(Batch { job: job.clone(), text, lines })).is_ok()
    }

    /// Waits until all lines before are written, for at most `patience`.
    pub fn flush(&self, patience: Duration) {
        let (done, written) = mpsc::channel();
        if self.asks.send(Ask::Flush(done)).is_ok() {
            let _ = written.recv_timeout(patience);
        }
    }
}

/// The files of a worker's jobs.
struct Files {
    settings: Current,
    worker: String,
    open: HashMap<JobName, Open>,
    /// Lines that could not be written, for each job, and the reason for the last of them.
    lost: BTreeMap<JobName, (u64, String)>,
}

/// An open file.
struct Open {
    path: PathBuf,
    file: File,
    inode: u64,
    bytes: u64,
    /// Whether the last line is incomplete, since the disk was full.
    is_torn: bool,
    checked: Instant,
    used: Instant,
}

impl Files {
    fn run(mut self, inbox: &Receiver<Ask>, queued: &AtomicUsize) {
        loop {
            let ask = if self.open.is_empty() {
                inbox.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                inbox.recv_timeout(IDLE_MAX)
            };
            match ask {
                Ok(Ask::Append(batch)) => {
                    queued.fetch_sub(batch.text.len(), Ordering::Relaxed);
                    self.append(&batch);
                }
                Ok(Ask::Flush(done)) => {
                    // A caller that lost its patience has closed the channel.
                    let _ = done.send(());
                }
                Err(RecvTimeoutError::Timeout) => self.close_idle(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if OPEN_MAX < self.open.len() {
                self.close_oldest();
            }
        }
    }

    fn append(&mut self, batch: &Batch) {
        let Batch { job, text, lines } = batch;
        let lost = self.lost.get(job).map(|(count, reason)| {
            let noun = if *count == 1 { "line was" } else { "lines were" };
            self.remark(&format!("{count} {noun} lost: {reason}"))
        });
        let text = [lost.as_deref().unwrap_or_default(), text].concat();
        let (mut rest, mut left) = (text.as_str(), *lines);
        while !rest.is_empty() {
            match self.append_part(job, rest) {
                Ok(length) => {
                    rest = &rest[length..];
                    left = rest.matches('\n').count() as u64;
                    self.lost.remove(job);
                }
                Err(error) => {
                    // The next attempt begins with a new look at the path.
                    self.open.remove(job);
                    let (count, reason) = self.lost.entry(job.clone()).or_default();
                    *count += left;
                    *reason = error.to_string();
                    return;
                }
            }
        }
    }

    /// Appends the lines at the beginning of `text` that fit into one file, and returns their length.
    fn append_part(&mut self, job: &JobName, text: &str) -> io::Result<usize> {
        let now = Instant::now();
        if self.settings.renames_files(now) {
            self.open.clear();
        }
        let mut open = match self.open.remove(job) {
            Some(open) => open.still_named(now)?,
            None => self.opened(job, now)?,
        };
        let bytes_max = self.settings.get().limits.bytes_max;
        if 0 < open.bytes && bytes_max < open.bytes + first_line(text) as u64 {
            open = self.rotated(&open.path, now)?;
        }
        let length = fitting(text, bytes_max.saturating_sub(open.bytes));
        let written = open.write(&text[..length], now);
        self.open.insert(job.clone(), open);
        written.map(|()| length)
    }

    fn opened(&self, job: &JobName, now: Instant) -> io::Result<Open> {
        let (dir, per_worker) = (self.settings.dir(), self.settings.get().per_worker);
        let path = dir.join(file_name(job, per_worker.then_some(&*self.worker)));
        file::create_dir(dir)?;
        Open::at(path, now)
    }

    /// Renames the files at `path`, deletes those beyond the limit, and opens a new one.
    fn rotated(&self, path: &Path, now: Instant) -> io::Result<Open> {
        let kept = self.settings.get().limits.files_max.saturating_sub(1);
        let mut oldest = kept;
        while part(path, oldest).exists()
            && file::existing(fs::remove_file(part(path, oldest)))?.is_some()
        {
            oldest += 1;
        }
        for times in (0..kept).rev() {
            file::existing(fs::rename(part(path, times), part(path, times + 1)))?;
        }
        let mut open = Open::at(path.to_owned(), now)?;
        open.write(&self.remark(CONTINUED), now)?;
        Ok(open)
    }

    fn remark(&self, text: &str) -> String {
        let mut line = String::new();
        Line::now(&self.worker, Kind::Remark, text).append_to(&mut line);
        line
    }

    fn close_idle(&mut self) {
        let now = Instant::now();
        self.open.retain(|_, open| now < open.used + IDLE_MAX);
    }

    fn close_oldest(&mut self) {
        let oldest = self.open.iter().min_by_key(|(_, open)| open.used);
        if let Some(job) = oldest.map(|(job, _)| job.clone()) {
            self.open.remove(&job);
        }
    }
}

/// Returns the length of the first line.
fn first_line(text: &str) -> usize {
    text.find('\n').map_or(text.len(), |end| end + 1)
}

/// Returns the length of the lines at the beginning of `text` that fit into `room` bytes. The first
/// line always counts.
fn fitting(text: &str, room: u64) -> usize {
    let room = usize::try_from(room).unwrap_or(usize::MAX).min(text.len());
    let last = text.as_bytes()[..room].iter().rposition(|byte| *byte == b'\n');
    last.map_or(0, |end| end + 1).max(first_line(text))
}

impl Open {
    fn at(path: PathBuf, now: Instant) -> io::Result<Self> {
        let file = file::append(&path)?;
        let found = file.metadata()?;
        let (inode, bytes) = (found.ino(), found.len());
        Ok(Self { path, file, inode, bytes, is_torn: false, checked: now, used: now })
    }

    /// Returns the file of that name, which is looked up once a second.
    fn still_named(mut self, now: Instant) -> io::Result<Self> {
        if now < self.checked + REOPEN {
            return Ok(self);
        }
        match fs::metadata(&self.path) {
            Ok(found) if found.ino() == self.inode => {
                // Another program may have truncated it.
                (self.bytes, self.checked) = (found.len(), now);
                Ok(self)
            }
            _ => {
                file::create_dir(file::directory(&self.path))?;
                Self::at(self.path, now)
            }
        }
    }

    fn write(&mut self, text: &str, now: Instant) -> io::Result<()> {
        self.used = now;
        let end = if self.is_torn { "\n" } else { "" };
        let whole = [end, text].concat();
        let mut rest = whole.as_bytes();
        while !rest.is_empty() {
            match self.file.write(rest) {
                Ok(length) => {
                    self.bytes += length as u64;
                    rest = &rest[length..];
                    self.is_torn = !rest.is_empty();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
