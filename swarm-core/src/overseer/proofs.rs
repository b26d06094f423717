//! The proofs about the sessions of one pool, from their Leases, their pods and their successors.
//!
//! Proofs are not stored: an observer that restarts begins without any, and waits longer, never
//! shorter. A session's claims can affect its own jobs only; see [`Suspicion`].

#[cfg(feature = "mutations")]
mod digest;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::facts::{Answer, Began, Containers, Fact, LeaseFacts, PodFacts, ViewMark};
use crate::Position;
use crate::handover::{
    Ack, Evidence, LeaseTerms, LeaseVersion, Moment, Proof, REPEATS_MAX, Renewals, SessionId,
    Stopping, Watch, WatchEffect, WatchEvent, WatchStage,
};
use crate::session::Former;

/// The largest lead of a ledger's incarnation over this observer's wall clock.
const AHEAD_MAX: Duration = Duration::from_secs(5 * 60);
/// The number of missed renewals after which a report that the session's node is off is believed.
const RENEWALS_MISSED: u32 = 3;

/// The reason why a live session is not believed. Unless the variant says otherwise, such a session
/// receives no jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Suspicion {
    /// It claims a longer Lease than the Swarm allows.
    LongLease(Duration),
    /// It acknowledges a revision that the ledger never had in this incarnation.
    UnpublishedRevision,
    /// It acknowledges an incarnation of the ledger that it cannot have seen. Its Lease is revoked.
    ForeignIncarnation,
    /// It writes its Lease again and again without a higher number, so none of these writes is a
    /// renewal. Its Lease is revoked, as for a silent session.
    UncountedRenewals,
    /// It reports this many jobs as finished that it does not hold, or that do not run to
    /// completion. The reports are ignored, and the session still receives jobs.
    FalseFinish(usize),
}

/// The proofs about the sessions of one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proofs {
    sessions: BTreeMap<SessionId, Tracked>,
    /// The mark of each session's view; `None` if the view was edited.
    views: BTreeMap<SessionId, Option<ViewMark>>,
    /// The oldest incarnation in a view of each session whose Lease was not read yet. The session
    /// may act on that incarnation, even if newer views were published since.
    unseen: BTreeMap<SessionId, u64>,
    pods: BTreeMap<String, PodFacts>,
}

/// One tracked session.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Tracked {
    watch: Watch,
    began: Option<Began>,
    /// Its report about its predecessor.
    former: Former,
    /// The result of the last look at its Lease.
    lookup: LeaseLookup,
    /// Whether it existed when this observer first saw the present incarnation of the ledger. Such
    /// a session may have acted on another incarnation.
    is_elder: bool,
    /// Whether the ledger was reset since the session acknowledged more than it had. That happens
    /// at most once per Lease, since an honest session ends then.
    has_reset: bool,
    /// Whether the session is known to have written its Lease since this observer began, or since
    /// the last rollback of the store.
    has_renewed: bool,
    /// The time between its last two renewals.
    pause: Duration,
}

/// The result of the last look at the Lease of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum LeaseLookup {
    /// The Lease was read.
    Found,
    /// The Lease was missing once.
    Missing,
    /// The store was rolled back since the end of the session was read from it, and the Lease was
    /// not read again.
    Doubted,
}

/// The result of a comparison of a session's acknowledgement with the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claim {
    /// The session acknowledged nothing yet.
    None,
    /// The ledger has reached the acknowledged position.
    Plausible,
    /// The ledger has not reached the acknowledged position, or has lost it.
    Lost,
    /// The ledger cannot have reached the acknowledged position.
    Refused(Suspicion),
}

/// The state of the ledger with which claims of sessions are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// The position of the ledger.
    pub position: Position,
    /// The wall clock, in microseconds since 1970.
    pub unix_time_us: u64,
}

