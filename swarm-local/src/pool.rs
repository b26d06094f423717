//! The turns of a pool: what acts in them, what they observe, and what they report.

pub(crate) mod by_hand;
pub(crate) mod earlier;
pub(crate) mod ending;
pub(crate) mod events;
mod failures;
pub(crate) mod history;
pub(crate) mod lives;
pub(crate) mod operate;
pub(crate) mod outlets;
mod pool_views;
mod sessions;
pub(crate) mod snapshot;
pub(crate) mod until;
