//! The workers that a job avoids.

use std::collections::BTreeSet;

use crate::Slot;

/// The workers on which a job failed within the last hour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relocation {
    /// The slot where the job first failed. The plan for the other jobs counts the job there, so
    /// no other job moves because of its failures.
    pub home: Slot,
    /// The slots that the job avoids.
    pub failed_on: BTreeSet<Slot>,
}
