//! The text of a plan, which may come from several files, and the file and line of its errors.

use swarm_spec::manifest::{Explained, ManifestError};
use swarm_spec::yaml;

/// A text, and its name for error messages.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) shown: String,
    pub(crate) text: String,
    /// The texts, if there are several.
    parts: Vec<Part>,
    /// For each document, the index of its text and its number in that text.
    places: Vec<(usize, usize)>,
}

/// One of several texts.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// Its name for error messages.
    pub(crate) shown: String,
    pub(crate) text: String,
    /// Whether the author knows the lines of the text.
    pub(crate) lines: Lines,
}

/// Whether line numbers of a text help its author.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lines {
    /// The author wrote the lines, or can print them.
    Known,
    /// A program wrote the lines.
    Unknown,
}

impl Source {
    /// Makes a source of one text.
    pub(crate) fn of(shown: impl Into<String>, text: impl Into<String>) -> Self {
        let (shown, text) = (shown.into(), text.into());
        Self { shown, text, parts: Vec::new(), places: Vec::new() }
    }

    /// Joins several texts as one source called `shown`. Returns also notes about documents that are
    /// left out. Each text is parsed alone first, so that an error names its file.
    ///
    /// # Errors
    ///
    /// The error of the text that does not parse.
    pub(crate) fn joined(
        shown: String,
        parts: Vec<Part>,
    ) -> Result<(Self, Vec<String>), Explained> {
        if let [Part { shown: only, text, lines: Lines::Known }] = parts.as_slice()
            && *only == shown
        {
            return Ok((Self::of(shown, text), Vec::new()));
        }
        let (mut text, mut places, mut notes) = (String::new(), Vec::new(), Vec::new());
        for (index, part) in parts.iter().enumerate() {
            let read = yaml::documents(&part.text);
            let documents = read.map_err(|error| {
                ManifestError::from(error).explained(&part.shown, part.own_text())
            })?;
            for (number, document) in documents {
                if document.get("kind").is_none() {
                    let shown = &part.shown;
                    notes.push(format!(
                        "{shown}: document {number}, which has no kind, is passed over"
                    ));
                    continue;
                }
                places.push((index, number));
                text.extend(["---\n", &document.to_string(), "\n"]);
            }
        }
        Ok((Self { shown, text, parts, places }, notes))
    }

    /// Explains an error, with its file and line if known. `shown` names all files together.
    pub(crate) fn explained(&self, error: &ManifestError, shown: &str) -> Explained {
        if self.parts.is_empty() {
            return error.explained(shown, &self.text);
        }
        let place = |document: usize| {
            let (index, number) = *self.places.get(document.checked_sub(1)?)?;
            Some((self.parts.get(index)?, number))
        };
        match error {
            ManifestError::ApiVersion { document, found } => {
                if let Some((part, document)) = place(*document) {
                    let error = ManifestError::ApiVersion { document, found: found.clone() };
                    return error.explained(&part.shown, part.own_text());
                }
            }
            ManifestError::Twice { kind, name, first, second } => {
                if let Some(((first, one), (second, other))) = place(*first).zip(place(*second)) {
                    let name = name.escape_default();
                    return format!(
                        "{kind} `{name}` occurs twice: {}, document {one}, and {}, document {other}; \
                         remove one",
                        first.shown, second.shown
                    )
                    .into();
                }
            }
            _ => {
                let swarm = error.swarm();
                let holds = |part: &&Part| swarm.is_some_and(|name| part.holds(name));
                if let Some(part) = self.parts.iter().find(holds) {
                    return error.explained(&part.shown, part.own_text());
                }
            }
        }
        error.explained(shown, "")
    }
}

impl Part {
    /// Returns the text if its line numbers help the author, and an empty text if not.
    fn own_text(&self) -> &str {
        match self.lines {
            Lines::Known => &self.text,
            Lines::Unknown => "",
        }
    }

    /// Whether the text contains a Swarm of this name.
    fn holds(&self, swarm: &str) -> bool {
        let documents = yaml::documents(&self.text).unwrap_or_default();
        documents.iter().any(|(_, value)| {
            value["kind"] == "Swarm" && value["metadata"]["name"].as_str() == Some(swarm)
        })
    }
}
