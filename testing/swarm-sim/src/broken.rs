//! The operator's rules, each as it is carried out with the rule in force, and with it broken.
//!
//! A worker's rules are broken inside its session, by [`Session::without`]. Those of operators need
//! no switch in what is shipped: an operator that breaks one is given false evidence.
//!
//! [`Session::without`]: swarm_core::session::Session::without

use swarm_core::handover::{Cells, Evidence, Lease, LeaseVersion, Rule, Save, SessionId};
use swarm_core::overseer::Proofs;

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

    /// Makes an operator believe too much of a session, unless the rules are in force. The session
    /// counts as having acknowledged everything, or as much as its Lease says of any incarnation.
    /// Or it counts as having ended all jobs that it names.
    pub(crate) fn believe(&self, session: &SessionId, proofs: &Proofs, evidence: &mut Evidence) {
        if !self.keeps(Rule::AckBeforeGrant) {
            evidence.acked = u64::MAX;
        }
        if !self.keeps(Rule::HoldTheNamed) {
            evidence.stopping.jobs.clear();
        }
        if !self.keeps(Rule::AckOfThisIncarnation)
            && let Some(watch) = proofs.get(session)
        {
            evidence.stopping = watch.ack.stopping.clone();
        }
    }

    /// Forgets the proofs of a session when an operator reads its Lease, unless the rule is in
    /// force.
    pub(crate) fn forget(&self, session: &SessionId, proofs: &mut Proofs) {
        if !self.keeps(Rule::KeepWhatIsProved) {
            proofs.retain(|it| it != session, |_| true);
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
