//! Errors about the text of a manifest. Every message is a sentence for a person.

use std::error::Error;
use std::fmt;

use swarm_core::JobName;

use super::location::Location;
use crate::error::{Mistakes, SpecError};
use crate::foreign::Foreign;
use crate::place::{self, Place};
use crate::schema::field_in;
use crate::spec::API_VERSION;
use crate::yaml::{self, Document, Unreadable, YamlError};

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
    #[error(
        "{kind} `{}` occurs twice, in documents {} and {}; remove one",
        name.escape_default(), first.document, second.document
    )]
    Twice {
        /// The kind of the object.
        kind: String,
        /// The name of the object.
        name: String,
        /// The location of the first object.
        first: Box<Location>,
        /// The location of the second object.
        second: Box<Location>,
    },
    /// The Swarm has an API version that this program does not know.
    #[error(
        "Swarm in document {} has apiVersion `{}`; write `{API_VERSION}`",
        at.document, found.escape_default()
    )]
    ApiVersion {
        /// The location of the API version.
        at: Box<Location>,
        /// The API version in the text.
        found: String,
    },
    /// A key is another text in Kubernetes than in the file.
    #[error("document {} has a key that changes", at.document)]
    RenamedKey {
        /// The location of the object with the key.
        at: Box<Location>,
        /// The key, and the text to write instead.
        source: Unreadable,
    },
    /// A field is unknown, missing or of the wrong type.
    #[error("Swarm `{}`: {reason}", swarm.escape_default())]
    Field {
        /// The name of the Swarm.
        swarm: String,
        /// The location of the field, if known.
        at: Option<Box<Location>>,
        /// A sentence that names the field.
        reason: String,
    },
    /// A value is invalid.
    #[error("Swarm `{}`", swarm.escape_default())]
    Spec {
        /// The name of the Swarm.
        swarm: String,
        /// The location of the value, if known.
        at: Option<Box<Location>>,
        /// The place, and the text to write instead.
        source: SpecError,
    },
    /// A source of jobs is missing.
    #[error("Swarm `{}`", swarm.escape_default())]
    NoSource {
        /// The name of the Swarm.
        swarm: String,
        /// The location of the value, if known.
        at: Option<Box<Location>>,
        /// The source, and the text to write instead.
        source: SpecError,
    },
    /// The sources of jobs exceed a limit.
    #[error("Swarm `{}`", swarm.escape_default())]
    SourcesTooLarge {
        /// The name of the Swarm.
        swarm: String,
        /// The location of the value, if known.
        at: Option<Box<Location>>,
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
        /// The location of the second place, if known.
        at: Option<Box<Location>>,
    },
    /// Several mistakes of one kind.
    #[error("{}", one_line(mistakes, *more))]
    Several {
        /// The first mistakes, at least one.
        mistakes: Vec<ManifestError>,
        /// The number of further mistakes.
        more: usize,
    },
}

impl Mistakes<ManifestError> {
    /// One error for all mistakes, if there are any.
    pub(super) fn check(&mut self) -> Result<(), ManifestError> {
        let (mut mistakes, more) = std::mem::take(self).into_parts();
        match mistakes.pop() {
            None => Ok(()),
            Some(only) if mistakes.is_empty() => Err(only),
            Some(last) => {
                mistakes.push(last);
                Err(ManifestError::Several { mistakes, more })
            }
        }
    }
}

/// All mistakes in one line.
fn one_line(mistakes: &[ManifestError], more: usize) -> String {
    let mut sentences: Vec<_> = mistakes.iter().map(|mistake| in_full(mistake)).collect();
    if 0 < more {
        sentences.push(further(more));
    }
    sentences.join("; ")
}

fn further(more: usize) -> String {
    let s = if more == 1 { "" } else { "s" };
    format!("and {more} more mistake{s} of this kind")
}

impl ManifestError {
    /// The error at another location.
    pub(super) fn at(mut self, location: Location) -> Self {
        if let Self::Field { at, .. }
        | Self::Spec { at, .. }
        | Self::NoSource { at, .. }
        | Self::SourcesTooLarge { at, .. }
        | Self::DuplicateJob { at, .. } = &mut self
        {
            *at = Some(Box::new(location));
        }
        self
    }

    /// The name of the Swarm that the error is about; `None` if it is about no Swarm, or about
    /// several.
    #[must_use]
    pub fn swarm(&self) -> Option<&str> {
        match self {
            Self::Several { mistakes, .. } => mistakes.first()?.swarm(),
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
            | Self::RenamedKey { .. }
            | Self::Twice { .. } => None,
        }
    }

