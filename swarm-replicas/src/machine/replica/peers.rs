//! The other members as one member sees them: which are held or silent, and the buckets of each.

use std::collections::{BTreeMap, BTreeSet};

use swarm_core::handover::{
    Holder, LeaseVersion, Moment, Watch, WatchEffect, WatchEvent, WatchStage,
};

use super::{Replica, ReplicaEffect};
use crate::machine::{Card, MemberId, MemberLease, Members, Portion, ProtocolRange, Rule, Rules};

/// Another member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Peer {
    pub(super) watch: Watch,
    pub(super) card: Card,
    /// The buckets that its own set gives to it; `None` if they are unknown.
    pub(super) claims: Option<Portion>,
    /// Whether its Lease exists.
    has_lease: bool,
    /// The moment when its Lease was first seen revoked, or this member first asked to revoke it.
    revoked_at: Option<Moment>,
    /// The version at which the Lease was seen revoked. Taken when the end of its member is
    /// confirmed.
    revoked_version: Option<LeaseVersion>,
}

impl Peer {
    /// A member whose name is known only from the set of another member. Its Lease was deleted
    /// before this member saw it.
    fn unseen(now: Moment) -> Self {
        let (watch, card) = (Watch::missing(now), Card::unreadable());
        Self {
            watch,
            card,
            claims: None,
            has_lease: false,
            revoked_at: None,
            revoked_version: None,
        }
    }

    pub(super) fn speaks_ours(&self) -> bool {
        self.card.protocol.overlaps(ProtocolRange::OURS)
    }

    /// Whether it may be in a set, once it has joined.
    pub(super) fn counts(&self) -> bool {
        self.has_lease && self.watch.may_renew() && self.speaks_ours()
    }

    /// Whether the member is known to have ended.
    fn has_ended(&self) -> bool {
        matches!(self.watch.stage, WatchStage::Ended(_))
    }

    /// Whether it may still act.
    pub(super) fn may_act(&self, rules: Rules) -> bool {
        let is_fenced = self.has_ended();
        !is_fenced && (rules.keep(Rule::FenceBeforeTaking) || self.watch.may_renew())
    }
}

impl Replica {
    pub(super) fn listed(
        &mut self,
        now: Moment,
        leases: BTreeMap<MemberId, MemberLease>,
        effects: &mut Vec<ReplicaEffect>,
    ) {
        // The first list alone may be older than this member's first write.
        self.is_listed = true;
        let gone = self.peers.keys().filter(|member| !leases.contains_key(*member));
        let gone: Vec<_> = gone.chain([&self.id]).cloned().collect();
        for member in gone.iter().filter(|member| !leases.contains_key(*member)) {
            self.gone(now, member, effects);
        }
        for (member, lease) in leases {
            if self.is_over() {
                return;
            }
            self.seen(now, member, lease, effects);
        }
    }

    pub(super) fn seen(
        &mut self,
        now: Moment,
        member: MemberId,
        lease: MemberLease,
        effects: &mut Vec<ReplicaEffect>,
    ) {
        if member == self.id {
            self.own_seen(now, lease, effects);
            return;
        }
        let (stored, duration, mut card) = (lease.lease(), lease.duration, lease.card);
        let known = self.peers.get(&member).filter(|peer| {
            peer.card.acts_by == card.acts_by && peer.card.protocol == card.protocol
        });
        let claims = if let Some(known) = known {
            card.acts_by = known.card.acts_by.clone();
            known.claims.clone()
        } else {
            card.protocol.overlaps(ProtocolRange::OURS).then(|| {
                let owners = self.owners(&card.acts_by);
                // Equal sets share their members, so that later comparisons find them equal at
                // once.
                card.acts_by = owners.members().clone();
                owners.share(&member)
            })
        };
        let before = self.peers.remove(&member).map(|peer| (peer.watch, peer.revoked_at));
        let (mut watch, revoked_at) = before.unwrap_or_else(|| (Watch::begin(now, &stored), None));
        watch.claims(duration);
        watch.step(now, &WatchEvent::Seen(stored), &self.terms.lease);
        let revoked_at = revoked_at.or((lease.holder == Holder::Revoked).then_some(now));
        let revoked_version = (lease.holder == Holder::Revoked).then_some(lease.version);
        let peer = Peer { watch, card, claims, has_lease: true, revoked_at, revoked_version };
        self.peers.insert(member, peer);
    }

    pub(super) fn gone(
        &mut self,
        now: Moment,
        member: &MemberId,
        effects: &mut Vec<ReplicaEffect>,
    ) {
        if *member == self.id {
            self.own_gone(effects);
        } else if let Some(peer) = self.peers.get_mut(member) {
            peer.has_lease = false;
            peer.watch.step(now, &WatchEvent::Missing, &self.terms.lease);
        }
    }

