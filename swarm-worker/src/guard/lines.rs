//! Splits the output of a job into lines, whatever ends them. Reads no clock.
//!
//! - `\n` ends a line, and so does `\r\n`.
//! - `\r` alone ends a line of progress, which the program overwrites. At most one such line a
//!   second is logged, the newest. The last one comes before any other line and before the end.
//! - A text without an end is logged once no byte has followed it for a second. What follows later
//!   is the next line.
//! - A line of more than [`LINE_BYTES_MAX`] keeps its beginning and its end.
//!
//! Apart from the pace, the reads in which the bytes arrive make no difference.

use std::fmt::Write as _;
use std::mem;
use std::time::Duration;

use tokio::time::Instant;

/// The longest line that is kept whole, in bytes, and the two parts that are kept of a longer one.
pub(super) const LINE_BYTES_MAX: usize = BEGINNING + END;
const BEGINNING: usize = 1 << 10;
const END: usize = 3 << 10;

/// The memory of a line that is still read: its end moves through a part of it.
const TEXT_BYTES_MAX: usize = LINE_BYTES_MAX + END;

/// The shortest time between two lines of progress, and the time that a text waits for its end.
const PACE: Duration = Duration::from_secs(1);

/// A line of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line<'a> {
    pub(super) kind: Kind,
    /// All of it, or its beginning.
    pub(super) beginning: &'a [u8],
    /// Bytes left out after the beginning.
    pub(super) left_out: u64,
    /// The end of a line of which bytes are left out.
    pub(super) end: &'a [u8],
}

/// The way a line ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// By a line break, by silence, or with the output.
    Whole,
    /// By `\r`: the next line overwrites it on a terminal.
    Progress,
}

impl<'a> Line<'a> {
    fn of(kind: Kind, beginning: &'a [u8]) -> Self {
        Self { kind, beginning, left_out: 0, end: &[] }
    }

    /// Length of the whole line in bytes.
    pub(super) fn bytes(&self) -> u64 {
        let kept = self.beginning.len() + self.end.len();
        self.left_out + u64::try_from(kept).unwrap_or(u64::MAX)
    }

    /// The line as a text, with the number of bytes that are left out.
    pub(super) fn text(&self) -> String {
        let mut text = escaped(self.beginning);
        if 0 < self.left_out {
            // Writing to memory does not fail.
            let _ = write!(text, " … {} bytes left out … ", self.left_out);
            text.push_str(&escaped(self.end));
        }
        text
    }
}

/// Splits bytes into lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// The line that is read.
    text: Text,
    /// Whether `\r` has ended it. It is progress unless `\n` follows.
    is_returned: bool,
    /// Whether it was logged without its end, which may follow.
    is_logged: bool,
    /// The newest line of progress, unless it was logged.
    progress: Text,
    /// When a line of progress was last logged.
    paced_at: Option<Instant>,
    /// When the last byte arrived.
    read_at: Option<Instant>,
}

impl Lines {
    /// Takes the bytes that were read at `now`.
    pub(super) fn take(&mut self, bytes: &[u8], now: Instant, emit: &mut dyn FnMut(Line<'_>)) {
        let mut rest = bytes;
        while let Some(at) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            let (text, end) = (&rest[..at], rest[at]);
            rest = &rest[at + 1..];
            if end == b'\n' {
                self.whole(text, now, emit);
            } else {
                // An empty line shows nothing, and several `\r` are as good as one.
                self.push(text);
                self.is_returned = !self.text.is_empty();
            }
        }
        self.push(rest);
        if !bytes.is_empty() {
            self.read_at = Some(now);
        }
        self.pass(now, emit);
    }

    /// When to call [`pass`](Self::pass), unless more is read before.
    pub(super) fn due_at(&self) -> Option<Instant> {
        let is_progress = self.is_returned || !self.progress.is_empty();
        let is_text = !self.is_returned && !self.text.is_empty();
        let since = [self.paced_at.filter(|_| is_progress), self.read_at.filter(|_| is_text)];
        since.into_iter().flatten().min().map(|since| since + PACE)
    }

