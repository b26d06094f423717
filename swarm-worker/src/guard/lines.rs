//! Splits the output of a job into lines, independent of the line break. Reads no clock.
//!
//! - `\n` ends a line, and so does `\r\n`.
//! - `\r` alone ends a line of progress, which the program overwrites. At most one such line per
//!   second is logged: the newest. The last one is logged before any other line and before the end.
//! - A text without a line break is logged after a second without further bytes. Bytes that follow
//!   later begin the next line.
//! - A line of more than [`LINE_BYTES_MAX`] is shortened to its beginning and its end.
//!
//! Apart from the pace, the result does not depend on how reads divide the bytes.

use std::fmt::Write as _;
use std::mem;
use std::time::Duration;

use tokio::time::Instant;

/// The longest line that is kept completely, in bytes. A longer line keeps two parts: its beginning
/// and its end.
pub(super) const LINE_BYTES_MAX: usize = BEGINNING + END;
const BEGINNING: usize = 1 << 10;
const END: usize = 3 << 10;

/// The buffer of an incomplete line. The end of the line moves through one part of it.
const TEXT_BYTES_MAX: usize = LINE_BYTES_MAX + END;

/// The minimum time between two lines of progress, and the time that an incomplete line waits for
/// its end.
const PACE: Duration = Duration::from_secs(1);

/// A line of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line<'a> {
    pub(super) kind: Kind,
    /// The whole line, or its beginning.
    pub(super) beginning: &'a [u8],
    /// The number of bytes omitted after the beginning.
    pub(super) left_out: u64,
    /// The end of a line with omitted bytes.
    pub(super) end: &'a [u8],
}

/// The way a line ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A line break, a pause in the output, or the end of the output ended it.
    Whole,
    /// `\r` ended it: on a terminal, the next line overwrites it.
    Progress,
}

impl<'a> Line<'a> {
    fn of(kind: Kind, beginning: &'a [u8]) -> Self {
        Self { kind, beginning, left_out: 0, end: &[] }
    }

    /// Returns the length of the whole line in bytes.
    pub(super) fn bytes(&self) -> u64 {
        let kept = self.beginning.len() + self.end.len();
        self.left_out + u64::try_from(kept).unwrap_or(u64::MAX)
    }

    /// Returns the line as text, with the number of omitted bytes.
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
    /// The incomplete line.
    text: Text,
    /// Whether `\r` has ended the line. It is a line of progress unless
    /// `\n` follows.
    is_returned: bool,
    /// Whether the line was logged although its end is missing and may follow.
    is_logged: bool,
    /// The newest line of progress that was not logged yet.
    progress: Text,
    /// The time at which a line of progress was last logged.
    paced_at: Option<Instant>,
    /// The time at which the last byte arrived.
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
                // An empty line shows nothing, and a series of `\r` has the effect of one.
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

    /// Returns when [`pass`](Self::pass) has to be called, unless more is read before.
    pub(super) fn due_at(&self) -> Option<Instant> {
        let is_progress = self.is_returned || !self.progress.is_empty();
        let is_text = !self.is_returned && !self.text.is_empty();
        let since = [self.paced_at.filter(|_| is_progress), self.read_at.filter(|_| is_text)];
        since.into_iter().flatten().min().map(|since| since + PACE)
    }

    /// Emits a line or an incomplete line whose time has elapsed at `now`.
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

    /// Emits the remaining text after the last byte.
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

    /// Makes the line that `\r` has ended the newest line of progress.
    fn overwrite(&mut self) {
        if mem::take(&mut self.is_returned) {
            mem::swap(&mut self.text, &mut self.progress);
            self.text.clear();
        }
    }

    /// Ends the line with a line break; `bytes` are its last bytes.
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

    /// Emits the newest line of progress if it was not emitted yet.
    fn progress(&mut self, now: Instant, emit: &mut dyn FnMut(Line<'_>)) {
        if !self.progress.is_empty() {
            self.progress.emit(Kind::Progress, emit);
            self.paced_at = Some(now);
        }
    }
}

/// The kept part of an incomplete line.
#[derive(Debug, Default)]
struct Text {
    /// The kept bytes, at most [`TEXT_BYTES_MAX`].
    kept: Vec<u8>,
    /// The number of bytes omitted after the beginning.
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
        // Only the last bytes of the rest can be part of the line's end.
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
        // A character with missing bytes is omitted completely.
        let beginning = without_partial_end(&kept[..BEGINNING]);
        let end = without_partial_start(&kept[kept.len() - END..]);
        let left_out = left_out + kept.len() - beginning.len() - end.len();
        Line { kind, beginning, left_out: u64::try_from(left_out).unwrap_or(u64::MAX), end }
    }
}

/// Removes an incomplete character from the end of the bytes.
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

/// Removes an incomplete character from the start of the bytes.
pub(super) fn without_partial_start(bytes: &[u8]) -> &[u8] {
    let partial = bytes.iter().take(3).take_while(|byte| matches!(byte, 0x80..=0xbf)).count();
    &bytes[partial..]
}

/// Returns the text with escapes for control characters, which could confuse a terminal, and for
/// bytes that are not UTF-8.
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
