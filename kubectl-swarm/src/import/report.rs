//! Notes and mistakes about the input, each with its line.

use std::collections::BTreeMap;
use std::rc::Rc;

use swarm_spec::place;

/// Maximum number of printed notes about the entries of one list.
const SHOWN_OF_A_LIST: usize = 20;

/// An input text.
#[derive(Debug, Default)]
pub(super) struct Text {
    /// Index of the text, in the order of the arguments.
    pub(super) number: usize,
    /// Name of the text in messages.
    pub(super) shown: String,
    pub(super) content: String,
    /// Default namespace of the objects.
    pub(super) namespace: Option<String>,
    /// The `ConfigMap` that a kustomization makes from the text.
    pub(super) config_map: Option<String>,
    pub(super) found: Found,
}

/// Origin of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Found {
    /// An argument or a kustomization names it.
    #[default]
    Named,
    /// An argument names its directory, so the file may be unrelated to swarm.
    Listed,
}

/// A place in a text.
#[derive(Clone, Debug)]
pub(super) struct Spot {
    text: Rc<Text>,
    /// Number of the document, from 1.
    document: usize,
    /// Path of a field in the document.
    path: String,
    /// Place inside the text that the field holds.
    within: Option<Within>,
}

/// A place inside a text that is the value of a field.
#[derive(Clone, Debug)]
enum Within {
    /// A field of the text's YAML documents.
    Field { text: Rc<str>, document: usize, path: String },
    /// A line number, from 1.
    Line(usize),
}

impl Spot {
    /// Refers to a field of a document.
    pub(super) fn new(text: &Rc<Text>, document: usize, path: &str) -> Self {
        Self { text: Rc::clone(text), document, path: path.to_owned(), within: None }
    }

    /// Refers to a child of this field, such as `.name` or `[3]`.
    pub(super) fn at(&self, step: &str) -> Self {
        let mut spot = self.clone();
        match &mut spot.within {
            Some(Within::Field { path, .. }) => path.push_str(step),
            Some(Within::Line(_)) => {}
            None => spot.path.push_str(step),
        }
        spot
    }

    /// Refers to the text in this field.
    pub(super) fn within(&self, text: &str, document: usize) -> Self {
        let within = Within::Field { text: text.into(), document, path: String::new() };
        Self { within: Some(within), ..self.clone() }
    }

    /// Refers to a line of the text in this field.
    pub(super) fn line_within(&self, line: usize) -> Self {
        Self { within: Some(Within::Line(line)), ..self.clone() }
    }

    /// Returns the line in the input text, if known. O(text).
    fn line(&self) -> Option<usize> {
        let path = self.path.trim_start_matches('.');
        let outer = place::find(&self.text.content, self.document, path)?.line;
        let within = match &self.within {
            None => return Some(outer),
            Some(Within::Line(line)) => Some(*line),
            Some(Within::Field { text, document, path }) => {
                place::find(text, *document, path.trim_start_matches('.')).map(|it| it.line)
            }
        };
        // Only the lines of a block text are also lines of the file.
        let first = self.text.content.lines().nth(outer.checked_sub(1)?)?;
        let is_block = first.rsplit_once(": |").is_some_and(|(_, rest)| rest.trim().len() < 3);
        Some(if is_block { outer + within.unwrap_or(0) } else { outer })
    }
}

/// Collected notes and mistakes.
#[derive(Debug, Default)]
pub(super) struct Report {
    notes: Vec<(Spot, String)>,
    mistakes: Vec<(Spot, String)>,
    of_lists: BTreeMap<(usize, usize, String), usize>,
}

impl Report {
    /// Adds a note about a change, an omission, or a field without counterpart.
    pub(super) fn note(&mut self, spot: &Spot, sentence: impl Into<String>) {
        self.notes.push((spot.clone(), sentence.into()));
    }

    /// Adds a note about an entry of `list`, unless the list already has too many notes.
    pub(super) fn note_entry(&mut self, list: &Spot, entry: &Spot, sentence: impl Into<String>) {
        let key = (list.text.number, list.document, list.path.clone());
        let count = self.of_lists.entry(key).or_default();
        *count += 1;
        if *count <= SHOWN_OF_A_LIST {
            self.notes.push((entry.clone(), sentence.into()));
        } else if *count == SHOWN_OF_A_LIST + 1 {
            self.notes.push((list.clone(), "more entries of this list were changed".to_owned()));
        }
    }

    /// Adds a mistake, which must be corrected before anything can be written.
    pub(super) fn mistake(&mut self, spot: &Spot, sentence: impl Into<String>) {
        if self.mistakes.len() < SHOWN_OF_A_LIST {
            self.mistakes.push((spot.clone(), sentence.into()));
        }
    }

    /// Whether the input has mistakes.
    pub(super) fn has_mistakes(&self) -> bool {
        !self.mistakes.is_empty()
    }

    /// Returns the mistakes or, without mistakes, the notes, in the order of the texts and lines.
    pub(super) fn lines(&self) -> Vec<String> {
        let said = if self.has_mistakes() { &self.mistakes } else { &self.notes };
        let placed = said.iter().map(|(spot, sentence)| (spot, spot.line(), sentence));
        let mut placed: Vec<_> = placed.collect();
        placed.sort_by_key(|(spot, line, _)| (spot.text.number, *line));
        let shown = placed.into_iter().map(|(spot, line, sentence)| {
            let line = line.map(|line| format!(":{line}")).unwrap_or_default();
            format!("{}{line}: {sentence}", spot.text.shown)
        });
        shown.collect()
    }
}
