//! Copies the output of jobs to the guard's standard error, which is the worker's: complete lines,
//! each prefixed with the job's name, and not more of each job than a [`Meter`] admits.
//!
//! It runs in a thread of its own: if nobody reads that log, jobs have to wait, but the guard does
//! not.

use std::collections::VecDeque;
use std::io::{self, PipeReader, Write as _};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::Pid;
use swarm_core::JobName;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::meter::Meter;
use super::protocol::OutputFormat;

/// The longest part of a line that is written, in bytes.
const LINE_BYTES_MAX: usize = 4096;
const READ_BYTES_MAX: usize = 16 << 10;

/// The last lines of a job's output that are kept, and how much of each, in bytes.
const TAIL_LINES: usize = 5;
const TAIL_LINE_BYTES: usize = 256;

/// Copies the outputs of jobs.
pub(super) struct Output(mpsc::UnboundedSender<Followed>);

/// A text to look for in the output of a job, and the first process of that job.
pub(super) struct Awaited {
    pub(super) text: String,
    pub(super) leader: Pid,
}

/// The output of a job has the text that was asked for.
pub(super) struct Seen {
    pub(super) job: JobName,
    pub(super) leader: Pid,
}

/// The output of a job.
pub(super) struct Followed {
    pub(super) job: JobName,
    pub(super) pipe: PipeReader,
    pub(super) format: OutputFormat,
    pub(super) awaited: Option<Awaited>,
    pub(super) tail: Tail,
}

/// The end of a job's output, which its copier fills.
#[derive(Clone, Debug, Default)]
pub(super) struct Tail(Arc<Mutex<TailLines>>);

#[derive(Debug, Default)]
struct TailLines {
    lines: VecDeque<String>,
    has_ended: bool,
}

impl Tail {
    /// The last lines so far.
    pub(super) fn lines(&self) -> Vec<String> {
        self.lock().lines.iter().cloned().collect()
    }

    /// Whether nothing comes after them.
    pub(super) fn has_ended(&self) -> bool {
        self.lock().has_ended
    }

    fn lock(&self) -> MutexGuard<'_, TailLines> {
        // A thread that panicked while holding the lock cannot have left an incomplete line.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TailLines {
    /// Keeps a line in place of the oldest one, in the memory of that.
    fn push(&mut self, line: &str) {
        let oldest = (self.lines.len() == TAIL_LINES).then(|| self.lines.pop_front()).flatten();
        let mut kept = oldest.unwrap_or_default();
        kept.clear();
        kept.push_str(&line[..line.floor_char_boundary(TAIL_LINE_BYTES)]);
        self.lines.push_back(kept);
    }
}

impl Output {
    /// Copies outputs, and sends the texts in them that were asked for.
    pub(super) fn open(seen: mpsc::UnboundedSender<Seen>) -> io::Result<Self> {
        let (sender, mut pipes) = mpsc::unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::spawn(move || {
            runtime.block_on(async move {
                while let Some(followed) = pipes.recv().await {
                    tokio::spawn(follow(followed, seen.clone()));
                }
            });
        });
        Ok(Self(sender))
    }

    /// Copies the output of a job until all writers have closed it.
    pub(super) fn follow(&self, followed: Followed) {
        let _ = self.0.send(followed);
    }
}

