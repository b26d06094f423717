//! One observer's watches over all sessions of a pool, and when it takes a silent one's lease away.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Brake, Evidence, Health, Lease, LeaseTerms, LeaseVersion, Moment, SessionId, Watch,
    WatchEffect, WatchEvent,
};
use crate::Position;

/// What an observer knows of the sessions of one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watches {
    by_session: BTreeMap<SessionId, Watch>,
    brake: Brake,
}

impl Watches {
    /// The lease of a session was read at `now`, perhaps from a stale copy.
    pub fn seen(&mut self, now: Moment, session: &SessionId, lease: Lease, terms: &LeaseTerms) {
        match self.by_session.get_mut(session) {
            Some(watch) => {
                let _ = watch.step(now, &WatchEvent::Seen(lease), terms);
            }
            None => {
                self.by_session.insert(session.clone(), Watch::begin(now, &lease));
            }
        }
    }

    /// Something else was learned of a session. If it was never seen, nothing happens, but for
    /// [`WatchEvent::Missing`]: a session that the ledger names had a lease, so that is waited out
    /// from now on. Otherwise its jobs would wait forever for a proof.
    pub fn learn(
        &mut self,
        now: Moment,
        session: &SessionId,
        event: &WatchEvent,
        terms: &LeaseTerms,
    ) {
        if let Some(watch) = self.by_session.get_mut(session) {
            let _ = watch.step(now, event, terms);
        } else if *event == WatchEvent::Missing {
            self.by_session.insert(session.clone(), Watch::missing(now));
        }
    }

    /// What is known of one session.
    #[must_use]
    pub fn get(&self, session: &SessionId) -> Option<&Watch> {
        self.by_session.get(session)
    }

    /// Every session that was seen, with what is known of it.
    pub fn iter(&self) -> impl Iterator<Item = (&SessionId, &Watch)> {
        self.by_session.iter()
    }

    /// Forgets sessions that nothing refers to any more.
    pub fn retain(&mut self, keep: impl Fn(&SessionId) -> bool) {
        self.by_session.retain(|session, _| keep(session));
    }

    /// The leases to revoke now, each at this version only: those of silent sessions, as far as the
    /// [brake](Brake) allows. The answers are [`WatchEvent::RevocationWritten`] and
    /// [`WatchEvent::RevocationFailed`].
    pub fn due(
        &mut self,
        now: Moment,
        health: Health,
        terms: &LeaseTerms,
    ) -> Vec<(SessionId, LeaseVersion)> {
        for watch in self.by_session.values_mut() {
            let _ = watch.step(now, &WatchEvent::Tick, terms);
        }
        let held = |watch: &Watch| watch.may_renew();
        let total = self.by_session.values().filter(|watch| held(watch)).count();
        let silent: BTreeSet<_> = self
            .by_session
            .iter()
            .filter(|(_, watch)| held(watch) && watch.is_silent(now, terms))
            .map(|(session, _)| session.clone())
            .collect();
        let allowed = self.brake.allow(now, &silent, total, health, terms);
        let mut revoke = Vec::new();
        for session in allowed {
            let Some(watch) = self.by_session.get_mut(&session) else { continue };
            let asked = watch.step(now, &WatchEvent::Suspect, terms);
            if let Some(WatchEffect::Revoke(version)) = asked {
                revoke.push((session, version));
            }
        }
        revoke
    }

    /// Whether the brake holds revocations back.
    #[must_use]
    pub fn is_braking(&self) -> bool {
        self.brake.is_engaged()
    }

    /// What is proved about every session, for a ledger in this life.
    #[must_use]
    pub fn evidence(&self, incarnation: u64) -> BTreeMap<SessionId, Evidence> {
        let evidence =
            |(session, watch): (&SessionId, &Watch)| (session.clone(), watch.evidence(incarnation));
        self.by_session.iter().map(evidence).collect()
    }

    /// A view of the session was found, of this life of the ledger. The session may have read it,
    /// whether it told so or not. One of the present life does not undo an earlier one: only the
    /// session itself can say that it never read that.
    pub fn found_view(&mut self, session: &SessionId, incarnation: u64) {
        if let Some(watch) = self.by_session.get_mut(session) {
            watch.viewed = Some(watch.viewed.map_or(incarnation, |known| known.min(incarnation)));
        }
    }

    /// How far the ledger was, as far as is known from sessions that may still act and their views.
    #[must_use]
    pub fn positions(&self) -> BTreeSet<Position> {
        self.by_session.values().filter_map(Watch::position).collect()
    }

    /// The furthest that the ledger of this life was known to be to any session, over or not; 0 if none
    /// has told of it.
    #[must_use]
    pub fn furthest_in(&self, incarnation: u64) -> u64 {
        let told = self.by_session.values().map(|watch| watch.ack.position());
        let told = told.filter(|told| told.incarnation == incarnation);
        told.map(|told| told.revision).max().unwrap_or_default()
    }

