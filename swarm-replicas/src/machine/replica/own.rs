//! A member's own Lease: its writes, how the member recognises them, and until when it may act.

use std::collections::BTreeMap;

use swarm_core::handover::{Holder, LeaseVersion, Moment};

use super::{Phase, Replica, ReplicaEffect};
use crate::machine::{Card, MemberLease, MemberWrite, ProtocolRange, ReplicaTerms};

/// The knowledge of a member about its own Lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Own {
    /// The version of the Lease; `None` before the Lease is known to exist.
    version: Option<LeaseVersion>,
    /// The moment until when the member may act; the clock's start if it never could.
    deadline: Moment,
    pending: Option<Pending>,
    /// The number of writes that were sent.
    writes: u64,
    /// The number of the latest write known to have landed.
    landed: u64,
    /// The card in that write.
    landed_card: Option<Card>,
    /// Whether the last write got no answer.
    is_retry: bool,
    /// When the next renewal is due.
    renew_at: Moment,
}

/// A write whose answer has not arrived.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Pending {
    number: u64,
    sent: Moment,
    holder: Holder,
    card: Card,
}

impl Own {
    pub(super) fn new(now: Moment) -> Self {
        Self {
            version: None,
            deadline: Moment::default(),
            pending: None,
            writes: 0,
            landed: 0,
            landed_card: None,
            is_retry: false,
            renew_at: now,
        }
    }

    pub(super) fn deadline(&self) -> Moment {
        self.deadline
    }

    pub(super) fn is_pending(&self, number: u64) -> bool {
        self.pending.as_ref().is_some_and(|pending| pending.number == number)
    }

    pub(super) fn wakes_at(&self) -> Option<Moment> {
        self.pending.is_none().then_some(self.renew_at)
    }

    /// Stops waiting for an answer, and retries a little later.
    pub(super) fn give_up(&mut self, now: Moment, terms: &ReplicaTerms) {
        self.pending = None;
        self.is_retry = true;
        self.renew_at = now.after(terms.lease.renew / 4);
    }

    /// Whether the last write got no answer and the next is not due yet.
    fn is_backing_off(&self, now: Moment) -> bool {
        self.is_retry && now < self.renew_at
    }
}

impl Replica {
    pub(super) fn written(
        &mut self,
        now: Moment,
        number: u64,
        version: LeaseVersion,
        effects: &mut Vec<ReplicaEffect>,
    ) {
        let Some(pending) = self.own.pending.take_if(|pending| pending.number == number) else {
            return;
        };
        if pending.holder != Holder::Session {
            self.end();
            effects.push(ReplicaEffect::Over);
            return;
        }
        let deadline = pending.sent.after(self.terms.lease.duration);
        self.own.deadline = self.own.deadline.max(deadline);
        self.write_landed(now, (number, version), pending.card, effects);
    }

    /// Records that the Lease has the content of the member's write `number`.
    ///
    /// If another write than the first created the Lease, an earlier one may have landed unnoticed.
    /// Other members may have revoked that Lease, waited the member out and deleted the Lease. They
    /// then assume that this member has ended. So the member ends without acting; the next member
    /// has a name that is new to all.
    fn write_landed(
        &mut self,
        now: Moment,
        (number, version): (u64, LeaseVersion),
        card: Card,
        effects: &mut Vec<ReplicaEffect>,
    ) {
        if self.own.version.is_none() && number != 1 {
            self.abort(effects);
            return;
        }
        self.own.version = Some(version);
        self.own.landed = number;
        self.own.landed_card = Some(card);
        self.declared_by(now, number);
    }

