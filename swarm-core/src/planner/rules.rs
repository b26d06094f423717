//! The rules of planning: whether the present assignment matters, and how much may move at once.

/// The rules of planning. By default every job stays where it is unless balance needs it elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase", default, deny_unknown_fields))]
pub struct Rules {
    /// Whether jobs stay with their current holders.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "crate::wire::is_default"))]
    pub mode: Mode,
    /// The largest number of voluntary moves in one plan; `None` for as many as balance needs. A
    /// caller with moves still in flight subtracts them. Forced moves never count.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "crate::wire::is_default"))]
    pub moves_max: Option<usize>,
    /// The tolerated difference between the reserved parts of two workers, in percent. Beyond it,
    /// jobs with a share move to level these parts, within the budget, before other jobs, in sticky
    /// mode only. `None` tolerates any difference: such jobs move only to make room.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "crate::wire::is_default"))]
    pub share_tolerance: Option<u8>,
}

/// Whether jobs stay with their current holders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
pub enum Mode {
    /// Jobs stay where they are: the plan makes the fewest moves from the present assignment.
    #[default]
    Sticky,
    /// The present assignment has no effect: the same jobs and workers always give the same plan.
    /// More jobs move when the pool changes.
    Canonical,
}
