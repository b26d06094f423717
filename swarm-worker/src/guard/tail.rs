//! Keeps the last lines of a job's output, which show a person how it ended.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use swarm_view::blank::blanked;
use tokio::time::Instant;

use super::lines::{Kind, Line, escaped, without_partial_start};

/// The number of lines that are kept, and the number of bytes that are kept of the end of each.
const LINES_MAX: usize = 5;
const LINE_BYTES_MAX: usize = 256;

/// The sign for an omitted beginning of a line.
const CUT: char = '…';

/// The last lines of a job's output, which its copier appends.
#[derive(Clone, Debug, Default)]
pub(super) struct Tail(Arc<Mutex<TailLines>>);

#[derive(Debug)]
pub(super) struct TailLines {
    lines: VecDeque<Kept>,
    /// The time of the last output, or of the start.
    output_at: Instant,
    has_ended: bool,
}

impl Default for TailLines {
    fn default() -> Self {
        Self { lines: VecDeque::new(), output_at: Instant::now(), has_ended: false }
    }
}

/// A line that was not logged when it was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unlogged {
    /// The end of the line.
    pub(super) text: String,
    /// The length of the line in bytes, if `text` is the whole line.
    pub(super) whole: Option<u64>,
}

/// The end of a line.
#[derive(Debug)]
struct Kept {
    kind: Kind,
    bytes: Vec<u8>,
    /// The length of the whole line in bytes.
    length: u64,
    is_logged: bool,
}

impl Tail {
    /// Returns the last lines so far, for status and Events. Passwords of addresses are blanked; the
    /// log of the job has the whole lines.
    pub(super) fn lines(&self) -> Vec<String> {
        self.lock().lines.iter().map(Kept::quoted).collect()
    }

    /// Returns the time since the last output, or since the start.
    pub(super) fn quiet(&self) -> Duration {
        self.lock().output_at.elapsed()
    }

