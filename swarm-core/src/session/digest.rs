//! A digest of the state that a session's decisions depend on, so that simulators recognise equal
//! states.

use std::hash::{Hash, Hasher};

use super::{Pending, Phase, Session};
use crate::handover::{Ack, Lease, Moment};

impl Session {
    /// Feeds `hasher` with everything that the next decisions depend on. Moments count as distances
    /// from `now`. Versions and numbers count only as "equal to the stored one". Two sessions with
    /// equal digests behave the same.
    pub fn digest<H: Hasher>(&self, now: Moment, stored: Option<&Lease>, hasher: &mut H) {
        let ahead = |moment: Moment| moment.since(now);
        self.phase_digest(now, hasher);
        (self.incarnation, self.seen, &self.granted, &self.runs, &self.stopping).hash(hasher);
        (&self.finished, self.acked, self.has_lease, self.is_verified).hash(hasher);
        (stored.map(|lease| lease.version) == Some(self.lease)).hash(hasher);
        // If the next renewal is always due, nothing depends on the acknowledgement of the last one.
        let hash_ack = |ack: &Ack, hasher: &mut H| {
            if !self.terms.renew.is_zero() {
                ack.hash(hasher);
            }
        };
        hash_ack(&self.landed_ack, hasher);
        let part_at = self.part.since.after(self.pace());
        let has_part = self.acked != self.seen;
        (has_part && self.part.is_said).hash(hasher);
        // The same holds for the pace of acknowledgements in part.
        let is_paced = has_part && !self.terms.renew.is_zero();
        is_paced.then(|| (self.part.is_news, ahead(part_at))).hash(hasher);
        (ahead(self.deadline), ahead(self.renew_at)).hash(hasher);
        (self.is_retry && now < self.renew_at).hash(hasher);
        if !self.has_lease {
            let is_first = |number: u64| number == 1;
            (is_first(self.writes), stored.map(|lease| is_first(lease.number))).hash(hasher);
        }
        if let Some(Pending { number, sent, holder, ack }) = &self.pending {
            let landed = stored.is_some_and(|lease| lease.number == *number);
            (landed, ahead(sent.after(self.terms.duration)), holder).hash(hasher);
            hash_ack(ack, hasher);
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