impl Tracked {
    fn new(watch: Watch, viewed: Option<u64>) -> Self {
        Self {
            watch: Watch { viewed, ..watch },
            began: None,
            former: Former::default(),
            lookup: LeaseLookup::Found,
            is_elder: false,
            has_reset: false,
            has_renewed: false,
            pause: Duration::ZERO,
        }
    }

    /// Returns the moment from which it is unheard unless it renews before; `None` if it is so already,
    /// since it has ended or since a silence lasts.
    fn heard_until(&self, terms: &LeaseTerms, margin: Duration) -> Option<Moment> {
        let until = self.watch.heard_until(terms, margin)?;
        let (_, last) = self.watch.held()?;
        Renewals { last, pause: self.pause }.heard_until(until.since(last))
    }

    fn claim(&self, known: Known) -> Claim {
        let claim = self.watch.ack.position();
        let ledger = known.position;
        if claim.revision == 0 {
            return Claim::None;
        }
        if claim.incarnation == ledger.incarnation && claim.revision <= ledger.revision {
            return Claim::Plausible;
        }
        let ahead_us = u64::try_from(AHEAD_MAX.as_micros()).unwrap_or(u64::MAX);
        let latest = known.unix_time_us.saturating_add(ahead_us).max(ledger.incarnation);
        let may_be_lost = self.is_elder && !(ledger < claim && self.has_reset);
        if may_be_lost && claim.incarnation <= latest {
            Claim::Lost
        } else if claim.incarnation == ledger.incarnation {
            Claim::Refused(Suspicion::UnpublishedRevision)
        } else {
            Claim::Refused(Suspicion::ForeignIncarnation)
        }
    }

    /// Returns the position of the ledger whose view the session acts on, or may act on.
    fn position(&self, known: Known) -> Option<Position> {
        let viewed = self.watch.viewed.map(|incarnation| Position { incarnation, revision: 0 });
        match self.claim(known) {
            Claim::Plausible | Claim::Lost => Some(self.watch.ack.position()),
            Claim::None | Claim::Refused(_) => viewed,
        }
    }

    fn has_ended(&self) -> bool {
        self.watch.has_ended()
    }

    fn is_unrenewed(&self) -> bool {
        !self.has_renewed && !self.has_ended()
    }

    /// Returns whether it may still act, so that the whole pool waits for it. Here the grace of a
    /// revoked Lease follows from the Swarm's terms; the session's own claim counts for its own
    /// jobs only.
    fn may_act(&self, now: Moment, terms: &LeaseTerms) -> bool {
        match self.watch.stage {
            WatchStage::Held { .. } | WatchStage::Revoking { .. } => true,
            WatchStage::Revoked { since } => now.since(since) < terms.fence_wait(),
            WatchStage::Ended(_) => false,
        }
    }

    /// Returns a key that orders the sessions of one pod by their start, if known.
    fn age(&self) -> (Option<Began>, Moment) {
        let since = match self.watch.stage {
            WatchStage::Held { since, .. }
            | WatchStage::Revoking { since, .. }
            | WatchStage::Revoked { since } => since,
            WatchStage::Ended(_) => Moment::default(),
        };
        (self.began, since)
    }
}

