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

/// The most mistakes that are shown at once.
const MISTAKES_MAX: usize = 10;

/// Mistakes of one kind. Only the first ones are kept.
#[derive(Debug)]
pub(crate) struct Mistakes<T> {
    first: Vec<T>,
    more: usize,
}

impl<T> Default for Mistakes<T> {
    fn default() -> Self {
        Self { first: Vec::new(), more: 0 }
    }
}

impl<T> Mistakes<T> {
    /// Adds a mistake. It is made only if it is kept.
    pub(crate) fn push(&mut self, mistake: impl FnOnce() -> T) {
        if self.is_full() {
            self.more += 1;
        } else {
            self.first.push(mistake());
        }
    }

    /// Whether a further mistake is only counted.
    pub(crate) fn is_full(&self) -> bool {
        MISTAKES_MAX <= self.first.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    /// The same mistakes in another form.
    pub(crate) fn map<U>(self, form: impl Fn(T) -> U) -> Mistakes<U> {
        Mistakes { first: self.first.into_iter().map(form).collect(), more: self.more }
    }

    /// The first mistakes, and the number of further ones.
    pub(crate) fn into_parts(self) -> (Vec<T>, usize) {
        (self.first, self.more)
    }
}
