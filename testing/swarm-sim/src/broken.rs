//! The operator's rules, each with the rule in force and with the rule broken.
//!
//! A worker's rules are broken inside its session, by [`Session::without`]. The operator's rules
//! need no switch in the shipped code: an operator that breaks a rule receives false evidence.
//!
//! [`Session::without`]: swarm_core::session::Session::without

use swarm_core::handover::{Cells, Evidence, Lease, LeaseVersion, Rule, Save, SessionId};
use swarm_core::overseer::Proofs;

use crate::Bounds;

impl Bounds {
    /// The `stored` Lease after a revocation of the version that was `seen`; `None` if the
    /// revocation is refused. With a rule broken, the stored Lease may stay unchanged while the
    /// operator believes that it was revoked.
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

    /// Makes an operator believe too much about a session, unless the rules are in force. The
    /// session counts as having acknowledged everything, or as much as its Lease shows for any
    /// incarnation. Or it counts as having ended all jobs that it names.
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

    /// The ledger after a write over the `stored` ledger; `None` if the write is refused.
    pub(crate) fn saved(&self, stored: &Cells, save: &Save) -> Option<Cells> {
        if self.keeps(Rule::CompareAndSet) {
            return save.onto(stored).ok();
        }
        Some(save.next.clone())
    }
}