    /// Waits until the Leases of silent members have expired, and then forgets those members.
    pub(super) fn pass_time(&mut self, now: Moment, effects: &mut Vec<ReplicaEffect>) {
        for (member, peer) in &mut self.peers {
            peer.watch.step(now, &WatchEvent::Tick, &self.terms.lease);
            if peer.has_lease && peer.has_ended() {
                let version = peer.revoked_version.take();
                effects.extend(version.map(|at| ReplicaEffect::Confirm(member.clone(), at)));
            }
        }
        let cards = self.peers.values().filter(|peer| peer.has_lease).map(|peer| &peer.card);
        let sets: BTreeSet<_> =
            cards.chain(&self.own_card).map(|card| card.acts_by.clone()).collect();
        let is_named = |member: &MemberId| sets.iter().any(|set| set.contains(member));
        self.peers.retain(|member, peer| peer.has_lease || !peer.has_ended() || is_named(member));
        for (member, _) in sets.iter().flat_map(Members::iter) {
            if *member != self.id && !self.peers.contains_key(member) {
                self.peers.insert(member.clone(), Peer::unseen(now));
            }
        }
    }

    /// Revokes silent members, unless their silence is more likely this member's own fault.
    pub(super) fn revoke(&mut self, now: Moment, effects: &mut Vec<ReplicaEffect>) {
        let lease = self.terms.lease;
        let live = self.peers.iter().filter(|(_, peer)| peer.has_lease && peer.watch.may_renew());
        let silent = live.clone().filter(|(_, peer)| peer.watch.is_silent(now, &lease));
        let silent: Vec<_> = silent.map(|(member, _)| member.clone()).collect();
        // Members that fall silent one after another also count as many.
        let is_lately = |peer: &&Peer| {
            let lately = peer.revoked_at.filter(|at| now.since(*at) < lease.duration);
            lately.is_some() && !peer.watch.may_renew()
        };
        let lately = self.peers.values().filter(is_lately).count();
        let fallen = silent.len() + lately;
        let are_most = !silent.is_empty() && 1 < fallen && live.count() + lately < 2 * fallen;
        let most_since = are_most.then(|| self.most_silent_since.unwrap_or(now));
        self.most_silent_since = most_since;
        let is_held_back = most_since.is_some_and(|since| now < since.after(lease.duration));
        let is_heard = now < self.own.deadline() && self.counts_from.after(lease.duration) <= now;
        if is_held_back || !is_heard {
            return;
        }
        for member in silent {
            let Some(peer) = self.peers.get_mut(&member) else { continue };
            let asked = peer.watch.step(now, &WatchEvent::Suspect, &lease);
            if let Some(WatchEffect::Revoke(version)) = asked {
                peer.revoked_at.get_or_insert(now);
                effects.push(ReplicaEffect::Revoke(member, version));
            }
        }
    }

    pub(super) fn revocation_written(
        &mut self,
        now: Moment,
        member: &MemberId,
        version: LeaseVersion,
    ) {
        self.learn(now, member, &WatchEvent::RevocationWritten(version));
    }

    pub(super) fn revocation_failed(&mut self, now: Moment, member: &MemberId) {
        self.learn(now, member, &WatchEvent::RevocationFailed);
    }

    pub(super) fn process_ended(&mut self, now: Moment, member: &MemberId) {
        self.learn(now, member, &WatchEvent::ProcessEnded);
    }

    fn learn(&mut self, now: Moment, member: &MemberId, event: &WatchEvent) {
        if let Some(peer) = self.peers.get_mut(member) {
            peer.watch.step(now, event, &self.terms.lease);
        }
    }

    /// The moment when the silence or the end of another member next changes something.
    pub(super) fn peers_wake_at(&self) -> Option<Moment> {
        let lease = self.terms.lease;
        let heard_from = self.counts_from.after(lease.duration);
        let most = self.most_silent_since.map(|since| since.after(lease.duration));
        let wakes_at = |peer: &super::Peer| {
            let at = peer.watch.wakes_at(&lease)?;
            let is_held =
                matches!(peer.watch.stage, WatchStage::Held { .. } | WatchStage::Revoking { .. });
            Some(if is_held { at.max(heard_from).max(most.unwrap_or_default()) } else { at })
        };
        self.peers.values().filter_map(wakes_at).filter(|at| self.stepped_at < *at).min()
    }

    /// The members that have certainly ended and whose Leases still exist. Any member may delete
    /// these Leases.
    ///
    /// ```
    /// use swarm_core::handover::Moment;
    /// use swarm_replicas::machine::{Hosts, MemberId, Replica, ReplicaTerms};
    ///
    /// let (id, terms) = (MemberId::new("a", 1)?, ReplicaTerms::default());
    /// let (replica, _) = Replica::open(id, Hosts::new(), terms, Moment::default());
    /// assert_eq!(replica.removable().count(), 0);
    /// # Ok::<(), swarm_replicas::machine::MemberIdError>(())
    /// ```
    pub fn removable(&self) -> impl Iterator<Item = &MemberId> {
        let ended = self.peers.iter().filter(|(_, peer)| peer.has_lease && peer.has_ended());
        ended.map(|(member, _)| member)
    }
}