async fn follow(followed: Followed, seen: mpsc::UnboundedSender<Seen>) {
    let Followed { job, pipe, format, mut awaited, tail } = followed;
    let Ok(mut pipe) = Receiver::from_owned_fd(OwnedFd::from(pipe)) else { return };
    let mut lines = Lines::default();
    let mut buffer = vec![0; READ_BYTES_MAX];
    let mut shown = Vec::new();
    let mut meter = Meter::new(Instant::now());
    loop {
        let reports_at = meter.reports_at();
        let report_is_due = async {
            match reports_at {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let read = tokio::select! {
            read = pipe.read(&mut buffer) => Some(read.unwrap_or(0)),
            () = report_is_due => None,
        };
        let (text, has_ended) = (&buffer[..read.unwrap_or(0)], read == Some(0));
        if let Some(report) = meter.report(Instant::now(), false) {
            show(&mut shown, &job, &report, format);
        }
        {
            let mut last = tail.lock();
            let mut copy = |line: &str| {
                // A line that is waited for is noticed, copied or not.
                if let Some(found) = awaited.take_if(|awaited| line.contains(&awaited.text)) {
                    let _ = seen.send(Seen { job: job.clone(), leader: found.leader });
                }
                last.push(line);
                if meter.admits(line.len()) {
                    show(&mut shown, &job, line, format);
                }
            };
            lines.take(text, &mut copy);
            if has_ended {
                lines.end(&mut copy);
                last.has_ended = true;
            }
        }
        if let Some(report) = meter.report(Instant::now(), has_ended) {
            show(&mut shown, &job, &report, format);
        }
        // If standard error is closed, the output is lost.
        let _ = io::stderr().lock().write_all(&shown);
        shown.clear();
        if has_ended {
            return;
        }
        // The outputs of other jobs get their turn, too.
        tokio::task::yield_now().await;
    }
}

/// Adds a line to what is to be shown.
fn show(shown: &mut Vec<u8>, job: &JobName, line: &str, format: OutputFormat) {
    // Writing to memory does not fail.
    let _ = match format {
        OutputFormat::Text => writeln!(shown, "{job}: {line}"),
        OutputFormat::Json => {
            writeln!(shown, "{}", serde_json::json!({"job": job.as_str(), "output": line}))
        }
    };
}

/// Splits the output into lines.
#[derive(Debug, Default)]
struct Lines {
    line: Vec<u8>,
    is_cut: bool,
}

impl Lines {
    fn take(&mut self, bytes: &[u8], mut emit: impl FnMut(&str)) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let text = piece.strip_suffix(b"\n").unwrap_or(piece);
            let room = LINE_BYTES_MAX - self.line.len();
            self.is_cut |= room < text.len();
            self.line.extend(&text[..room.min(text.len())]);
            if text.len() < piece.len() {
                self.emit(&mut emit);
            }
        }
    }

    /// Emits the last line if it has no line break.
    fn end(&mut self, mut emit: impl FnMut(&str)) {
        if !self.line.is_empty() {
            self.emit(&mut emit);
        }
    }

    fn emit(&mut self, emit: &mut impl FnMut(&str)) {
        let mut line = escaped(&self.line);
        if self.is_cut {
            line.push('…');
        }
        emit(&line);
        self.line.clear();
        self.is_cut = false;
    }
}

/// The text with escapes for control characters, which could confuse a terminal, and for bytes that
/// are not UTF-8.
fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character.is_control() && character != '\t' {
                text.extend(character.escape_default());
            } else {
                text.push(character);
            }
        }
        text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn emitted(pieces: &[&[u8]]) -> Vec<String> {
        let (mut lines, mut emitted) = (Lines::default(), Vec::new());
        for piece in pieces {
            lines.take(piece, |line| emitted.push(line.to_owned()));
        }
        lines.end(|line| emitted.push(line.to_owned()));
        emitted
    }

    #[test]
    fn pieces_are_joined_to_lines_and_other_bytes_than_text_are_escaped() {
        assert_eq!(
            emitted(&[b"a", b"b\n\nc\xff\x1b[1m\td", b"\n", b"rest"]),
            ["ab", "", "c\\xff\\u{1b}[1m\td", "rest"]
        );
    }

    #[test]
    fn lines_are_written_after_the_name_of_their_job_or_as_json() {
        let job = JobName::new("a\"b").unwrap();
        let written = |job: &JobName, line: &str, format: OutputFormat| {
            let mut shown = Vec::new();
            show(&mut shown, job, line, format);
            String::from_utf8(shown).unwrap()
        };
        assert_eq!(written(&job, "x \"y\"", OutputFormat::Text), "a\"b: x \"y\"\n");
        let json = "{\"job\":\"a\\\"b\",\"output\":\"x \\\"y\\\"\"}\n";
        assert_eq!(written(&job, "x \"y\"", OutputFormat::Json), json);
    }

    #[test]
    fn a_long_line_is_cut() {
        let long = vec![b'x'; 3 * LINE_BYTES_MAX];
        let emitted = emitted(&[&long, b"x\nshort\n"]);
        assert_eq!(emitted, [format!("{}…", "x".repeat(LINE_BYTES_MAX)), "short".to_owned()]);
    }
}
