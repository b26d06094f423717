//! Errors about a spec.

/// An invalid value in a spec, as one sentence that names its place.
///
/// The schema of a cluster refuses most of these values earlier. This error covers schemas of older
/// versions, and manifests that are read without a schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {reason}")]
pub struct SpecError {
    /// The path of the field in the spec.
    pub place: String,
    /// The mistake, and the text to write instead.
    pub reason: String,
}
