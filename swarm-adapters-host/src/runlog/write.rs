//! Writes a run log.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use swarm_core::{JobName, Token};

use super::boottime_ns;
use super::record::{FORMAT, Wire};
use crate::file;
use crate::named_file::NamedFile;
use crate::random;

/// The event of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEvent {
    /// The job was started.
    Start,
    /// The job should have ended, and has processes that its guard may not end.
    Held,
    /// The job has ended, with all its processes.
    Stop,
}

impl RunEvent {
    fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Held => "held",
            Self::Stop => "stop",
        }
    }
}

/// A writer for one session of one worker. Several processes may write to the same file. Dropping it
/// writes its last line, unless a job still runs.
#[derive(Debug)]
pub struct RunLog {
    worker: String,
    session: String,
    /// A random number that names the writer in its lines.
    writer: u32,
    state: Mutex<State>,
    errors: AtomicU64,
}

#[derive(Debug)]
struct State {
    file: NamedFile,
    /// The number of the next line.
    n: u64,
    /// The time of the last line. Each line of a writer is later than the one before it.
    at: u64,
    /// The time of the last stop, or of the first line.
    since: Option<u64>,
    /// The running jobs, and the start of each.
    running: BTreeMap<(JobName, Token), u64>,
    /// Whether the file has the `session` line, and every line after it.
    is_whole: bool,
}

/// A line without its time and number.
#[derive(Clone, Copy)]
enum Change<'a> {
    Job(&'a JobName, Token, RunEvent),
    Alive,
    End,
}

impl RunLog {
    /// Opens the file at `path` to append to it, and creates it if it is missing.
    ///
    /// # Errors
    ///
    /// An error if the file cannot be opened for writing.
    pub fn open(path: &Path, worker: &str, session: &str) -> io::Result<Self> {
        let file = NamedFile::open(path, file::append)?;
        let running = BTreeMap::new();
        let state = State { file, n: 0, at: 0, since: None, running, is_whole: false };
        Ok(Self {
            worker: worker.to_owned(),
            session: session.to_owned(),
            writer: u32::try_from(random::number()? >> 32).unwrap_or_default(),
            state: Mutex::new(state),
            errors: AtomicU64::new(0),
        })
    }

    /// Records `event` of `job` at the present time.
    ///
    /// # Errors
    ///
    /// The first failure is returned, for a warning; later failures are only counted.
    pub fn write(&self, job: &JobName, token: Token, event: RunEvent) -> io::Result<()> {
        self.add(Change::Job(job, token, event))
    }

    /// Records that all jobs of this writer run at the present time. No line is written while it has
    /// none.
    ///
    /// # Errors
    ///
    /// As for [`write`](Self::write).
    pub fn alive(&self) -> io::Result<()> {
        self.add(Change::Alive)
    }

    /// Returns the number of failed writes.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    fn add(&self, change: Change<'_>) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_idle = state.running.is_empty();
        let is_needed = match change {
            Change::Job(..) => true,
            Change::Alive => !is_idle,
            // A writer without lines needs no last one.
            Change::End => is_idle && 0 < state.n,
        };
        if !is_needed {
            return Ok(());
        }
        self.put(&mut state, change).or_else(|error| {
            let is_first = self.errors.fetch_add(1, Ordering::Relaxed) == 0;
            if is_first { Err(error) } else { Ok(()) }
        })
    }

    fn put(&self, state: &mut State, change: Change<'_>) -> io::Result<()> {
        let mut lines = Vec::new();
        let is_replaced = state.file.is_replaced(boottime_ns());
        if is_replaced || !std::mem::take(&mut state.is_whole) {
            self.snapshot(state, &mut lines);
        }
        let (at, n) = state.next();
        let line = Wire { at: Some(at), n: Some(n), ..Wire::default() };
        let line = match change {
            Change::Job(job, token, event) => {
                match event {
                    RunEvent::Start => _ = state.running.insert((job.clone(), token), at),
                    RunEvent::Held => {}
                    RunEvent::Stop => {
                        state.running.remove(&(job.clone(), token));
                        state.since = Some(at);
                    }
                }
                Wire { event: Some(event.as_str().into()), ..self.job(line, job, token) }
            }
            Change::Alive => Wire { alive: Some(self.writer), ..line },
            Change::End => Wire { writer: Some(self.writer), event: Some("end".into()), ..line },
        };
        push(&mut lines, &line);
        // There is a single write, since lines of several writers would mix. A short write is not
        // continued.
        match state.file.write_opened(&lines)? {
            whole if whole == lines.len() => {
                state.is_whole = true;
                Ok(())
            }
            part => Err(io::Error::other(format!("{part} of {} bytes written", lines.len()))),
        }
    }

    /// Adds the `session` line, and a line for each running job.
    fn snapshot(&self, state: &mut State, lines: &mut Vec<u8>) {
        let (at, n) = state.next();
        let since = *state.since.get_or_insert(at);
        let session = Wire {
            at: Some(at),
            format: Some(FORMAT),
            writer: Some(self.writer),
            n: Some(n),
            worker: Some(self.worker.as_str().into()),
            session: Some(self.session.as_str().into()),
            since: Some(since),
            ..Wire::default()
        };
        push(lines, &session);
        let running = std::mem::take(&mut state.running);
        for ((job, token), since) in &running {
            let (at, n) = state.next();
            let line = Wire { at: Some(at), n: Some(n), since: Some(*since), ..Wire::default() };
            let event = Some("running".into());
            push(lines, &Wire { event, ..self.job(line, job, *token) });
        }
        state.running = running;
    }

    fn job<'a>(&'a self, line: Wire<'a>, job: &'a JobName, token: Token) -> Wire<'a> {
        Wire {
            writer: Some(self.writer),
            job: Some(job.as_str().into()),
            worker: Some(self.worker.as_str().into()),
            session: Some(self.session.as_str().into()),
            token: Some(token.0),
            ..line
        }
    }

    #[cfg(test)]
    pub(super) fn look_again(&self) {
        self.state.lock().unwrap().file.checked -= crate::named_file::REOPEN_NS;
    }
}

impl Drop for RunLog {
    fn drop(&mut self) {
        // A failure cannot be reported here. Without the line, the writer counts as killed.
        let _ = self.add(Change::End);
    }
}

impl State {
    /// Returns the time and the number of the next line.
    fn next(&mut self) -> (u64, u64) {
        let n = self.n;
        (self.at, self.n) = (boottime_ns().max(self.at + 1), n + 1);
        (self.at, n)
    }
}

/// Records in an existing log at `path` that nothing is recorded from now on.
///
/// # Errors
///
/// An error if the file cannot be written.
pub fn switched_off(path: &Path) -> io::Result<()> {
    if !path.try_exists()? {
        return Ok(());
    }
    let (at, event) = (Some(boottime_ns()), Some("off".into()));
    let mut lines = Vec::new();
    push(&mut lines, &Wire { at, format: Some(FORMAT), event, ..Wire::default() });
    file::append(path)?.write_all(&lines)
}

fn push(lines: &mut Vec<u8>, line: &Wire<'_>) {
    // A structure of numbers and strings always has a JSON form.
    if let Ok(line) = serde_json::to_vec(line) {
        lines.extend(line);
        lines.push(b'\n');
    }
}

#[cfg(test)]
mod tests;
