//! What decisions of a session depend on, for simulators that must know equal states as equal.

use std::hash::{Hash, Hasher};

use super::{Pending, Phase, Session};
use crate::handover::{Ack, Lease, Moment};

impl Session {
    /// Feeds `hasher` with all that matters for what happens next: moments as distances from
    /// `now`, versions and numbers only as "is it the stored one". Two sessions that feed the same
    /// behave the same.
    pub fn digest<H: Hasher>(&self, now: Moment, stored: Option<&Lease>, hasher: &mut H) {
        let ahead = |moment: Moment| moment.since(now);
        self.phase_digest(now, hasher);
        (self.incarnation, self.seen, &self.granted, &self.runs).hash(hasher);
        (&self.finished, self.acked, self.has_lease, self.is_verified).hash(hasher);
        (stored.map(|lease| lease.version) == Some(self.lease)).hash(hasher);
        // Where the next renewal is always due, nothing depends on what the last one told.
        let told = |ack: &Ack, hasher: &mut H| {
            if !self.terms.renew.is_zero() {
                ack.hash(hasher);
            }
        };
        told(&self.told, hasher);
        (ahead(self.deadline), ahead(self.renew_at)).hash(hasher);
        (self.is_retry && now < self.renew_at).hash(hasher);
        if !self.has_lease {
            let is_first = |number: u64| number == 1;
            (is_first(self.writes), stored.map(|lease| is_first(lease.number))).hash(hasher);
        }
        if let Some(Pending { number, sent, holder, ack }) = &self.pending {
            let landed = stored.is_some_and(|lease| lease.number == *number);
            (landed, ahead(sent.after(self.terms.duration)), holder).hash(hasher);
            told(ack, hasher);
        }
    }

    fn phase_digest<H: Hasher>(&self, now: Moment, hasher: &mut H) {
        match self.phase {
            Phase::Open => 0_u64.hash(hasher),
            Phase::Draining(stop_at) => (1, stop_at.since(now)).hash(hasher),
            Phase::Closing => 2_u64.hash(hasher),
            Phase::Over => 3_u64.hash(hasher),
        }
        self.pending.is_some().hash(hasher);
    }
}
