//! How to plan: whether the current assignment matters, and how much may move at once.

/// How to plan. The default keeps every job where it is unless balance needs it elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase", default, deny_unknown_fields))]
pub struct Rules {
    /// Whether jobs stay with their current holders.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "crate::wire::is_default"))]
    pub mode: Mode,
    /// How many voluntary moves one plan may make; `None` for as many as balance needs. A caller
    /// with moves still in flight subtracts them. Forced moves are never counted.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "crate::wire::is_default"))]
    pub moves_max: Option<usize>,
    /// By how many percent the parts of two workers that are reserved by shares may differ before
    /// jobs with a share move to make them alike; `None` for any: such jobs move only to make room.
    /// They move within the budget, before other jobs, in sticky mode only.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "crate::wire::is_default"))]
    pub share_tolerance: Option<u8>,
}

/// Whether jobs stay with their current holders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
pub enum Mode {
    /// Jobs stay where they are: the plan makes the fewest moves from what is held.
    #[default]
    Sticky,
    /// What is held has no effect: the same jobs and workers always give the same assignment. More
    /// jobs move when the pool changes.
    Canonical,
}