impl Proofs {
    /// Processes a fact that was learned at `now`. Facts about an unknown session count only if
    /// they are about its Lease, read or missing. O(log sessions), and O(sessions) for a pod.
    ///
    /// ```
    /// use swarm_core::handover::*;
    /// use swarm_core::overseer::*;
    ///
    /// let (now, terms) = (Moment::default(), LeaseTerms::default());
    /// let session = SessionId::new("pod", 1);
    /// let mut proofs = Proofs::default();
    /// proofs.learn(now, Fact::LeaseMissing(session.clone()), &terms);
    /// assert!(!proofs.get(&session).unwrap().may_renew());
    /// ```
    pub fn learn(&mut self, now: Moment, fact: Fact, terms: &LeaseTerms) {
        match fact {
            Fact::Lease(session, facts) => self.see(now, session, facts, terms),
            Fact::LeaseMissing(session) => {
                let viewed = self.unseen.remove(&session);
                let missing = || Tracked::new(Watch::missing(now), viewed);
                let tracked = self.sessions.entry(session).or_insert_with(missing);
                tracked.lookup = LeaseLookup::Missing;
                let _ = tracked.watch.step(now, &WatchEvent::Missing, terms);
            }
            Fact::Pod(uid, facts) => {
                // A pod that has terminated never runs again.
                let has_terminated = self.pods.get(&uid).is_some_and(|pod| pod.has_terminated);
                let has_terminated = has_terminated || facts.has_terminated;
                self.pods.insert(uid, PodFacts { has_terminated, ..facts });
            }
            Fact::View(session, mark) => self.found_view(session, mark),
            Fact::ViewMissing(session) => {
                self.views.remove(&session);
                self.unseen.remove(&session);
            }
            Fact::Revocation(session, version, answer) => {
                let event = match answer {
                    Answer::Written => WatchEvent::RevocationWritten(version),
                    Answer::Failed => WatchEvent::RevocationFailed,
                };
                if let Some(tracked) = self.sessions.get_mut(&session) {
                    let _ = tracked.watch.step(now, &event, terms);
                }
            }
            Fact::StoreFailed => (),
            Fact::StoreRolledBack => self.doubt_stored_ends(now),
        }
    }

    fn see(&mut self, now: Moment, session: SessionId, facts: LeaseFacts, terms: &LeaseTerms) {
        let LeaseFacts { lease, duration, began, former, has_renewed, pause } = facts;
        let viewed = self.unseen.remove(&session);
        let fresh = || Tracked::new(Watch::begin(now, &lease), viewed);
        let tracked = self.sessions.entry(session).or_insert_with(fresh);
        tracked.watch.claims(duration);
        (tracked.began, tracked.former, tracked.pause) = (Some(began), former, pause);
        if tracked.lookup == LeaseLookup::Doubted {
            tracked.lookup = LeaseLookup::Found;
            tracked.watch.found_again(now, &lease);
        }
        let known = tracked.watch.number;
        tracked.has_renewed |= has_renewed || (0 < known && known < lease.number);
        let _ = tracked.watch.step(now, &WatchEvent::Seen(lease), terms);
    }

    /// Records the view of a session. The oldest incarnation stays recorded, since only the session
    /// itself can report that it never read that view.
    fn found_view(&mut self, session: SessionId, mark: Option<ViewMark>) {
        if let Some(ViewMark { incarnation, .. }) = mark {
            let known = match self.sessions.get_mut(&session) {
                Some(tracked) => tracked.watch.viewed.get_or_insert(incarnation),
                None => self.unseen.entry(session.clone()).or_insert(incarnation),
            };
            *known = incarnation.min(*known);
        }
        self.views.insert(session, mark);
    }

    /// Returns the incarnation of the ledger in the view of a session, if known.
    fn viewed_by(&self, session: &SessionId) -> Option<u64> {
        self.views.get(session).copied().flatten().map(|mark| mark.incarnation)
    }

    /// Advances the time to `now`, and derives the ends that follow from pods and successors. Each
    /// is a proof that stays true.
    ///
    /// ```
    /// use swarm_core::handover::*;
    /// use swarm_core::overseer::*;
    ///
    /// let (now, terms) = (Moment::default(), LeaseTerms::default());
    /// let session = SessionId::new("pod", 1);
    /// let mut proofs = Proofs::default();
    /// proofs.learn(now, Fact::LeaseMissing(session.clone()), &terms);
    /// let ended = PodFacts { has_terminated: true, ..PodFacts::default() };
    /// proofs.learn(now, Fact::Pod("pod".into(), ended), &terms);
    /// proofs.settle(now, &terms);
    /// assert_eq!(proofs.get(&session).unwrap().stage, WatchStage::Ended(Proof::ProcessEnded));
    /// ```
    pub fn settle(&mut self, now: Moment, terms: &LeaseTerms) {
        let is_over = |(session, tracked): &(&SessionId, &Tracked)| {
            !tracked.has_ended()
                && (self.is_ended_with_its_pod(now, session.pod_uid(), terms)
                    || self.successor(session).is_some())
        };
        let over = self.sessions.iter().filter(is_over).map(|(session, _)| session.clone());
        for session in over.collect::<Vec<_>>() {
            if let Some(tracked) = self.sessions.get_mut(&session) {
                let _ = tracked.watch.step(now, &WatchEvent::ProcessEnded, terms);
            }
        }
        for tracked in self.sessions.values_mut() {
            let _ = tracked.watch.step(now, &WatchEvent::Tick, terms);
        }
    }

