//! Copies the output of jobs to the guard's standard error, which is the worker's: complete lines,
//! each prefixed with the job's name.
//!
//! It runs in a thread of its own: if nobody reads that log, jobs have to wait, but the guard does
//! not.

use std::io::{self, PipeReader, Write as _};
use std::os::fd::OwnedFd;

use swarm_core::JobName;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::mpsc;

/// The longest part of a line that is written, in bytes.
const LINE_BYTES_MAX: usize = 4096;
const READ_BYTES_MAX: usize = 16 << 10;

/// Copies the outputs of jobs.
pub(super) struct Output(mpsc::UnboundedSender<(JobName, PipeReader)>);

impl Output {
    pub(super) fn open() -> io::Result<Self> {
        let (sender, mut pipes) = mpsc::unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        std::thread::spawn(move || {
            runtime.block_on(async move {
                while let Some((job, pipe)) = pipes.recv().await {
                    tokio::spawn(follow(job, pipe));
                }
            });
        });
        Ok(Self(sender))
    }

    /// Copies the output of `job` until all writers have closed it.
    pub(super) fn follow(&self, job: JobName, pipe: PipeReader) {
        let _ = self.0.send((job, pipe));
    }
}

async fn follow(job: JobName, pipe: PipeReader) {
    let Ok(mut pipe) = Receiver::from_owned_fd(OwnedFd::from(pipe)) else { return };
    let mut lines = Lines::default();
    let mut buffer = vec![0; READ_BYTES_MAX];
    let mut shown = Vec::new();
    loop {
        let read = pipe.read(&mut buffer).await.unwrap_or(0);
        lines.take(&buffer[..read], |line| {
            shown.extend(format!("{job}: {line}\n").into_bytes());
        });
        if read == 0 {
            lines.end(|line| shown.extend(format!("{job}: {line}\n").into_bytes()));
        }
        // If standard error is closed, the output is lost.
        let _ = io::stderr().lock().write_all(&shown);
        shown.clear();
        if read == 0 {
            return;
        }
        // The outputs of other jobs get their turn, too.
        tokio::task::yield_now().await;
    }
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
    fn a_long_line_is_cut() {
        let long = vec![b'x'; 3 * LINE_BYTES_MAX];
        let emitted = emitted(&[&long, b"x\nshort\n"]);
        assert_eq!(emitted, [format!("{}…", "x".repeat(LINE_BYTES_MAX)), "short".to_owned()]);
    }
}