    /// Emits a line or a text that has waited for long enough at `now`.
    pub(super) fn pass(&mut self, now: Instant, emit: &mut dyn FnMut(Line<'_>)) {
        let has_waited = |since: Instant| since + PACE <= now;
        if self.paced_at.is_none_or(has_waited) {
            self.is_logged |= self.is_returned;
            self.overwrite();
            self.progress(now, emit);
        }
        let is_text = !self.is_returned && !self.text.is_empty();
        if is_text && self.read_at.is_some_and(has_waited) {
            self.progress(now, emit);
            self.text.emit(Kind::Whole, emit);
            self.is_logged = true;
        }
    }

    /// Emits the rest, after the last byte.
    pub(super) fn end(&mut self, now: Instant, emit: &mut dyn FnMut(Line<'_>)) {
        self.overwrite();
        self.progress(now, emit);
        if !self.text.is_empty() {
            self.text.emit(Kind::Whole, emit);
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.overwrite();
            self.is_logged = false;
            self.text.push(bytes);
        }
    }

    /// Makes a line that `\r` has ended the newest line of progress.
    fn overwrite(&mut self) {
        if mem::take(&mut self.is_returned) {
            mem::swap(&mut self.text, &mut self.progress);
            self.text.clear();
        }
    }

    /// A line break ends the line whose last bytes these are.
    fn whole(&mut self, bytes: &[u8], now: Instant, emit: &mut dyn FnMut(Line<'_>)) {
        if !bytes.is_empty() {
            self.overwrite();
            self.is_logged = false;
        }
        self.is_returned = false;
        if mem::take(&mut self.is_logged) {
            return;
        }
        self.progress(now, emit);
        if self.text.is_empty() && bytes.len() <= LINE_BYTES_MAX {
            return emit(Line::of(Kind::Whole, bytes));
        }
        self.text.push(bytes);
        self.text.emit(Kind::Whole, emit);
    }

    /// Emits the newest line of progress, if it was not yet.
    fn progress(&mut self, now: Instant, emit: &mut dyn FnMut(Line<'_>)) {
        if !self.progress.is_empty() {
            self.progress.emit(Kind::Progress, emit);
            self.paced_at = Some(now);
        }
    }
}

/// A line that is still read, as far as it is kept.
#[derive(Debug, Default)]
struct Text {
    /// At most [`TEXT_BYTES_MAX`].
    kept: Vec<u8>,
    /// Bytes left out after the beginning.
    left_out: usize,
}

impl Text {
    fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    fn clear(&mut self) {
        self.kept.clear();
        self.left_out = 0;
    }

    fn push(&mut self, bytes: &[u8]) {
        if self.kept.len() + bytes.len() <= TEXT_BYTES_MAX {
            return self.kept.extend_from_slice(bytes);
        }
        let missing = BEGINNING.saturating_sub(self.kept.len()).min(bytes.len());
        let (beginning, bytes) = bytes.split_at(missing);
        self.kept.extend_from_slice(beginning);
        // Only the end of the rest can be part of the end of the line.
        let surplus = (self.kept.len() - BEGINNING + bytes.len()).saturating_sub(END);
        let of_kept = surplus.min(self.kept.len() - BEGINNING);
        self.kept.drain(BEGINNING..BEGINNING + of_kept);
        self.kept.extend_from_slice(&bytes[surplus - of_kept..]);
        self.left_out += surplus;
    }

    fn emit(&mut self, kind: Kind, emit: &mut dyn FnMut(Line<'_>)) {
        emit(self.line(kind));
        self.clear();
    }

    fn line(&self, kind: Kind) -> Line<'_> {
        let Self { kept, left_out } = self;
        if kept.len() <= LINE_BYTES_MAX && *left_out == 0 {
            return Line::of(kind, kept);
        }
        // A character that is left out in part is left out.
        let beginning = without_partial_end(&kept[..BEGINNING]);
        let end = without_partial_start(&kept[kept.len() - END..]);
        let left_out = left_out + kept.len() - beginning.len() - end.len();
        Line { kind, beginning, left_out: u64::try_from(left_out).unwrap_or(u64::MAX), end }
    }
}

/// The bytes without the first ones of a character whose last ones are missing.
fn without_partial_end(bytes: &[u8]) -> &[u8] {
    for (back, byte) in (1..=3).zip(bytes.iter().rev()) {
        let length = match byte {
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            0x80..=0xbf => continue,
            _ => return bytes,
        };
        return if back < length { &bytes[..bytes.len() - back] } else { bytes };
    }
    bytes
}

/// The bytes without the last ones of a character whose first ones are missing.
pub(super) fn without_partial_start(bytes: &[u8]) -> &[u8] {
    let partial = bytes.iter().take(3).take_while(|byte| matches!(byte, 0x80..=0xbf)).count();
    &bytes[partial..]
}

/// The text with escapes for control characters, which could confuse a terminal, and for bytes that
/// are not UTF-8.
pub(super) fn escaped(bytes: &[u8]) -> String {
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
mod tests;
