//! Errors about a spec.

/// Why a spec makes no sense, in one sentence that names the place.
///
/// A cluster's schema refuses most of it before; this is for schemas that are older than this
/// program, and for manifests that are read without one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {reason}")]
pub struct SpecError {
    /// Which part of the spec, as a path.
    pub place: String,
    /// What is wrong with it, and what to write instead.
    pub reason: String,
}
