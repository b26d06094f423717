//! The states that watches keep of sessions, besides turns: their Leases, their views, and the pods that
//! have ended.

use super::ended::Ended;
use super::leases::Leases;
use super::views::Views;

/// All of it.
#[derive(Default)]
pub(crate) struct SeenSessions {
    pub(crate) leases: Leases,
    pub(crate) views: Views,
    pub(crate) ended: Ended,
}
