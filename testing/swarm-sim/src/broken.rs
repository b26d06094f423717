//! The operator's rules, each as it is carried out with the rule in force, and with it broken.
//!
//! A worker's rules are broken inside its session, by [`Session::without`]. Those of operators need
//! no switch in what is shipped: an operator that breaks one is given false evidence.
//!
//! [`Session::without`]: swarm_core::session::Session::without

use swarm_core::handover::{Cells, Evidence, Lease, LeaseVersion, Rule, Save};

use crate::Bounds;

impl Bounds {
    /// What a revocation of the version that was `seen` makes of the `stored` Lease; `None` if it is
    /// refused. What is stored may stay as it is, and the operator believe that it was revoked.
    pub(crate) fn revoked(
        &self,
        stored: Option<&Lease>,
        seen: LeaseVersion,
        next: LeaseVersion,
    ) -> Option<Lease> {
        let stored = stored?;
        if !self.keeps(Rule::RevokeBeforeFence) {
            return Some(stored.clone());
        }
        let at = if self.keeps(Rule::RevokeAtSeenVersion) { seen } else { stored.version };
        stored.revoke(at, next).ok()
    }

    /// Takes a session for one that has acknowledged everything, unless the rule is in force.
    pub(crate) fn believe(&self, evidence: &mut Evidence) {
        if !self.keeps(Rule::AckBeforeGrant) {
            evidence.acked = u64::MAX;
        }
    }

    /// What a write makes of the `stored` ledger; `None` if it is refused.
    pub(crate) fn saved(&self, stored: &Cells, save: &Save) -> Option<Cells> {
        if self.keeps(Rule::CompareAndSet) {
            return save.onto(stored).ok();
        }
        Some(save.next.clone())
    }
}