    /// The location of the mistake, if it is in one document.
    #[must_use]
    pub fn location(&self) -> Option<&Location> {
        match self {
            Self::Several { mistakes, .. } => mistakes.first()?.location(),
            Self::ApiVersion { at, .. } | Self::RenamedKey { at, .. } => Some(at),
            Self::Field { at, .. }
            | Self::Spec { at, .. }
            | Self::NoSource { at, .. }
            | Self::SourcesTooLarge { at, .. }
            | Self::DuplicateJob { at, .. } => at.as_deref(),
            Self::Syntax(_)
            | Self::Empty
            | Self::NoSwarm
            | Self::WhichSwarm { .. }
            | Self::NoSuchSwarm { .. }
            | Self::Twice { .. } => None,
        }
    }

    /// The error with the location of its field in the Swarm, unless it has a location.
    pub(super) fn in_swarm(mut self, located: &dyn Fn(&str) -> Location) -> Self {
        match &mut self {
            Self::Several { mistakes, .. } => {
                let all = std::mem::take(mistakes).into_iter();
                *mistakes = all.map(|mistake| mistake.in_swarm(located)).collect();
            }
            Self::Field { at: at @ None, reason, .. } => {
                *at = field_in(reason).map(|path| Box::new(located(path)));
            }
            Self::Spec { at: at @ None, source, .. }
            | Self::NoSource { at: at @ None, source, .. }
            | Self::SourcesTooLarge { at: at @ None, source, .. } => {
                *at = Some(Box::new(located(&source.place)));
            }
            Self::DuplicateJob { at: at @ None, second, .. } => {
                *at = Some(Box::new(located(second)));
            }
            _ => {}
        }
        self
    }

    /// The place of the mistake in `text`, from which the manifest was read. `None` if it has no
    /// place. O(text).
    #[must_use]
    pub fn place(&self, text: &str) -> Option<Place> {
        match self {
            Self::Syntax(error) => error.source.place(),
            Self::RenamedKey { source, .. } => source.place(),
            Self::Spec { swarm, at: None, source } => {
                place::find(text, document_of(text, swarm)?, &source.place)
            }
            _ => self.location()?.find(text),
        }
    }

    /// The error for the author of `text`, which is in the file `shown`. It has the place as
    /// `FILE:LINE:COLUMN` if known, the reason, and the line itself if it exists.
    #[must_use]
    pub fn explained(&self, shown: &str, text: &str) -> Explained {
        self.explained_in(&|_| (shown, text))
    }

    /// Works like [`explained`](Self::explained), for documents of several texts: `file` has the
    /// name and the text for a location.
    pub fn explained_in<'t>(
        &self,
        file: &dyn Fn(Option<&Location>) -> (&'t str, &'t str),
    ) -> Explained {
        match self {
            Self::Several { mistakes, more } => {
                let all = mistakes.iter().map(|mistake| mistake.explained_in(file));
                Explained::together(all.collect(), *more)
            }
            _ => self.alone(file(self.location())),
        }
    }

    fn alone(&self, (shown, text): (&str, &str)) -> Explained {
        let may_be_foreign = matches!(self, Self::Syntax(_) | Self::Empty | Self::NoSwarm);
        if let Some(foreign) = may_be_foreign.then(|| Foreign::of(shown, text)).flatten() {
            return Explained::from(format!("{shown}: {}", foreign.advice()));
        }
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

impl Explained {
    /// Several mistakes as one: below the line of the first are the others.
    fn together(all: Vec<Self>, more: usize) -> Self {
        let mut all = all.into_iter();
        let Some(Self { sentence, excerpt }) = all.next() else {
            return Self::from(further(more));
        };
        let mut below: Vec<_> = excerpt.into_iter().collect();
        below.extend(all.map(|explained| explained.to_string()));
        below.extend(Some(further(more)).filter(|_| 0 < more));
        Self { sentence, excerpt: Some(below.join("\n")) }
    }
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

/// The number of the document with the Swarm `name`.
fn document_of(text: &str, name: &str) -> Option<usize> {
    let documents = yaml::manifests(text).ok()?;
    let is_it = |Document { value, .. }: &&Document<'_>| {
        value["kind"] == "Swarm" && value["metadata"]["name"].as_str().unwrap_or_default() == name
    };
    documents.iter().find(is_it).map(|document| document.number)
}

fn listed(names: &[String]) -> String {
    let quoted = names.iter().map(|name| format!("`{}`", name.escape_default()));
    quoted.collect::<Vec<_>>().join(", ")
}
