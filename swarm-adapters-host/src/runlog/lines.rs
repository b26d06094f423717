//! The lines of a run log, including torn lines whose writer was killed.
//!
//! A line is written by a single `write`, so torn lines are rare: the writer was killed during the
//! write, or the disk was full. A killed writer explains a torn piece under two conditions. The
//! piece is the beginning of a line, and a session that may have written it writes nothing after it
//! in this file. That session is the session named in the piece, or any earlier session if the
//! piece ends before the name. A torn piece at the end of the file is always explained.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::Path;

use serde::Deserialize;

use super::judge::{Event, Line};

/// The longest line that is read, in bytes.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// The largest number of torn pieces that are kept for an explanation; further pieces count as
/// unexplained.
const TORN_MAX: usize = 1_000;
/// The beginning of every line.
const BEGINNING: &[u8] = b"{\"t\":";

#[derive(Deserialize)]
struct Wire<'a> {
    t: u64,
    #[serde(borrow)]
    job: Cow<'a, str>,
    #[serde(borrow)]
    worker: Cow<'a, str>,
    #[serde(borrow)]
    session: Cow<'a, str>,
    token: u64,
    #[serde(borrow)]
    event: Cow<'a, str>,
}

/// A line with owned strings.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Owned {
    pub(super) t: u64,
    job: Box<str>,
    worker: Box<str>,
    pub(super) session: Box<str>,
    token: u64,
    pub(super) event: Event,
}

impl Owned {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let Wire { t, job, worker, session, token, event } = serde_json::from_slice(bytes).ok()?;
        let event = match &*event {
            "start" => Event::Start,
            "tick" => Event::Tick,
            "stop" => Event::Stop,
            _ => return None,
        };
        Some(Self {
            t,
            job: job.into(),
            worker: worker.into(),
            session: session.into(),
            token,
            event,
        })
    }

    pub(super) fn line(&self) -> Line<'_> {
        let Self { t, job, worker, session, token, event } = self;
        Line { t: *t, job, worker, session, token: *token, event: *event }
    }
}

/// The new information in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// The line is the first of its session.
    Session,
    /// The session of the line is known.
    Nothing,
}

/// The counts of pieces that are not complete lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Torn {
    /// The number of torn lines.
    pub lines: u64,
    /// The number of torn lines that no killed writer explains.
    pub unexplained: u64,
    /// The number in its file of the first unexplained line.
    pub first: Option<u64>,
}

struct Piece {
    number: u64,
    is_beginning: bool,
    session: Option<String>,
}

/// Reads one file from its beginning to its end.
pub(super) struct Lines<R> {
    input: BufReader<R>,
    buffer: Vec<u8>,
    number: u64,
    good: u64,
    last_line_of: HashMap<Box<str>, u64>,
    pieces: Vec<Piece>,
    torn: u64,
}

impl Lines<File> {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self::new(File::open(path)?))
    }
}

impl<R: io::Read> Lines<R> {
    pub(super) fn new(input: R) -> Self {
        Self {
            input: BufReader::with_capacity(1 << 18, input),
            buffer: Vec::new(),
            number: 0,
            good: 0,
            last_line_of: HashMap::new(),
            pieces: Vec::new(),
            torn: 0,
        }
    }

    /// Returns the next complete line; torn pieces before it are kept.
    pub(super) fn next(&mut self) -> io::Result<Option<(Owned, News)>> {
        loop {
            self.buffer.clear();
            let read =
                (&mut self.input).take(LINE_BYTES_MAX).read_until(b'\n', &mut self.buffer)?;
            if read == 0 {
                return Ok(None);
            }
            self.number += 1;
            let mut bytes = std::mem::take(&mut self.buffer);
            let found = self.whole(bytes.trim_ascii());
            bytes.clear();
            self.buffer = bytes;
            if let Some(line) = found {
                self.good += 1;
                let news = if let Some(number) = self.last_line_of.get_mut(&line.session) {
                    *number = self.number;
                    News::Nothing
                } else {
                    self.last_line_of.insert(line.session.clone(), self.number);
                    News::Session
                };
                return Ok(Some((line, news)));
            }
        }
    }