    /// Returns whether the output has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.lock().has_ended
    }

    /// Marks the output as ended, after its last lines were logged.
    pub(super) fn end(&self) {
        self.lock().has_ended = true;
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, TailLines> {
        // A thread that panicked while holding the lock cannot have left an incomplete line.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TailLines {
    /// Records that the job printed something at `now`.
    pub(super) fn printed(&mut self, now: Instant) {
        self.output_at = now;
    }

    /// Keeps a line. It reuses the memory of the line that it replaces: the previous line if both
    /// are progress, or else the oldest line.
    pub(super) fn push(&mut self, line: &Line<'_>, is_logged: bool) {
        let is_progress = |kept: &Kept| kept.kind == Kind::Progress;
        let replaced = if line.kind == Kind::Progress && self.lines.back().is_some_and(is_progress)
        {
            self.lines.pop_back()
        } else if self.lines.len() == LINES_MAX {
            self.lines.pop_front()
        } else {
            None
        };
        let mut bytes = replaced.map(|kept| kept.bytes).unwrap_or_default();
        bytes.clear();
        let end = if line.left_out == 0 { line.beginning } else { line.end };
        bytes.extend_from_slice(&end[end.len().saturating_sub(LINE_BYTES_MAX)..]);
        self.lines.push_back(Kept { kind: line.kind, bytes, length: line.bytes(), is_logged });
    }

    /// Returns the last lines that were not logged, so that they are logged now.
    pub(super) fn unlogged(&mut self) -> impl Iterator<Item = Unlogged> {
        let unlogged = self.lines.iter_mut().filter(|kept| !kept.is_logged);
        unlogged.map(|kept| {
            kept.is_logged = true;
            Unlogged { text: kept.text(), whole: (!kept.is_cut()).then_some(kept.length) }
        })
    }
}

impl Kept {
    fn is_cut(&self) -> bool {
        u64::try_from(self.bytes.len()).is_ok_and(|length| length < self.length)
    }

    /// Returns the same text without passwords of addresses. A first word that is cut may be the end of
    /// an address.
    fn quoted(&self) -> String {
        let text = self.text();
        let quoted = blanked(&text);
        let Some(rest) = quoted.strip_prefix(CUT) else {
            return end_of(quoted.into_owned(), false);
        };
        let (word, after) = rest.split_at(rest.find(' ').unwrap_or(rest.len()));
        let is_of_address = word.contains(['@', '=', '&', '?']);
        end_of(format!("{CUT}{}{after}", if is_of_address { "" } else { word }), false)
    }

    /// Returns the end of the line as text of at most `LINE_BYTES_MAX` bytes, with a sign for an
    /// omitted beginning.
    fn text(&self) -> String {
        let is_cut = self.is_cut();
        let bytes = if is_cut { without_partial_start(&self.bytes) } else { &self.bytes };
        end_of(escaped(bytes), is_cut)
    }
}

/// Shortens a text to `LINE_BYTES_MAX` bytes at its beginning. `is_cut` tells that its beginning is
/// omitted already, and has no sign yet.
fn end_of(text: String, is_cut: bool) -> String {
    if !is_cut && text.len() <= LINE_BYTES_MAX {
        return text;
    }
    let start = (text.len() + CUT.len_utf8()).saturating_sub(LINE_BYTES_MAX);
    format!("{CUT}{}", &text[text.ceil_char_boundary(start)..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(kind: Kind, text: &str) -> Line<'_> {
        Line { kind, beginning: text.as_bytes(), left_out: 0, end: &[] }
    }

    #[test]
    fn the_last_lines_are_kept_and_of_progress_the_last_in_a_row() {
        let tail = Tail::default();
        for text in ["0", "1", "2", "3"] {
            tail.lock().push(&line(Kind::Whole, text), true);
        }
        for text in ["10 %", "20 %", "30 %"] {
            tail.lock().push(&line(Kind::Progress, text), true);
        }
        assert_eq!(tail.lines(), ["0", "1", "2", "3", "30 %"]);
        tail.lock().push(&line(Kind::Whole, "no camera"), false);
        tail.lock().push(&line(Kind::Progress, "40 %"), false);
        assert_eq!(tail.lines(), ["2", "3", "30 %", "no camera", "40 %"]);
        let whole = |text: &str| Unlogged { text: text.to_owned(), whole: Some(text.len() as u64) };
        let unlogged: Vec<_> = tail.lock().unlogged().collect();
        assert_eq!(unlogged, [whole("no camera"), whole("40 %")]);
        assert_eq!(tail.lock().unlogged().next(), None);
    }

    #[test]
    fn a_password_of_an_address_is_in_the_log_only() {
        let tail = Tail::default();
        let (address, long) = ("rtsp://admin:pw@cam: 401", "x".repeat(LINE_BYTES_MAX - 9));
        tail.lock().push(&line(Kind::Whole, address), false);
        // The beginning of the address is cut off.
        tail.lock().push(&line(Kind::Whole, &format!("rtsp://admin:pw@cam {long}")), false);
        let short = "a://b@c".repeat(LINE_BYTES_MAX / 7);
        tail.lock().push(&line(Kind::Whole, &short), false);
        let lines = tail.lines();
        assert_eq!((&*lines[0], lines[1].clone()), ("rtsp://***@cam: 401", format!("… {long}")));
        assert!(lines.iter().all(|line| line.len() <= LINE_BYTES_MAX), "{lines:?}");
        assert_eq!(tail.lock().unlogged().next().unwrap().text, address);
    }

    #[test]
    fn of_a_long_line_the_end_is_kept() {
        let tail = Tail::default();
        let whole = "x".repeat(LINE_BYTES_MAX);
        let long = format!("y{}: é no camera", "é".repeat(LINE_BYTES_MAX));
        let escapes = "\u{1b}".repeat(LINE_BYTES_MAX);
        for text in [&whole, &long, &escapes] {
            tail.lock().push(&line(Kind::Whole, text), true);
        }
        let end = Line { kind: Kind::Whole, beginning: b"a", left_out: 1, end: b"the end" };
        tail.lock().push(&end, true);
        let lines = tail.lines();
        assert_eq!((&lines[0], lines[3].as_str()), (&whole, "…the end"));
        assert!(lines[1].starts_with("…é") && lines[1].ends_with(": é no camera"), "{}", lines[1]);
        assert!(lines[2].ends_with("\\u{1b}"), "{}", lines[2]);
        for line in &lines {
            assert!(line.len() <= LINE_BYTES_MAX && !line.contains(char::is_control), "{line}");
        }
    }
}