    /// Returns the sessions of one pod, including ended sessions.
    fn of_pod(&self, uid: &str) -> impl Iterator<Item = (&SessionId, &Tracked)> + use<'_> {
        self.from(SessionId::plain(uid))
    }

    /// Returns the sessions of the pod whose first possible identity is `first`.
    fn from(&self, first: SessionId) -> impl Iterator<Item = (&SessionId, &Tracked)> + use<'_> {
        let from = self.sessions.range(first.clone()..);
        from.take_while(move |(session, _)| session.pod_uid() == first.pod_uid())
    }

    /// Returns the session that proves the end of another session of the same pod.
    ///
    /// A later session alone proves nothing: it may belong to another container that runs in
    /// parallel. It is a proof if it names the former as its predecessor. It also is a proof if the
    /// former's container must have terminated: the pod has one container, or all containers were
    /// started after the former began. The start of the former is unknown if its Lease was never
    /// seen.
    fn successor(&self, former: &SessionId) -> Option<&Tracked> {
        let began = self.sessions.get(former)?.began;
        let of_pod = || self.from(former.first_of_pod()).map(|(_, tracked)| tracked);
        let named = of_pod().find(|it| it.former.session.as_ref() == Some(former));
        let containers =
            self.pods.get(former.pod_uid()).map(|pod| pod.containers).unwrap_or_default();
        let has_terminated = match containers {
            Containers::Unknown => false,
            Containers::One => true,
            Containers::AllSince(start) => began.is_some_and(|began| began.is_before(start)),
        };
        let is_later =
            |it: &Tracked| it.began.zip(began).is_some_and(|(it, began)| it.is_after(began));
        let later = of_pod().filter(|it| has_terminated && is_later(it));
        named.or_else(|| later.min_by_key(|later| later.age()))
    }

    /// Returns the newest session of a pod that may renew its Lease.
    pub(super) fn living(&self, uid: &str) -> Option<&SessionId> {
        let living = self.of_pod(uid).filter(|(_, tracked)| tracked.watch.may_renew());
        living.max_by_key(|(_, tracked)| tracked.age()).map(|(session, _)| session)
    }

    /// Returns whether the Lease of the latest session of a pod was revoked, not merely deleted.
    pub(super) fn was_revoked(&self, uid: &str) -> bool {
        let seen = self.of_pod(uid).filter(|(_, tracked)| tracked.lookup != LeaseLookup::Missing);
        let latest = seen.max_by_key(|(_, tracked)| tracked.age());
        latest.is_some_and(|(_, tracked)| {
            matches!(
                tracked.watch.stage,
                WatchStage::Revoked { .. } | WatchStage::Ended(Proof::Fenced)
            )
        })
    }

    /// Returns whether a session of a pod renewed its Lease within the `span` for that session.
    fn is_heard(&self, now: Moment, uid: &str, span: impl Fn(&Watch) -> Duration) -> bool {
        self.of_pod(uid).any(|(_, Tracked { watch, .. })| match watch.stage {
            WatchStage::Held { since, .. } | WatchStage::Revoking { since, .. } => {
                now.since(since) < span(watch)
            }
            WatchStage::Revoked { .. } | WatchStage::Ended(_) => false,
        })
    }

    /// Returns whether all processes of a pod have ended. A report that its node is off does not
    /// count if a session of the pod renewed a moment ago.
    pub(super) fn is_ended_with_its_pod(&self, now: Moment, uid: &str, terms: &LeaseTerms) -> bool {
        let Some(pod) = self.pods.get(uid) else { return false };
        pod.has_terminated || pod.is_node_off && !self.is_heard_lately(now, uid, terms)
    }

    /// Returns whether a session of the pod renewed so recently that the pod's node cannot be off.
    pub(super) fn is_heard_lately(&self, now: Moment, uid: &str, terms: &LeaseTerms) -> bool {
        let span = terms.renew.saturating_mul(RENEWALS_MISSED);
        self.is_heard(now, uid, |_| span)
    }

    /// Returns whether no session was seen.
    pub(super) fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Returns whether a pod is missing: it is lost or has ended, and no session of it renews.
    pub(super) fn is_gone(&self, now: Moment, uid: &str, terms: &LeaseTerms) -> bool {
        let is_lost = self.pods.get(uid).is_some_and(|pod| pod.is_lost);
        let renews = || self.is_heard(now, uid, |watch| watch.claimed(terms));
        self.is_ended_with_its_pod(now, uid, terms) || is_lost && !renews()
    }

    /// Returns whether the node of a pod is reported off although a session of the pod renewed
    /// recently. Then look again soon, since silence causes no event.
    pub(super) fn is_any_doubted(&self, now: Moment, terms: &LeaseTerms) -> bool {
        let is_doubted = |(uid, pod): (&String, &PodFacts)| {
            pod.is_node_off && !self.is_ended_with_its_pod(now, uid, terms)
        };
        self.pods.iter().any(is_doubted)
    }

    /// Returns the sessions that may renew and have been silent for their claimed duration.
    pub(super) fn silent(&self, now: Moment, terms: &LeaseTerms) -> BTreeSet<SessionId> {
        let is_silent = |watch: &Watch| watch.may_renew() && watch.is_silent(now, terms);
        let silent = self.sessions.iter().filter(|(_, tracked)| is_silent(&tracked.watch));
        silent.map(|(session, _)| session.clone()).collect()
    }

    /// Returns the number of sessions that may renew.
    pub(super) fn may_renew(&self) -> usize {
        self.sessions.values().filter(|tracked| tracked.watch.may_renew()).count()
    }

    /// Requests the revocation of a silent session. Returns the version at which its Lease was
    /// seen; `None` if no revocation is due.
    ///
    /// ```
    /// use swarm_core::handover::*;
    /// use swarm_core::overseer::*;
    ///
    /// let (now, terms) = (Moment::default(), LeaseTerms::default());
    /// let session = SessionId::new("pod", 1);
    /// let mut proofs = Proofs::default();
    /// let facts = LeaseFacts::held(1, terms.duration);
    /// proofs.learn(now, Fact::Lease(session.clone(), facts), &terms);
    /// assert_eq!(proofs.suspect(now, &session, &terms), None);
    /// let version = Some(LeaseVersion(1));
    /// assert_eq!(proofs.suspect(Moment(terms.duration), &session, &terms), version);
    /// ```
    pub fn suspect(
        &mut self,
        now: Moment,
        session: &SessionId,
        terms: &LeaseTerms,
    ) -> Option<LeaseVersion> {
        let tracked = self.sessions.get_mut(session)?;
        let asked = tracked.watch.step(now, &WatchEvent::Suspect, terms);
        asked.map(|WatchEffect::Revoke(version)| version)
    }

    /// Returns the evidence about every session, compared with the ledger.
    ///
    /// An acknowledgement counts only if the ledger has reached it. O(sessions · log sessions).
    ///
    /// ```
    /// use swarm_core::Position;
    /// use swarm_core::handover::*;
    /// use swarm_core::overseer::*;
    ///
    /// let (now, terms) = (Moment::default(), LeaseTerms::default());
    /// let session = SessionId::new("pod", 1);
    /// let mut proofs = Proofs::default();
    /// let mut facts = LeaseFacts::held(1, terms.duration);
    /// facts.lease.ack = Ack { incarnation: 7, revision: 3, ..Ack::default() };
    /// proofs.learn(now, Fact::Lease(session.clone(), facts), &terms);
    /// let acked = |revision| {
    ///     let known = Known { position: Position { incarnation: 7, revision }, unix_time_us: 7 };
    ///     proofs.evidence(known)[&session].acked
    /// };
    /// assert_eq!((acked(3), acked(2)), (3, 0)); // the ledger has not reached 3 yet
    /// ```
    #[must_use]
    pub fn evidence(&self, known: Known) -> BTreeMap<SessionId, Evidence> {
        let evidence = |(session, tracked): (&SessionId, &Tracked)| {
            let next = self.successor(session);
            let mut evidence = tracked.watch.evidence(known.position.incarnation);
            evidence.culprit = next.and_then(|next| next.former.culprit.clone());
            match tracked.claim(known) {
                Claim::Plausible => {}
                Claim::None | Claim::Lost | Claim::Refused(_) => {
                    (evidence.acked, evidence.stopping) = (0, Stopping::default());
                }
            }
            (session.clone(), evidence)
        };
        self.sessions.iter().map(evidence).collect()
    }

    /// Returns the positions of the ledger that follow from believed sessions and their views.
    ///
    /// An ended session counts in the present incarnation only if it was ahead of the ledger: then
    /// the grants that it acted on are lost. A session whose Lease was not read yet may act on its
    /// view.
    pub(super) fn positions(
        &self,
        now: Moment,
        known: Known,
        terms: &LeaseTerms,
    ) -> BTreeSet<Position> {
        let position = |tracked: &Tracked| {
            let position = tracked.position(known)?;
            let counts = if position.incarnation == known.position.incarnation {
                !tracked.has_ended() || known.position < position
            } else {
                tracked.may_act(now, terms)
            };
            counts.then_some(position)
        };
        let others = self.unseen.values().filter(|it| **it != known.position.incarnation);
        let unseen = others.map(|incarnation| Position { incarnation: *incarnation, revision: 0 });
        self.sessions.values().filter_map(position).chain(unseen).collect()
    }

    /// Returns the sessions that may still act on a view of another incarnation than the ledger's.
    pub(super) fn of_another_incarnation(&self, known: Known) -> impl Iterator<Item = &SessionId> {
        let is_other = move |tracked: &Tracked| {
            let position = tracked.position(known).filter(|_| !tracked.has_ended());
            position.is_some_and(|it| it.incarnation != known.position.incarnation)
        };
        self.sessions.iter().filter(move |(_, it)| is_other(it)).map(|(session, _)| session)
    }

    /// Returns the sessions whose Leases are revoked although they renew them. Some act on another
    /// incarnation although their view is of the present one. The others claim an incarnation that
    /// they cannot have seen.
    pub(super) fn to_be_ended(&self, known: Known) -> BTreeSet<SessionId> {
        let others = self
            .of_another_incarnation(known)
            .filter(|session| self.viewed_by(session) == Some(known.position.incarnation));
        let refused = Claim::Refused(Suspicion::ForeignIncarnation);
        let foreign = self.sessions.iter().filter(|(_, tracked)| tracked.claim(known) == refused);
        others.chain(foreign.map(|(session, _)| session)).cloned().collect()
    }

    /// Returns the sessions that may renew and claim a revision that the ledger never had in this
    /// incarnation.
    pub(super) fn unpublished(&self, known: Known) -> BTreeSet<SessionId> {
        let refused = Claim::Refused(Suspicion::UnpublishedRevision);
        let is_refused =
            |tracked: &Tracked| tracked.watch.may_renew() && tracked.claim(known) == refused;
        let sessions = self.sessions.iter().filter(|(_, tracked)| is_refused(tracked));
        sessions.map(|(session, _)| session.clone()).collect()
    }

    /// Returns the marks of the sessions' views in the store.
    pub(super) fn marks(&self) -> &BTreeMap<SessionId, Option<ViewMark>> {
        &self.views
    }

    /// Returns whether a session is known to have carried out its newest view. Plain workers do not
    /// report this, and sessions that ended cannot, so both count as having it.
    pub(super) fn has_newest(&self, session: &SessionId, ledger: Position) -> bool {
        if session.is_plain() || self.is_open(session) == Some(false) {
            return true;
        }
        let published = self.views.get(session).copied().flatten();
        let published = published
            .map(|ViewMark { incarnation, revision, .. }| Position { incarnation, revision });
        let acked = self.get(session).map(|watch| {
            // An acknowledgement of a view also covers the end of all jobs that the view removes.
            let Ack { incarnation, revision, .. } = watch.ack;
            Position { incarnation, revision }
        });
        let [published, acked] = [published, acked]
            .map(|known| known.filter(|it| it.incarnation == ledger.incarnation && *it <= ledger));
        published.is_some() && published <= acked
    }

    /// Returns the version at which the Lease of a session was seen held.
    pub(super) fn held_at(&self, session: &SessionId) -> Option<LeaseVersion> {
        self.sessions.get(session)?.watch.held().map(|(version, _)| version)
    }

    /// Returns the reason why a session is not believed, if there is one. The session is live, or
    /// was revoked and has not ended yet, perhaps for this very reason.
    pub(super) fn suspicion(
        &self,
        session: &SessionId,
        known: Known,
        terms: &LeaseTerms,
    ) -> Option<Suspicion> {
        let tracked = self.sessions.get(session).filter(|tracked| !tracked.has_ended())?;
        match tracked.claim(known) {
            Claim::Refused(suspicion) => Some(suspicion),
            Claim::None | Claim::Plausible | Claim::Lost => {
                let longest = tracked.watch.longest.filter(|_| tracked.watch.may_renew());
                let claimed = longest.unwrap_or_default();
                let is_uncounted = REPEATS_MAX <= tracked.watch.repeats;
                if terms.duration < claimed {
                    Some(Suspicion::LongLease(claimed))
                } else {
                    is_uncounted.then_some(Suspicion::UncountedRenewals)
                }
            }
        }
    }

    /// Records that the ledger began another incarnation. Every known session may have acted on an
    /// earlier one. Sessions that were ahead of `before` may not claim so again.
    pub(super) fn began_incarnation(&mut self, before: Option<Position>) {
        for tracked in self.sessions.values_mut() {
            let claim = tracked.watch.ack.position();
            tracked.has_reset |= before.is_some_and(|before| before < claim);
        }
    }

    /// Doubts every end that rests on the store, which was rolled back: a Lease that was revoked,
    /// closed or missing. The end of a process stays proved. Earlier writes of sessions count as
    /// lost.
    pub(super) fn doubt_stored_ends(&mut self, now: Moment) {
        for tracked in self.sessions.values_mut() {
            tracked.has_renewed = false;
            if tracked.watch.doubt_stored_end(now) {
                tracked.lookup = LeaseLookup::Doubted;
            }
        }
    }

    /// Returns the known sessions that may act and have not renewed since this observer began.
    pub(super) fn unrenewed(&self) -> impl Iterator<Item = &SessionId> {
        self.sessions.iter().filter(|(_, it)| it.is_unrenewed()).map(|(session, _)| session)
    }

    /// Returns whether a session may act on a grant that the store lost: it has neither renewed nor
    /// ended since this observer began. For an unknown session that cannot be excluded.
    pub(super) fn is_unrenewed(&self, session: &SessionId) -> bool {
        self.sessions.get(session).is_none_or(Tracked::is_unrenewed)
    }

    /// Marks all known sessions as older than the present incarnation's first observation.
    pub(super) fn all_are_elders(&mut self) {
        self.sessions.values_mut().for_each(|tracked| tracked.is_elder = true);
    }

    /// Returns the sessions that have a view in the store.
    pub(super) fn viewed(&self) -> impl Iterator<Item = &SessionId> {
        self.views.keys()
    }

    /// Returns whether the Lease of a session is held; `None` if the session is unknown, or its end
    /// is doubted.
    pub(super) fn is_open(&self, session: &SessionId) -> Option<bool> {
        let known =
            self.sessions.get(session).filter(|tracked| tracked.lookup != LeaseLookup::Doubted);
        known.map(|tracked| tracked.watch.may_renew())
    }

    /// Returns the watch over one session.
    ///
    /// ```
    /// use swarm_core::handover::*;
    /// use swarm_core::overseer::*;
    ///
    /// let (terms, session) = (LeaseTerms::default(), SessionId::new("pod", 1));
    /// let mut proofs = Proofs::default();
    /// assert_eq!(proofs.get(&session), None);
    /// proofs.learn(Moment::default(), Fact::LeaseMissing(session.clone()), &terms);
    /// assert!(proofs.get(&session).is_some());
    /// assert_eq!(proofs.iter().count(), 1);
    /// ```
    #[must_use]
    pub fn get(&self, session: &SessionId) -> Option<&Watch> {
        self.sessions.get(session).map(|tracked| &tracked.watch)
    }

    /// Returns every session that was seen, with its watch.
    ///
    /// ```
    /// use swarm_core::handover::*;
    /// use swarm_core::overseer::*;
    ///
    /// let (now, terms) = (Moment::default(), LeaseTerms::default());
    /// let mut proofs = Proofs::default();
    /// let lives = Fact::Lease(SessionId::new("a", 1), LeaseFacts::held(1, terms.duration));
    /// proofs.learn(now, lives, &terms);
    /// proofs.learn(now, Fact::LeaseMissing(SessionId::new("b", 1)), &terms);
    /// let living = proofs.iter().filter(|(_, watch)| watch.may_renew());
    /// assert_eq!(living.map(|(session, _)| session.pod_uid()).collect::<Vec<_>>(), ["a"]);
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = (&SessionId, &Watch)> {
        self.sessions.iter().map(|(session, tracked)| (session, &tracked.watch))
    }

    /// Returns the sessions, each with the moment from which it is unheard unless it renews before; `None`
    /// if it is so already.
    pub(super) fn heard_until(
        &self,
        terms: &LeaseTerms,
        margin: Duration,
    ) -> impl Iterator<Item = (&SessionId, &Watch, Option<Moment>)> {
        let until = move |it: &Tracked| it.heard_until(terms, margin);
        self.sessions.iter().map(move |(session, it)| (session, &it.watch, until(it)))
    }

    /// Forgets the sessions and the pods that the closures do not keep.
    ///
    /// ```
    /// use swarm_core::handover::*;
    /// use swarm_core::overseer::*;
    ///
    /// let (now, terms) = (Moment::default(), LeaseTerms::default());
    /// let session = SessionId::new("pod", 1);
    /// let mut proofs = Proofs::default();
    /// proofs.learn(now, Fact::LeaseMissing(session.clone()), &terms);
    /// proofs.retain(|_| false, |_| false);
    /// assert_eq!(proofs, Proofs::default());
    /// ```
    pub fn retain(&mut self, keep: impl Fn(&SessionId) -> bool, keep_pod: impl Fn(&str) -> bool) {
        self.sessions.retain(|session, _| keep(session));
        self.views.retain(|session, _| keep(session));
        self.unseen.retain(|session, _| keep(session));
        self.pods.retain(|uid, _| keep_pod(uid));
    }
}
