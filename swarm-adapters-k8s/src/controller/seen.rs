//! What watches show of sessions, by the side of turns: their Leases, their views, and the pods that
//! have ended.

mod ended;
mod leases;
mod views;

pub(super) use ended::{Ended, has_terminated};
#[cfg(test)]
pub(super) use leases::tests;
pub(super) use leases::{Known, Leases, Named};
pub(super) use views::{Views, to_text};

/// All of it.
#[derive(Default)]
pub(super) struct SeenSessions {
    pub(super) leases: Leases,
    pub(super) views: Views,
    pub(super) ended: Ended,
}
