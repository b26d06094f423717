//! Reads the log of the open job in its own thread, so that a large log or a slow disk does not delay
//! drawing.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use tokio::sync::watch;

use crate::scene::{Lines, OpenLog};

/// Maximum number of stored lines, and of bytes of each line. A line that a worker has shortened fits
/// unless it has many escapes.
const LINES_MAX: usize = 5_000;
const LINE_MAX: usize = 4_224;

/// Bytes of a longer line's beginning that are stored.
const BEGINNING: usize = 1_024;

/// Time between two reads of new lines.
const READ_EVERY: Duration = Duration::from_millis(100);

/// The last lines about a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct JobLog {
    pub(super) job: String,
    pub(super) lines: VecDeque<String>,
    /// Number of earlier lines that are not stored.
    pub(super) dropped: u64,
}

/// The reading thread.
pub(super) struct Reader {
    asks: mpsc::Sender<Option<String>>,
    asked: Option<String>,
    pub(super) logs: watch::Receiver<Arc<JobLog>>,
}

impl Reader {
    /// Starts the thread, which reads the logs that `open` opens on request.
    pub(super) fn start(open: OpenLog) -> io::Result<Self> {
        let (asks, inbox) = mpsc::channel();
        let (outbox, read) = watch::channel(Arc::default());
        let name = "job log".to_owned();
        thread::Builder::new().name(name).spawn(move || follow(&open, &inbox, &outbox))?;
        Ok(Self { asks, asked: None, logs: read })
    }

    /// Switches to the log of this job, or to none.
    pub(super) fn ask(&mut self, wanted: Option<String>) {
        if wanted != self.asked {
            self.asked.clone_from(&wanted);
            // The thread ends only with this channel.
            let _ = self.asks.send(wanted);
        }
    }
}

fn follow(
    open: &OpenLog,
    inbox: &mpsc::Receiver<Option<String>>,
    outbox: &watch::Sender<Arc<JobLog>>,
) {
    let mut reading: Option<Reading> = None;
    loop {
        let asked = match &reading {
            Some(_) => inbox.recv_timeout(READ_EVERY),
            None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match asked {
            Ok(asked) => reading = asked.map(|job| Reading::of(open, job)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if let Some(reading) = &mut reading
            && reading.has_more()
        {
            outbox.send_replace(Arc::new(reading.log.clone()));
        }
    }
}

/// A log that is being read.
struct Reading {
    source: Option<Lines>,
    log: JobLog,
    is_new: bool,
}

impl Reading {
    fn of(open: &OpenLog, job: String) -> Self {
        Self { source: open(&job), log: JobLog { job, ..JobLog::default() }, is_new: true }
    }

    /// Reads new lines, and returns whether the log changed.
    fn has_more(&mut self) -> bool {
        let Self { source, log, is_new } = self;
        let was_new = std::mem::take(is_new);
        let before = log.end();
        let read = source.as_mut().map(|read| read(&mut |line| log.push(line)));
        if let Some(Err(error)) = read {
            // A finished source needs no further read.
            *source = None;
            log.push(&format!("the log cannot be read: {error}"));
        }
        was_new || before < log.end()
    }
}

/// Removes the middle of a long line.
fn shortened(line: &str) -> Cow<'_, str> {
    if line.len() <= LINE_MAX {
        return line.into();
    }
    let beginning = line.floor_char_boundary(BEGINNING);
    let end = line.ceil_char_boundary(line.len() - (LINE_MAX - BEGINNING));
    let left_out = end - beginning;
    format!("{} … {left_out} bytes left out … {}", &line[..beginning], &line[end..]).into()
}

impl JobLog {
    fn push(&mut self, line: &str) {
        self.lines.push_back(shortened(line).into_owned());
        if LINES_MAX < self.lines.len() {
            self.lines.pop_front();
            self.dropped += 1;
        }
    }

    fn end(&self) -> u64 {
        self.dropped + self.lines.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_line_the_beginning_and_the_end_are_kept() {
        let mut log = JobLog::default();
        let (whole, longer) =
            ("x".repeat(LINE_MAX), format!("first {} last", "x".repeat(LINE_MAX)));
        log.push(&whole);
        log.push(&longer);
        assert_eq!(log.lines[0], whole);
        let left_out = longer.len() - LINE_MAX;
        assert!(log.lines[1].starts_with("first x") && log.lines[1].ends_with("x last"));
        let said = format!(" … {left_out} bytes left out … ");
        assert!(log.lines[1].contains(&said), "{said}: {}", log.lines[1]);
        log.push(&"é".repeat(LINE_MAX));
        assert!(log.lines[2].starts_with('é') && log.lines[2].ends_with('é'));
    }
}