    /// Checks the holder of the Lease after a write was refused and the Lease was read.
    pub(super) fn lease_read(
        &mut self,
        now: Moment,
        lease: Option<MemberLease>,
        effects: &mut Vec<ReplicaEffect>,
    ) {
        match lease {
            // The landed write is missing: the store was rolled back, and other Leases with it.
            Some(lease) if lease.number < self.own.landed => self.abort(effects),
            Some(lease) if lease.holder == Holder::Session => {
                if self.own.is_pending(lease.number) {
                    self.written(now, lease.number, lease.version, effects);
                } else {
                    // An earlier write of this member landed late. The machine no longer has the
                    // time at which it was sent, so the write prolongs nothing. The next write has
                    // the right version.
                    self.own.pending = None;
                    self.own.is_retry = false;
                    self.own.renew_at = now;
                    self.write_landed(now, (lease.number, lease.version), lease.card, effects);
                }
            }
            Some(_) if self.phase == Phase::Closing => {
                self.end();
                effects.push(ReplicaEffect::Over);
            }
            // A Lease that was never created cannot be lost: the read may be older than the write.
            None if self.own.version.is_none() => self.own.give_up(now, &self.terms),
            Some(_) | None => self.abort(effects),
        }
    }

    /// Takes in the member's own Lease, which the watch returned.
    pub(super) fn own_seen(
        &mut self,
        now: Moment,
        lease: MemberLease,
        effects: &mut Vec<ReplicaEffect>,
    ) {
        if lease.holder != Holder::Session {
            if self.phase != Phase::Closing {
                self.abort(effects);
            }
            return;
        }
        // The Lease has gone back to an earlier write, or belongs to another process.
        if lease.number < self.own_seen || self.own.writes < lease.number {
            self.abort(effects);
            return;
        }
        self.own_seen = lease.number;
        self.own_card = Some(lease.card);
        self.declared_by(now, lease.number);
    }

    /// Takes in that the member's own Lease was deleted, as the watch returned.
    pub(super) fn own_gone(&mut self, effects: &mut Vec<ReplicaEffect>) {
        if self.own_seen != 0 && self.phase != Phase::Closing {
            self.abort(effects);
        }
    }

    /// Leaves: the member takes no more buckets, and stops all on which it acts.
    pub(super) fn leave(&mut self, effects: &mut Vec<ReplicaEffect>) {
        if self.phase != Phase::Open {
            return;
        }
        self.phase = Phase::Leaving;
        // A change that was sent may have landed. The member gives up a change that was not sent.
        self.change.take_if(|change| change.first_write.is_none());
        self.locked = BTreeMap::new();
        let all = std::mem::take(&mut self.owned);
        self.stop(all, effects);
    }

    /// Renews the Lease if a renewal is due, or if there is news to write.
    pub(super) fn write(&mut self, now: Moment, effects: &mut Vec<ReplicaEffect>) {
        let card = self.card();
        let is_closing = self.phase == Phase::Closing;
        let is_new = is_closing || self.own.landed_card.as_ref() != Some(&card);
        let has_news = self.own.version.is_some() && is_new && !self.own.is_backing_off(now);
        let is_due = self.own.renew_at <= now || has_news;
        if self.own.pending.is_some() || !is_due {
            return;
        }
        self.own.writes += 1;
        let number = self.own.writes;
        if let Some(change) =
            self.change.as_mut().filter(|_| card.acts_by != *self.declared.members())
        {
            change.first_write.get_or_insert(number);
        }
        self.own.is_retry = false;
        self.own.renew_at = now.after(self.terms.lease.renew);
        let holder = if is_closing { Holder::Closed } else { Holder::Session };
        self.own.pending = Some(Pending { number, sent: now, holder, card: card.clone() });
        let (expected, duration) = (self.own.version, self.terms.lease.duration);
        effects.push(ReplicaEffect::Write(MemberWrite {
            expected,
            holder,
            number,
            duration,
            card,
        }));
    }

    /// The card of the next write.
    fn card(&self) -> Card {
        Card {
            protocol: ProtocolRange::OURS,
            hosts: self.hosts.clone(),
            is_leaving: self.phase != Phase::Open,
            acts_by: self.set_to_declare().members().clone(),
        }
    }
}
