//! The set that a member acts by: the set it aims at, the way there, and the buckets to start and
//! stop.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use swarm_core::handover::Moment;

use super::{Phase, Replica, ReplicaEffect};
use crate::machine::{MemberId, Members, Owners, Portion, Rule};

/// Another set, on its way to be declared.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Change {
    next: Arc<Owners>,
    /// The buckets that the member owns under the next set.
    share: Portion,
    /// The number of the stop request that must finish first.
    stop: Option<u64>,
    /// The first write that carried the next set. After that write the Lease may contain the set,
    /// so the member no longer gives the change up.
    pub(super) first_write: Option<u64>,
}

/// The tables of the sets in use, since most members act by the same set. Tables follow from their
/// sets, so they do not distinguish two members.
#[derive(Clone, Debug, Default)]
pub(super) struct Tables(Arc<BTreeMap<Members, Arc<Owners>>>);

impl PartialEq for Tables {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl std::hash::Hash for Tables {
    fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
}

impl Replica {
    /// The table of the owners under a set.
    pub(super) fn owners(&mut self, members: &Members) -> Arc<Owners> {
        if let Some(known) = self.tables.0.get(members) {
            return Arc::clone(known);
        }
        let in_use: BTreeSet<_> = self.peers.values().map(|peer| &peer.card.acts_by).collect();
        let owners = Arc::new(self.declared.next(members));
        let tables = Arc::make_mut(&mut self.tables.0);
        tables.retain(|members, _| in_use.contains(members));
        tables.insert(members.clone(), Arc::clone(&owners));
        owners
    }

    /// The same member with the tables of these sets at hand, since a model check asks for the same
    /// tables in millions of states.
    #[cfg(feature = "mutations")]
    #[must_use]
    pub fn knowing(mut self, tables: impl IntoIterator<Item = Arc<Owners>>) -> Self {
        let tables = tables.into_iter().map(|table| (table.members().clone(), table));
        self.tables = Tables(Arc::new(tables.collect()));
        self
    }

    /// The set that follows from the Leases as seen. It has the members whose Lease is held, that
    /// are not leaving, speak this protocol and have
    /// [joined](crate::machine::ReplicaTerms::join_renewals). If no member has joined, it has all
    /// of the others.
    ///
    /// The member counts itself by its own Lease as its watch returned it. So members that see the
    /// same Leases aim at the same set.
    pub(super) fn wanted(&self) -> Members {
        let own = self.own_card.iter().map(|card| (&self.id, self.own_seen, card));
        let others = self.peers.iter().filter(|(_, peer)| peer.counts());
        let others = others.map(|(member, peer)| (member, peer.watch.number, &peer.card));
        let all: Vec<_> = own.chain(others).filter(|(_, _, card)| !card.is_leaving).collect();
        let sets: BTreeSet<_> = all.iter().map(|(_, _, card)| &card.acts_by).collect();
        let has_joined = |member: &MemberId, number: u64| {
            self.terms.has_joined(number) || sets.iter().any(|set| set.contains(member))
        };
        let of = |only_joined: bool| {
            let counted = all
                .iter()
                .filter(|(member, number, _)| !only_joined || has_joined(member, *number));
            Members::new(counted.map(|(member, _, card)| ((*member).clone(), card.hosts.clone())))
        };
        let joined = of(true);
        if joined.is_empty() { of(false) } else { joined }
    }

    /// Begins to change the set, if another set is wanted and no change is on its way. A change
    /// leaves out members that left at once. It also includes the members that came meanwhile.
    pub(super) fn aim(&mut self, now: Moment, effects: &mut Vec<ReplicaEffect>) {
        if self.phase != Phase::Open || !self.is_listed || self.change.is_some() {
            return;
        }
        let (wanted, declared) = (self.wanted(), self.declared.members());
        let (am_in, will_be) = (declared.contains(&self.id), wanted.contains(&self.id));
        if wanted == *declared || !(am_in || will_be) {
            self.joins_since = None;
            return;
        }
        let is_urgent = !am_in || !declared.is_kept_in(&wanted);
        let since = *self.joins_since.get_or_insert(now);
        if !is_urgent && now < since.after(self.terms.join_window) {
            return;
        }
        self.joins_since = None;
        let next = self.owners(&wanted);
        let share = next.share(&self.id);
        let lost = self.owned.without(&share);
        self.owned = self.owned.and(&share);
        let stop = self.stop(lost, effects);
        self.change = Some(Change { next, share, stop, first_write: None });
    }

