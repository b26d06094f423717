//! What each session is to run, as an object of its own: written where it says anything new, and put
//! right where somebody deleted or edited it.
//!
//! Views are watched by their metadata. What they say stands in an annotation in short; a manager of
//! their fields other than the operator means that they were edited.

mod book;
mod write;

pub(super) use book::Views;
pub(super) use write::PoolViews;
