//! The place of a mistake in the documents of a manifest.

use granit_parser::{Event, ScalarStyle};

use crate::place::{self, Place};

/// A place in one of several documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The index of the document among the documents that were read.
    pub(super) index: usize,
    /// The number of the document in its text, from 1.
    pub(super) document: usize,
    /// The path of the field, or of an object that lacks the field.
    pub(super) path: String,
    /// The place within a field that is a text with a list.
    pub(super) within: Option<Within>,
}

/// A place in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Within {
    /// The path of an entry or of a field of an entry, as in `[2].share`.
    Entry(String),
    /// A place in the text.
    Place(Place),
}

impl Location {
    /// The index of the document among the documents that were read, from 0.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// The number of the document in its text, from 1.
    #[must_use]
    pub fn document(&self) -> usize {
        self.document
    }

    /// A place in the list that is the text of this field.
    pub(super) fn within(&self, within: Within) -> Self {
        Self { within: Some(within), ..self.clone() }
    }

    /// A line, from 1, of the list that is the text of this field.
    pub(super) fn line(&self, line: usize) -> Self {
        self.within(Within::Place(Place { line, column: 1 }))
    }

    /// The line and column in the text of the document. O(text).
    #[must_use]
    pub fn find(&self, text: &str) -> Option<Place> {
        let (around, value) = place::seek(text, self.document, &self.path)?;
        let (Some(within), Some((Event::Scalar(list, style, ..), span))) = (&self.within, value)
        else {
            return Some(around);
        };
        let inner = match within {
            Within::Entry(path) => place::find(&list, 1, path),
            Within::Place(place) => Some(*place),
        };
        let start = place::place_of(&span);
        let inner = inner.filter(|_| style == ScalarStyle::Literal);
        let exact = inner.and_then(|inner| in_block(text, start.line, &list, inner));
        Some(exact.unwrap_or(if style == ScalarStyle::Literal { around } else { start }))
    }
}

/// The place in `text` for a place in a block of its lines. Its first line with a text is the line
/// `start`.
fn in_block(text: &str, start: usize, block: &str, inner: Place) -> Option<Place> {
    let index = inner.line.checked_sub(1)?;
    let written = block.lines().nth(index)?;
    let blank = block.lines().take_while(|line| line.is_empty()).count();
    let line = (start + index).checked_sub(blank)?;
    let indent = text.lines().nth(line.checked_sub(1)?)?.strip_suffix(written)?;
    let is_indent = indent.chars().all(|c| c == ' ');
    is_indent.then(|| Place { line, column: indent.len() + inner.column })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line_of(value: &str, within: Within) -> (usize, usize) {
        let text = format!("kind: A\n---\nkind: B\ndata:\n  other: x\n  jobs: {value}\n");
        let path = "data[\"jobs\"]".to_owned();
        let location = Location { index: 0, document: 2, path, within: Some(within) };
        location.find(&text).map(|it| (it.line, it.column)).unwrap()
    }

    #[test]
    fn an_entry_of_a_list_is_found_in_the_line_of_the_file() {
        let entry = || Within::Entry("[1].share".to_owned());
        assert_eq!(line_of("|\n    - a\n    - name: b\n      share: 0", entry()), (9, 7));
        assert_eq!(line_of("|-\n    # c\n\n    - a\n    - {name: b, share: 0}", entry()), (10, 17));
        assert_eq!(line_of("|2\n    - a\n    - {share: 0}", entry()), (8, 8));
        assert_eq!(line_of("|\n\n\n    - a\n    - {share: 0}", entry()), (10, 8));
        let line = |line| Within::Place(Place { line, column: 1 });
        assert_eq!(line_of("|\n    a,1\n    b,2", line(2)), (8, 5));
    }

    #[test]
    fn in_a_text_without_lines_of_its_own_the_start_is_found() {
        let entry = || Within::Entry("[1]".to_owned());
        assert_eq!(line_of("\"- a\\n- b\\n\"", entry()), (6, 9));
        assert_eq!(line_of("[]", entry()), (6, 3), "it is no text");
        assert_eq!(line_of(">\n    - a\n\n    - b", entry()).0, 7);
    }
}