    /// Asks to stop these buckets. Returns the number of the request, if there is anything to stop.
    pub(super) fn stop(
        &mut self,
        buckets: Portion,
        effects: &mut Vec<ReplicaEffect>,
    ) -> Option<u64> {
        if buckets.is_empty() {
            return None;
        }
        self.stops_asked += 1;
        let number = self.stops_asked;
        self.stops.insert(number, buckets.clone());
        effects.push(ReplicaEffect::Stop { number, buckets });
        Some(number)
    }

    /// The set that the next write carries. It is the next set as soon as all buckets lost by that
    /// set have stopped.
    pub(super) fn set_to_declare(&self) -> &Owners {
        let is_stopped = |change: &&Change| {
            let is_stopped = change.stop.is_none_or(|stop| !self.stops.contains_key(&stop));
            is_stopped || !self.rules.keep(Rule::StopBeforeWrite)
        };
        self.change.as_ref().filter(is_stopped).map_or(&self.declared, |change| &change.next)
    }

    /// Declares the set that the member's write `number` carried, since this write is known to have
    /// landed.
    pub(super) fn declared_by(&mut self, now: Moment, number: u64) {
        let has_landed = |change: &mut Change| change.first_write.is_some_and(|it| it <= number);
        let Some(change) = self.change.take_if(has_landed) else { return };
        #[cfg(feature = "mutations")]
        {
            self.formerly = Arc::clone(&self.declared);
        }
        self.declared = change.next;
        self.declared_since = change.first_write.unwrap_or(number);
        if self.phase != Phase::Open {
            return;
        }
        let mut gained = change.share.without(&self.owned);
        for locked in self.locked.values_mut() {
            *locked = locked.and(&gained);
            gained = gained.without(locked);
        }
        self.locked.entry(now).or_default().add(&gained);
        self.locked.retain(|_, locked| !locked.is_empty());
    }

    /// Starts the declared buckets on which no other member acts.
    pub(super) fn start(&mut self, effects: &mut Vec<ReplicaEffect>) {
        let has_returned = self.declared_since <= self.own_seen;
        let may_start = has_returned || !self.rules.keep(Rule::AwaitOwnWrite);
        if self.phase != Phase::Open || self.locked.is_empty() || !may_start {
            return;
        }
        let Some(claimed) = self.claimed() else { return };
        let mut started = Portion::default();
        for locked in self.locked.values_mut() {
            let free = locked.without(&claimed);
            // Buckets that the change on its way takes away again do not start.
            let free = self.change.as_ref().map_or(free.clone(), |change| free.and(&change.share));
            *locked = locked.without(&free);
            started.add(&free);
        }
        self.locked.retain(|_, locked| !locked.is_empty());
        if !started.is_empty() {
            self.owned.add(&started);
            effects.push(ReplicaEffect::Start(started));
        }
    }

    /// All buckets that other members may act on by their own sets; `None` if the claims of one
    /// member are unknown.
    fn claimed(&self) -> Option<Portion> {
        let mut claimed = Portion::default();
        for (member, peer) in self.peers.iter().filter(|(_, peer)| peer.may_act(self.rules)) {
            claimed.add(&self.acknowledged_by(member, peer.claims.as_ref()?));
        }
        Some(claimed)
    }

    /// The claims of a member that count: all of them.
    #[cfg(not(feature = "mutations"))]
    #[expect(clippy::unused_self, reason = "with the feature it asks for the rules")]
    fn acknowledged_by(&self, _: &MemberId, claims: &Portion) -> Portion {
        claims.clone()
    }

    /// The claims of a member that count: all of them, unless only the previous owners are asked.
    #[cfg(feature = "mutations")]
    fn acknowledged_by(&self, member: &MemberId, claims: &Portion) -> Portion {
        if self.rules.keep(Rule::AllAcknowledge) {
            return claims.clone();
        }
        claims.and(&self.formerly.share(member))
    }
}