    /// Returns the complete line at the end of these bytes; the bytes before it are torn.
    fn whole(&mut self, mut bytes: &[u8]) -> Option<Owned> {
        while !bytes.is_empty() {
            if let Some(line) = Owned::parse(bytes) {
                return Some(line);
            }
            let rest = bytes.get(1..).unwrap_or_default();
            let next = rest.windows(BEGINNING.len()).position(|window| window == BEGINNING);
            let (piece, rest) = bytes.split_at(next.map_or(bytes.len(), |at| at + 1));
            self.tear(piece);
            bytes = rest;
        }
        None
    }

    fn tear(&mut self, piece: &[u8]) {
        self.torn += 1;
        if self.pieces.len() < TORN_MAX {
            let is_beginning = piece.starts_with(BEGINNING) || BEGINNING.starts_with(piece);
            let text = String::from_utf8_lossy(piece);
            let session =
                text.split_once("\"session\":\"").and_then(|(_, rest)| rest.split_once('"'));
            let session = session.map(|(session, _)| session.to_owned());
            self.pieces.push(Piece { number: self.number, is_beginning, session });
        }
    }

    /// Returns whether the file has a complete line, or is empty.
    pub(super) fn is_run_log(&self) -> bool {
        0 < self.good || self.number == 0
    }

    /// Returns the torn lines. Call this at the end of the file.
    pub(super) fn torn(&self) -> Torn {
        // A piece and the record after it may be on the same line of the file.
        let is_silent_after = |number: u64, last: &u64| *last < number;
        let is_explained = |piece: &&Piece| {
            let silent = |last: &u64| is_silent_after(piece.number, last);
            let is_last = piece.number == self.number
                && !self.last_line_of.values().any(|last| *last == piece.number);
            piece.is_beginning
                && (is_last
                    || match &piece.session {
                        Some(session) => self.last_line_of.get(session.as_str()).is_none_or(silent),
                        None => self.last_line_of.values().any(silent),
                    })
        };
        let explained = self.pieces.iter().filter(is_explained).count() as u64;
        let first = self.pieces.iter().find(|piece| !is_explained(piece));
        Torn {
            lines: self.torn,
            unexplained: self.torn - explained,
            first: first.map(|piece| piece.number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(session: &str) -> String {
        format!(
            r#"{{"t":1,"job":"a","worker":"w","session":"{session}","token":1,"event":"tick"}}"#
        )
    }

    fn read(text: &str) -> (usize, Torn) {
        let mut lines = Lines::new(text.as_bytes());
        let mut count = 0;
        while lines.next().unwrap().is_some() {
            count += 1;
        }
        (count, lines.torn())
    }

    fn torn(lines: u64, first: &[u64]) -> Torn {
        Torn { lines, unexplained: first.len() as u64, first: first.first().copied() }
    }

    #[test]
    fn a_killed_writer_explains_its_last_line() {
        let (a, b) = (line("s1"), line("s2"));
        assert_eq!(read(&format!("{a}\n{b}\n")), (2, torn(0, &[])));
        for cut in [1, 8, a.len() / 2, a.len() - 1] {
            let piece = &a[..cut];
            assert_eq!(read(&format!("{a}\n{piece}")), (1, torn(1, &[])), "at the end: {piece}");
            let then = format!("{a}\n{piece}{b}\n{b}\n");
            assert_eq!(read(&then), (3, torn(1, &[])), "another goes on: {piece}");
            assert_eq!(read(&format!("{a}\n{piece}\n{b}\n")), (2, torn(1, &[])), "{piece}");
        }
    }

    #[test]
    fn a_torn_line_is_unexplained_if_its_writer_continues_or_it_is_not_the_beginning_of_a_line() {
        let a = line("s1");
        let piece = &a[..a.len() - 1];
        assert_eq!(read(&format!("{a}\n{piece}{a}\n")), (2, torn(1, &[2])));
        assert_eq!(read(&format!("{a}\n{piece}\n{a}\n")), (2, torn(1, &[2])));
        assert_eq!(read(&format!("{a}\n{}{a}\n", &a[..9])), (2, torn(1, &[2])));
        assert_eq!(read(&format!("{a}\nhello\n")), (1, torn(1, &[2])));
        assert_eq!(read(&a.replace("tick", "tock")).1.lines, 1);
    }
}
