//! The text of a plan, which may come from several files, and the file and line of its errors.

use swarm_spec::convert::Home;
use swarm_spec::manifest::{self, Explained, Location, Manifest, ManifestError};
use swarm_spec::yaml::{self, Document};

/// One or several texts, and their name for error messages.
#[derive(Clone, Debug)]
pub struct Source {
    /// The name for error messages.
    pub shown: String,
    /// The text; empty if there are several.
    pub text: String,
    /// The texts, if there are several.
    parts: Vec<Part>,
}

/// One of several texts.
#[derive(Clone, Debug)]
pub struct Part {
    /// Its name for error messages.
    pub shown: String,
    /// The text.
    pub text: String,
    /// Whether the author knows the lines of the text.
    pub lines: Lines,
}

/// Whether line numbers of a text help its author.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lines {
    /// The author wrote the lines, or can print them.
    Known,
    /// A program wrote the lines.
    Unknown,
}

impl Source {
    /// Makes a source of one text.
    pub fn of(shown: impl Into<String>, text: impl Into<String>) -> Self {
        let (shown, text) = (shown.into(), text.into());
        Self { shown, text, parts: Vec::new() }
    }

    /// Joins several texts as one source called `shown`. Returns also notes about documents that are
    /// left out.
    ///
    /// # Errors
    ///
    /// The error of the text that does not parse.
    pub fn joined(shown: String, parts: Vec<Part>) -> Result<(Self, Vec<String>), Explained> {
        if let [Part { shown: only, text, lines: Lines::Known }] = parts.as_slice()
            && *only == shown
        {
            return Ok((Self::of(shown, text), Vec::new()));
        }
        let mut notes = Vec::new();
        for part in &parts {
            for document in part.documents().map_err(|error| part.explained(&error))? {
                if !has_kind(&document) {
                    let (shown, number) = (&part.shown, document.number);
                    notes.push(format!(
                        "{shown}: document {number}, which has no kind, is passed over"
                    ));
                }
            }
        }
        Ok((Self { shown, text: String::new(), parts }, notes))
    }

    /// Reads the manifest of the Swarm `name`, or of the only Swarm, for `home`.
    ///
    /// # Errors
    ///
    /// If the texts have no such Swarm, or it is invalid.
    pub fn manifest(
        &self,
        name: Option<&str>,
        namespace: Option<&str>,
        home: Home,
    ) -> Result<Manifest, ManifestError> {
        if self.parts.is_empty() {
            return manifest::parse_in(&self.text, name, namespace, home);
        }
        let documents = self.documents()?.into_iter().map(|(_, document)| document).collect();
        manifest::parse_documents(documents, name, namespace, home)
    }

    /// Returns the objects of all texts, each Swarm in its long form.
    ///
    /// # Errors
    ///
    /// The error of a text that does not parse, or of a Swarm with two forms of one field.
    pub fn objects(&self) -> Result<Vec<serde_json::Value>, ManifestError> {
        let documents = if self.parts.is_empty() {
            yaml::manifests(&self.text)?.into_iter().filter(has_kind).collect()
        } else {
            self.documents()?.into_iter().map(|(_, document)| document).collect::<Vec<_>>()
        };
        manifest::objects(documents)
    }

    /// The documents of all texts that have a kind, with the text that each is in.
    fn documents(&self) -> Result<Vec<(&Part, Document<'_>)>, ManifestError> {
        let mut all = Vec::new();
        for part in &self.parts {
            let documents = part.documents()?.into_iter().filter(has_kind);
            all.extend(documents.map(|document| (part, document)));
        }
        Ok(all)
    }

    /// Explains an error, with its file and line if known. `shown` names all files together.
    #[must_use]
    pub fn explained(&self, error: &ManifestError, shown: &str) -> Explained {
        if self.parts.is_empty() {
            return error.explained(shown, &self.text);
        }
        let documents = self.documents().unwrap_or_default();
        let part = |at: &Location| documents.get(at.index()).map(|(part, _)| *part);
        if let ManifestError::Twice { kind, name, first, second } = error
            && let Some((one, other)) = part(first).zip(part(second))
        {
            return format!(
                "{kind} `{}` occurs twice: {}, document {}, and {}, document {}; remove one",
                name.escape_default(),
                one.shown,
                first.document(),
                other.shown,
                second.document()
            )
            .into();
        }
        error.explained_in(&|at| match at.and_then(part) {
            Some(part) => (part.shown.as_str(), part.own_text()),
            None => (shown, ""),
        })
    }
}

fn has_kind(document: &Document<'_>) -> bool {
    document.value.get("kind").is_some()
}

impl Part {
    fn documents(&self) -> Result<Vec<Document<'_>>, ManifestError> {
        Ok(yaml::manifests(&self.text)?)
    }

    fn explained(&self, error: &ManifestError) -> Explained {
        error.explained(&self.shown, self.own_text())
    }

    /// Returns the text if its line numbers help the author, and an empty text if not.
    fn own_text(&self) -> &str {
        match self.lines {
            Lines::Known => &self.text,
            Lines::Unknown => "",
        }
    }
}
