//! The place of a worker in its pool.

use std::fmt;

/// The place that a worker fills in its pool; the ordinal of a StatefulSet pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct Slot(pub u32);

impl Slot {
    /// The value for "no slot" in arrays that have an entry for every job. No worker can fill it: a
    /// member of the pool in this slot is ignored.
    pub const NOBODY: Self = Self(u32::MAX);

    /// Returns the slot, or `None` for [`NOBODY`](Self::NOBODY).
    ///
    /// ```
    /// use swarm_core::Slot;
    ///
    /// assert_eq!(Slot(3).some(), Some(Slot(3)));
    /// assert_eq!(Slot::NOBODY.some(), None);
    /// ```
    #[must_use]
    pub fn some(self) -> Option<Self> {
        (self != Self::NOBODY).then_some(self)
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
