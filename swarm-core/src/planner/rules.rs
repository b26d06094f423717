//! How to plan: what is kept of the past, and how much may move at once.

/// How to plan. The default keeps every job where it is unless balance needs it elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// What the past counts for.
    pub mode: Mode,
    /// How many voluntary moves one plan may make; `None` for as many as balance needs. Whoever
    /// still has moves under way takes them off. Forced moves are never counted.
    pub moves_max: Option<usize>,
}

/// What the past counts for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The fewest moves from what is held.
    #[default]
    Sticky,
    /// No memory: the same jobs and workers give the same assignment, whatever was held before.
    /// Costs more moves when the pool changes.
    Canonical,
}
