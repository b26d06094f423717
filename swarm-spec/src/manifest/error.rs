//! Errors about the text of a manifest. Every message is a sentence for a person.

use std::error::Error;
use std::fmt;

use serde_json::Value;
use swarm_core::JobName;

use crate::error::SpecError;
use crate::place::{self, Place};
use crate::spec::API_VERSION;
use crate::yaml::{self, YamlError};

/// An error about the text of a manifest.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// A document is neither YAML nor JSON.
    #[error(transparent)]
    Syntax(#[from] YamlError),
    /// The text has no document.
    #[error(
        "no Swarm in it: it is empty or has only comments. A Swarm starts with `apiVersion: \
         {API_VERSION}` and `kind: Swarm`; for an empty list of jobs write `jobs: []`"
    )]
    Empty,
    /// No document is a Swarm.
    #[error("no Swarm in it; a Swarm starts with `apiVersion: {API_VERSION}` and `kind: Swarm`")]
    NoSwarm,
    /// The text has several Swarms, and none is selected by name.
    #[error("it holds the Swarms {}; say which one with --name", listed(found))]
    WhichSwarm {
        /// The names of the Swarms in the text.
        found: Vec<String>,
    },
    /// The selected Swarm does not exist.
    #[error("it holds no Swarm `{}`, only {}", wanted.escape_default(), listed(found))]
    NoSuchSwarm {
        /// The selected name.
        wanted: String,
        /// The names of the Swarms in the text.
        found: Vec<String>,
    },
    /// Two documents have the same kind and name.
    #[error("{kind} `{}` occurs twice, in documents {first} and {second}; remove one", name.escape_default())]
    Twice {
        /// The kind of the object.
        kind: String,
        /// The name of the object.
        name: String,
        /// The number of the first document, from 1.
        first: usize,
        /// The number of the second document.
        second: usize,
    },
    /// The Swarm has an API version that this program does not know.
    #[error(
        "Swarm in document {document} has apiVersion `{}`; write `{API_VERSION}`",
        found.escape_default()
    )]
    ApiVersion {
        /// The number of the document, from 1.
        document: usize,
        /// The API version in the text.
        found: String,
    },
    /// A field is unknown, missing or of the wrong type.
    #[error("Swarm `{}`: {reason}", swarm.escape_default())]
    Field {
        /// The name of the Swarm.
        swarm: String,
        /// A sentence that names the field.
        reason: String,
    },
    /// A value is invalid.
    #[error("Swarm `{}`", swarm.escape_default())]
    Spec {
        /// The name of the Swarm.
        swarm: String,
        /// The place, and the text to write instead.
        source: SpecError,
    },
    /// A source of jobs is missing.
    #[error("Swarm `{}`", swarm.escape_default())]
    NoSource {
        /// The name of the Swarm.
        swarm: String,
        /// The source, and the text to write instead.
        source: SpecError,
    },
    /// The sources of jobs exceed a limit.
    #[error("Swarm `{}`", swarm.escape_default())]
    SourcesTooLarge {
        /// The name of the Swarm.
        swarm: String,
        /// The source and the limit.
        source: SpecError,
    },
    /// Two jobs have the same name.
    #[error("job `{name}` occurs twice: {first} and {second}; remove one")]
    DuplicateJob {
        /// The name of the Swarm.
        swarm: String,
        /// The name of the job.
        name: JobName,
        /// The first place of the job.
        first: String,
        /// The second place of the job.
        second: String,
    },
}

impl ManifestError {
    /// The name of the Swarm that the error is about; `None` if it is about no Swarm, or about
    /// several.
    #[must_use]
    pub fn swarm(&self) -> Option<&str> {
        match self {
            Self::Field { swarm, .. }
            | Self::Spec { swarm, .. }
            | Self::NoSource { swarm, .. }
            | Self::SourcesTooLarge { swarm, .. }
            | Self::DuplicateJob { swarm, .. } => Some(swarm),
            Self::Syntax(_)
            | Self::Empty
            | Self::NoSwarm
            | Self::WhichSwarm { .. }
            | Self::NoSuchSwarm { .. }
            | Self::ApiVersion { .. }
            | Self::Twice { .. } => None,
        }
    }

    /// The place of the mistake in `text`, from which the manifest was read. `None` if it has no
    /// place, or is in another object than the Swarm. O(text).
    #[must_use]
    pub fn place(&self, text: &str) -> Option<Place> {
        match self {
            Self::Syntax(error) => error.source.place(),
            Self::ApiVersion { document, .. } => place::find(text, *document, "apiVersion"),
            Self::Field { swarm, reason } => {
                place::find(text, document_of(text, swarm)?, field_in(reason)?)
            }
            Self::Spec { swarm, source }
            | Self::NoSource { swarm, source }
            | Self::SourcesTooLarge { swarm, source } => {
                place::find(text, document_of(text, swarm)?, &source.place)
            }
            Self::DuplicateJob { swarm, second, .. } => {
                place::find(text, document_of(text, swarm)?, second)
            }
            Self::Empty
            | Self::NoSwarm
            | Self::WhichSwarm { .. }
            | Self::NoSuchSwarm { .. }
            | Self::Twice { .. } => None,
        }
    }

    /// The error for the author of `text`, which is in the file `shown`. It has the place as
    /// `FILE:LINE:COLUMN` if known, the reason, and the line itself if it exists.
    #[must_use]
    pub fn explained(&self, shown: &str, text: &str) -> Explained {
        let place = self.place(text);
        let at = place.map(|Place { line, column }| format!(":{line}:{column}"));
        Explained {
            sentence: format!("{shown}{}: {}", at.unwrap_or_default(), in_full(self)),
            excerpt: place.map(|place| place.shown_in(text)).filter(|excerpt| !excerpt.is_empty()),
        }
    }
}

/// A mistake in a file, for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// The place and the reason, in one line.
    pub sentence: String,
    /// The line of the file with a mark below the place, if the line exists.
    pub excerpt: Option<String>,
}

/// The sentence alone, for a mistake without a place in the file.
impl From<String> for Explained {
    fn from(sentence: String) -> Self {
        Self { sentence, excerpt: None }
    }
}

/// The sentence, and the line below it.
impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)?;
        self.excerpt.as_ref().map_or(Ok(()), |excerpt| write!(f, "\n{excerpt}"))
    }
}

/// An error with its causes, in one line.
#[must_use]
pub fn in_full(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// The path of the field in a message of the schema.
fn field_in(reason: &str) -> Option<&str> {
    let (_, rest) = reason.split_once("field `")?;
    rest.split_once('`').map(|(path, _)| path)
}

/// The number of the document with the Swarm `name`.
fn document_of(text: &str, name: &str) -> Option<usize> {
    let documents = yaml::documents(text).ok()?;
    let is_it = |(_, value): &&(usize, Value)| {
        value["kind"] == "Swarm" && value["metadata"]["name"].as_str().unwrap_or_default() == name
    };
    documents.iter().find(is_it).map(|(number, _)| *number)
}

fn listed(names: &[String]) -> String {
    let quoted = names.iter().map(|name| format!("`{}`", name.escape_default()));
    quoted.collect::<Vec<_>>().join(", ")
}
