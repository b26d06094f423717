//! Why a text is not a usable manifest. Every message is a sentence for a person.

use swarm_core::JobName;

use crate::convert::SpecError;
use crate::spec::API_VERSION;
use crate::yaml::YamlError;

/// Why a text is not a usable manifest.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// A document is neither YAML nor JSON.
    #[error(transparent)]
    Syntax(#[from] YamlError),
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
    #[error("{kind} `{}` stands twice, in documents {first} and {second}; remove one", name.escape_default())]
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
    /// Two entries have the same name.
    #[error("job `{name}` stands twice: {first} and {second}; remove one")]
    DuplicateJob {
        /// The name.
        name: JobName,
        /// Where it stands first.
        first: String,
        /// Where it stands again.
        second: String,
    },
}

fn listed(names: &[String]) -> String {
    let quoted = names.iter().map(|name| format!("`{}`", name.escape_default()));
    quoted.collect::<Vec<_>>().join(", ")
}
