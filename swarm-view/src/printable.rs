//! Text for a terminal, with escapes for every character that could control the terminal.
//!
//! The escapes replace all control characters, and characters that change the order of a line or
//! take no room in it.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::{self, Write};

/// The notation of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One line for people: `\u{1b}` and `\n` are escapes, and a tab is kept.
    Line,
    /// Lines for people: line breaks are kept, too.
    Lines,
    /// A JSON document, in which `\u001b` is the same character, and line breaks are space.
    Json,
}

impl Form {
    fn keeps(self, c: char) -> bool {
        match c {
            '\t' => true,
            '\n' => self != Self::Line,
            c => !c.is_control() && !is_invisible(c),
        }
    }

    fn escape(self, c: char, to: &mut String) {
        if self == Self::Json {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(to, "\\u{unit:04x}");
            }
        } else {
            to.extend(c.escape_default());
        }
    }
}

/// The characters of the Unicode bidirectional algorithm, the joiners and spaces without width, the
/// separators of lines and paragraphs, and the tags. A name with one of them looks like another name.
fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{61c}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

/// Returns a text that is safe for a terminal.
///
/// ```
/// use swarm_view::printable::{Form, printable};
///
/// assert_eq!(printable("w-0\u{1b}[2J", Form::Line), "w-0\\u{1b}[2J");
/// assert_eq!(printable("stream:a", Form::Line), "stream:a");
/// ```
#[must_use]
pub fn printable(text: &str, form: Form) -> Cow<'_, str> {
    if text.chars().all(|c| form.keeps(c)) {
        return text.into();
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if form.keeps(c) { escaped.push(c) } else { form.escape(c, &mut escaped) }
    }
    escaped.into()
}

/// Returns whether [`printable`] keeps each of these words as it is.
pub fn are_printable<W: AsRef<OsStr>>(words: impl IntoIterator<Item = W>) -> bool {
    words.into_iter().all(|word| {
        let word = word.as_ref().to_string_lossy();
        word.chars().all(|c| Form::Line.keeps(c))
    })
}

/// A writer that escapes its input like [`printable`]. Each write must have whole characters, as
/// the writes of `write!` have. Bytes that are not UTF-8 are replaced.
#[derive(Debug)]
pub struct Printable<W> {
    to: W,
    form: Form,
}

impl<W: Write> Printable<W> {
    /// Creates a writer to `to`.
    pub fn new(to: W, form: Form) -> Self {
        Self { to, form }
    }
}

impl<W: Write> Write for Printable<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        self.to.write_all(printable(&text, self.form).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_steer_a_terminal_is_an_escape_in_every_form() {
        let evil = "a\u{1b}]0;b\u{7}\tc\u{9b}2J\u{7f}\r\u{202e}d\n";
        let line = "a\\u{1b}]0;b\\u{7}\tc\\u{9b}2J\\u{7f}\\r\\u{202e}d\\n";
        assert_eq!(printable(evil, Form::Line), line);
        assert_eq!(printable(evil, Form::Lines), line.replace("\\n", "\n"));
        let json = printable(evil, Form::Json);
        assert_eq!(json, "a\\u001b]0;b\\u0007\tc\\u009b2J\\u007f\\u000d\\u202ed\n");
    }

    #[test]
    fn what_takes_no_room_is_an_escape_as_well() {
        for evil in
            "\u{200b}\u{200d}\u{2028}\u{2029}\u{2060}\u{feff}\u{e0000}\u{e0061}\u{e007f}".chars()
        {
            let line = format!("cam{evil}");
            assert_eq!(printable(&line, Form::Line), format!("cam{}", evil.escape_default()));
            let json = printable(&line, Form::Json).into_owned();
            assert!(json.is_ascii(), "{json}");
            assert_eq!(serde_json::from_str::<String>(&format!("\"{json}\"")).unwrap(), line);
        }
        // Signs that change the one before them can be seen.
        assert_eq!(printable("e\u{301} ☎\u{fe0f}", Form::Line), "e\u{301} ☎\u{fe0f}");
    }

    #[test]
    fn a_json_document_means_the_same_afterwards() {
        let value = serde_json::json!({"job": "a\u{1b}\u{9b}\u{7f}\u{2066}\u{e0041}\"\n\té"});
        let shown = printable(&format!("{value:#}"), Form::Json).into_owned();
        assert!(shown.chars().all(|c| c == '\n' || !c.is_control() && !is_invisible(c)));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }

    #[test]
    fn plain_text_is_not_copied() {
        assert!(matches!(printable("stream:é 1\n", Form::Lines), Cow::Borrowed(_)));
        let mut written = Vec::new();
        let name = "é";
        writeln!(Printable::new(&mut written, Form::Lines), "{name}\u{1b}").unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), "é\\u{1b}\n");
    }
}
