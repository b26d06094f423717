//! The states of sessions that watches keep in addition to turns: Leases, views, and ended pods.

use super::ended::Ended;
use super::leases::Leases;
use super::views::Views;

/// The states of all sessions.
#[derive(Default)]
pub(crate) struct SeenSessions {
    pub(crate) leases: Leases,
    pub(crate) views: Views,
    pub(crate) ended: Ended,
}