    /// The sessions that may still act on a view of another life of the ledger than `incarnation`,
    /// with the versions of their leases that may be revoked. They are to be told of this life, by a
    /// view without jobs, and to be revoked if they do not close.
    pub fn of_other_incarnations(
        &self,
        incarnation: u64,
    ) -> impl Iterator<Item = (&SessionId, LeaseVersion)> {
        let is_strange = move |watch: &Watch| {
            watch.position().is_some_and(|known| known.incarnation != incarnation)
        };
        let found = self.by_session.iter().filter(move |(_, watch)| is_strange(watch));
        found.filter_map(|(session, watch)| Some((session, watch.held_at()?)))
    }

    /// When the mere passing of time next changes something; `None` if it never does.
    #[must_use]
    pub fn wakes_at(&self, terms: &LeaseTerms) -> Option<Moment> {
        self.by_session.values().filter_map(|watch| watch.wakes_at(terms)).min()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::handover::{Ack, Holder, Proof};

    fn now(ms: u64) -> Moment {
        Moment(Duration::from_millis(ms))
    }

    fn lease(version: u64) -> Lease {
        let version = LeaseVersion(version);
        Lease { version, holder: Holder::Session, number: 1, ack: Ack::default() }
    }

    #[test]
    fn a_silent_session_is_revoked_and_then_waited_out_while_others_live() {
        let terms = LeaseTerms::default();
        let [silent, alive] = [1, 2].map(|nonce| SessionId::new("pod", nonce));
        let mut watches = Watches::default();
        watches.seen(now(0), &silent, lease(1), &terms);
        watches.seen(now(0), &alive, lease(1), &terms);
        assert_eq!(watches.wakes_at(&terms), Some(now(20_000)));
        watches.seen(now(19_000), &alive, lease(2), &terms);
        let due = watches.due(now(20_000), Health::Good, &terms);
        assert_eq!(due, [(silent.clone(), LeaseVersion(1))]);
        let written = WatchEvent::RevocationWritten(LeaseVersion(1));
        watches.learn(now(20_001), &silent, &written, &terms);
        assert_eq!(watches.wakes_at(&terms), Some(now(0).after(terms.fence_wait())));
        assert_eq!(watches.due(now(21_405), Health::Good, &terms), []);
        assert_eq!(watches.evidence(0)[&silent].ended, Some(Proof::Fenced));
        assert_eq!(watches.evidence(0)[&alive].ended, None);
        watches.retain(|session| *session == alive);
        assert_eq!(watches.iter().count(), 1);
    }

    #[test]
    fn a_session_whose_lease_was_never_seen_is_waited_out_once_it_is_found_missing() {
        let terms = LeaseTerms::default();
        let [named, unknown] = [1, 2].map(|nonce| SessionId::new("pod", nonce));
        let mut watches = Watches::default();
        watches.learn(now(0), &unknown, &WatchEvent::ProcessEnded, &terms);
        watches.learn(now(0), &named, &WatchEvent::Missing, &terms);
        assert_eq!(watches.due(now(21_404), Health::Good, &terms), []);
        assert_eq!(watches.evidence(0)[&named].ended, None);
        assert_eq!(watches.due(now(21_405), Health::Good, &terms), []);
        assert_eq!(watches.evidence(0)[&named].ended, Some(Proof::Fenced));
        assert_eq!(watches.get(&unknown), None);
    }

    #[test]
    fn what_a_session_told_counts_after_its_end() {
        let terms = LeaseTerms::default();
        let mut watches = Watches::default();
        let ack = Ack { incarnation: 3, revision: 7, ..Ack::default() };
        let closed = Lease { holder: Holder::Closed, ack, ..lease(1) };
        watches.seen(now(0), &SessionId::new("pod", 1), closed, &terms);
        watches.seen(now(0), &SessionId::new("pod", 2), lease(1), &terms);
        assert_eq!(watches.positions(), [].into(), "nobody acts on a view");
        assert_eq!([2, 3].map(|life| watches.furthest_in(life)), [0, 7]);
    }

    #[test]
    fn when_many_fall_silent_at_once_nobody_is_revoked_at_first() {
        let terms = LeaseTerms::default();
        let mut watches = Watches::default();
        for nonce in 0..10 {
            watches.seen(now(0), &SessionId::new("pod", nonce), lease(1), &terms);
        }
        assert_eq!(watches.due(now(20_000), Health::Good, &terms), []);
        assert!(watches.is_braking());
        assert_eq!(watches.due(now(60_000), Health::Good, &terms).len(), 1, "10 % at a time");
    }
}
