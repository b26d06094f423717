//! The lines of a run log, including torn lines whose writer was killed.
//!
//! A line is written by a single `write`, so torn lines are rare: the writer was killed during the
//! write, or the disk was full. A killed writer explains a torn piece under two conditions. The
//! piece is the beginning of a line, and an author that may have written it writes nothing after it
//! in this file. That author is the session or writer named in the piece, or any earlier one if the
//! piece ends before the name. A torn piece at the end of the file is always explained.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::Path;

use super::record::{Author, BEGINNINGS, FORMAT, NoRecord, Record};

/// The longest line that is read, in bytes.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// The largest number of torn pieces that are kept for an explanation; further pieces count as
/// unexplained.
const TORN_MAX: usize = 1_000;

/// The new information in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// The line is the first of its author.
    Author,
    /// The author of the line is known.
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
    author: Option<Author>,
}

/// Reads one file from its beginning to its end.
pub(super) struct Lines<R> {
    input: BufReader<R>,
    buffer: Vec<u8>,
    number: u64,
    good: u64,
    last_line_of: HashMap<Author, u64>,
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
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or has a newer format.
    pub(super) fn next(&mut self) -> io::Result<Option<(Record, News)>> {
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
            if let Some(record) = found? {
                self.good += 1;
                let before = record.author().map(|by| self.last_line_of.insert(by, self.number));
                let news = if before == Some(None) { News::Author } else { News::Nothing };
                return Ok(Some((record, news)));
            }
        }
    }

    /// Returns the complete line at the end of these bytes; the bytes before it are torn.
    fn whole(&mut self, mut bytes: &[u8]) -> io::Result<Option<Record>> {
        while !bytes.is_empty() {
            match Record::parse(bytes) {
                Ok(record) => return Ok(Some(record)),
                Err(NoRecord::Newer(format)) => return Err(self.newer(format)),
                Err(NoRecord::Damaged) => {}
            }
            let is_beginning =
                |at: &usize| BEGINNINGS.iter().any(|it| bytes[*at..].starts_with(it));
            let next = (1..bytes.len()).find(is_beginning).unwrap_or(bytes.len());
            let (piece, rest) = bytes.split_at(next);
            self.tear(piece);
            bytes = rest;
        }
        Ok(None)
    }

    fn newer(&self, format: u64) -> io::Error {
        let number = self.number;
        io::Error::other(format!(
            "line {number} has format {format}, and this program knows formats 1 to {FORMAT}; use \
             the version of swarm that wrote it"
        ))
    }

    fn tear(&mut self, piece: &[u8]) {
        self.torn += 1;
        if self.pieces.len() < TORN_MAX {
            let is_beginning =
                BEGINNINGS.iter().any(|it| piece.starts_with(it) || it.starts_with(piece));
            let author = Author::of_piece(&String::from_utf8_lossy(piece));
            self.pieces.push(Piece { number: self.number, is_beginning, author });
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
                    || match &piece.author {
                        Some(author) => self.last_line_of.get(author).is_none_or(silent),
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
