//! How to plan: whether the current assignment matters, and how much may move at once.

/// How to plan. The default keeps every job where it is unless balance needs it elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Whether jobs stay with their current holders.
    pub mode: Mode,
    /// How many voluntary moves one plan may make; `None` for as many as balance needs. A caller
    /// with moves still in flight subtracts them. Forced moves are never counted.
    pub moves_max: Option<usize>,
}

/// Whether jobs stay with their current holders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Jobs stay where they are: the plan makes the fewest moves from what is held.
    #[default]
    Sticky,
    /// What is held has no effect: the same jobs and workers always give the same assignment. More
    /// jobs move when the pool changes.
    Canonical,
}
