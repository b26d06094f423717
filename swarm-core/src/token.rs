//! The numbers that only grow: of the grants of a job, and of the changes of a ledger.

/// A job's fencing token: higher at every grant, never reused.
///
/// It protects a sink only if the sink remembers the highest token it saw and refuses lower ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct Token(pub u64);

/// A place in the history of a ledger. A later incarnation is later than any revision of one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
pub struct Position {
    /// Higher each time the ledger is recreated, after it was lost or rolled back.
    pub incarnation: u64,
    /// The number of changes in this incarnation.
    pub revision: u64,
}
