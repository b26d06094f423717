//! Numbers that only rise: the tokens of a job's grants, and the changes of a ledger.

/// A job's fencing token: it rises with every grant, and no value is reused.
///
/// It protects a sink only if the sink remembers the highest token it saw and refuses lower ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct Token(pub u64);

/// A place in the history of a ledger. A later incarnation is later than any revision of an earlier
/// one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
pub struct Position {
    /// The incarnation. It rises each time the ledger is recreated, after it was lost or rolled
    /// back.
    pub incarnation: u64,
    /// The number of changes in this incarnation.
    pub revision: u64,
}
