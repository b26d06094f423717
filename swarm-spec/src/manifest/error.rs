//! Why a text is not a usable manifest. Every message is a sentence for a person.

use std::error::Error;
use std::fmt;

use serde_json::Value;
use swarm_core::JobName;

use crate::error::SpecError;
use crate::place::{self, Place};
use crate::spec::API_VERSION;
use crate::yaml::{self, YamlError};

/// Why a text is not a usable manifest.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// A document is neither YAML nor JSON.
    #[error(transparent)]
    Syntax(#[from] YamlError),
    /// It has no document.
    #[error(
        "no Swarm in it: it is empty or has only comments. A Swarm starts with `apiVersion: \
         {API_VERSION}` and `kind: Swarm`; for an empty list of jobs write `jobs: []`"
    )]
    Empty,
    /// No document is a Swarm.
    #[error("no Swarm in it; a Swarm starts with `apiVersion: {API_VERSION}` and `kind: Swarm`")]
    NoSwarm,
    /// It is not said which of several Swarms is meant.
    #[error("it holds the Swarms {}; say which one with --name", listed(found))]
    WhichSwarm {
        /// Those that are there.
        found: Vec<String>,
    },
    /// The Swarm asked for is not there.
    #[error("it holds no Swarm `{}`, only {}", wanted.escape_default(), listed(found))]
    NoSuchSwarm {
        /// The one asked for.
        wanted: String,
        /// Those that are there.
        found: Vec<String>,
    },
    /// Two documents are the same object.
    #[error("{kind} `{}` occurs twice, in documents {first} and {second}; remove one", name.escape_default())]
    Twice {
        /// What it is.
        kind: String,
        /// Its name.
        name: String,
        /// Which document of the file it is first, from 1.
        first: usize,
        /// Which document it is again.
        second: usize,
    },
    /// The Swarm is of an API version that this program does not know.
    #[error(
        "Swarm in document {document} has apiVersion `{}`; write `{API_VERSION}`",
        found.escape_default()
    )]
    ApiVersion {
        /// Which document of the file, from 1.
        document: usize,
        /// What stands there.
        found: String,
    },
    /// A field is unknown, missing or of the wrong type.
    #[error("Swarm `{}`: {reason}", swarm.escape_default())]
    Field {
        /// Which Swarm.
        swarm: String,
        /// A sentence that names the field.
        reason: String,
    },
    /// A value makes no sense.
    #[error("Swarm `{}`", swarm.escape_default())]
    Spec {
        /// Which Swarm.
        swarm: String,
        /// Where, and what to write instead.
        source: SpecError,
    },
    /// A source of jobs is not there.
    #[error("Swarm `{}`", swarm.escape_default())]
    NoSource {
        /// Which Swarm.
        swarm: String,
        /// Which source, and what to write instead.
        source: SpecError,
    },
    /// The sources of jobs hold more than is read.
    #[error("Swarm `{}`", swarm.escape_default())]
    SourcesTooLarge {
        /// Which Swarm.
        swarm: String,
        /// Which source goes beyond which limit.
        source: SpecError,
    },
    /// Two entries have the same name.
    #[error("job `{name}` occurs twice: {first} and {second}; remove one")]
    DuplicateJob {
        /// Which Swarm.
        swarm: String,
        /// The name.
        name: JobName,
        /// Where it stands first.
        first: String,
        /// Where it stands again.
        second: String,
    },
}

impl ManifestError {
    /// Returns the name of the Swarm that the error is about; `None` if it is about none, or about several.
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

    /// Where in `text`, from which the manifest was read, something is wrong; `None` if it is nowhere,
    /// or in another object than the Swarm. O(text).
    #[must_use]
    pub fn place(&self, text: &str) -> Option<Place> {
        match self {
            Self::Syntax(error) => place::place_of(&error.source),
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

    /// The error for whoever wrote `text` into the file `shown`: where, as `FILE:LINE:COLUMN` if that is
    /// known, and why; and the line itself, if there is one.
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

/// What is wrong with a file, for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// Where and why, in one line.
    pub sentence: String,
    /// The line of the file, and a mark below the place, if there is one.
    pub excerpt: Option<String>,
}

/// The sentence alone, for what stands nowhere in the file.
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

/// The field that a sentence about the schema names.
fn field_in(reason: &str) -> Option<&str> {
    let (_, rest) = reason.split_once("field `")?;
    rest.split_once('`').map(|(path, _)| path)
}

/// Which document is the Swarm called `name`.
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
